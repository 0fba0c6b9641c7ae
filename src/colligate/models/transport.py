"""One policy for every HTTP call to a model: time-outs, retries, calls in flight, typed errors.

The `openai` client carries the requests (its own retries are off); what is decided here is what
happens when one fails. Tried again, with full jitter and never longer than the policy allows:
429, 5xx, no connection, an answer cut short or not to be understood. Never tried again: any
other 4xx, and a 429 that says the quota is spent. `Retry-After` is honoured, in seconds or as
a date. Every failure leaves as one `ColligateError` of one line that never holds a key.
"""

from __future__ import annotations

import asyncio
import email.utils
import random
import re
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

import httpx2
import openai
from openai import AsyncOpenAI, Omit

from colligate import errors
from colligate.models.suggest import closest

T = TypeVar("T")

OPENAI_URL = "https://api.openai.com/v1"

# Whatever its status: the prompt is too long. Servers word it differently.
_CONTEXT = re.compile(
    r"context[ _](length|window|size)|maximum context|prompt is too long|too many tokens"
    r"|maximum (input|sequence|model) length|reduce the length",
    re.IGNORECASE,
)
_SECRETS = re.compile(r"\b(sk|pk|key|hf)[-_][\w*.\-]{6,}|\bBearer\s+\S+", re.IGNORECASE)
# The client would describe this machine in headers; endpoints have no use for it.
_UNSENT = ("Lang", "Package-Version", "OS", "Arch", "Runtime", "Runtime-Version", "Async")


