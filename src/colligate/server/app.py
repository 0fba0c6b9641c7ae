"""The server: its ASGI app (`create_app`) and its socket (`listen`).

The app has routes, middleware, the page and the MCP endpoint.
"""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager, nullcontext
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, cast
from urllib.parse import quote, unquote_to_bytes

import uvicorn
from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, Response
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.routing import Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from colligate import __version__
from colligate.core.events import Listener
from colligate.engine import Engine
from colligate.errors import MissingExtra, UsageError
from colligate.server import embeddings, ollama, openai
from colligate.server.audit import Audit
from colligate.server.auth import Guard
from colligate.server.config import DEFAULT_LIBRARY, ServerConfig
from colligate.server.connections import (
    SECONDS_KEPT,
    Connection,
    bound_connections,
    log_to_stderr,
    raise_descriptor_limit,
)
from colligate.server.errors import PROBLEM_RESPONSES, Busy, NotHere, Refused, error_response
from colligate.server.routes import about, documents, libraries, runs, tables
from colligate.server.state import SECONDS_TO_CLOSE, ServerState
from colligate.server.stream import AsciiJSONResponse

PAGE = Path(__file__).parent / "page"
page_router = APIRouter(include_in_schema=False)


def create_app(config: ServerConfig, make_engine: Callable[[], Engine]) -> FastAPI:
    """Return an ASGI app over the engine's library and models.

    The app makes the engine when it starts and closes it at the end. `app.state.server` is its
    `ServerState`, open while the app runs.
    """
    server = ServerState(config)
    mcp, mcp_open = _mcp_endpoint(server)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with server.open(make_engine()), mcp_open:
            yield

    app = FastAPI(
        title="colligate",
        version=__version__,
        summary="Answers over many long documents, every claim cited to its exact place.",
        lifespan=lifespan,
        openapi_url="/api/openapi.json",
        docs_url=None,
        redoc_url=None,
        default_response_class=AsciiJSONResponse,
        generate_unique_id_function=lambda route: route.name,
    )
    app.state.server = server
    for kind in (HTTPException, RequestValidationError):
        app.add_exception_handler(kind, _report)  # all others come to the `Guard`
    for router in (
        about.router,
        libraries.router,
        libraries.upload_router(config.upload_files),
        libraries.jobs_router,
        documents.router,
        runs.router,
        tables.router,
    ):
        app.include_router(router, responses=PROBLEM_RESPONSES)
    for router in (openai.router, ollama.router, embeddings.router):
        app.include_router(router)
    # Only POST: a GET would open a stream on which the server never sends anything.
    app.router.routes.append(Route("/mcp", mcp, methods=["POST"]))
    app.include_router(page_router)
    if (PAGE / "assets").is_dir():
        app.mount("/assets", GZipMiddleware(_Assets(directory=PAGE / "assets")), name="assets")
    # The middleware added last runs first.
    app.add_middleware(BodyLimits, config=config)
    app.add_middleware(Guard, config=config, metrics=server.metrics, audit=Audit(config))
    app.add_middleware(Tidied)
    if config.allow_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=config.allow_origins,
            allow_methods=["GET", "POST", "PUT", "DELETE"],
            allow_headers=["Authorization", "Content-Type", "Last-Event-ID"],
        )
    return app


async def _report(request: Request, error: Exception) -> Response:
    return error_response(error, request.scope["path"])


_POLL = 0.1  # seconds between two checks for a second signal


async def listen(
    config: ServerConfig,
    make_engine: Callable[[], Engine],
    *,
    on_opening: Listener,
    on_ready: Callable[[str], None],
) -> None:
    """Serve until SIGINT or SIGTERM.

    The models are opened first, which `on_opening` hears of; `on_ready` gets the URL once
    connections are accepted.
    """
    log_to_stderr()
    most, backlog = bound_connections(config, raise_descriptor_limit())
    app = create_app(config, make_engine)
    listening = _bind(config)
    host = f"[{config.host}]" if ":" in config.host else config.host
    url = f"http://{host}:{listening.getsockname()[1]}/"
    uvicorn_config = uvicorn.Config(
        app,
        http=cast("type[asyncio.Protocol]", partial(Connection, limits=config, most=most)),
        ws="none",
        lifespan="off",  # opened here, so that errors are reported in their own words
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=backlog,
        timeout_keep_alive=SECONDS_KEPT,
        timeout_graceful_shutdown=int(config.grace) + SECONDS_TO_CLOSE,
    )
    with listening:
        async with app.router.lifespan_context(app):
            state: ServerState = app.state.server
            engine = state.libraries.engine(DEFAULT_LIBRARY)
            await engine.open_models(engine.make_trace(on_opening))
            server = _SignalledServer(uvicorn_config, state)
            # Signals are handled before anybody learns that there is a server to stop.
            with server.capture_signals():
                on_ready(url)
                await server.serve(sockets=[listening])


