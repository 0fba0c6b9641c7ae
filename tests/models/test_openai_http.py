"""Every fault a server may have, in every kind of call: it passes, or it is one typed error.

Nothing hangs, retries are bounded, and a fault leaves no slot taken.
"""

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from colligate.errors import (
    ContextTooSmall,
    EndpointUnreachable,
    MalformedOutput,
    ModelError,
    NotAuthorised,
    RateLimited,
    RequestRefused,
    ServerFailed,
    UnknownModel,
)
from colligate.models.openai import OpenAIChat
from colligate.models.openai_http import Policy
from support.models import HELLO, ask
from support.server import Scripted

KEY = "sk-test-0123456789abcdef"
PATIENCE = 20  # seconds in which a call must have ended, whatever happens


async def chat(model: OpenAIChat) -> object:
    return (await ask(model)).text


async def stream(model: OpenAIChat) -> object:
    pieces: list[str] = []
    completion = await ask(model, on_token=pieces.append)
    assert completion.text == "".join(pieces)
    return completion.text


async def labels(model: OpenAIChat) -> object:
    return round((await model.labels(HELLO, ["yes", "no"])).odds["yes"], 6)


async def likelihood(model: OpenAIChat) -> object:
    return len((await model.likelihoods([("Hello", " world")]))[0])


class Kind:
    """A kind of call, what it should come to, and the address it asks."""

    def __init__(self, call: Callable[[OpenAIChat], Awaitable[object]], result: object) -> None:
        self.result = result
        self.path = "/completions" if call is likelihood else "/chat/completions"
        self._call = call

    async def ask(self, model: OpenAIChat) -> object:
        async with asyncio.timeout(PATIENCE):
            return await self._call(model)

    def attempts(self, server: Any) -> int:
        return sum(request["path"] == self.path for request in server.requests)


KINDS = {"chat": Kind(chat, "Hello."), "stream": Kind(stream, "Hello.")}
KINDS |= {"labels": Kind(labels, 0.75), "likelihood": Kind(likelihood, 1)}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Kind:
    return KINDS[request.param]


Opener = Callable[..., Awaitable[OpenAIChat]]


@pytest.fixture
async def opened(openai_server: Any, policy: Policy, kind: Kind) -> AsyncIterator[Opener]:
    """Opens a model that already knows what the server can do; its requests are forgotten."""
    openai_server.tokenizer, openai_server.likelihood = "vllm", "prompt_logprobs"
    openai_server.logprobs = {"yes": 0.6, "no": 0.2}
    models = []

    async def open_one(**patience: Any) -> OpenAIChat:
        model = OpenAIChat("m", openai_server.url, KEY, policy=replace(policy, **patience))
        models.append(model)
        assert await kind.ask(model) == kind.result
        openai_server.requests.clear()
        openai_server.in_flight_most = 0
        return model

    yield open_one
    for model in models:
        await model.aclose()


Fault = Callable[[Any, str, int], None]


def failing(status: int, **how: Any) -> Fault:
    return lambda server, path, times: server.fail(status, path=path, times=times, **how)


# What the server does, what the error is when it does it every time, the policy for the test.
LATE = {"timeout": 0.4}
PASSING: dict[str, tuple[Fault, type[ModelError], dict[str, Any]]] = {
    "429": (failing(429), RateLimited, {}),
    "429, wait seconds": (failing(429, retry_after="7"), RateLimited, {}),
    "500": (failing(500), ServerFailed, {}),
    "503": (failing(503), ServerFailed, {}),
    "500, its body cut": (failing(500, whole=False), EndpointUnreachable, {}),
    "400, its body cut": (failing(400, whole=False), EndpointUnreachable, {}),
    "stall": (lambda s, path, n: s.stall(n, path=path), EndpointUnreachable, LATE),
    "stall in the middle": (
        lambda s, path, n: s.stall(n, after="Hello.", path=path),
        EndpointUnreachable,
        LATE,
    ),
    "cut": (lambda s, path, n: s.cut("Hello.", n, path=path), EndpointUnreachable, {}),
    "hang up": (lambda s, path, n: s.hang_up(n, path=path), EndpointUnreachable, {}),
    "half a JSON": (lambda s, path, n: s.garble(times=n, path=path), MalformedOutput, {}),
    "no JSON": (lambda s, path, n: s.garble(b"<html>Hi</html>", n, path=path), MalformedOutput, {}),
    "nothing": (lambda s, path, n: s.garble(b'{"choices": []}', n, path=path), MalformedOutput, {}),
}


