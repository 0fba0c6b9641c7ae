"""What a failed call means to the person who made it: one typed error, one line, no key in it."""

from __future__ import annotations

import email.utils
import re
import time
from collections.abc import Collection
from dataclasses import dataclass, field

import httpx2
import openai

from colligate import errors
from colligate.models.suggest import closest

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

    def without_status(self, error: Exception, timeout: float) -> errors.ModelError:
        """The typed error for no connection, or an answer without sense."""
        if isinstance(error, openai.APITimeoutError | httpx2.TimeoutException):
            return errors.EndpointUnreachable(
                f"no answer from {self.url}",
                f"nothing arrived for {timeout:g} s",
                "is the server overloaded?",
            )
        if isinstance(error, openai.APIConnectionError | httpx2.RequestError):
            cause = error.__cause__ if isinstance(error, openai.APIConnectionError) else error
            why = self.scrub(str(cause or "no connection"))
            return errors.EndpointUnreachable(
                f"nobody answers at {self.url}", why, "is the server running, and the URL right?"
            )
        if isinstance(error, openai.APIError):  # an error event inside a stream
            if _CONTEXT.search(error.message):
                return self.too_long(error.message)
            return errors.ServerFailed(
                f"{self.url} broke off its answer", self.scrub(error.message), "try again later"
            )
        why = str(error) if isinstance(error, Garbled) else "it is not valid JSON"
        return errors.MalformedOutput(
            f"{self.url} sent an answer that cannot be used",
            self.scrub(why),
            "is it an OpenAI-compatible endpoint?",
        )

    def with_status(self, error: openai.APIStatusError, attempts: int) -> errors.ModelError:
        """The typed error for an HTTP status."""
        status, said = error.status_code, self.scrub(error_message(error))
        if status in (401, 403):
            if self.key:
                mend = f"check {self.key_variable}"
                return errors.NotAuthorised(f"{self.url} refuses the key", said, mend)
            mend = f"set {self.key_variable}"
            return errors.NotAuthorised(f"{self.url} wants a key", said, mend)
        if status == 429:
            if quota_spent(error):
                mend = "add credit, or use another key or model"
                return errors.RateLimited(f"no quota left at {self.url}", said, mend)
            return errors.RateLimited(
                f"{self.url} takes no more calls for now",
                f"HTTP 429 after {attempts} attempts: {said}",
                "wait a little",
            )
        if is_context_error(error):
            return self.too_long(said)
        if status >= 500:
            return errors.ServerFailed(
                f"{self.url} failed",
                f"HTTP {status} after {attempts} attempts: {said}",
                "try again later, or look at the server's log",
            )
        return errors.RequestRefused(
            f"{self.url} refuses the request", f"HTTP {status}: {said}", "see what it says"
        )

    def too_long(self, said: str) -> errors.ContextTooSmall:
        return errors.ContextTooSmall(
            f"the prompt does not fit the model at {self.url}",
            self.scrub(said),
            "ask over less text, or use a model with a larger window",
        )

    def not_found(
        self, error: openai.APIStatusError, model: str, served: Collection[str]
    ) -> errors.ColligateError:
        """The typed error for an unknown model or address, given what the server lists."""
        said = self.scrub(error_message(error))
        about_model = error.code == "model_not_found" or "model" in said.lower()
        if model in served or not (served or about_model):
            return errors.RequestRefused(
                f"{self.url} does not know the address asked",
                f"HTTP {error.status_code}: {said}",
                "check the base URL; it usually ends in /v1",
            )
        names = ", ".join(sorted(served)[:8]) + (", ..." if len(served) > 8 else "")
        near = closest(model, served)
        mend = f"it has {names}" if served else "check the model's name"
        mend += f"; did you mean {near}?" if near else ""
        return errors.UnknownModel(f"no model {model!r} at {self.url}", said, mend)

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
