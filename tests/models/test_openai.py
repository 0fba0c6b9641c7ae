"""Chat and embeddings over HTTP: each server refuses something else, and any may break."""

import asyncio
import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from pydantic import BaseModel, Field

from colligate.errors import MalformedOutput, RequestRefused, ServerFailed, WeightsUnavailable
from colligate.models import Capability, ChatModel, Message
from colligate.models.openai import OpenAIChat, OpenAIEmbedder
from colligate.models.openai_http import Policy
from support.models import ask

HELLO = [Message("system", "Be brief."), Message("user", "Hello?")]
SCHEMA = {
    "type": "object",
    "properties": {"answer": {"type": "string"}, "note": {"type": "string", "default": ""}},
    "required": ["answer"],
}


async def test_one_call(openai_server, model):
    openai_server.say("Hi.", usage={"prompt_tokens": 7, "completion_tokens": 2})
    completion = await ask(model, HELLO, seed=3)
    assert completion.text == "Hi."
    assert (completion.usage.input_tokens, completion.usage.output_tokens) == (7, 2)
    assert completion.model == model.name == f"openai:m@{openai_server.url}"
    assert completion.warnings == ()
    sent = openai_server.requests[0]
    assert sent["messages"] == [{"role": turn.role, "content": turn.content} for turn in HELLO]
    expected = {"model": "m", "max_tokens": 9, "temperature": 0.0, "seed": 3}
    assert expected.items() <= sent.items()
    assert isinstance(model, ChatModel)


async def test_streaming_gives_the_same(openai_server, model):
    usage: Any = {"prompt_tokens": 7, "completion_tokens": 3}
    usage["prompt_tokens_details"] = {"cached_tokens": 5}
    openai_server.say("A somewhat longer answer.", finish_reason="length", usage=usage)
    pieces: list[str] = []
    completion = await ask(model, HELLO, on_token=pieces.append)
    assert len(pieces) > 3
    assert "".join(pieces) == completion.text == "A somewhat longer answer."
    assert completion.finish_reason == "length"
    assert (completion.usage.output_tokens, completion.usage.cached_tokens) == (3, 5)


@pytest.mark.parametrize("stream", [False, True])
async def test_thinking_is_kept_apart(openai_server, model, stream):
    openai_server.say("<think>hidden</think>\nShown.", reasoning="said apart")
    pieces: list[str] = []
    completion = await ask(model, HELLO, on_token=pieces.append if stream else None)
    assert completion.text == "Shown."
    assert completion.thinking == "said apart\n\nhidden"
    assert "".join(pieces) == ("Shown." if stream else "")


async def test_a_model_that_only_thought_gets_room(openai_server, model):
    usage = {"prompt_tokens": 7, "completion_tokens": 10}
    openai_server.say(None, reasoning="hm, well", finish_reason="length", usage=usage)
    openai_server.say("Four.", reasoning="two and two", usage=usage, times=2)
    completion = await ask(model, HELLO, max_tokens=10)
    assert completion.text == "Four."
    assert (completion.usage.input_tokens, completion.usage.output_tokens) == (14, 20)
    assert "thinking" in completion.warnings[0]
    again = await ask(model, HELLO, max_tokens=10)
    assert again.warnings == ()
    assert [sent["max_tokens"] for sent in openai_server.requests] == [10, 4106, 4106]


async def test_a_call_that_waited_for_its_turn_gets_room_once(openai_server, policy):
    model = OpenAIChat("m", openai_server.url, policy=replace(policy, in_flight=1))
    openai_server.say(None, reasoning="hm, well", finish_reason="length", times=5)
    await asyncio.gather(*(ask(model, HELLO, max_tokens=10) for _ in range(2)))
    await model.aclose()
    assert [sent["max_tokens"] for sent in openai_server.requests] == [10, 4106, 4106]


async def test_json_keeps_marks_of_thinking(openai_server, model):
    quote = json.dumps({"quote": "after </think> it answers"})
    openai_server.say(quote)
    schema = {"type": "object", "properties": {"quote": {"type": "string"}}}
    assert (await ask(model, HELLO, schema=schema)).text == quote
    openai_server.say(cut := '{"quote": "after </think>', finish_reason="length")
    assert (await ask(model, HELLO, schema=schema)).text == cut
    openai_server.say("<think>hm {a}</think>" + quote.replace("</think>", ""))
    assert (await ask(model, HELLO, schema=schema)).text == quote.replace("</think>", "")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>Welcome</html>",
        b"[]",
        b'"text"',
        b'{"choices": "x"}',
        b'{"choices": [{"finish_reason": "length"}]}',
        b'{"error": {"message": "out of memory"}}',
        b"\xff\xfe",
        b"[" * 200_000,
        b'{"choices": [{"message": {"content": ["a"]}, "finish_reason": "stop"}]}',
        b'{"choices": [{"message": {"content": "a"}, "finish_reason": 7}]}',
    ],
)
async def test_nonsense_bodies(openai_server, model, body):
    openai_server.garble(body, times=3)
    with pytest.raises(MalformedOutput, match="OpenAI-compatible"):
        await ask(model, HELLO)


