"""One policy for every HTTP call to a model: time-outs, retries, calls in flight, typed errors.

The `openai` client carries the requests (its own retries are off); what is decided here is what
happens when one fails. Tried again, with full jitter and never longer than the policy allows:
429, 5xx, no connection, an answer cut short or not to be understood. Never tried again: any
other 4xx, and a 429 that says the quota is spent. `Retry-After` is honoured, in seconds or as
a date. Every failure leaves as one `ColligateError` of one line that never holds a key.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from json import JSONDecodeError
from typing import Any, TypeVar
from urllib.parse import parse_qsl, urlsplit
from weakref import WeakKeyDictionary

import httpx2
import openai
from openai import AsyncOpenAI, Omit

from colligate import errors
from colligate.models.failures import Failures, Garbled, is_unknown, passing, retry_after

T = TypeVar("T")

OPENAI_URL = "https://api.openai.com/v1"

# The client lets httpx's own errors through while it reads the body of a refused stream.
_FAILURES = (
    openai.OpenAIError,
    httpx2.RequestError,
    Garbled,
    JSONDecodeError,
    UnicodeDecodeError,
    RecursionError,
)

# The client would describe this machine in headers; endpoints have no use for it.
_UNSENT = ("Lang", "Package-Version", "OS", "Arch", "Runtime", "Runtime-Version", "Async")


@dataclass(frozen=True)
class Policy:
    """How patient to be. Times are in seconds; `sleep` and `random` are there for tests."""

    attempts: int = 4
    connect_timeout: float = 10.0
    timeout: float = 300.0  # without a byte arriving; local models can be slow to begin
    deadline: float = 900.0  # for one call with all its retries, not counting the queue
    first_wait: float = 0.5  # doubled each time; the wait is uniform between 0 and that
    longest_wait: float = 30.0  # also caps what Retry-After may ask
    in_flight: int = 16
    bare: bool = False  # send no headers of the environment, which may say who asks
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep
    random: Callable[[], float] = random.random

    def wait(self, attempt: int, asked: float | None) -> float:
        """Seconds to wait after the given attempt (from 1); `asked` is the server's wish."""
        if asked is not None:
            return min(asked, self.longest_wait)
        longest = min(self.longest_wait, self.first_wait * 2.0 ** (attempt - 1))
        return self.random() * longest


# Calls in flight are bounded per endpoint, not per object that talks to it.
_slots: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[tuple[str, int], asyncio.Semaphore]] = (
    WeakKeyDictionary()
)


