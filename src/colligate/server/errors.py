"""What went wrong, as RFC 9457 says it: application/problem+json."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response
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
from colligate.server.openai_wire import error_of_problem

MEDIA_TYPE = "application/problem+json"
DESCRIBED: dict[int | str, dict[str, Any]] = {
    "default": {
        "description": "What went wrong, as RFC 9457 says it.",
        "content": {
            MEDIA_TYPE: {
                "schema": {
                    "type": "object",
                    "required": ["type", "title", "status", "detail"],
                    "properties": {
                        "type": {"type": "string"},
                        "title": {"type": "string"},
                        "status": {"type": "integer"},
                        "detail": {"type": "string", "description": "What, and why."},
                        "hint": {"type": "string", "description": "What to do about it."},
                    },
                }
            }
        },
    }
}
"""Problems, for the OpenAPI document."""

_log = logging.getLogger("colligate.server")
_MOST_FAULTS = 20  # of one request that are named


class NotHere(ColligateError):
    """There is no such library, run, job or page."""


class Conflict(ColligateError):
    """It cannot be done as things stand."""


class Busy(ColligateError):
    """Too much is going on, or the server is stopping; try again in `retry_after` seconds."""

    retry_after: int = 5


# The first that fits; what is left is 500.
_STATUS: tuple[tuple[type[ColligateError], int], ...] = (
    (NotHere, 404),
    (Conflict, 409),
    (Busy, 503),
    (UnknownDocument, 404),
    (NoDocuments, 409),
    (UsageError, 422),
    (TooLarge, 413),
    (UnsupportedFormat, 415),
    (ReadingError, 422),
    (ContextTooSmall, 422),
    (MissingCapability, 422),
    (MissingExtra, 501),
    (RateLimited, 503),
    (WeightsUnavailable, 422),
    (ModelError, 502),
    (LibraryLocked, 503),
    (EmbedderMismatch, 409),
    (SpanError, 422),
    (BudgetExceeded, 422),
)


def problem_of(error: BaseException) -> dict[str, Any]:
    """An error as a problem: type, title, status, detail and, where there is one, a hint.

    What is no error of colligate's own is logged, and said without its words.
    """
    error = cause(error)
    if isinstance(error, ColligateError):
        status = next((status for kind, status in _STATUS if isinstance(error, kind)), 500)
        detail = f"{error.what}: {error.why}" if error.why else error.what
        return problem(status, detail, hint=error.hint, kind=type(error).__name__)
    if isinstance(error, MemoryError):
        return problem(503, "out of memory", hint="give fewer files, or a smaller model")
    _log.error("internal error", exc_info=error)
    return problem(
        500, f"internal error: {type(error).__name__}", hint="the server's log says more"
    )


def problem(
    status: int, detail: str, *, hint: str = "", kind: str = "", **more: Any
) -> dict[str, Any]:
    """A problem object; `kind` names a class of `colligate.errors`."""
    said: dict[str, Any] = {"type": f"urn:colligate:{kind}"} if kind else {"type": "about:blank"}
    title = _words(kind) if kind else HTTPStatus(status).phrase
    said |= {"title": title, "status": status, "detail": detail}
    return said | ({"hint": hint} if hint else {}) | more


def problem_response(
    said: Mapping[str, Any], headers: Mapping[str, str] | None = None, *, path: str = ""
) -> Response:
    """The response for a problem object; below /v1 it has the form that OpenAI's clients read."""
    status = int(said["status"])
    also = dict(headers or {})
    if status == 503:
        also.setdefault("Retry-After", str(Busy.retry_after))
    if path.startswith("/v1/"):
        status, error = error_of_problem(said)
        return JSONResponse(error, status, also)
    return Response(json.dumps(said), status, also, MEDIA_TYPE)


def add_handlers(app: FastAPI) -> None:
    """Let an app say all that goes wrong as problems."""

    async def ours(request: Request, error: Exception) -> Response:
        return problem_response(problem_of(error), path=request.scope["path"])

    async def http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        phrase = HTTPStatus(error.status_code).phrase
        detail = error.detail if error.detail != phrase else f"{request.method} {phrase.lower()}"
        said = problem(error.status_code, str(detail))
        return problem_response(said, error.headers, path=request.scope["path"])

    async def invalid(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        faults = [
            {"at": "/".join(str(part) for part in fault["loc"]), "why": fault["msg"]}
            for fault in error.errors()[:_MOST_FAULTS]
        ]
        detail = "; ".join(f"{fault['at']}: {fault['why']}" for fault in faults[:3])
        return problem_response(problem(422, detail or "the request is wrong", errors=faults))

    app.add_exception_handler(ColligateError, ours)
    app.add_exception_handler(ExceptionGroup, ours)
    app.add_exception_handler(HTTPException, http)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(Exception, ours)


class Unexpected:
    """ASGI middleware next to the routes: what nobody expected is a problem too (500).

    Said here, it gets the headers and is counted as other responses are. Where a response has
    begun already, the connection breaks.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        begun = False

        async def watched(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self._app(scope, receive, watched)
        except Exception as error:
            if begun:
                raise
            said = problem_of(error)
            await problem_response(said, path=scope["path"])(scope, receive, send)


def _words(name: str) -> str:
    """`UnknownDocument` as "Unknown document"."""
    spaced = "".join(f" {c.lower()}" if c.isupper() else c for c in name).strip()
    return spaced[:1].upper() + spaced[1:]