@pytest.mark.parametrize(
    "event",
    [
        b"[",
        b'"text"',
        b'{"choices": {"a": 1}}',
        b'{"choices": [{"delta": {"content": ["a"]}, "finish_reason": "stop"}]}',
        b'{"choices": [{"delta": {"content": "a"}, "finish_reason": 7}]}',
    ],
)
async def test_nonsense_events(openai_server, model, event):
    openai_server.garble(b"data: " + event + b"\n\n", times=3)
    with pytest.raises(MalformedOutput, match="OpenAI-compatible"):
        await ask(model, HELLO, on_token=lambda piece: None)


async def test_a_refusal_is_the_answer_of_a_stream(openai_server, model):
    delta = b'{"choices": [{"delta": {"content": "", "refusal": "I %s"}, "finish_reason": %s}]}'
    pieces = ((b"can", b"null"), (b"not.", b'"stop"'))
    events = (b"data: " + delta % piece + b"\n\n" for piece in pieces)
    openai_server.garble(b"".join(events).replace(b"I not", b"not"))
    assert (await ask(model, HELLO, on_token=lambda piece: None)).text == "I cannot."


async def test_an_empty_answer_is_one_streamed_or_whole(openai_server, model):
    for part, on_token in (("message", None), ("delta", lambda piece: None)):
        body = json.dumps({"choices": [{part: {"content": ""}, "finish_reason": "stop"}]})
        openai_server.garble(f"{'data: ' if on_token else ''}{body}\n\n".encode())
        assert (await ask(model, HELLO, on_token=on_token)).text == ""


async def test_a_stream_cut_and_asked_again_shows_nothing_twice(openai_server, model):
    openai_server.cut("The answer is forty-two.")
    openai_server.say("The answer is forty-two.")
    pieces: list[str] = []
    completion = await ask(model, HELLO, on_token=pieces.append)
    assert "".join(pieces) == completion.text == "The answer is forty-two."
    assert completion.warnings == ()


async def test_a_stream_that_comes_back_different_says_so(openai_server, model):
    openai_server.cut("The answer is forty-two.")
    openai_server.say("It is forty-three.")
    completion = await ask(model, HELLO, on_token=lambda piece: None)
    assert completion.text == "It is forty-three."
    assert "differs" in completion.warnings[0]


@pytest.mark.parametrize("parameter", ["temperature", "seed"])
async def test_a_refused_parameter_is_left_out_and_said_once(openai_server, model, parameter):
    openai_server.refused = {parameter}
    first = await ask(model, HELLO, seed=1)
    assert first.text == "Hello."
    assert first.warnings == (f"m does not take {parameter}; it was left out",)
    second = await ask(model, HELLO, seed=1)
    assert second.warnings == ()
    assert [parameter in sent for sent in openai_server.requests] == [True, False, False]


async def test_several_refusals_in_one_call(openai_server, model):
    openai_server.refused = {"temperature", "seed", "max_tokens", "stream_options"}
    completion = await ask(model, HELLO, max_tokens=9, seed=1, on_token=lambda piece: None)
    assert completion.text == "Hello."
    assert openai_server.requests[-1]["max_completion_tokens"] == 9
    assert len(completion.warnings) == 2


async def test_everything_refused_ends(openai_server, model):
    message = "temperature, seed, max_tokens, max_completion_tokens, schema: not supported"
    openai_server.fail(400, message, times=100)
    with pytest.raises(RequestRefused, match="not supported"):
        await ask(model, HELLO, seed=1, schema=SCHEMA)
    assert len(openai_server.requests) < 10


@pytest.mark.parametrize(
    ("message", "param"),
    [
        ("We had to stop here: the request is against our policy", None),
        ("temperature must be between 0 and 2", "temperature"),
        ("the seed of all evil", None),
    ],
)
async def test_a_refusal_of_something_else_teaches_nothing(openai_server, model, message, param):
    openai_server.fail(400, message, param=param)
    with pytest.raises(RequestRefused, match=message):
        await ask(model, HELLO, seed=1)
    assert (await ask(model, HELLO, seed=1)).warnings == ()
    assert {"temperature", "seed"} <= set(openai_server.requests[-1])


@pytest.mark.parametrize(
    "message",
    [
        "Unrecognized request argument supplied: seed",
        "property 'seed' is unsupported",
        "this model does not support seed",
        "[{'type': 'extra_forbidden', 'loc': ('body', 'seed'), 'msg': 'Extra inputs are ...'}]",
    ],
)
async def test_refusals_as_servers_word_them(openai_server, model, message):
    openai_server.fail(400, message)
    completion = await ask(model, HELLO, seed=1)
    assert completion.warnings == ("m does not take seed; it was left out",)


class Claim(BaseModel):
    text: str
    default: int = 0  # a name that is also a keyword of JSON schema


