"""Errors as JSON: RFC 9457 problems, OpenAI's form below `/v1/`, and Ollama's at its paths."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, NotRequired

from fastapi.exceptions import RequestValidationError
from pydantic import TypeAdapter
from starlette.exceptions import HTTPException
from starlette.responses import Response
from typing_extensions import TypedDict

from colligate.errors import (
    BudgetExceeded,
    ColligateError,
    ContextTooSmall,
    EmbedderMismatch,
    LibraryLocked,
    MissingCapability,
    MissingExtra,
    ModelError,
    NoDocuments,
    RateLimited,
    ReadingError,
    SpanError,
    TooLarge,
    UnknownDocument,
    UnsupportedFormat,
    UsageError,
    WeightsUnavailable,
    cause,
)
from colligate.server.shapes import describe_fault
from colligate.server.stream import AsciiJSONResponse

_log = logging.getLogger("colligate.server")
_MEDIA_TYPE = "application/problem+json"
_MAX_FAULTS = 20  # of one request that are listed
_ADDRESSES = (
    "the API is under /api; clients that ask for a base URL find OpenAI's protocol at /v1,"
    " and Ollama's at the address of the server without a path"
)
_OLLAMA = frozenset("/api/chat /api/embed /api/show /api/tags /api/version".split())
_RETRY_AFTER = "5"  # seconds


class NotHere(ColligateError):
    """A library, run, upload or page does not exist."""


class Forbidden(ColligateError):
    """The token of the request lacks a right."""


class Conflict(ColligateError):
    """The request does not fit the state of the server."""


class Busy(ColligateError):
    """Too much is going on, or the server is stopping; try again later."""


class RunFailed(ColligateError):
    """A run ended without an answer, with this `problem`."""

    def __init__(self, problem: Mapping[str, Any]) -> None:
        super().__init__(str(problem["detail"]), "", str(problem.get("hint", "")))
        self.problem = dict(problem)


class Refused(HTTPException):
    """A request that is refused with this status; `more` are further members of its problem."""

    def __init__(
        self, status: int, detail: str, headers: Mapping[str, str] | None = None, **more: Any
    ) -> None:
        super().__init__(status, detail, headers)
        self.more = more


# An error has the status of its class, or of the nearest class that it is derived from.
_STATUS: dict[type, int] = {
    Forbidden: 403,
    **dict.fromkeys((NotHere, UnknownDocument), 404),
    **dict.fromkeys((Conflict, NoDocuments, EmbedderMismatch), 409),
    TooLarge: 413,
    UnsupportedFormat: 415,
    **dict.fromkeys((UsageError, ReadingError, SpanError, BudgetExceeded), 422),
    **dict.fromkeys((ContextTooSmall, MissingCapability, WeightsUnavailable), 422),
    ColligateError: 500,
    MissingExtra: 501,
    ModelError: 502,
    **dict.fromkeys((Busy, RateLimited, LibraryLocked), 503),
}


def problem_of(error: BaseException) -> dict[str, Any]:
    """Return an error as a problem: type, title, status, detail and, if there is one, a hint.

    An error that is not colligate's own is logged, and its text is not sent.
    """
    error = cause(error)
    if isinstance(error, RunFailed):
        return error.problem
    if isinstance(error, ColligateError):
        status = next(_STATUS[kind] for kind in type(error).__mro__ if kind in _STATUS)
        detail = f"{error.what}: {error.why}" if error.why else error.what
        return problem(status, detail, hint=error.hint, kind=type(error).__name__)
    if isinstance(error, HTTPException) and error.detail == HTTPStatus.NOT_FOUND.phrase:
        return problem(404, "nothing is at this address", hint=_ADDRESSES)
    if isinstance(error, HTTPException):
        return problem(error.status_code, str(error.detail), **getattr(error, "more", {}))
    if isinstance(error, RequestValidationError):
        faults = [
            {"at": "/".join(str(part) for part in fault["loc"]), "why": describe_fault(fault)}
            for fault in error.errors()[:_MAX_FAULTS]
        ]
        detail = "; ".join(f"{fault['at']}: {fault['why']}" for fault in faults[:3])
        return problem(422, detail, errors=faults)
    if isinstance(error, OSError) and error.strerror:
        _log.error("an error of the system", exc_info=error)
        return problem(500, error.strerror)
    if isinstance(error, MemoryError):
        return problem(503, "out of memory", hint="send fewer files, or use a smaller model")
    _log.error("internal error", exc_info=error)
    return problem(500, f"internal error: {type(error).__name__}", hint="see the server's log")


def problem(
    status: int, detail: str, *, hint: str = "", kind: str = "", **more: Any
) -> dict[str, Any]:
    """Return a problem object; `kind` names a class of `colligate.errors`."""
    named = re.sub(r"(?<=.)(?=[A-Z])", " ", kind).capitalize()  # "Unknown document"
    return {
        "type": f"urn:colligate:{kind}" if kind else "about:blank",
        "title": named or HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
        **({"hint": hint} if hint else {}),
        **more,
    }


def error_response(error: Exception, path: str) -> Response:
    """Return the response that reports an error, in the form that clients of the path expect."""
    problem = problem_of(error)
    headers = dict(getattr(error, "headers", None) or {})
    if problem["status"] == 503:
        headers.setdefault("Retry-After", _RETRY_AFTER)
    if path not in _OLLAMA and not path.startswith("/v1/"):
        return Response(json.dumps(problem), problem["status"], headers, _MEDIA_TYPE)
    if problem["status"] >= 500 and problem["type"] != "urn:colligate:Busy":
        headers["x-should-retry"] = "false"  # a run was paid for: a person decides
    body = ollama_error(problem) if path in _OLLAMA else openai_error(problem)
    return AsciiJSONResponse(body, _openai_status(problem), headers)


def openai_error(problem: Mapping[str, Any]) -> dict[str, Any]:
    """Return a problem in OpenAI's form."""
    status = _openai_status(problem)
    param, code = problem.get("param"), problem.get("code")
    if faults := problem.get("errors"):
        param = faults[0]["at"].partition("/")[2].replace("/", ".") or None
    kind = problem["type"].removeprefix("urn:colligate:")
    if status == 401:
        code = "invalid_api_key"
    return {
        "error": {
            "message": problem["detail"] + (f"; {problem['hint']}" if "hint" in problem else ""),
            "type": "invalid_request_error" if status < 500 else "server_error",
            "param": param,
            "code": code or (None if kind == "about:blank" else kind),
        }
    }


def ollama_error(problem: Mapping[str, Any]) -> dict[str, Any]:
    """Return a problem in Ollama's form."""
    return {"error": openai_error(problem)["error"]["message"]}


def _openai_status(problem: Mapping[str, Any]) -> int:
    return 400 if problem["status"] == 422 else int(problem["status"])


class Problem(TypedDict):
    """What happened and why (`detail`), and what to do about it."""

    type: str
    title: str
    status: int
    detail: str
    hint: NotRequired[str]


PROBLEM_RESPONSES: dict[int | str, dict[str, Any]] = {
    "default": {
        "description": "An error, as an RFC 9457 problem.",
        "content": {_MEDIA_TYPE: {"schema": TypeAdapter(Problem).json_schema()}},
    }
}
"""Problems in the OpenAPI document."""
