"""Models that only /responses serves: they are asked there, and it is all the same to a user."""

import json
from typing import Any

import pytest

from colligate.errors import ContextTooSmall, MalformedOutput, MissingCapability, ServerFailed
from colligate.models.openai import OpenAIChat
from support.dialects import OBJECT, PROSE, SCHEMA
from support.models import HELLO, ask
from support.server import Scripted

ONLY = "This model is only supported in v1/responses and not in v1/chat/completions."
USAGE: dict[str, Any] = {"input_tokens": 20, "input_tokens_details": {"cached_tokens": 9}}
USAGE |= {"output_tokens": 7, "output_tokens_details": {"reasoning_tokens": 4}}


def response(text: str, **fields: Any) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text}]
    said = {"type": "message", "role": "assistant", "content": content}
    output = [{"type": "reasoning", "summary": []}, *([said] if text else [])]
    return {"status": "completed", "error": None, "output": output, "usage": USAGE, **fields}


CUT = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
FAILED = {"status": "failed", "error": {"code": "server_error", "message": "out of memory"}}


def events(whole: dict[str, Any]) -> bytes:
    """The stream of a response, as OpenAI sends it."""
    text = "".join(part["text"] for item in whole["output"] for part in item.get("content", []))
    sent: list[dict[str, Any]] = [{"type": "response.created", "response": {"status": "queued"}}]
    deltas = (text[at : at + 5] for at in range(0, len(text), 5))
    sent += [{"type": "response.output_text.delta", "delta": delta} for delta in deltas]
    sent.append({"type": f"response.{whole['status']}", "response": whole})
    return b"".join(f"event: {e['type']}\ndata: {json.dumps(e)}\n\n".encode() for e in sent)


class Only:
    """A server that answers at /responses alone, with these one after another, the last again."""

    def __init__(self, *wholes: dict[str, Any]) -> None:
        self.wholes = list(wholes)
        self.asked: list[dict[str, Any]] = []

    def __call__(self, path: str, body: dict[str, Any]) -> Scripted | None:
        if path == "/chat/completions":
            error = {"message": ONLY, "type": "invalid_request_error", "param": "model"}
            return Scripted("json", status=404, body={"error": error}, headers={})
        if path != "/responses":
            return None
        self.asked.append(body)
        whole = self.wholes.pop(0) if len(self.wholes) > 1 else self.wholes[0]
        if body.get("stream"):
            return Scripted("raw", body=events(whole))
        return Scripted("json", status=200, body=whole, headers={})


@pytest.mark.parametrize("stream", [False, True])
async def test_a_chat(openai_server, model, stream):
    openai_server.fault = only = Only(response(PROSE))
    pieces: list[str] = []
    for _ in range(2):
        completion = await ask(model, max_tokens=9, on_token=pieces.append if stream else None)
        assert completion.text == PROSE
        assert completion.finish_reason == "stop"
        usage = completion.usage
        assert (usage.input_tokens, usage.output_tokens, usage.cached_tokens) == (20, 7, 9)
        assert completion.warnings == ()
    assert "".join(pieces) == (PROSE * 2 if stream else "")
    assert len(openai_server.requests) == 3  # /chat/completions once
    asked = {"model": "m", "max_output_tokens": 16, "store": False, "temperature": 0.0}
    assert asked.items() <= only.asked[-1].items()
    assert only.asked[-1]["input"] == [{"role": "user", "content": "Hello?"}]


async def test_a_schema_and_thinking(openai_server, policy):
    openai_server.fault = only = Only(response(OBJECT))
    extra = {"reasoning_effort": "low"}
    model = OpenAIChat("m", openai_server.url, policy=policy, extra_body=extra)
    assert (await ask(model, schema=SCHEMA)).text == OBJECT
    asked = only.asked[-1]
    assert asked["reasoning"] == {"effort": "low"}
    assert asked["text"]["format"]["type"] == "json_schema"
    assert asked["text"]["format"]["schema"]["required"] == ["place", "floor"]
    assert not {"messages", "response_format", "reasoning_effort"} & asked.keys()
    await model.aclose()


@pytest.mark.parametrize("stream", [False, True])
async def test_what_was_cut_while_thinking_gets_room(openai_server, model, stream):
    openai_server.fault = only = Only(response("", **CUT), response(PROSE))
    pieces: list[str] = []
    completion = await ask(model, max_tokens=20, on_token=pieces.append if stream else None)
    assert completion.text == PROSE
    assert [body["max_output_tokens"] for body in only.asked] == [20, 4116]
    assert completion.usage.output_tokens == 14


@pytest.mark.parametrize("on_token", [None, lambda piece: None])
async def test_what_fails_is_one_error(openai_server, model, on_token):
    openai_server.fault = Only(response("", **FAILED))
    with pytest.raises(ServerFailed, match="did not finish its answer: out of memory"):
        await ask(model, on_token=on_token)
    too_long = {"code": "context_length_exceeded", "message": "exceeds the context window"}
    openai_server.fault = Only(response("", status="failed", error=too_long))
    with pytest.raises(ContextTooSmall):
        await ask(model, on_token=on_token)
    openai_server.fault = Only({"status": "completed", "output": "?"})
    with pytest.raises(MalformedOutput):
        await ask(model, on_token=None)


async def test_an_error_event_and_a_stream_that_breaks_off(openai_server, model):
    openai_server.fault = Only(response(PROSE))
    await ask(model)
    event = {"type": "error", "code": "server_error", "message": "out of memory"}
    openai_server.garble(f"event: error\ndata: {json.dumps(event)}\n\n".encode())
    openai_server.garble(events(response(PROSE)).rpartition(b"event: ")[0])
    pieces: list[str] = []
    assert (await ask(model, on_token=pieces.append)).text == "".join(pieces) == PROSE
    openai_server.garble(b"data: []\n\n", times=3)
    with pytest.raises(MalformedOutput):
        await ask(model, on_token=pieces.append)


async def test_there_are_no_odds(openai_server, model):
    openai_server.fault = Only(response(PROSE))
    for _ in range(2):
        with pytest.raises(MissingCapability):
            await model.labels(HELLO, ["Yes", "No"])
