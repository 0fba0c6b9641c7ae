"""Every fault a server may have, in every kind of call: it passes, or it is one typed error.

Nothing hangs, attempts are bounded, and a fault leaves no slot taken.
"""

from __future__ import annotations

import asyncio
import email.utils
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from colligate.errors import (
    ContextTooSmall,
    EndpointUnreachable,
    MalformedOutput,
    ModelError,
    RateLimited,
    ServerFailed,
)
from colligate.models import Message
from colligate.models.openai import OpenAIChat
from colligate.models.openai_http import Policy

HELLO = [Message("user", "Hello?")]
KEY = "sk-test-0123456789abcdef"
PATIENCE = 20  # seconds in which a call must have ended, whatever happens


async def chat(model: OpenAIChat) -> object:
    return (await model.chat(HELLO, max_tokens=9)).text


async def stream(model: OpenAIChat) -> object:
    pieces: list[str] = []
    completion = await model.chat(HELLO, max_tokens=9, on_token=lambda piece: pieces.append(piece))
    assert completion.text == "".join(pieces)
    return completion.text


async def labels(model: OpenAIChat) -> object:
    return round((await model.labels(HELLO, ["yes", "no"])).odds["yes"], 6)


async def likelihood(model: OpenAIChat) -> object:
    return len(await model.likelihood("Hello", " world"))


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


KINDS = {
    "chat": Kind(chat, "Hello."),
    "stream": Kind(stream, "Hello."),
    "labels": Kind(labels, 0.75),
    "likelihood": Kind(likelihood, 1),
}


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
LATE = {"timeout": 0.4}

# What the server does, what the error is when it does it every time, the policy for the test.
PASSING: dict[str, tuple[Fault, type[ModelError], dict[str, Any]]] = {
    "429": (lambda s, path, n: s.fail(429, path=path, times=n), RateLimited, {}),
    "429, wait seconds": (
        lambda s, path, n: s.fail(429, retry_after="7", path=path, times=n),
        RateLimited,
        {},
    ),
    "500": (lambda s, path, n: s.fail(500, path=path, times=n), ServerFailed, {}),
    "503": (lambda s, path, n: s.fail(503, path=path, times=n), ServerFailed, {}),
    "500, its body cut": (
        lambda s, path, n: s.fail(500, path=path, whole=False, times=n),
        EndpointUnreachable,
        {},
    ),
    "400, its body cut": (
        lambda s, path, n: s.fail(400, path=path, whole=False, times=n),
        EndpointUnreachable,
        {},
    ),
    "stall": (lambda s, path, n: s.stall(n, path=path), EndpointUnreachable, LATE),
    "stall in the middle": (
        lambda s, path, n: s.stall(n, after="Hello.", path=path),
        EndpointUnreachable,
        LATE,
    ),
    "cut": (
        lambda s, path, n: s.cut("Hello.", n, path=path),
        EndpointUnreachable,
        {},
    ),
    "hang up": (lambda s, path, n: s.hang_up(n, path=path), EndpointUnreachable, {}),
    "half a JSON": (lambda s, path, n: s.garble(times=n, path=path), MalformedOutput, {}),
    "no JSON": (
        lambda s, path, n: s.garble(b"<html>Welcome</html>", n, path=path),
        MalformedOutput,
        {},
    ),
    "no choices": (
        lambda s, path, n: s.garble(b'{"choices": []}', n, path=path),
        MalformedOutput,
        {},
    ),
}


@pytest.mark.parametrize("fault", PASSING)
async def test_what_passes_is_asked_again(
    openai_server: Any, opened: Opener, kind: Kind, waits: list[float], fault: str
) -> None:
    make, _, patience = PASSING[fault]
    model = await opened(**patience)
    make(openai_server, kind.path, 1)
    assert await kind.ask(model) == kind.result
    assert kind.attempts(openai_server) == 2
    assert waits == [7.0 if "wait" in fault else 0.5]


@pytest.mark.parametrize("fault", PASSING)
async def test_what_stays_is_one_error(
    openai_server: Any, opened: Opener, kind: Kind, fault: str
) -> None:
    make, expected, patience = PASSING[fault]
    model = await opened(**patience, attempts=2)
    make(openai_server, kind.path, 50)
    with pytest.raises(expected) as caught:
        await kind.ask(model)
    assert type(caught.value) is expected
    assert "\n" not in str(caught.value)
    assert KEY not in str(caught.value)
    assert kind.attempts(openai_server) == 2
    openai_server.script.clear()
    assert await kind.ask(model) == kind.result  # the slot is free, the model as before


@pytest.mark.parametrize("server", ["openai", "vllm", "llama-server"])
async def test_a_prompt_too_long(
    openai_server: Any, opened: Opener, kind: Kind, waits: list[float], server: str
) -> None:
    model = await opened()
    openai_server.too_long(server, path=kind.path, times=9)
    with pytest.raises(ContextTooSmall, match=r"does not fit.*; ask over less"):
        await kind.ask(model)
    assert kind.attempts(openai_server) == 1
    assert waits == []


@pytest.mark.parametrize(
    ("wait", "least", "most"),
    [
        ({"retry_after": "7"}, 7.0, 7.0),
        ({"retry_after": "86400"}, 30.0, 30.0),
        ({"retry_after_ms": "250", "retry_after": "9"}, 0.25, 0.25),
        ({"retry_after": "date"}, 15.0, 20.0),
    ],
)
async def test_the_server_says_how_long_to_wait(
    openai_server: Any,
    opened: Opener,
    kind: Kind,
    waits: list[float],
    wait: dict[str, str],
    least: float,
    most: float,
) -> None:
    model = await opened()
    if wait["retry_after"] == "date":
        wait = {"retry_after": email.utils.formatdate(time.time() + 20, usegmt=True)}
    openai_server.fail(429, path=kind.path, **wait)
    openai_server.fail(503, path=kind.path, **wait)
    assert await kind.ask(model) == kind.result
    assert len(waits) == 2
    assert all(least <= seconds <= most for seconds in waits)


