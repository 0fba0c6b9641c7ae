"""The app: paths, limits, and what is opened and closed with it."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from html import escape
from pathlib import Path
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import FileResponse, HTMLResponse, Response
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from colligate import __version__
from colligate.engine import Engine
from colligate.server import openai_face
from colligate.server.auth import Guard
from colligate.server.errors import (
    DESCRIBED,
    NotHere,
    Unexpected,
    add_handlers,
    problem,
    problem_response,
)
from colligate.server.mcp_http import McpEndpoint
from colligate.server.metrics import CONTENT_TYPE, Metrics
from colligate.server.routes import about, asking, documents, jobs, libraries, runs
from colligate.server.server import Server, TheServer
from colligate.server.settings import Serving
from colligate.server.stream import Json

# How long a request's body may be, and how many with files come in at once.

_FILES = re.compile(r"/api/libraries/[^/]+/files")
_LINGER = 1 << 20  # bytes
_SECONDS_TO_LINGER = 2.0
_DIGITS = 18  # of a length that is worth reading as a number
_PART = 4096  # bytes that a file's name and headers may add


class BodyLimits:
    """ASGI middleware: 413 for bodies over the limit, by what they say or what really comes.

    Files on their way in lie in the system's folder for temporary files, so there may not be any
    number of them: 503 to one request too many.
    """

    def __init__(self, app: ASGIApp, serving: Serving) -> None:
        self._app = app
        self._files = serving.upload_bytes + serving.upload_files * _PART
        self._others = serving.body_bytes
        self._uploads = serving.uploads
        self._coming = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        if scope["method"] != "POST" or not _FILES.fullmatch(scope["path"]):
            return await self._limited(scope, receive, send, self._others)
        if self._coming >= self._uploads:
            said = problem(503, "too many files are coming in", hint="send them later")
            return await _refuse(said, scope, receive, send)
        self._coming += 1
        try:
            await self._limited(scope, receive, send, self._files)
        finally:
            self._coming -= 1

    async def _limited(self, scope: Scope, receive: Receive, send: Send, most: int) -> None:
        said = Headers(scope=scope).get("content-length", "")
        if said.isdecimal() and (len(said) > _DIGITS or int(said) > most):
            return await _refuse(problem(413, _too_long(most)), scope, receive, send)
        left = most

        async def counted() -> Message:
            nonlocal left
            message = await receive()
            left -= len(message.get("body", b""))
            if left < 0:
                raise HTTPException(413, _too_long(most), {"Connection": "close"})
            return message

        await self._app(scope, counted, send)


async def _refuse(said: Mapping[str, Any], scope: Scope, receive: Receive, send: Send) -> None:
    """Refuse a request whose body has not come, and end its connection.

    A little of the body is read first: a client that is still sending would see the connection
    break, and not why.
    """
    left = _LINGER
    with suppress(TimeoutError):
        async with asyncio.timeout(_SECONDS_TO_LINGER):
            while left > 0:
                message = await receive()
                left -= len(message.get("body", b""))
                if not message.get("more_body"):
                    break
    refused = problem_response(said, {"Connection": "close"}, path=scope["path"])
    await refused(scope, receive, send)


def _too_long(most: int) -> str:
    return f"the request is longer than {most:,} bytes"


# Requests counted and timed, by the route that answered.

_PLAIN = frozenset({"/mcp"})  # paths of routes that FastAPI does not name
_METHODS = frozenset({"GET", "HEAD", "POST", "DELETE", "OPTIONS"})


class Measured:
    """ASGI middleware. Paths themselves are no labels: they hold names of documents."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        status = 499  # the client hung up

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        began = time.perf_counter()
        try:
            await self._app(scope, receive, watched)
        finally:
            route = _route(scope)
            method = scope["method"] if scope["method"] in _METHODS else "other"
            self._metrics.requests.labels(method, route, str(status)).inc()
            self._metrics.request_seconds.labels(route).observe(time.perf_counter() - began)


def _route(scope: Scope) -> str:
    """The path as it was declared, e.g. `/api/jobs/{job_id}`."""
    declared = getattr(scope.get("route"), "path_format", None)
    if isinstance(declared, str):
        return declared
    return scope["path"] if scope["path"] in _PLAIN else "other"


# /api/docs: the OpenAPI document as one plain page, without scripts and without a CDN.