class Endpoint:
    """A base URL, its key and the policy. Closed by `aclose`; usable from any event loop."""

    def __init__(
        self,
        base_url: str | None = None,
        api_key: str | None = None,
        *,
        policy: Policy | None = None,
        key_variable: str = "OPENAI_API_KEY",
    ) -> None:
        whole = (base_url or OPENAI_URL).strip()
        self.url = shown_url(whole)
        parts = urlsplit(whole)
        self._base_url = parts._replace(query="", fragment="").geturl().rstrip("/")
        self._query = dict(parse_qsl(parts.query))
        self.policy = policy or Policy()
        self._key = (api_key or "").strip()
        # A short value is a version or a flag, not a key.
        hidden = (parts.password or "", *(v for v in self._query.values() if len(v) >= 8))
        self._failures = Failures(self.url, self._key, key_variable, hidden)
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, AsyncOpenAI] = (
            WeakKeyDictionary()
        )
        if self.is_openai and not self._key:
            raise errors.NotAuthorised(
                "OpenAI cannot be asked",
                f"{key_variable} is not set",
                f"set {key_variable}, or name another server: openai:MODEL@URL",
            )
        if not (self._key.isascii() and self._key.isprintable()):
            raise errors.NotAuthorised(
                f"the key for {self.url} cannot be sent",
                "it holds characters no key has",
                f"set {key_variable} again",
            )

    @property
    def root(self) -> str:
        """The base URL without its final /v1; it may hold a password, so never show it."""
        return self._base_url.removesuffix("/v1")

    @property
    def is_openai(self) -> bool:
        """Whether this is OpenAI's own API."""
        return urlsplit(self._base_url).hostname == "api.openai.com"

    def __repr__(self) -> str:
        return f"Endpoint({self.url!r})"

    def _client(self) -> AsyncOpenAI:
        # Connections belong to the event loop they were opened in.
        loop = asyncio.get_running_loop()
        if loop not in self._clients:
            timeout = httpx2.Timeout(self.policy.timeout, connect=self.policy.connect_timeout)
            # `call` bounds the calls in flight; each may keep its connection for the next.
            limits = httpx2.Limits(
                max_connections=None, max_keepalive_connections=self.policy.in_flight
            )
            try:
                http = httpx2.AsyncClient(timeout=timeout, limits=limits, follow_redirects=True)
            except (ImportError, ValueError, httpx2.InvalidURL) as error:
                raise errors.EndpointUnreachable(
                    f"{self.url} cannot be asked through this proxy",
                    str(error),
                    "set HTTPS_PROXY, HTTP_PROXY and ALL_PROXY to http:// addresses, or to nothing",
                ) from None
            headers: dict[str, Any] = {f"X-Stainless-{name}": Omit() for name in _UNSENT}
            if self.policy.bare:
                headers |= dict.fromkeys(_of_the_environment(), Omit())
                headers["Authorization"] = "Bearer none-needed"  # instead of the environment's
            self._clients[loop] = AsyncOpenAI(
                base_url=self._base_url,
                api_key=self._key or "none-needed",
                max_retries=0,
                timeout=timeout,
                default_query=self._query,
                default_headers={**headers, "User-Agent": "colligate"},
                http_client=http,
            )
        return self._clients[loop]

    async def call(self, attempt: Callable[[AsyncOpenAI], Awaitable[T]], *, model: str = "") -> T:
        """Make the attempt until it succeeds or the policy says stop.

        Raises:
            ModelError: one of its subclasses, says why. UnknownModel: the server has no `model`.
        """
        slots = _slots.setdefault(asyncio.get_running_loop(), {})
        key = (self._base_url, self.policy.in_flight)
        async with slots.setdefault(key, asyncio.Semaphore(self.policy.in_flight)):
            try:
                async with asyncio.timeout(self.policy.deadline) as timer:
                    return await self._attempts(attempt, model, timer)
            except TimeoutError:
                if not timer.expired():
                    raise
                raise errors.EndpointUnreachable(
                    f"no answer from {self.url}",
                    f"not within {self.policy.deadline:g} s",
                    "is the server overloaded, or the model too large for it?",
                ) from None

    async def _attempts(
        self,
        attempt: Callable[[AsyncOpenAI], Awaitable[T]],
        model: str,
        timer: asyncio.Timeout,
    ) -> T:
        turn, client = 1, self._client()
        while not client.is_closed():
            try:
                return await attempt(client)
            except openai.APIStatusError as error:
                wait = self.policy.wait(turn, retry_after(error.response.headers))
                if not passing(error) or self._was_last(turn, wait, timer):
                    # Not chained: the client's errors hold the request, and that the key.
                    raise await self._refused(error, model, turn) from None
            except _FAILURES as error:
                wait = self.policy.wait(turn, None)
                if self._was_last(turn, wait, timer):
                    raise self._failures.without_status(error, self.policy.timeout) from None
            await self.policy.sleep(wait)
            turn += 1
        raise errors.ModelError(f"the connections to {self.url} were closed during a call")

    def _was_last(self, turn: int, wait: float, timer: asyncio.Timeout) -> bool:
        """Whether no attempt follows this one: there were enough, or no time is left to wait."""
        end = timer.when()
        late = end is not None and asyncio.get_running_loop().time() + wait >= end
        return late or turn >= self.policy.attempts

    async def _refused(
        self, error: openai.APIStatusError, model: str, attempts: int
    ) -> errors.ColligateError:
        if not is_unknown(error):
            return self._failures.with_status(error, attempts)
        served: dict[str, Any] = {}
        with contextlib.suppress(*_FAILURES):
            served = await _list_models(self._client())
        return self._failures.not_found(error, model, served)

    async def models(self) -> dict[str, dict[str, Any]]:
        """What the server lists at `/models`: id -> entry."""
        return await self.call(_list_models)

    async def aclose(self) -> None:
        """Close this event loop's connections. Safe to call twice."""
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.close()


def _of_the_environment() -> list[str]:
    """The headers that the client would take from the environment by itself."""
    lines = os.environ.get("OPENAI_CUSTOM_HEADERS", "").split("\n")
    named = [line.partition(":")[0].strip() for line in lines if ":" in line]
    others = [name for name in named if name.lower() != "authorization"]
    return ["OpenAI-Organization", "OpenAI-Project", *others]


def shown_url(url: str) -> str:
    """The URL as it may be shown: without user, password and query.

    Raises:
        UnknownModel: it is not an http(s) URL.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        parts, host, port = urlsplit(""), None, None
    if parts.scheme not in ("http", "https") or not host:
        raise errors.UnknownModel(
            "an endpoint needs a full URL",
            "no http:// or https:// one was given",
            "write openai:MODEL@http://HOST:PORT/v1",
        )
    host = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{host}" + (f":{port}" if port else "") + parts.path.rstrip("/")


async def _list_models(client: AsyncOpenAI) -> dict[str, dict[str, Any]]:
    listed = await client.get("/models", cast_to=object)
    entries = listed.get("data") if isinstance(listed, dict) else None
    if not isinstance(entries, list):
        raise Garbled("/models lists nothing")
    return {
        str(entry["id"]): entry for entry in entries if isinstance(entry, dict) and "id" in entry
    }
