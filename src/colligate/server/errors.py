"""Errors as JSON: RFC 9457 problems, and OpenAI's form below `/v1/`."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

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
from colligate.server.stream import AsciiJSONResponse

_log = logging.getLogger("colligate.server")
_MEDIA_TYPE = "application/problem+json"
_MAX_FAULTS = 20  # of one request that are listed


class NotHere(ColligateError):
    """A library, run, upload or page does not exist."""


class Forbidden(ColligateError):
    """The token of the request lacks a right."""


class Conflict(ColligateError):
    """The request does not fit the state of the server."""


class Busy(ColligateError):
    """Too much is going on, or the server is stopping; try again in `retry_after` seconds."""

    retry_after: int = 5


class RunFailed(ColligateError):
    """A run ended without an answer, with this `problem`."""

    def __init__(self, problem: Mapping[str, Any]) -> None:
        super().__init__(str(problem["detail"]), "", str(problem.get("hint", "")))
        self.problem = dict(problem)


class Unanswerable(ColligateError):
    """A request in OpenAI's form that names no model, or asks for what is not possible."""

    def __init__(self, status: int, message: str, param: str, code: str | None = None) -> None:
        super().__init__(message)
        self.status, self.param, self.code = status, param, code


# The first line with a class that fits gives the status; otherwise it is 500.
_STATUS: tuple[tuple[int, tuple[type[ColligateError], ...]], ...] = (
    (404, (NotHere, UnknownDocument)),
    (403, (Forbidden,)),
    (409, (Conflict, NoDocuments, EmbedderMismatch)),
    (503, (Busy, RateLimited, LibraryLocked)),
    (413, (TooLarge,)),
    (415, (UnsupportedFormat,)),
    (501, (MissingExtra,)),
    (422, (UsageError, ReadingError, SpanError, BudgetExceeded)),
    (422, (ContextTooSmall, MissingCapability, WeightsUnavailable)),
    (502, (ModelError,)),
)


def problem_of(error: BaseException) -> dict[str, Any]:
    """Return an error as a problem: type, title, status, detail and, if there is one, a hint.

    An error that is not colligate's own is logged, and its text is not sent.
    """
    error = cause(error)
    if isinstance(error, RunFailed):
        return error.problem
    if isinstance(error, ColligateError):
        status = next((status for status, kinds in _STATUS if isinstance(error, kinds)), 500)
        detail = f"{error.what}: {error.why}" if error.why else error.what
        return problem(status, detail, hint=error.hint, kind=type(error).__name__)
    if isinstance(error, MemoryError):
        return problem(503, "out of memory", hint="send fewer files, or use a smaller model")
    _log.error("internal error", exc_info=error)
    return problem(500, f"internal error: {type(error).__name__}", hint="see the server's log")


def problem(
    status: int, detail: str, *, hint: str = "", kind: str = "", **more: Any
) -> dict[str, Any]:
    """Return a problem object; `kind` names a class of `colligate.errors`."""
    return {
        "type": f"urn:colligate:{kind}" if kind else "about:blank",
        "title": _as_words(kind) if kind else HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
        **({"hint": hint} if hint else {}),
        **more,
    }


def problem_response(
    problem: Mapping[str, Any], headers: Mapping[str, str] | None = None, *, path: str = ""
) -> Response:
    """Return the response for a problem, in OpenAI's form for a path below `/v1/`."""
    status = int(problem["status"])
    headers = dict(headers or {})
    if status == 503:
        headers.setdefault("Retry-After", str(Busy.retry_after))
    if not path.startswith("/v1/"):
        return Response(json.dumps(problem), status, headers, _MEDIA_TYPE)
    if status >= 500 and problem["type"] != "urn:colligate:Busy":
        headers["x-should-retry"] = "false"  # a run was paid for: a person decides
    status, error = openai_error_of(problem)
    return AsciiJSONResponse(error, status, headers)


def openai_error_of(problem: Mapping[str, Any]) -> tuple[int, dict[str, Any]]:
    """Return a problem in OpenAI's form, and its status there: what is 422 here is 400."""
    status = 400 if problem["status"] == 422 else int(problem["status"])
    message = problem["detail"] + (f"; {problem['hint']}" if problem.get("hint") else "")
    kind = str(problem["type"]).removeprefix("urn:colligate:")
    return status, openai_error(status, message, None, None if kind == "about:blank" else kind)


def openai_error(status: int, message: str, param: str | None, code: str | None) -> dict[str, Any]:
    """Return an error in OpenAI's form."""
    kind = "invalid_request_error" if status < 500 else "server_error"
    code = "invalid_api_key" if status == 401 else code
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def add_error_handlers(app: FastAPI) -> None:
    """Make an app report every error as a problem."""

    async def handle_any(request: Request, error: Exception) -> Response:
        return problem_response(problem_of(error), path=request.scope["path"])

    async def handle_unanswerable(request: Request, error: Exception) -> Response:
        assert isinstance(error, Unanswerable)
        body = openai_error(error.status, error.what, error.param, error.code)
        return AsciiJSONResponse(body, error.status)

    async def handle_http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        phrase = HTTPStatus(error.status_code).phrase
        detail = error.detail if error.detail != phrase else f"{request.method} {phrase.lower()}"
        body = problem(error.status_code, str(detail))
        return problem_response(body, error.headers, path=request.scope["path"])

    async def handle_invalid(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        if request.scope["path"].startswith("/v1/"):
            fault = error.errors()[0]
            param = ".".join(str(part) for part in fault["loc"][1:]) or None
            body = openai_error(400, f"{param or 'the body'}: {fault['msg']}", param, None)
            return AsciiJSONResponse(body, 400)
        faults = [
            {"at": "/".join(str(part) for part in fault["loc"]), "why": fault["msg"]}
            for fault in error.errors()[:_MAX_FAULTS]
        ]
        detail = "; ".join(f"{fault['at']}: {fault['why']}" for fault in faults[:3])
        return problem_response(problem(422, detail or "the request is invalid", errors=faults))

    app.add_exception_handler(ColligateError, handle_any)
    app.add_exception_handler(Unanswerable, handle_unanswerable)
    app.add_exception_handler(ExceptionGroup, handle_any)
    app.add_exception_handler(HTTPException, handle_http)
    app.add_exception_handler(RequestValidationError, handle_invalid)
    app.add_exception_handler(Exception, handle_any)


class CatchUnexpected:
    """ASGI middleware next to the routes: report an unexpected exception as a problem (500).

    In this place the response gets the security headers and is counted like any other. If a
    response has begun, the connection is closed instead.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        begun = False

        async def watch(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self._app(scope, receive, watch)
        except Exception as error:
            if begun:
                raise
            await problem_response(problem_of(error), path=scope["path"])(scope, receive, send)


_PROBLEM_SCHEMA = {
    "type": "object",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string", "description": "What happened, and why."},
        "hint": {"type": "string", "description": "What to do about it."},
    },
}
PROBLEM_RESPONSES: dict[int | str, dict[str, Any]] = {
    "default": {
        "description": "An error, as an RFC 9457 problem.",
        "content": {_MEDIA_TYPE: {"schema": _PROBLEM_SCHEMA}},
    }
}
"""Problems in the OpenAPI document."""


def _as_words(name: str) -> str:
    """`UnknownDocument` as "Unknown document"."""
    spaced = "".join(f" {c.lower()}" if c.isupper() else c for c in name).strip()
    return spaced[:1].upper() + spaced[1:]