async def test_no_wait_goes_past_the_deadline(
    openai_server: Any, opened: Opener, kind: Kind, waits: list[float]
) -> None:
    model = await opened(deadline=5.0)
    openai_server.fail(429, retry_after="6", path=kind.path, times=9)
    with pytest.raises(RateLimited, match="after 1 attempts"):
        await kind.ask(model)
    assert waits == []


async def test_the_deadline_bounds_all_attempts(
    openai_server: Any, opened: Opener, kind: Kind
) -> None:
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


async def test_nobody_is_there(
    dead_url: str, policy: Policy, waits: list[float], kind: Kind
) -> None:
    model = OpenAIChat("m", dead_url, KEY, policy=policy)
    with pytest.raises(EndpointUnreachable, match="is the server running") as caught:
        await kind.ask(model)
    assert dead_url in str(caught.value)
    assert len(waits) == 2
    await model.aclose()


async def test_calls_in_flight_stay_bounded_under_faults(
    openai_server: Any, opened: Opener, kind: Kind
) -> None:
    async def wait(seconds: float) -> None:  # until the server has seen the failed one leave
        await asyncio.to_thread(openai_server.until, lambda: openai_server.in_flight <= 1)

    patience = {"in_flight": 2, "timeout": 0.4, "attempts": 50, "sleep": wait}
    models = [await opened(**patience) for _ in range(2)]
    for fault, (make, _, _) in PASSING.items():
        if not fault.startswith("400"):
            make(openai_server, kind.path, 1)
    calls = [asyncio.create_task(kind.ask(model)) for model in models * 6]
    assert {await call for call in calls} == {kind.result}
    assert openai_server.script == []
    assert openai_server.in_flight_most == 2


FOREVER: dict[str, Fault] = {
    "stall": lambda s, path, n: s.stall(n, path=path),
    "stall in the middle": lambda s, path, n: s.stall(n, after="Hello.", path=path),
}


@pytest.mark.parametrize("fault", FOREVER)
async def test_cancelling_frees_the_slot_and_the_connection(
    openai_server: Any, opened: Opener, kind: Kind, fault: str
) -> None:
    model = await opened(in_flight=1)
    FOREVER[fault](openai_server, kind.path, 1)
    stuck = asyncio.create_task(kind.ask(model))
    asked = kind.attempts
    assert await asyncio.to_thread(openai_server.until, lambda: asked(openai_server) == 1)
    waiting = asyncio.create_task(kind.ask(model))
    stuck.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stuck
    assert await waiting == kind.result
    assert await asyncio.to_thread(openai_server.left.wait, PATIENCE)


async def test_cancelling_while_it_waits_to_try_again(openai_server: Any, policy: Policy) -> None:
    waiting = asyncio.Event()

    async def wait(seconds: float) -> None:
        waiting.set()
        await asyncio.Event().wait()

    model = OpenAIChat("m", openai_server.url, policy=replace(policy, in_flight=1, sleep=wait))
    openai_server.fail(503)
    stuck = asyncio.create_task(model.chat(HELLO, max_tokens=9))
    async with asyncio.timeout(PATIENCE):
        await waiting.wait()
        stuck.cancel()
        with pytest.raises(asyncio.CancelledError):
            await stuck
        assert await chat(model) == "Hello."
    await model.aclose()


async def test_slow_tokens_end_at_the_deadline(openai_server: Any, policy: Policy) -> None:
    model = OpenAIChat("m", openai_server.url, policy=replace(policy, timeout=10, deadline=0.5))
    openai_server.trickle("word", every=0.01, times=9)
    pieces: list[str] = []
    async with asyncio.timeout(PATIENCE):
        with pytest.raises(EndpointUnreachable, match=r"not within 0\.5 s"):
            await model.chat(HELLO, max_tokens=9, on_token=lambda piece: pieces.append(piece))
        assert set(pieces) == {"word"}
        assert len(openai_server.requests) == 1
        assert await asyncio.to_thread(openai_server.left.wait, PATIENCE)
    await model.aclose()


async def test_cancelling_slow_tokens_ends_them(openai_server: Any, policy: Policy) -> None:
    model = OpenAIChat("m", openai_server.url, policy=replace(policy, in_flight=1))
    openai_server.trickle("word", every=0.01)
    shown = asyncio.Event()
    asked = model.chat(HELLO, max_tokens=9, on_token=lambda piece: shown.set())
    task = asyncio.create_task(asked)
    async with asyncio.timeout(PATIENCE):
        await shown.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await chat(model) == "Hello."
        assert await asyncio.to_thread(openai_server.left.wait, PATIENCE)
    await model.aclose()


@pytest.mark.parametrize("call", [chat, stream])
async def test_null_content(openai_server: Any, policy: Policy, call: Any) -> None:
    model = OpenAIChat("m", openai_server.url, policy=policy)
    openai_server.say(None)
    assert await call(model) == "Hello."
    openai_server.say(None, times=3)
    with pytest.raises(MalformedOutput, match="null"):
        await call(model)
    assert len(openai_server.requests) == 5
    await model.aclose()


async def test_what_a_server_has_not_built_is_not_asked_for_again(
    openai_server: Any, policy: Policy
) -> None:
    model = OpenAIChat("m", openai_server.url, policy=policy)
    openai_server.fail(501, "not implemented", times=9)
    with pytest.raises(ServerFailed, match="HTTP 501"):
        await chat(model)
    assert len(openai_server.requests) == 1
    await model.aclose()