class Claims(BaseModel):
    claims: list[Claim] = Field(description="all of them")
    best: Claim | None = Field(default=None, description="the best")


async def test_strict_schema_reaches_nested_models(openai_server, model):
    await ask(model, HELLO, schema=Claims.model_json_schema())
    schema = openai_server.requests[0]["response_format"]["json_schema"]["schema"]
    assert schema["required"] == ["claims", "best"]
    nested = schema["$defs"]["Claim"]
    assert nested["required"] == ["text", "default"]
    assert nested["additionalProperties"] is False
    assert nested["properties"]["default"]["type"] == "integer"
    assert schema["properties"]["claims"]["items"] == {"$ref": "#/$defs/Claim"}


async def test_schema_falls_back(openai_server, model):
    openai_server.refused_forms = {"json_schema"}
    first = await ask(model, HELLO, schema=SCHEMA)
    assert len(first.warnings) == 1
    second = await ask(model, HELLO, schema=SCHEMA)
    assert second.warnings == ()
    assert len(openai_server.requests) == 3
    sent = openai_server.requests[-1]
    assert "response_format" not in sent
    assert '"answer"' in sent["messages"][-1]["content"]
    assert [turn["role"] for turn in sent["messages"]] == ["system", "user"]
    assert Capability.STRUCTURED not in model.capabilities


async def test_probe_finds_what_there_is(openai_server, model):
    assert Capability.LABELS not in await model.probe()
    openai_server.logprobs = {"Well": 1.0}
    openai_server.models = ["m"]
    openai_server.window = 4096
    assert model.context_tokens is None
    assert Capability.LABELS in await model.probe()
    assert model.context_tokens == 4096


async def test_an_error_in_the_stream_is_typed(openai_server, model):
    event = b'data: {"error": {"message": "out of memory", "code": 500}}\n\n'
    openai_server.garble(event, times=3)
    with pytest.raises(ServerFailed, match="out of memory"):
        await ask(model, HELLO, on_token=lambda piece: None)


async def test_an_adapter_that_the_server_does_not_list(openai_server, model):
    openai_server.models = ["m", "router"]
    with pytest.raises(WeightsUnavailable, match="no adapter rooter: its server has m, rou"):
        await model.with_adapter("rooter")
    openai_server.models = []  # it does not say which it has
    assert (await ask(await model.with_adapter("rooter"), HELLO, max_tokens=5)).text


TEXTS = [f"text number {number}" for number in range(70)]


@pytest.fixture
async def embedder(openai_server: Any, policy: Policy) -> Any:
    embedder = OpenAIEmbedder("e", openai_server.url, policy=policy)
    yield embedder
    await embedder.aclose()
    await embedder.aclose()


async def test_batches_keep_the_order(openai_server, embedder):
    rows = await embedder.embed(TEXTS)
    assert sorted(len(sent["input"]) for sent in openai_server.requests) == [6, 64]
    one_by_one = [(await embedder.embed([text], "query"))[0] for text in TEXTS]
    assert np.allclose(rows, one_by_one, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "query", "passage"),
    [
        ("BAAI/bge-small-en-v1.5", "Represent this sentence for searching relevant passages: ", ""),
        ("intfloat/multilingual-e5-large", "query: ", "passage: "),
        ("nomic-embed-text:latest", "search_query: ", "search_document: "),
        ("intfloat/multilingual-e5-large-instruct", "", ""),
        ("text-embedding-3-small", "", ""),
    ],
)
async def test_texts_begin_as_the_model_was_trained(openai_server, policy, name, query, passage):
    embedder = OpenAIEmbedder(name, openai_server.url, policy=policy)
    await embedder.embed(["who signed", ""], "query")
    await embedder.embed(["Anna signed."])
    sent = [request["input"] for request in openai_server.requests]
    assert sent == [[f"{query}who signed", query or " "], [f"{passage}Anna signed."]]
    await embedder.aclose()


@pytest.mark.parametrize(
    "body",
    [
        b"[]",
        b'{"data": []}',
        b'{"data": [{"index": 1, "embedding": [1.0]}]}',
        b'{"data": [{"index": 0, "embedding": [0.0, 0.0]}]}',
        b'{"data": [{"index": 0, "embedding": "%%%"}]}',
        b'{"data": [{"index": 0, "embedding": ["a"]}]}',
        b'{"data": [{"index": 0, "embedding": [1.0]}, {"index": 0, "embedding": [1.0]}]}',
        b'{"data": [{"index": "x", "embedding": [1.0]}]}',
        b'{"data": [{"index": Infinity, "embedding": [1.0]}]}',
        b'{"data": [{"index": 0, "embedding": [[1.0]]}]}',
        b'{"data": [{"index": 0, "embedding": 1.0}]}',
        b'{"data": [{"index": 0, "embedding": [1.0]}, {"index": null, "embedding": [1.0]}]}',
    ],
)
async def test_wrong_answers(openai_server, embedder, body):
    openai_server.garble(body, times=3)
    with pytest.raises(MalformedOutput):
        await embedder.embed(["a"])
