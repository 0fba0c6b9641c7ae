"""Ollama's API through Ollama's own client."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from ollama import AsyncClient, Client, ResponseError

from colligate.server.stream import EventStream

QUESTION = "Where do bicycles stand?"
ASKED = [{"role": "user", "content": QUESTION}]


@pytest.fixture
def headers(served: Any) -> dict[str, str]:
    return {"Authorization": f"Bearer {served.token}"}


@pytest.fixture
def client(served: Any, headers: dict[str, str]) -> Iterator[Client]:
    with Client(served.url, headers=headers, timeout=30) as opened:
        yield opened


def ask(client: Client, messages: Any = ASKED, **more: Any) -> Any:
    return client.chat(**{"model": "retrieve-read", "messages": messages, **more})


def test_strategies_are_models(client, served, headers):
    names = [each.model for each in client.list().models]
    assert "colligate/duquad:latest" in names
    assert len(set(names)) == len(names)
    for name in ("duquad", "duquad@default", *names):
        assert client.show(name).capabilities == ["completion"]
    for wrong in ("llama3.2", "duquad@nowhere"):
        with pytest.raises(ResponseError, match=r"no library|unknown strategy") as error:
            client.show(wrong)
        assert error.value.status_code == 404
    with httpx2.Client(base_url=served.url, headers=headers, trust_env=False) as http:
        assert http.get("/api/version").json() == {"version": "0.6.4"}
        assert http.post("/api/show", json={"name": names[0]}).status_code == 200


def test_an_answer_is_the_same_whole_and_in_a_stream(client):
    whole = ask(client)
    assert whole.message.content.startswith("Bicycles stand in the yard. [1]")
    assert whole.message.content.endswith("Sources:\n\n[1] House rules › Bicycles (rules.md)")
    assert (whole.model, whole.done_reason) == ("colligate/retrieve-read:latest", "stop")
    assert whole.prompt_eval_count > 0
    *pieces, last = ask(client, stream=True)
    assert pieces[0].message.thinking == "written: Bicycles stand in the yard. (House rules)\n"
    assert "".join(each.message.content for each in pieces) == whole.message.content
    assert not any(each.done for each in pieces)
    assert last.done
    assert last.eval_count == whole.eval_count


def test_an_answer_has_the_shape_of_its_format(client):
    text = {"type": ["string", "null"]}
    shape = {"type": "object", "properties": {"where": text, "how_many": text}}
    whole = ask(client, format=shape)
    assert json.loads(whole.message.content) == {"where": "<the yard>", "how_many": None}
    *pieces, _ = ask(client, format=shape, stream=True)
    assert "".join(each.message.content for each in pieces) == whole.message.content


def test_what_clients_send_beside_the_question(client, served, headers):
    """As Open WebUI and Continue do; a stream is what Ollama sends when nothing is said."""
    body = {
        "model": "retrieve-read:latest",
        "messages": [
            {"role": "system", "content": "You are a pirate."},
            {"role": "user", "content": "Who is nowhere?"},
            {"role": "assistant", "content": "Nobody.", "thinking": "Hm."},
            {"role": "user", "content": QUESTION, "images": []},
        ],
        "options": {"temperature": 0.7, "num_ctx": 8192},
        "keep_alive": 1800,
        "stream_options": {"include_usage": True},
        "format": "",
        "tools": [],
    }
    response = httpx2.post(f"{served.url}api/chat", json=body, headers=headers, timeout=30)
    assert response.headers["content-type"] == "application/x-ndjson"
    *_, last = map(json.loads, response.text.splitlines())
    assert last["colligate"]["question"] == QUESTION
    assert last["colligate"]["warnings"] == [
        "only questions and answers are read, no other messages",
        "these parameters change nothing here: options",
    ]


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"format": "json"}, "format: answers are text with citations"),
        ({"messages": [{**ASKED[0], "images": [b"x"]}]}, "messages: only text can be read"),
        ({"messages": []}, "body/messages: it is empty"),
        ({"messages": [{"role": "user", "content": "x" * 9000}]}, "the question or the list"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_what_cannot_be_done_is_refused(client, wrong, why, stream):
    with pytest.raises(ResponseError) as error:
        list(ask(client, stream=stream, **wrong))
    assert error.value.status_code == 400
    assert error.value.error.startswith(why)


def test_a_token_is_needed_and_its_rights_count(served):
    for token, status in (("wrong", 401), (served.reader, 403)):
        with (
            Client(served.url, headers={"Authorization": f"Bearer {token}"}) as client,
            pytest.raises(ResponseError, match="the token") as error,
        ):
            ask(client)
        assert error.value.status_code == status


def test_a_run_that_fails_says_so(client):
    messages = [{"role": "user", "content": "Does this fail?"}]
    for stream in (False, True):
        with pytest.raises(ResponseError, match="the model failed"):
            list(ask(client, messages, stream=stream))


async def test_a_client_that_leaves_frees_its_run(served, model, headers):
    messages: Any = [{"role": "user", "content": "Does it stall?"}]

    async def ask(stream: Any) -> None:
        reply: Any = await client.chat(model="retrieve-read", messages=messages, stream=stream)
        if stream:
            await anext(reply)

    async with AsyncClient(served.url, headers=headers) as client:
        for stream in (False, True):
            asking = asyncio.create_task(ask(stream))
            assert await asyncio.to_thread(model.stalled.wait, 20)
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
            assert await asyncio.to_thread(model.freed.wait, 20)
            model.stalled.clear()
            model.freed.clear()


def test_a_stream_is_kept_open_by_blanks_that_no_parser_sees(served, headers, monkeypatch):
    monkeypatch.setattr(EventStream, "DEFAULT_PING_INTERVAL", 0.05)
    body = {"model": "retrieve-read", "messages": [{"role": "user", "content": "Does it stall?"}]}
    with httpx2.stream("POST", f"{served.url}api/chat", json=body, headers=headers) as response:
        assert next(response.iter_bytes()) == b" "
    with Client(served.url, headers=headers, timeout=30) as client:
        assert list(ask(client, stream=True))[-1].done
