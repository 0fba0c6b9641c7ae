"""HTTP to OpenAI-compatible servers: one call, and its failures.

The `openai` client sends the requests, retries them (no connection, time-outs, 408, 409, 429, 5xx)
and waits as `Retry-After` asks. Added here are a bound on the calls in flight, a deadline over all
attempts, another attempt when an answer arrives but cannot be used, and a typed error of one line,
which never contains a key.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from json import JSONDecodeError
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import parse_qsl, urlsplit
from weakref import WeakKeyDictionary

import openai
from openai import AsyncOpenAI, Omit

from colligate.concurrency import Slots
from colligate.errors import (
    ColligateError,
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
from colligate.models.base import OPENAI_URL, redact_url

if TYPE_CHECKING:
    import httpx2 as httpx
else:  # openai 3 speaks httpx2, openai 2 httpx: where used here they are alike
    httpx = import_module("httpx2" if int(openai.__version__.split(".")[0]) > 2 else "httpx")

T = TypeVar("T")

OnRefusal = Callable[[openai.APIStatusError, Mapping[str, Any]], bool]


class Garbled(Exception):
    """An answer arrived but cannot be used; asking again may help."""


UNUSABLE = (
    Garbled,
    JSONDecodeError,
    UnicodeDecodeError,
    RecursionError,
    httpx.RequestError,  # the body of a refused stream breaks off
    openai.APIError,  # a stream breaks off, or an error event comes in it
)
"""An answer arrives and cannot be read; asking again may help."""

REFUSALS = (
    openai.BadRequestError,
    openai.UnprocessableEntityError,
    openai.PermissionDeniedError,  # of log-probabilities
    openai.NotFoundError,  # of a model that only another address serves
)
"""A refusal that may name what to leave out."""


@dataclass(frozen=True)
class Policy:
    """Timeouts in seconds, retries, and the bound of calls in flight.

    Endpoints whose policies share `slots` share the bound of `in_flight` calls to one server.
    """

    max_retries: int = 3
    connect_timeout: float = 10.0
    timeout: float = 300.0  # without a byte; local models can be slow to begin
    deadline: float = 900.0  # for one call with all its retries, without waiting for a slot
    in_flight: int = 16
    slots: Slots = field(default_factory=Slots, repr=False)
    bare: bool = False  # send no headers from the environment, which may identify the user
    key_variable: str = "OPENAI_API_KEY"  # where the key comes from, for errors


class Attempts:
    """The attempts of one call: `for attempt in attempts: with attempt as body: ...`.

    There is another one, with a new body, if the answer cannot be read, and if `learn` returns True
    for a refusal and the body that was refused.
    """

    def __init__(
        self, body: Callable[[], Mapping[str, Any]], learn: OnRefusal | None, retries: int
    ) -> None:
        self._make_body, self._learn, self._retries = body, learn, retries
        self._sent: Mapping[str, Any] = {}
        self._answered = False

    def __iter__(self) -> Iterator[Attempts]:
        while not self._answered:
            yield self

    def __enter__(self) -> Mapping[str, Any]:
        self._sent = self._make_body()
        return self._sent

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        self._answered = error is None
        if isinstance(error, REFUSALS):
            return self._learn is not None and self._learn(error, self._sent)
        # The client itself has retried these.
        if isinstance(error, (openai.APIConnectionError, openai.APIStatusError)):
            return False
        if not isinstance(error, UNUSABLE) or not self._retries:
            return False
        self._retries -= 1
        return True


class Endpoint:
    """A base URL with its key and policy, usable from any event loop."""

    def __init__(
        self,
        base_url: str | None = None,
        api_key: str | None = None,
        *,
        policy: Policy | None = None,
    ) -> None:
        whole = (base_url or OPENAI_URL).strip()
        self.url = redact_url(whole)
        parts = urlsplit(whole)
        self._base_url = parts._replace(query="", fragment="").geturl().rstrip("/")
        self._query = dict(parse_qsl(parts.query))
        self.policy = policy or Policy()
        key_variable = self.policy.key_variable
        self._key = (api_key or "").strip()
        # A short value is a version or a flag, not a key.
        hidden = (parts.password or "", *(v for v in self._query.values() if len(v) >= 8))
        self._failures = Failures(self.url, self._key, key_variable, hidden)
        # Connections belong to the event loop they were opened in.
        self._open: WeakKeyDictionary[asyncio.AbstractEventLoop, _Connections] = WeakKeyDictionary()
        if self.is_openai and not self._key:
            hint = f"set {key_variable}, or name another server: openai:MODEL@URL"
            raise NotAuthorised("OpenAI cannot be asked", f"{key_variable} is not set", hint)
        if not (self._key.isascii() and self._key.isprintable()):
            what, hint = f"the key for {self.url} cannot be sent", f"set {key_variable} again"
            raise NotAuthorised(what, "it contains characters that no key has", hint)

    @property
    def root(self) -> str:
        """The base URL without its final /v1. It may contain a password: never show it."""
        return self._base_url.removesuffix("/v1")

    @property
    def is_openai(self) -> bool:
        return urlsplit(self._base_url).hostname == "api.openai.com"

    def __repr__(self) -> str:
        return f"Endpoint({self.url!r})"

    @contextlib.asynccontextmanager
    async def call(self, model: str = "") -> AsyncIterator[AsyncOpenAI]:
        """Yield a client for one call, within the bound of calls and the deadline.

        Waiting for a slot is not part of the deadline.

        Raises:
            ModelError: one of its subclasses. UnknownModel: the server does not have `model`.
        """
        async with self.policy.slots.of(self._base_url, self.policy.in_flight):
            here = self._connect()
            timer = asyncio.timeout(self.policy.deadline)
            here.deadlines.add(timer)
            try:
                async with timer:
                    yield here.client
            except (openai.OpenAIError, TimeoutError, *UNUSABLE) as error:
                if isinstance(error, TimeoutError) and not timer.expired():
                    raise
                # Not chained: the client's errors hold the request, and that holds the key.
                raise await self._typed(error, here, model) from None
            finally:
                here.deadlines.discard(timer)

    def attempts(
        self, body: Callable[[], Mapping[str, Any]] = dict, learn: OnRefusal | None = None
    ) -> Attempts:
        return Attempts(body, learn, self.policy.max_retries)

    async def _typed(self, error: Exception, here: _Connections, model: str) -> ColligateError:
        if here.closed:
            return ModelError(f"the connections to {self.url} were closed during a call")
        if isinstance(error, TimeoutError):
            what = f"no answer from {self.url}"
            hint = "is the server overloaded, or the model too large for it?"
            return EndpointUnreachable(what, f"not within {self.policy.deadline:g} s", hint)
        if not isinstance(error, openai.APIStatusError):
            return self._failures.without_status(error, self.policy.timeout)
        if not (error.code == "model_not_found" or error.status_code == 404):
            return self._failures.with_status(error)
        served: dict[str, Any] = {}
        if model and error.code != "DeploymentNotFound":  # Azure lists models, not deployments
            with contextlib.suppress(openai.OpenAIError, *UNUSABLE):
                served = await _list_models(here.client.with_options(max_retries=0))
        return self._failures.not_found(error, model, served)

    async def post(
        self,
        path: str,
        body: Mapping[str, Any] | Callable[[], Mapping[str, Any]],
        read: Callable[[Any], T],
        *,
        model: str = "",
        learn: OnRefusal | None = None,
    ) -> T:
        """Post a body and read the JSON of the answer; see `call`."""
        make = body if callable(body) else lambda: body
        async with self.call(model) as client:
            for attempt in self.attempts(make, learn):
                with attempt as sent:
                    answer = read(await client.post(path, body=sent, cast_to=object))
        return answer

    async def models(self) -> dict[str, dict[str, Any]]:
        """Return what the server lists at `/models`: id -> entry."""
        async with self.call() as client:
            for attempt in self.attempts():
                with attempt:
                    listed = await _list_models(client)
        return listed

    async def aclose(self) -> None:
        """Close this event loop's connections; calls under way fail. Safe to call twice."""
        here = self._open.pop(asyncio.get_running_loop(), None)
        if here is not None:
            await here.aclose()

    def _connect(self) -> _Connections:
        loop = asyncio.get_running_loop()
        if loop not in self._open:
            timeout = httpx.Timeout(self.policy.timeout, connect=self.policy.connect_timeout)
            # `call` bounds the calls in flight; each may keep its connection for the next.
            limits = httpx.Limits(max_keepalive_connections=self.policy.in_flight)
            try:
                http = httpx.AsyncClient(
                    timeout=timeout,
                    limits=limits,
                    follow_redirects=False,  # the prompt holds the user's documents
                    event_hooks={"response": [_prevent_useless_retries]},
                )
            except (ImportError, ValueError, httpx.InvalidURL) as error:
                raise EndpointUnreachable(
                    f"{self.url} cannot be asked through this proxy",
                    str(error),
                    "set HTTPS_PROXY, HTTP_PROXY and ALL_PROXY to http:// addresses, or to nothing",
                ) from None
            client = AsyncOpenAI(
                base_url=self._base_url,
                api_key=self._key or _NO_KEY,
                max_retries=self.policy.max_retries,
                timeout=timeout,
                default_query=self._query,
                default_headers=self._headers(),
                http_client=http,
            )
            self._open[loop] = _Connections(client)
        return self._open[loop]

    def _headers(self) -> dict[str, Any]:
        headers: dict[str, Any] = {f"X-Stainless-{name}": Omit() for name in _UNSENT}
        if self.policy.bare:
            lines = os.environ.get("OPENAI_CUSTOM_HEADERS", "").split("\n")
            named = [line.partition(":")[0].strip() for line in lines if ":" in line]
            # In place of the environment's, in the spelling of each: openai 2 tells them apart.
            keys = {"Authorization", *(name for name in named if name.lower() == "authorization")}
            unsent = {"OpenAI-Organization", "OpenAI-Project", *named} - keys
            headers |= dict.fromkeys(unsent, Omit()) | dict.fromkeys(keys, f"Bearer {_NO_KEY}")
        return {**headers, "User-Agent": "colligate"}


