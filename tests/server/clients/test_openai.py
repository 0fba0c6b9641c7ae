"""The OpenAI-compatible endpoint through OpenAI's own client."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import httpx2
import openai
import pytest
from openai import AsyncOpenAI, OpenAI
from pydantic import BaseModel

from colligate.server.openai import ChatCompletion

QUESTION = "Where do bicycles stand?"
ASKED = [{"role": "user", "content": QUESTION}]
CLAIM = "Bicycles stand in the yard."
TOOL = {"type": "function", "function": {"name": "f", "parameters": {}}}


@pytest.fixture
def client(served: Any) -> Iterator[OpenAI]:
    with OpenAI(base_url=served.url + "v1", api_key=served.token, timeout=30) as opened:
        yield opened


def ask(client: Any, messages: Any = ASKED, model: str = "colligate/retrieve-read", **more: Any):
    return client.chat.completions.create(model=model, messages=messages, **more)


def test_strategies_are_models(client):
    listed = client.models.list().data
    assert {"colligate/duquad", "colligate/rdr2"} <= {model.id for model in listed}
    assert {model.owned_by for model in listed} == {"colligate"}
    assert len({model.id for model in listed}) == len(listed)
    for name in ("colligate/duquad", "duquad", "duquad@default"):
        assert client.models.retrieve(name).id == "colligate/duquad"
    for wrong in ("gpt-5", "duquad@nowhere", "duquad@../library"):
        with pytest.raises(openai.NotFoundError, match=r"no library|unknown strategy"):
            client.models.retrieve(wrong)
    with pytest.raises(openai.NotFoundError) as error:
        ask(client, model="gpt-5")
    assert error.value.code == "model_not_found"


def test_an_answer_with_its_citations(client, served):
    completion = ask(client)
    (choice,) = completion.choices
    content = choice.message.content
    assert choice.finish_reason == "stop"
    assert content.startswith(f"{CLAIM} [1]")
    assert content.endswith("Sources:\n\n[1] House rules › Bicycles (rules.md)")
    (annotation,) = choice.message.annotations
    link = annotation.url_citation
    assert CLAIM in content[link.start_index : link.end_index]
    assert link.title == "House rules › Bicycles (rules.md)"
    whole = completion.colligate
    (citation,) = whole["citations"]
    assert link.url == (
        f"{served.url}#/document/default/{citation['document']}"
        f"?start={citation['start']}&end={citation['end']}"
    )
    assert whole["warnings"] == []
    assert completion.usage.prompt_tokens == whole["usage"]["input_tokens"]
    assert completion.usage.total_tokens > completion.usage.prompt_tokens > 0


class Place(BaseModel):
    where: str | None
    how_many: int | None


def test_an_answer_has_the_shape_of_a_model_and_its_values_their_citations(client):
    completion = client.chat.completions.parse(
        model="retrieve-read", messages=ASKED, response_format=Place
    )
    message = completion.choices[0].message
    assert message.parsed == Place(where="<the yard>", how_many=None)
    (annotation,) = message.annotations
    link = annotation.url_citation
    assert json.loads(message.content[link.start_index : link.end_index]) == "<the yard>"
    assert "<" not in message.content  # nothing is active in a page that shows it
    own = completion.colligate
    assert own["filled"] == {"where": "<the yard>", "how_many": None}
    assert own["values"][0]["path"] == "/where"
    form = {"type": "json_schema", "json_schema": {"schema": Place.model_json_schema()}}
    chunks = [each.choices[0].delta for each in ask(client, stream=True, response_format=form)]
    assert "".join(delta.content or "" for delta in chunks) == message.content


def test_a_stream_says_the_same_and_reports_progress_in_comments(client):
    whole = ask(client).choices[0].message
    chunks = list(ask(client, stream=True, stream_options={"include_usage": True}))
    assert chunks[0].choices[0].delta.role == "assistant"
    deltas = [chunk.choices[0].delta for chunk in chunks if chunk.choices]
    assert "".join(delta.content or "" for delta in deltas) == whole.content
    (draft,) = [found for delta in deltas if (found := getattr(delta, "reasoning_content", None))]
    assert draft == "written: Bicycles stand in the yard. (House rules)\n"
    (annotations,) = [found for delta in deltas if (found := getattr(delta, "annotations", None))]
    assert annotations[0]["url_citation"]["url"] == whole.annotations[0].url_citation.url
    *_, last, usage = chunks
    assert last.choices[0].finish_reason == "stop"
    assert last.colligate["found"] is True
    assert usage.choices == []
    assert usage.usage.prompt_tokens > 0
    assert len({chunk.id for chunk in chunks}) == 1
    # Chunks say that usage is still to come, where it was asked for.
    assert all(each.usage is None and "usage" in each.model_fields_set for each in chunks[:-1])
    with client.chat.completions.with_streaming_response.create(
        model="retrieve-read", messages=ASKED, stream=True
    ) as response:
        lines = [line for line in response.iter_lines() if line]
    assert ": asking the reader scripted" in lines
    assert lines[-1] == "data: [DONE]"
    assert not any('"usage": null' in line for line in lines)


def test_the_last_message_of_the_user_is_the_question(client):
    completion = ask(
        client,
        [
            {"role": "system", "content": "You are a pirate."},
            {"role": "user", "content": "Who is nowhere?"},
            {"role": "assistant", "content": "Nobody."},
            {"role": "user", "content": [{"type": "text", "text": QUESTION}]},
        ],
        temperature=0.7,
        tools=[TOOL],
        tool_choice="auto",
        parallel_tool_calls=False,
        max_tokens=5,
        user="somebody",
        extra_body={"where": ["title~rules"], "files": [], "features": {"voice": False}},
    )
    evidence = completion.colligate["evidence"]
    assert {each["document"].partition("-")[0] for each in evidence} == {"rules"}
    assert completion.colligate["question"] == QUESTION
    turns, tools, parameters = completion.colligate["warnings"][-3:]
    assert turns == "only questions and answers are read, no other messages"
    assert "no tools are called" in tools
    assert parameters.endswith(": features, files, max_tokens, temperature")
    assert completion.choices[0].message.tool_calls is None
    nowhere = ask(client, [{"role": "user", "content": "Who is nowhere?"}], tools=[], n=1)
    assert nowhere.choices[0].message.content == "Not in these documents."
    assert nowhere.choices[0].message.annotations == nowhere.colligate["warnings"] == []
    assert nowhere.colligate["found"] is False


def test_questions_come_in_many_shapes(client):
    for shape in (
        {"messages": [{"role": "user", "content": [{"type": "input_text", "text": QUESTION}]}]},
        {"messages": [{"role": "user", "content": [QUESTION, None, {"text": ""}]}]},
        {"response_format": {}, "modalities": [], "extra_body": {"where": None}},
        {"model": "colligate/auto/ "},
    ):
        asked = {"messages": [{"role": "user", "content": QUESTION}], **shape}
        assert ask(client, **asked).colligate["question"] == QUESTION


NAMED = {"type": "function", "function": {"name": "f"}}
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,"}}


def test_what_cannot_be_done_is_refused(client):
    for wrong, param in (
        ({"n": 2}, "n"),
        ({"tools": [TOOL], "tool_choice": "required"}, "tool_choice"),
        ({"tools": [TOOL], "tool_choice": NAMED}, "tool_choice"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"response_format": {"type": "json_schema"}}, "response_format"),
        ({"response_format": {"type": "json_schema", "json_schema": {"schema": {}}}}, None),
        ({"modalities": ["text", "audio"]}, "modalities"),
        ({"messages": [{"role": "user", "content": [IMAGE]}]}, "messages"),
        ({"messages": [{"role": "system", "content": "x"}]}, "messages"),
        ({"messages": [{"role": "user", "content": " "}]}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": "x"}, "messages"),
        ({"extra_body": {"where": ["2024"]}}, None),
        ({"extra_body": {"risk": "bold"}}, None),
        ({"extra_body": {"where": ["a=b"] * 21}}, "where"),
        ({"messages": [{"role": "user", "content": "x" * 9000}], "stream": True}, None),
    ):
        with pytest.raises(openai.BadRequestError) as error:
            ask(client, **wrong)
        assert error.value.param == param, wrong
        assert error.value.type == "invalid_request_error"


def test_errors_of_the_server_have_openais_form_too(served):
    headers = {"Authorization": f"Bearer {served.token}"}
    for method, path, content, status in (
        ("POST", "v1/completions", b"", 404),
        ("GET", "v1/chat/completions", b"", 405),
        ("POST", "v1/chat/completions", b"x" * (2 << 20), 413),
    ):
        response = httpx2.request(method, served.url + path, headers=headers, content=content)
        assert response.status_code == status
        error = response.json()["error"]
        assert error["type"] == "invalid_request_error"
        assert set(error) == {"message", "type", "param", "code"}


def test_a_run_that_fails_is_not_paid_for_again(client, model):
    messages = [{"role": "user", "content": "Does this fail?"}]
    with pytest.raises(openai.InternalServerError, match="the model failed") as error:
        ask(client, messages)
    assert error.value.type == "server_error"
    assert len(model.calls) == 1
    with pytest.raises(openai.APIError, match="the model failed"):
        list(ask(client, messages, stream=True))
    assert len(model.calls) == 2


async def test_a_client_that_leaves_frees_its_run(served, model):
    messages: Any = [{"role": "user", "content": "Does it stall?"}]
    async with AsyncOpenAI(base_url=served.url + "v1", api_key=served.token) as client:
        for stream in (False, True):
            asking = asyncio.create_task(
                client.chat.completions.create(
                    model="retrieve-read", messages=messages, stream=stream
                )
            )
            assert await asyncio.to_thread(model.stalled.wait, 20)
            if stream:
                await (await asking).close()
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
            assert await asyncio.to_thread(model.freed.wait, 20)
            model.stalled.clear()
            model.freed.clear()


def test_no_line_of_a_stream_is_too_long():
    """Open WebUI, for one, reads lines of at most 128 KiB."""
    evidence = {"document": "d" * 60, "start": 0, "end": 9, "score": 0.5, "reason": "r" * 60}
    answer = {"answer": "Yes.", "citations": [], "evidence": [evidence] * 1000, "warnings": []}
    answer["usage"] = {"input_tokens": 1, "output_tokens": 1}
    completion = ChatCompletion("m", "default", "http://x/", [])
    *_, last = completion.chunks(answer)
    assert len(json.dumps(last)) < 1 << 17
    assert last["colligate"]["warnings"] == ["1,000 pieces of evidence are left out of this stream"]
    assert len(completion.to_json(answer)["colligate"]["evidence"]) == 1000
