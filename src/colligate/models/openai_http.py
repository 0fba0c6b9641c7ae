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
import email.utils
import os
import random
import re
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from json import JSONDecodeError
from typing import Any, Literal, TypeVar
from urllib.parse import parse_qsl, urlsplit
from weakref import WeakKeyDictionary

import httpx2
import openai
from openai import AsyncOpenAI, AsyncStream, Omit

from colligate.documents.tokens import estimate_tokens
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
    closest,
)
from colligate.models.base import Message, Usage, encodable
from colligate.models.structured import with_schema
from colligate.models.thinking import ThinkingFilter

# What a failed call means to the person who made it: one typed error, one line, no key in it.

# Whatever its status: the prompt is too long. Servers word it differently.
_CONTEXT = re.compile(
    r"context[ _](length|window|size)|maximum context|prompt is too long|too many tokens"
    r"|maximum (input|sequence|model) length|reduce the length",
    re.IGNORECASE,
)
_SECRETS = re.compile(r"\b(sk|pk|key|hf)[-_][\w*.\-]{6,}|\bBearer\s+\S+", re.IGNORECASE)


class Garbled(Exception):
    """An answer that arrived but cannot be used; asking again may help."""


@dataclass(frozen=True)
class Failures:
    """Turns the failures of one endpoint into typed errors."""

    url: str
    key: str = field(repr=False)
    key_variable: str
    hidden: tuple[str, ...] = field(repr=False)
    """What else must not be shown: passwords and keys in the URL."""

    def without_status(self, error: Exception, timeout: float) -> ModelError:
        """The typed error for no connection, or an answer without sense."""
        if isinstance(error, openai.APITimeoutError | httpx2.TimeoutException):
            return EndpointUnreachable(
                f"no answer from {self.url}",
                f"nothing arrived for {timeout:g} s",
                "is the server overloaded?",
            )
        if isinstance(error, openai.APIConnectionError | httpx2.RequestError):
            cause = error.__cause__ if isinstance(error, openai.APIConnectionError) else error
            why = self.scrub(str(cause or "no connection"))
            return EndpointUnreachable(
                f"nobody answers at {self.url}", why, "is the server running, and the URL right?"
            )
        if isinstance(error, openai.APIError):  # an error event inside a stream
            if _CONTEXT.search(error.message):
                return self.too_long(error.message)
            return ServerFailed(
                f"{self.url} broke off its answer", self.scrub(error.message), "try again later"
            )
        why = str(error) if isinstance(error, Garbled) else "it is not valid JSON"
        return MalformedOutput(
            f"{self.url} sent an answer that cannot be used",
            self.scrub(why),
            "is it an OpenAI-compatible endpoint?",
        )

    def with_status(self, error: openai.APIStatusError, attempts: int) -> ModelError:
        """The typed error for an HTTP status."""
        status, said = error.status_code, self.scrub(error_message(error))
        if status in (401, 403):
            if self.key:
                hint = f"check {self.key_variable}"
                return NotAuthorised(f"{self.url} refuses the key", said, hint)
            hint = f"set {self.key_variable}"
            return NotAuthorised(f"{self.url} wants a key", said, hint)
        if status == 429:
            if quota_spent(error):
                hint = "add credit, or use another key or model"
                return RateLimited(f"no quota left at {self.url}", said, hint)
            return RateLimited(
                f"{self.url} takes no more calls for now",
                f"HTTP 429 after {attempts} attempts: {said}",
                "wait a little",
            )
        if is_context_error(error):
            return self.too_long(said)
        if status >= 500:
            return ServerFailed(
                f"{self.url} failed",
                f"HTTP {status} after {attempts} attempts: {said}",
                "try again later, or look at the server's log",
            )
        return RequestRefused(
            f"{self.url} refuses the request", f"HTTP {status}: {said}", "see what it says"
        )

    def too_long(self, said: str) -> ContextTooSmall:
        return ContextTooSmall(
            f"the prompt does not fit the model at {self.url}",
            self.scrub(said),
            "ask over less text, or use a model with a larger window",
        )

    def not_found(
        self, error: openai.APIStatusError, model: str, served: Collection[str]
    ) -> ColligateError:
        """The typed error for an unknown model or address, given what the server lists."""
        said = self.scrub(error_message(error))
        about_model = error.code == "model_not_found" or "model" in said.lower()
        if model in served or not (served or about_model):
            return RequestRefused(
                f"{self.url} does not know the address asked",
                f"HTTP {error.status_code}: {said}",
                "check the base URL; it usually ends in /v1",
            )
        names = ", ".join(sorted(served)[:8]) + (", ..." if len(served) > 8 else "")
        near = closest(model, served)
        hint = f"it has {names}" if served else "check the model's name"
        hint += f"; did you mean {near}?" if near else ""
        return UnknownModel(f"no model {model!r} at {self.url}", said, hint)

    def scrub(self, text: str) -> str:
        """A server's words without anything that looks like a key, at most 300 characters."""
        for secret in filter(None, (self.key, *self.hidden)):
            text = text.replace(secret, "[key]")
        text = " ".join(_SECRETS.sub("[key]", text).split())
        return text if len(text) <= 300 else text[:299] + "…"


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