_NO_KEY = "none-needed"

# The client would describe this machine in headers; endpoints do not need that.
_UNSENT = ("Lang", "Package-Version", "OS", "Arch", "Runtime", "Runtime-Version", "Async")


@dataclass
class _Connections:
    """The client of one event loop, and the deadlines of the calls that use it."""

    client: AsyncOpenAI
    closed: bool = False
    deadlines: set[asyncio.Timeout] = field(default_factory=set)

    async def aclose(self) -> None:
        self.closed = True
        for deadline in self.deadlines:  # ends the calls under way now
            deadline.reschedule(0)
        await self.client.close()


async def _prevent_useless_retries(response: httpx.Response) -> None:
    """Tell the client not to retry a spent quota, a prompt that is too long, or 501.

    Google says in the body when to retry.
    """
    if response.status_code != 429 and response.status_code < 500:
        return
    body = (await response.aread()).decode("utf-8", "replace")
    if found := _RETRY_DELAY.search(body):
        response.headers.setdefault("Retry-After", found[1])
    useless = "insufficient_quota" if response.status_code == 429 else _CONTEXT
    if response.status_code == 501 or re.search(useless, body):
        response.headers["x-should-retry"] = "false"


async def _list_models(client: AsyncOpenAI) -> dict[str, dict[str, Any]]:
    listed: Any = await client.get("/models", cast_to=object)
    entries = listed.get("data") if isinstance(listed, dict) else None
    if not isinstance(entries, list):
        raise Garbled("/models lists nothing")
    return {str(each["id"]): each for each in entries if isinstance(each, dict) and "id" in each}


