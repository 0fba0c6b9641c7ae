"""What happens when a call fails: which are tried again, how long is waited, what is said."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import Any

import httpx2
import pytest

from colligate.errors import (
    ContextTooSmall,
    EndpointUnreachable,
    ModelError,
    NotAuthorised,
    RateLimited,
    RequestRefused,
    ServerFailed,
    UnknownModel,
)
from colligate.models import ChatModel, Completion, Message
from colligate.models.openai import OpenAIChat
from colligate.models.openai_http import Policy, retry_after, shown_url

KEY = "sk-test-0123456789abcdef"
HELLO = [Message("user", "Hello?")]


async def ask(model: ChatModel, **options: Any) -> Completion:
    try:
        return await model.chat(HELLO, max_tokens=20, **options)
    finally:
        await model.aclose()


@pytest.mark.parametrize("status", [429, 500, 502, 503, 529])
async def test_passing_failures_are_tried_again(
    openai_server: Any, policy: Policy, waits: list[float], status: int
) -> None:
    openai_server.fail(status, times=2)
    completion = await ask(OpenAIChat("m", openai_server.url, policy=policy))
    assert completion.text == "Hello."
    assert len(openai_server.requests) == 3
    assert waits == [0.5, 1.0]


@pytest.mark.parametrize("status", [400, 405, 409, 413, 418, 422])
async def test_other_4xx_are_not(
    openai_server: Any, policy: Policy, waits: list[float], status: int
) -> None:
    openai_server.fail(status, "no such luck")
    with pytest.raises(RequestRefused, match=f"HTTP {status}: no such luck"):
        await ask(OpenAIChat("m", openai_server.url, policy=policy))
    assert len(openai_server.requests) == 1
    assert waits == []


@pytest.mark.parametrize(("status", "kind"), [(429, RateLimited), (503, ServerFailed)])
async def test_attempts_are_bounded(
    openai_server: Any, policy: Policy, status: int, kind: type[ModelError]
) -> None:
    openai_server.fail(status, times=50)
    with pytest.raises(kind, match=f"HTTP {status} after 3 attempts"):
        await ask(OpenAIChat("m", openai_server.url, policy=policy))
    assert len(openai_server.requests) == 3


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"Retry-After": "soon"}, None),
        ({"Retry-After": "nan"}, None),
        ({"Retry-After": "-5"}, 0.0),
        ({"Retry-After": "1.5"}, 1.5),
        ({"Retry-After-Ms": "250", "Retry-After": "9"}, 0.25),
        ({"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0.0),
    ],
)
def test_retry_after_forms(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(httpx2.Headers(headers)) == seconds


def test_jitter_is_full_and_grows() -> None:
    low, high = (Policy(random=lambda share=share: share) for share in (0.0, 1.0))
    assert [low.wait(turn, None) for turn in (1, 2, 3)] == [0, 0, 0]
    assert [high.wait(turn, None) for turn in (1, 2, 3, 20)] == [0.5, 1.0, 2.0, 30.0]


async def test_spent_quota_is_not_tried_again(
    openai_server: Any, policy: Policy, waits: list[float]
) -> None:
    openai_server.fail(429, "You exceeded your current quota", code="insufficient_quota")
    with pytest.raises(RateLimited, match="no quota left"):
        await ask(OpenAIChat("m", openai_server.url, policy=policy))
    assert waits == []


async def test_a_server_that_stalls(openai_server: Any, policy: Policy) -> None:
    openai_server.stall(times=3)
    with pytest.raises(EndpointUnreachable, match=r"nothing arrived for 0\.05 s"):
        await ask(OpenAIChat("m", openai_server.url, policy=replace(policy, timeout=0.05)))


async def test_refused_key_names_its_variable_and_hides_it(
    openai_server: Any, policy: Policy, caplog: pytest.LogCaptureFixture
) -> None:
    openai_server.key = "another"
    caplog.set_level(logging.DEBUG)
    model = OpenAIChat("m", openai_server.url, KEY, policy=policy)
    with pytest.raises(NotAuthorised, match=r"refuses the key.*check OPENAI_API_KEY") as error:
        await ask(model)
    assert openai_server.requests[0]["headers"]["authorization"] == f"Bearer {KEY}"
    assert KEY not in str(error.value) + repr(error.value) + repr(model) + caplog.text
    assert KEY not in repr(vars(error.value))


async def test_missing_key(openai_server: Any, policy: Policy) -> None:
    openai_server.key = "wanted"
    with pytest.raises(NotAuthorised, match="set OPENAI_API_KEY"):
        await ask(OpenAIChat("m", openai_server.url, policy=policy))


def test_openai_itself_needs_a_key() -> None:
    with pytest.raises(NotAuthorised, match="OPENAI_API_KEY is not set"):
        OpenAIChat("gpt-x")


async def test_unknown_model_lists_what_there_is(openai_server: Any, policy: Policy) -> None:
    openai_server.models = ["llama-small", "llama-large"]
    with pytest.raises(UnknownModel) as caught:
        await ask(OpenAIChat("lama-small", openai_server.url, policy=policy))
    assert "llama-large, llama-small" in str(caught.value)
    assert "did you mean llama-small?" in str(caught.value)


async def test_unknown_model_where_none_are_listed(openai_server: Any, policy: Policy) -> None:
    openai_server.fail(404, 'model "m" not found, try pulling it first')
    with pytest.raises(UnknownModel, match="try pulling it"):
        await ask(OpenAIChat("m", openai_server.url, policy=policy))


async def test_a_wrong_path_is_not_an_unknown_model(openai_server: Any, policy: Policy) -> None:
    with pytest.raises(RequestRefused, match="usually ends in /v1"):
        await ask(OpenAIChat("m", openai_server.url + "/extra", policy=policy))


@pytest.mark.parametrize(
    ("status", "message", "code"),
    [
        (400, "too long", "context_length_exceeded"),
        (400, "This model's maximum context length is 2048 tokens. However, you requested", None),
        (400, "the request exceeds the available context size", None),
        (500, "context size exceeded", None),
    ],
)
async def test_prompt_too_long(
    openai_server: Any, policy: Policy, status: int, message: str, code: str | None
) -> None:
    openai_server.fail(status, message, code=code)
    with pytest.raises(ContextTooSmall):
        await ask(OpenAIChat("m", openai_server.url, policy=policy))
    assert len(openai_server.requests) == 1


async def test_closing_during_a_call_ends_it(openai_server: Any, policy: Policy) -> None:
    openai_server.hold()
    model = OpenAIChat("m", openai_server.url, policy=policy)
    asked = asyncio.create_task(model.chat(HELLO, max_tokens=5))
    await asyncio.to_thread(openai_server.arrived.wait)
    await model.aclose()
    with pytest.raises(ModelError, match="closed during a call"):
        await asked
    assert len(openai_server.requests) == 1


async def test_what_a_url_hides_is_sent_and_not_shown(openai_server: Any, policy: Policy) -> None:
    url = openai_server.url.replace("://", "://me:pass-hidden@") + "?api_key=query-hidden&v=2"
    model = OpenAIChat("m", url, policy=policy)
    with pytest.raises(RequestRefused, match="Not Found") as caught:
        await ask(model)  # this server knows no queries, and repeats them
    asked = openai_server.requests[0]
    assert asked["path"] == "/chat/completions?api_key=query-hidden&v=2"
    assert asked["headers"]["authorization"].startswith("Basic ")
    openai_server.fail(400, "bad: pass-hidden")
    with pytest.raises(RequestRefused) as again:
        await ask(model)
    shown = str(caught.value) + str(again.value) + repr(model) + model.name
    assert "hidden" not in shown


@pytest.mark.parametrize("proxy", ["socks5://proxy:1", "nonsense://me:secret@proxy:1"])
async def test_a_proxy_that_cannot_be_used(
    openai_server: Any, policy: Policy, monkeypatch: pytest.MonkeyPatch, proxy: str
) -> None:
    monkeypatch.setenv("ALL_PROXY", proxy)
    with pytest.raises(EndpointUnreachable, match="ALL_PROXY") as caught:
        await ask(OpenAIChat("m", openai_server.url, policy=policy))
    assert "secret" not in str(caught.value)


async def test_a_model_serves_one_event_loop_after_another(
    openai_server: Any, policy: Policy
) -> None:
    model = OpenAIChat("m", openai_server.url, policy=policy)

    def once() -> str:
        return asyncio.run(ask(model)).text

    assert [await asyncio.to_thread(once) for _ in range(2)] == ["Hello.", "Hello."]


async def test_nothing_is_said_of_this_machine(openai_server: Any, policy: Policy) -> None:
    await ask(OpenAIChat("m", openai_server.url, policy=policy))
    headers = openai_server.requests[0]["headers"]
    assert not [name for name in headers if name in ("x-stainless-os", "x-stainless-arch")]


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://user:secret@host:8000/v1/?api_key=secret", "http://host:8000/v1"),
        ("https://[::1]:80/v1", "https://[::1]:80/v1"),
    ],
)
def test_urls_are_shown_without_secrets(url: str, shown: str) -> None:
    assert shown_url(url) == shown


@pytest.mark.parametrize("url", ["localhost:8000", "ftp://host", "http://", "http://[", "x"])
def test_what_is_no_url_is_said(url: str) -> None:
    with pytest.raises(UnknownModel, match="full URL"):
        OpenAIChat("m", url)