def reference(openapi: Mapping[str, Any]) -> str:
    """The page."""
    info = openapi["info"]
    body = "\n".join(_operations(openapi["paths"]))
    return f"""<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{escape(info["title"])} API</title>
<h1>{escape(info["title"])} {escape(info["version"])}: the HTTP API</h1>
<p>{escape(info.get("summary", ""))} The same for programs: <a href="openapi.json">openapi.json</a>.
A server with a token wants it as <code>Authorization: Bearer TOKEN</code>; what goes wrong is said
as <code>application/problem+json</code>.</p>
{body}
</html>
"""


def _operations(paths: Mapping[str, Any]) -> Iterator[str]:
    for path, methods in paths.items():
        for method, operation in methods.items():
            yield f"<h2><code>{method.upper()} {escape(path)}</code></h2>"
            yield f"<p><b>{escape(operation.get('summary', ''))}.</b> "
            yield f"{escape(operation.get('description', ''))}</p>"
            if given := operation.get("parameters"):
                yield "<ul>"
                for each in given:
                    needed = "" if each.get("required") else " (optional)"
                    said = escape(each.get("description", ""))
                    yield f"<li><code>{escape(each['name'])}</code>, in the {each['in']}{needed}"
                    yield f": {said}</li>" if said else "</li>"
                yield "</ul>"


PAGE = Path(__file__).parent / "page"


def create_app(serving: Serving, make_engine: Callable[[], Engine]) -> FastAPI:
    """An ASGI app over the engine's library and models; it makes and closes the engine itself.

    `app.state.server` is its `Server`, open while the app runs.
    """
    server = Server(serving)
    mcp = McpEndpoint(server)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with server.over(make_engine()), mcp.open():
            yield

    app = FastAPI(
        title="colligate",
        version=__version__,
        summary="Answers over many long documents, every claim cited to its exact place.",
        lifespan=lifespan,
        openapi_url="/api/openapi.json",
        docs_url=None,
        redoc_url=None,
        default_response_class=Json,
    )
    app.state.server = server
    add_handlers(app)
    for router in (
        about.router,
        libraries.router(serving.upload_files),
        documents.router,
        asking.router,
        jobs.router,
        runs.router,
    ):
        app.include_router(router, responses=DESCRIBED)
    app.include_router(openai_face.router)
    # A stream of the server's own (GET) has nothing to say, and would stay open for ever.
    app.router.routes.append(Route("/mcp", mcp, methods=["POST"]))
    app.include_router(_plain())
    if (PAGE / "assets").is_dir():
        app.mount("/assets", _Assets(directory=PAGE / "assets"), name="assets")
    # The one added last comes first.
    app.add_middleware(Unexpected)
    app.add_middleware(BodyLimits, serving=serving)
    app.add_middleware(Guard, serving=serving)
    if serving.allow_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=serving.allow_origins,
            allow_methods=["GET", "POST", "DELETE"],
            allow_headers=["Authorization", "Content-Type", "Last-Event-ID"],
        )
    app.add_middleware(Measured, metrics=server.metrics)
    return app


class _Assets(StaticFiles):
    """The page's parts. Their names carry a digest of what they hold, so they never change."""

    def file_response(self, *args: Any, **kwargs: Any) -> Response:
        response = super().file_response(*args, **kwargs)
        response.headers["Cache-Control"] = "public, max-age=31536000, immutable"
        return response


def _plain() -> APIRouter:
    routes = APIRouter(tags=["about"])

    @routes.get("/healthz", summary="Whether the server answers")
    async def healthz(server: TheServer) -> dict[str, str]:
        return {"status": "ok", "version": __version__, "instance": server.instance}

    @routes.get("/api/docs", include_in_schema=False)
    async def docs(request: Request) -> Response:
        return HTMLResponse(reference(request.app.openapi()))

    @routes.get("/metrics", summary="Numbers for Prometheus")
    async def metrics(server: TheServer) -> Response:
        return Response(server.metrics.shown(), media_type=CONTENT_TYPE)

    @routes.get("/index.html", include_in_schema=False)
    @routes.get("/", include_in_schema=False)
    async def page() -> Response:
        if not (PAGE / "index.html").is_file():
            raise NotHere("no page", "it is not in this installation", "the API is under /api")
        return FileResponse(PAGE / "index.html")

    return routes