@pytest.mark.parametrize("fault", PASSING)
async def test_what_passes_is_asked_again(openai_server, opened, kind, waits, fault):
    make, _, patience = PASSING[fault]
    model = await opened(**patience)
    make(openai_server, kind.path, 1)
    assert await kind.ask(model) == kind.result
    assert kind.attempts(openai_server) == 2
    assert all(wait == 7.0 if "wait" in fault else wait <= 0.5 for wait in waits)


@pytest.mark.parametrize("fault", PASSING)
async def test_what_stays_is_one_error(openai_server, opened, kind, fault):
    make, expected, patience = PASSING[fault]
    model = await opened(**patience, max_retries=1)
    make(openai_server, kind.path, 50)
    with pytest.raises(expected) as caught:
        await kind.ask(model)
    assert type(caught.value) is expected
    assert ("after 2 attempts" in str(caught.value)) == (expected in (RateLimited, ServerFailed))
    assert "\n" not in str(caught.value)
    assert KEY not in str(caught.value)
    assert kind.attempts(openai_server) == 2
    openai_server.script.clear()
    assert await kind.ask(model) == kind.result  # the slot is free, the model as before


@pytest.mark.parametrize("server", ["openai", "vllm"])
async def test_a_prompt_too_long(openai_server, opened, kind, waits, server):
    model = await opened()
    openai_server.too_long(server, path=kind.path, times=9)
    with pytest.raises(ContextTooSmall, match=r"does not fit.*; ask over less"):
        await kind.ask(model)
    assert kind.attempts(openai_server) == 1
    assert waits == []


@pytest.mark.parametrize(
    ("wait", "seconds"),
    [({"retry_after": "7"}, 7.0), ({"retry_after_ms": "250", "retry_after": "9"}, 0.25)],
)
async def test_the_server_says_how_long_to_wait(openai_server, opened, kind, waits, wait, seconds):
    model = await opened()
    openai_server.fail(429, path=kind.path, **wait)
    openai_server.fail(503, path=kind.path, **wait)
    assert await kind.ask(model) == kind.result
    assert waits == [seconds] * 2


@pytest.mark.parametrize(
    ("status", "how"),
    [
        (429, {"retry_after": "86400"}),  # longer than anyone waits
        (429, {"message": "You exceeded your current quota", "code": "insufficient_quota"}),
        (501, {"message": "not implemented"}),
    ],
)
async def test_a_retry_that_is_no_help_is_not_made(openai_server, opened, kind, waits, status, how):
    model = await opened()
    openai_server.fail(status, path=kind.path, times=9, **how)
    with pytest.raises(RateLimited if status == 429 else ServerFailed):
        await kind.ask(model)
    assert (kind.attempts(openai_server), waits) == (1, [])


async def test_the_deadline_bounds_all_attempts(openai_server, opened, kind):
    model = await opened(deadline=1.0)
    openai_server.stall(times=9, path=kind.path)
    with pytest.raises(EndpointUnreachable, match="not within 1 s"):
        await kind.ask(model)
    assert await asyncio.to_thread(openai_server.left.wait, PATIENCE)