def is_unknown(error: openai.APIStatusError) -> bool:
    """Whether the server does not know the model, or the address."""
    return error.code == "model_not_found" or error.status_code == 404


def quota_spent(error: openai.APIStatusError) -> bool:
    """Whether it is the account's quota, not the rate, that is used up."""
    return error.status_code == 429 and "insufficient_quota" in (error.code, error.type)


def passing(error: openai.APIStatusError) -> bool:
    """Whether the same request may succeed later."""
    if is_context_error(error) and error.status_code != 429:
        return False
    if error.status_code == 501:  # not implemented
        return False
    return error.status_code >= 500 or (error.status_code == 429 and not quota_spent(error))


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
            raise NotAuthorised(
                "OpenAI cannot be asked",
                f"{key_variable} is not set",
                f"set {key_variable}, or name another server: openai:MODEL@URL",
            )
        if not (self._key.isascii() and self._key.isprintable()):
            raise NotAuthorised(
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
                raise EndpointUnreachable(
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
                raise EndpointUnreachable(
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
        raise ModelError(f"the connections to {self.url} were closed during a call")

    def _was_last(self, turn: int, wait: float, timer: asyncio.Timeout) -> bool:
        """Whether no attempt follows this one: there were enough, or no time is left to wait."""
        end = timer.when()
        late = end is not None and asyncio.get_running_loop().time() + wait >= end
        return late or turn >= self.policy.attempts

    async def _refused(
        self, error: openai.APIStatusError, model: str, attempts: int
    ) -> ColligateError:
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
        raise UnknownModel(
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


# What one model at one endpoint turned out to accept, learnt from what it refused.
#
# "OpenAI-compatible" servers differ in the parameters they take. Asking is the only way to
# know: the first refusal that names a parameter teaches it, every later call is right at once.

SchemaForm = Literal["json_schema", "json_object", "prompt"]

_OPTIONAL = ("temperature", "seed", "stop", "stream_options")
_LIMITS = ("max_tokens", "max_completion_tokens")
_NO_SUCH = re.compile(
    r"unsupported|(not|n't) (be )?(support|permit|allow|accept|recogni[sz]ed)|unrecogni[sz]ed"
    r"|unknown|unexpected|deprecated|use .{0,3}max_|extra|strictly positive",
    re.IGNORECASE,
)
_SCHEMA_WORDS = re.compile(r"response_format|json_schema|json_object|schema|grammar", re.IGNORECASE)


def strict_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema as strict decoders want it: every property required, no others allowed.

    What satisfies it satisfies the given schema too.
    """

    def walk(node: Any) -> Any:
        if isinstance(node, list):
            return [walk(item) for item in node]
        if not isinstance(node, Mapping):
            return node
        if "$ref" in node:
            return {"$ref": node["$ref"]}  # strict decoders allow nothing beside it
        strict = {key: walk(value) for key, value in node.items() if key != "default"}
        properties = node.get("properties")
        if node.get("type") == "object" and isinstance(properties, Mapping):
            strict["properties"] = {name: walk(value) for name, value in properties.items()}
            strict["required"] = list(properties)
            strict["additionalProperties"] = False
        return strict

    result: dict[str, Any] = walk(schema)
    return result


class Dialect:
    """The parameters of one model at one endpoint."""

    def __init__(self, model: str, *, is_openai: bool) -> None:
        self._model = model
        # OpenAI's newer models refuse the old name, most other servers only know that.
        self._limit = _LIMITS[1] if is_openai else _LIMITS[0]
        self._limit_settled = False
        self._dropped: set[str] = set()
        self._warnings: list[str] = []
        self.schema_form: SchemaForm = "json_schema"
        self.thinking_room = 0

    def takes(self, parameter: str) -> bool:
        """Whether the model has not refused the parameter."""
        return parameter not in self._dropped

    def request(
        self,
        messages: Sequence[Message],
        *,
        max_tokens: int,
        schema: Mapping[str, Any] | None = None,
        **optional: Any,
    ) -> dict[str, Any]:
        """The body of a request, without what is None or was refused before."""
        if schema is not None and self.schema_form != "json_schema":
            messages = with_schema(messages, schema)
        body: dict[str, Any] = {
            "model": self._model,
            "messages": [{"role": m.role, "content": encodable(m.content)} for m in messages],
            self._limit: max_tokens + self.thinking_room,
        }
        body |= {
            name: value
            for name, value in optional.items()
            if value is not None and name not in self._dropped
        }
        if schema is None:
            return body
        if self.schema_form == "json_schema":
            held = {"name": "answer", "schema": strict_schema(schema), "strict": True}
            body["response_format"] = {"type": "json_schema", "json_schema": held}
        elif self.schema_form == "json_object":
            body["response_format"] = {"type": "json_object"}
        return body

    def learn(self, error: openai.APIStatusError, sent: Mapping[str, Any]) -> bool:
        """Learn from a refusal; False when it is not about a parameter that could be left out."""
        said = f"{error.param or ''} {error.code or ''} {error_message(error)}"
        known = [name for name in sent if name in _OPTIONAL + _LIMITS]
        if "response_format" in sent and error.param not in known and _SCHEMA_WORDS.search(said):
            self._lower_schema_form(sent["response_format"]["type"])
            return True
        named = refused_parameter(error, known)
        if named is None or not _NO_SUCH.search(said):
            return False  # Also a value out of bounds: whoever chose it should know.
        if named in _OPTIONAL:
            if named not in self._dropped and named != "stream_options":
                self._warnings.append(f"{self._model} does not take {named}; it was left out")
            self._dropped.add(named)
            return True
        if named == self._limit and self._limit_settled:
            return False
        # The same meaning under another name: nothing to warn about.
        self._limit = _LIMITS[1 - _LIMITS.index(named)]
        self._limit_settled = True
        return True

    def _lower_schema_form(self, refused: str) -> None:
        if refused != self.schema_form:
            return  # a call made at the same time has learnt it already
        if refused == "json_schema":
            self.schema_form, now = "json_object", "JSON mode"
        else:
            self.schema_form, now = "prompt", "the prompt alone"
        self._warnings.append(f"{self._model} cannot be held to a JSON schema; {now} asks for it")

    def give_room_to_think(self, tokens: int) -> None:
        """Allow that many tokens beyond what the caller allows the answer."""
        if self.thinking_room < tokens:
            self.thinking_room = tokens
            self._warnings.append(
                f"{self._model} spent all its tokens on thinking; it now has {tokens} more for that"
            )

    def take_warnings(self) -> tuple[str, ...]:
        """What was learnt and not said yet."""
        warnings, self._warnings = tuple(self._warnings), []
        return warnings


def refused_parameter(error: openai.APIStatusError, sent: Sequence[str]) -> str | None:
    """Which of the parameters sent the refusal is about: as declared, else the first it names."""
    if error.param in sent:
        return error.param
    said = error_message(error)
    places = {name: found.start() for name in sent if (found := re.search(rf"\b{name}\b", said))}
    return min(places, key=places.__getitem__, default=None)


# One answer of OpenAI's chat protocol, whole or streamed, as servers really send them.


@dataclass
class Reply:
    """What the server sent; `usage` is its JSON, if any."""

    content: str | None = None
    thinking: str = ""
    finish_reason: str | None = None
    usage: Any = None


# Answers are read as plain JSON: building the client's objects costs a quarter of a call's
# processor time, and of each piece of a stream.


async def post_chat(client: AsyncOpenAI, body: dict[str, Any]) -> Any:
    """Send a request; the answer is whatever JSON came, or a text."""
    return await client.post("/chat/completions", body=body, cast_to=object)


async def ask(client: AsyncOpenAI, body: dict[str, Any]) -> Reply:
    """Send a request and read the whole answer.

    Raises:
        Garbled: it is no answer.
    """
    completion = await post_chat(client, body)
    try:
        choice = completion["choices"][0]
        message, finish_reason = choice["message"], choice.get("finish_reason")
        content = message.get("content")
        if content is None:
            content = message.get("refusal")
        reply = Reply(content, _thinking(message), finish_reason, completion.get("usage"))
    except (AttributeError, LookupError, TypeError):
        raise Garbled("it has no choices") from None
    return _usable(reply)


async def ask_streaming(
    client: AsyncOpenAI, body: dict[str, Any], show: Callable[[str], object] | None
) -> Reply:
    """The same, streamed; `show` is given all the visible text so far, each time there is more.

    Raises:
        Garbled: it is no answer, or it breaks off.
    """
    reply = Reply()
    visible, filtered = "", ThinkingFilter()
    opened = await client.post(
        "/chat/completions",
        body=body | {"stream": True},
        cast_to=object,
        stream=True,
        stream_cls=AsyncStream[Any],
    )
    async with opened as stream:
        async for chunk in stream:
            try:
                reply.usage = chunk.get("usage") or reply.usage
                if not chunk.get("choices"):
                    continue
                choice = chunk["choices"][0]
                reply.finish_reason = choice.get("finish_reason") or reply.finish_reason
                delta = choice.get("delta") or {}
                piece = delta.get("content") or delta.get("refusal")
                reply.thinking += _thinking(delta)
            except (AttributeError, LookupError, TypeError):
                raise Garbled("it has no choices") from None
            if piece is not None:
                if not isinstance(piece, str):
                    raise Garbled("its content is not a text")
                reply.content = (reply.content or "") + piece
                visible += filtered.feed(piece)
                if show is not None:
                    show(visible)
    if reply.finish_reason is None:
        raise Garbled("the stream broke off before its end")
    return _usable(reply)


def _usable(reply: Reply) -> Reply:
    if reply.content is not None and not isinstance(reply.content, str):
        raise Garbled("its content is not a text")
    if not isinstance(reply.finish_reason, str | None):
        raise Garbled("its finish_reason is not a text")
    if reply.content is None and not reply.thinking and reply.finish_reason in (None, "stop"):
        raise Garbled("its content is null")
    return reply


def _thinking(message: Any) -> str:
    # DeepSeek and llama-server write reasoning_content, newer vLLM and Ollama reasoning.
    for name in ("reasoning_content", "reasoning"):
        if isinstance(text := message.get(name), str):
            return text
    return ""


def estimate_prompt(messages: Sequence[Message]) -> int:
    """About how many tokens messages have in a chat template.

    Four mark a message (begin, role, line break, end), three more call for the answer: as in
    OpenAI's models and in ChatML. Templates that add a system prompt of their own cost more.
    """
    return sum(estimate_tokens(message.content) + 4 for message in messages) + 3


def usage_of(reply: Reply, messages: Sequence[Message]) -> Usage:
    """What the answer to the messages cost; an estimate where the server does not say."""
    if count(reply.usage, "prompt_tokens"):
        return Usage(
            input_tokens=count(reply.usage, "prompt_tokens"),
            output_tokens=count(reply.usage, "completion_tokens"),
            cached_tokens=count(reply.usage, "prompt_tokens_details", "cached_tokens"),
        )
    return Usage(
        input_tokens=estimate_prompt(messages),
        output_tokens=estimate_tokens(reply.thinking + (reply.content or "")),
        estimated=True,
    )


def count(said: Any, *names: str) -> int:
    """A number that a server says somewhere in its usage; 0 where it says none."""
    for name in names:
        said = said.get(name) if isinstance(said, dict) else None
    return said if isinstance(said, int) and said > 0 else 0