class Garbled(Exception):
    """An answer that arrived but cannot be used; asking again may help."""


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
        self._base_url = (base_url or OPENAI_URL).strip().rstrip("/")
        self.url = shown_url(self._base_url)
        self.policy = policy or Policy()
        self.key_variable = key_variable
        self._key = (api_key or "").strip()
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
    def is_openai(self) -> bool:
        """Whether this is OpenAI's own API."""
        return urlsplit(self._base_url).hostname == "api.openai.com"

    def __repr__(self) -> str:
        return f"Endpoint({self.url!r})"

    def _client(self) -> AsyncOpenAI:
        # Connections belong to the event loop they were opened in.
        loop = asyncio.get_running_loop()
        if loop not in self._clients:
            headers: dict[str, Any] = {f"X-Stainless-{name}": Omit() for name in _UNSENT}
            self._clients[loop] = AsyncOpenAI(
                base_url=self._base_url,
                api_key=self._key or "none-needed",
                max_retries=0,
                timeout=httpx2.Timeout(self.policy.timeout, connect=self.policy.connect_timeout),
                default_headers={**headers, "User-Agent": "colligate"},
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
                    return await self._attempts(attempt, model)
            except TimeoutError:
                if not timer.expired():
                    raise
                raise errors.EndpointUnreachable(
                    f"no answer from {self.url}",
                    f"not within {self.policy.deadline:g} s",
                    "is the server overloaded, or the model too large for it?",
                ) from None

    async def _attempts(self, attempt: Callable[[AsyncOpenAI], Awaitable[T]], model: str) -> T:
        turn = 1
        while True:
            try:
                return await attempt(self._client())
            except openai.APIStatusError as error:
                asked = retry_after(error.response.headers)
                if turn >= self.policy.attempts or not _passing(error):
                    # Not chained: the client's errors hold the request, and that the key.
                    raise await self._refused(error, model, turn) from None
            except (openai.OpenAIError, Garbled, ValueError) as error:
                asked = None
                if turn >= self.policy.attempts:
                    raise self._failed(error) from None
            await self.policy.sleep(self.policy.wait(turn, asked))
            turn += 1

    def _failed(self, error: Exception) -> errors.ModelError:
        """The typed error for a failure without a status: no connection, no sense."""
        if isinstance(error, openai.APITimeoutError):
            return errors.EndpointUnreachable(
                f"no answer from {self.url}",
                f"nothing arrived for {self.policy.timeout:g} s",
                "is the server overloaded?",
            )
        if isinstance(error, openai.APIConnectionError):
            why = self.scrub(str(error.__cause__ or "no connection"))
            return errors.EndpointUnreachable(
                f"nobody answers at {self.url}", why, "is the server running, and the URL right?"
            )
        if isinstance(error, openai.APIError):  # an error event inside a stream
            if _CONTEXT.search(error.message):
                return self._too_long(error.message)
            return errors.ServerFailed(
                f"{self.url} broke off its answer", self.scrub(error.message), "try again later"
            )
        why = str(error) if isinstance(error, Garbled) else "it is not valid JSON"
        return errors.MalformedOutput(
            f"{self.url} sent an answer that cannot be used",
            self.scrub(why),
            "is it an OpenAI-compatible endpoint?",
        )

    async def _refused(
        self, error: openai.APIStatusError, model: str, attempts: int
    ) -> errors.ColligateError:
        """The typed error for an HTTP status."""
        status, said = error.status_code, self.scrub(error_message(error))
        if error.code == "model_not_found" or status == 404:
            return await self._not_found(model, said)
        if status in (401, 403):
            if self._key:
                mend = f"check {self.key_variable}"
                return errors.NotAuthorised(f"{self.url} refuses the key", said, mend)
            mend = f"set {self.key_variable}"
            return errors.NotAuthorised(f"{self.url} wants a key", said, mend)
        if status == 429:
            if _quota_spent(error):
                mend = "add credit, or use another key or model"
                return errors.RateLimited(f"no quota left at {self.url}", said, mend)
            return errors.RateLimited(
                f"{self.url} takes no more calls for now",
                f"HTTP 429 after {attempts} attempts: {said}",
                "wait a little",
            )
        if is_context_error(error):
            return self._too_long(said)
        if status >= 500:
            return errors.ServerFailed(
                f"{self.url} failed",
                f"HTTP {status} after {attempts} attempts: {said}",
                "try again later, or look at the server's log",
            )
        return errors.RequestRefused(
            f"{self.url} refuses the request", f"HTTP {status}: {said}", "see what it says"
        )

    def _too_long(self, said: str) -> errors.ContextTooSmall:
        return errors.ContextTooSmall(
            f"the prompt does not fit the model at {self.url}",
            self.scrub(said),
            "ask over less text, or use a model with a larger window",
        )

    async def _not_found(self, model: str, said: str) -> errors.ColligateError:
        try:
            served = await _list_models(self._client())
        except (openai.OpenAIError, Garbled, ValueError):
            served = {}
        if not served or model in served or not model:
            return errors.RequestRefused(
                f"{self.url} does not know the address asked",
                f"HTTP 404: {said}",
                "check the base URL; it usually ends in /v1",
            )
        names = ", ".join(sorted(served)[:8]) + (", ..." if len(served) > 8 else "")
        near = closest(model, served)
        mend = f"it has {names}" + (f"; did you mean {near}?" if near else "")
        return errors.UnknownModel(f"no model {model!r} at {self.url}", said, mend)

    async def models(self) -> dict[str, dict[str, Any]]:
        """What the server lists at `/models`: id -> entry."""
        return await self.call(_list_models)

    def scrub(self, text: str) -> str:
        """A server's words without anything that looks like a key, at most 300 characters."""
        if self._key:
            text = text.replace(self._key, "[key]")
        text = " ".join(_SECRETS.sub("[key]", text).split())
        return text if len(text) <= 300 else text[:299] + "…"

    async def aclose(self) -> None:
        """Close this event loop's connections. Safe to call twice."""
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.close()


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


def retry_after(headers: httpx2.Headers) -> float | None:
    """Seconds the server asks to wait, from `Retry-After-Ms` or `Retry-After` (number or date)."""
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        value = headers.get(name, "")
        try:
            seconds = float(value) / unit
        except ValueError:
            try:
                seconds = email.utils.parsedate_to_datetime(value).timestamp() - time.time()
            except (ValueError, TypeError, OverflowError):
                continue
        if seconds == seconds:  # not NaN
            return max(0.0, seconds)
    return None


def error_message(error: openai.APIStatusError) -> str:
    """What the server said, out of the several shapes servers say it in."""
    body = error.body
    if isinstance(body, dict):
        inner = body.get("error", body)
        if isinstance(inner, dict):
            inner = inner.get("message") or inner.get("detail") or inner
        return str(inner)
    return str(body) if body else error.message


def is_context_error(error: openai.APIStatusError) -> bool:
    """Whether the server says that the prompt is too long."""
    return error.code == "context_length_exceeded" or bool(_CONTEXT.search(error_message(error)))


def _quota_spent(error: openai.APIStatusError) -> bool:
    return error.status_code == 429 and "insufficient_quota" in (error.code, error.type)


def _passing(error: openai.APIStatusError) -> bool:
    """Whether the same request may succeed later."""
    if is_context_error(error) and error.status_code != 429:
        return False
    return error.status_code >= 500 or (error.status_code == 429 and not _quota_spent(error))


async def _list_models(client: AsyncOpenAI) -> dict[str, dict[str, Any]]:
    listed = await client.get("/models", cast_to=object)
    entries = listed.get("data") if isinstance(listed, dict) else None
    if not isinstance(entries, list):
        raise Garbled("/models lists nothing")
    return {
        str(entry["id"]): entry for entry in entries if isinstance(entry, dict) and "id" in entry
    }