@pytest.fixture
def dead_url() -> Iterator[str]:
    """A port that is taken and not listened on."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}/v1"


async def test_nobody_is_there(dead_url, policy, waits, kind):
    model = OpenAIChat("m", dead_url, KEY, policy=policy)
    with pytest.raises(EndpointUnreachable, match="is the server running") as caught:
        await kind.ask(model)
    assert dead_url in str(caught.value)
    assert len(waits) == 2
    await model.aclose()


async def test_calls_in_flight_stay_bounded_under_faults(openai_server, opened, kind, monkeypatch):
    # Two models whose policies share the slots.
    patience = {"in_flight": 2, "timeout": 0.4, "max_retries": 49}
    models = [await opened(**patience) for _ in range(2)]

    async def wait(seconds: float) -> None:  # until the server has seen the failed one leave
        await asyncio.to_thread(openai_server.until, lambda: openai_server.in_flight <= 1)

    monkeypatch.setattr("anyio.sleep", wait)
    for fault, (make, _, _) in PASSING.items():
        if not fault.startswith("400") and "in the middle" not in fault and fault != "cut":
            make(openai_server, kind.path, 1)
    calls = [asyncio.create_task(kind.ask(model)) for model in models * 6]
    assert {await call for call in calls} == {kind.result}
    assert (openai_server.script, openai_server.in_flight_most) == ([], 2)


@pytest.mark.parametrize("fault", ["stall", "stall in the middle"])
async def test_cancelling_frees_the_slot_and_the_connection(openai_server, opened, kind, fault):
    model = await opened(in_flight=1)
    make, _, _ = PASSING[fault]
    make(openai_server, kind.path, 1)
    stuck = asyncio.create_task(kind.ask(model))
    asked = kind.attempts
    assert await asyncio.to_thread(openai_server.until, lambda: asked(openai_server) == 1)
    waiting = asyncio.create_task(kind.ask(model))
    stuck.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stuck
    assert await waiting == kind.result
    assert await asyncio.to_thread(openai_server.left.wait, PATIENCE)


async def ask_and_close(model: OpenAIChat) -> str:
    try:
        return (await ask(model)).text
    finally:
        await model.aclose()


async def test_a_redirect_is_not_followed_with_the_prompt(openai_server, model, waits):
    headers = {"Location": "http://elsewhere/v1/chat/completions"}
    openai_server.script.append(Scripted("json", status=307, body={}, headers=headers))
    with pytest.raises(RequestRefused, match="redirects to another address: http://elsewhere"):
        await ask(model)
    assert len(openai_server.requests) == 1
    assert waits == []


async def test_refused_key_names_its_variable_and_hides_it(openai_server, policy, caplog):
    openai_server.key = "another"
    caplog.set_level(logging.DEBUG)
    model = OpenAIChat("m", openai_server.url, KEY, policy=policy)
    with pytest.raises(NotAuthorised, match=r"refuses the key.*check OPENAI_API_KEY") as error:
        await ask_and_close(model)
    assert openai_server.requests[0]["headers"]["authorization"] == f"Bearer {KEY}"
    assert KEY not in str(error.value) + repr(error.value) + repr(model) + caplog.text
    assert KEY not in repr(vars(error.value))


def test_openai_itself_needs_a_key():
    with pytest.raises(NotAuthorised, match="OPENAI_API_KEY is not set"):
        OpenAIChat("gpt-x")


async def test_unknown_model_lists_what_there_is(openai_server, policy):
    openai_server.models = ["llama-small", "llama-large"]
    with pytest.raises(UnknownModel) as caught:
        await ask_and_close(OpenAIChat("lama-small", openai_server.url, policy=policy))
    assert "llama-large, llama-small" in str(caught.value)


async def test_a_wrong_path_is_not_an_unknown_model(openai_server, policy):
    with pytest.raises(RequestRefused, match="usually ends in /v1"):
        await ask_and_close(OpenAIChat("m", openai_server.url + "/extra", policy=policy))


async def test_closing_during_a_call_ends_it(openai_server, model):
    openai_server.hold()
    asked = asyncio.create_task(ask(model, HELLO, max_tokens=5))
    await asyncio.to_thread(openai_server.arrived.wait)
    await model.aclose()
    with pytest.raises(ModelError, match="closed during a call"):
        await asked
    assert len(openai_server.requests) == 1


async def test_what_a_url_hides_is_sent_and_not_shown(openai_server, policy):
    url = openai_server.url.replace("://", "://me:pass-hidden@") + "?api_key=query-hidden&v=2"
    model = OpenAIChat("m", url, policy=policy)
    with pytest.raises(RequestRefused, match="Not Found") as caught:
        await ask_and_close(model)  # this server knows no queries, and repeats them
    asked = openai_server.requests[0]
    assert asked["path"] == "/chat/completions?api_key=query-hidden&v=2"
    assert asked["headers"]["authorization"].startswith("Basic ")
    openai_server.fail(400, "bad: pass-hidden")
    with pytest.raises(RequestRefused) as again:
        await ask_and_close(model)
    shown = str(caught.value) + str(again.value) + repr(model) + model.name
    assert "hidden" not in shown


@pytest.mark.parametrize("proxy", ["socks5://proxy:1", "nonsense://me:secret@proxy:1"])
async def test_a_proxy_that_cannot_be_used(openai_server, model, monkeypatch, proxy):
    monkeypatch.setenv("ALL_PROXY", proxy)
    with pytest.raises(EndpointUnreachable, match="ALL_PROXY") as caught:
        await ask(model)
    assert "secret" not in str(caught.value)


async def test_nothing_is_said_of_this_machine(openai_server, model):
    await ask(model)
    headers = openai_server.requests[0]["headers"]
    assert not [name for name in headers if name in ("x-stainless-os", "x-stainless-arch")]


@pytest.mark.parametrize("url", ["localhost:8000", "ftp://host", "http://", "http://[", "x"])
def test_what_is_no_url_is_said(url):
    with pytest.raises(UnknownModel, match="full URL"):
        OpenAIChat("m", url)