# Whatever its status: the prompt is too long. Servers word it differently.
_CONTEXT = re.compile(
    r"context[ _](length|window|size|limit)|maximum context|(prompt|input) is too long"
    r"|too many tokens|maximum (input|sequence|model|prompt) length|maximum number of tokens"
    r"|reduce the length",
    re.IGNORECASE,
)
_RETRY_DELAY = re.compile(r'"retryDelay":\s*"([\d.]+)s"')
_SECRETS = re.compile(r"\b(sk|pk|key|hf)[-_][\w*.\-]{6,}|\bBearer\s+\S+", re.IGNORECASE)


@dataclass(frozen=True)
class Failures:
    """Turns the failures of one endpoint into typed errors."""

    url: str
    key: str = field(repr=False)
    key_variable: str
    hidden: tuple[str, ...] = field(repr=False)
    """What else must not be shown: passwords and keys in the URL."""

    def without_status(self, error: Exception, timeout: float) -> ModelError:
        """Return the typed error for a lost connection, or an answer that cannot be used."""
        if isinstance(error, openai.APITimeoutError | httpx.TimeoutException):
            what, why = f"no answer from {self.url}", f"nothing arrived for {timeout:g} s"
            return EndpointUnreachable(what, why, "is the server overloaded?")
        if isinstance(error, openai.APIConnectionError | httpx.RequestError):
            cause = error.__cause__ if isinstance(error, openai.APIConnectionError) else error
            what, why = f"nobody answers at {self.url}", self.scrub(str(cause or "no connection"))
            return EndpointUnreachable(what, why, "is the server running, and the URL right?")
        if isinstance(error, openai.APIError):  # an error event inside a stream
            if _CONTEXT.search(error.message):
                return self._too_long(error.message)
            what, why = f"{self.url} did not finish its answer", self.scrub(error.message)
            return ServerFailed(what, why, "try again later")
        what = f"{self.url} sent an answer that cannot be used"
        why = self.scrub(str(error)) if isinstance(error, Garbled) else "it is not valid JSON"
        return MalformedOutput(what, why, "is it an OpenAI-compatible endpoint?")

    def with_status(self, error: openai.APIStatusError) -> ModelError:
        """Return the typed error for an HTTP status."""
        status, message = error.status_code, self.scrub(error_message(error))
        attempts = int(error.request.headers.get("x-stainless-retry-count", 0)) + 1
        after = f"HTTP {status} after {attempts} attempts: {message}"
        if status in (401, 403) or "API_KEY_INVALID" in str(error.body):  # as Google says it
            what, verb = ("refuses the key", "check") if self.key else ("wants a key", "set")
            return NotAuthorised(f"{self.url} {what}", message, f"{verb} {self.key_variable}")
        if target := error.response.headers.get("Location"):
            why, hint = self.scrub(target), "name that address if you trust it"
            return RequestRefused(f"{self.url} redirects to another address", why, hint)
        if status == 402 or "insufficient_quota" in (error.code, error.type):
            return RateLimited(f"no quota left at {self.url}", message, "add credit")
        if status == 429:
            return RateLimited(f"{self.url} accepts no more calls for now", after, "wait a little")
        if is_context_error(error):
            return self._too_long(message)
        if error.code in ("content_filter", "content_policy_violation"):
            return ModelError(f"the content filter of {self.url} refuses the prompt", message)
        if status >= 500:
            return ServerFailed(f"{self.url} failed", after, "try again later")
        return RequestRefused(f"{self.url} refuses the request", f"HTTP {status}: {message}")

    def not_found(
        self, error: openai.APIStatusError, model: str, served: Collection[str]
    ) -> ColligateError:
        """Return the typed error for an unknown model or address, given what the server lists."""
        message = self.scrub(error_message(error))
        known = {"model_not_found", "DeploymentNotFound"}
        about_model = error.code in known or "model" in message.lower()
        if model in served or not (served or about_model):
            what = f"{self.url} does not know the address asked"
            why = f"HTTP {error.status_code}: {message}"
            return RequestRefused(what, why, "check the base URL; it usually ends in /v1")
        names = ", ".join(sorted(served)[:8]) + (", ..." if len(served) > 8 else "")
        hint = f"it has {names}" if served else "check the model's name"
        return UnknownModel(f"no model {model!r} at {self.url}", message, hint)

    def _too_long(self, message: str) -> ContextTooSmall:
        what, why = f"the prompt does not fit the model at {self.url}", self.scrub(message)
        return ContextTooSmall(what, why, "ask over less text, or use a model with a larger window")

    def scrub(self, text: str) -> str:
        """Return a server's message without texts like a key, at most 300 characters."""
        for secret in filter(None, (self.key, *self.hidden)):
            text = text.replace(secret, "[key]")
        text = " ".join(_SECRETS.sub("[key]", text).split())
        return text if len(text) <= 300 else text[:299] + "…"


def error_message(error: openai.APIStatusError) -> str:
    """Return the server's message, from the several forms that servers send."""
    body = error.body
    if isinstance(body, list) and body:  # as Google sends it
        body = body[0]
    if isinstance(body, dict):
        inner = body.get("error", body)
        if isinstance(inner, dict):
            inner = inner.get("message") or inner.get("detail") or inner
        return str(inner)
    return str(body) if body else error.message


def is_context_error(error: openai.APIStatusError) -> bool:
    """Whether the server reports that the prompt is too long."""
    return error.code == "context_length_exceeded" or bool(_CONTEXT.search(error_message(error)))