class _SignalledServer(uvicorn.Server):
    """A server whose runs and uploads get their grace before connections are closed."""

    def __init__(self, config: uvicorn.Config, state: ServerState) -> None:
        super().__init__(config)
        self._state = state

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept no connections, let the work finish; a second signal ends the waiting."""
        draining = asyncio.create_task(self._state.drain(self._state.config.grace))
        await super().shutdown(sockets)
        while not draining.done() and not self.force_exit:
            await asyncio.wait([draining], timeout=_POLL)
        draining.cancel()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop the server at the first signal, and the waiting at the second.

        uvicorn would raise them again at the end, which ends the process without its status.
        """
        self.force_exit = self.should_exit
        self.should_exit = True


def _bind(config: ServerConfig) -> socket.socket:
    """Return a socket with its address, which does not listen yet."""
    with ExitStack() as failed:
        try:
            family, kind, protocol, _, address = socket.getaddrinfo(
                config.host, config.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]
            made = failed.enter_context(socket.socket(family, kind, protocol))
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            made.bind(address)
        except (OSError, UnicodeError) as error:  # the second: it cannot be a host's name
            what = f"cannot listen at {config.host} port {config.port}"
            raise UsageError(what, str(error), "choose another --host or --port") from error
        failed.pop_all()
        return made


@page_router.get("/index.html")
@page_router.get("/")
async def show_page() -> Response:
    """Send the web page."""
    if not (PAGE / "index.html").is_file():
        raise NotHere("no page", "this installation has none", "the API is under /api")
    return FileResponse(PAGE / "index.html")


class _Assets(StaticFiles):
    """The page's files. Their names hold a digest of their content, so they never change."""

    def file_response(self, *args: Any, **kwargs: Any) -> Response:
        response = super().file_response(*args, **kwargs)
        response.headers["Cache-Control"] = "public, max-age=31536000, immutable"
        return response


def _mcp_endpoint(
    server: ServerState,
) -> tuple[Callable[..., Any], AbstractAsyncContextManager[None]]:
    """Return what answers requests for the MCP tools, and the context in which it does."""
    try:
        from colligate.server.mcp import make_http_endpoint
    except MissingExtra as error:
        missing = error

        async def report(request: Request) -> Response:
            raise missing.with_traceback(None)

        return report, nullcontext()
    return make_http_endpoint(server, server.config.body_bytes)


class Tidied:
    """ASGI middleware: in an address a slash too many, or its parts twice, do not matter, and HEAD
    asks what GET would answer: clients join addresses and probe servers in their own ways."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            # Not decoded: a name of a document may have encoded slashes.
            raw = re.sub(rb"/{2,}", b"/", scope.get("raw_path") or quote(scope["path"]).encode())
            raw = _TWICE.sub(b"/v1", raw).removesuffix(b"/") or b"/"
            method = "GET" if scope["method"] == "HEAD" else scope["method"]
            path = unquote_to_bytes(raw).decode(errors="replace")
            scope = {**scope, "raw_path": raw, "path": path, "method": method}
        await self._app(scope, receive, send)


_TWICE = re.compile(rb"^/v1(?:/v1|/chat/completions)+(?=/(?:models|chat/completions|embeddings)\b)")

_UPLOAD_PATH = re.compile(r"/api/libraries/[^/]+/files")
_FILE_HEADERS = 4096  # bytes that the name and the headers of a file may take
_MAX_DIGITS = 18  # of a Content-Length that is read as a number


class BodyLimits:
    """ASGI middleware: 413 for bodies over the limit, by Content-Length or by counting.

    Files being received are in the system's folder for temporary files, so the uploads at once
    are limited too: 503 to the first one too many.
    """

    def __init__(self, app: ASGIApp, config: ServerConfig) -> None:
        self._app = app
        self._upload_bytes = config.upload_bytes + config.upload_files * _FILE_HEADERS
        self._body_bytes = config.body_bytes
        self._max_uploads = config.uploads
        self._uploads = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        if scope["method"] != "POST" or not _UPLOAD_PATH.fullmatch(scope["path"]):
            return await self._limit(scope, receive, send, self._body_bytes)
        if self._uploads >= self._max_uploads:
            raise Busy("too many files are being received", "", "send them later")
        self._uploads += 1
        try:
            await self._limit(scope, receive, send, self._upload_bytes)
        finally:
            self._uploads -= 1

    async def _limit(self, scope: Scope, receive: Receive, send: Send, limit: int) -> None:
        too_long = f"the request is longer than {limit:,} bytes"
        headers = Headers(scope=scope)
        if (packed := headers.get("content-encoding", "identity")) != "identity":
            raise Refused(415, f"the request is packed ({packed}); send it as it is")
        length = headers.get("content-length", "")
        if length.isdecimal() and (len(length) > _MAX_DIGITS or int(length) > limit):
            raise Refused(413, too_long)  # uvicorn lets the rest of the body pass
        left = limit

        async def receive_counted() -> Message:
            nonlocal left
            message = await receive()
            left -= len(message.get("body", b""))
            if left < 0:
                raise Refused(413, too_long, {"Connection": "close"})
            return message

        await self._app(scope, receive_counted, send)
