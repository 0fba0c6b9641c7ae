"""The server: its ASGI app (`create_app`) and its socket (`listen`).

The app has routes, middleware, the page and the MCP endpoint.
"""

from __future__ import annotations

import asyncio
import logging
import re
import signal
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import (
    AbstractAsyncContextManager,
    asynccontextmanager,
    contextmanager,
    nullcontext,
    suppress,
)
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, cast

import uvicorn
from fastapi import APIRouter, FastAPI
from fastapi.responses import FileResponse, Response
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.server import HANDLED_SIGNALS

from colligate import __version__
from colligate.core.events import Listener
from colligate.engine import Engine
from colligate.errors import MissingExtra, UsageError
from colligate.server import openai
from colligate.server.auth import Guard
from colligate.server.config import DEFAULT_LIBRARY, ServerConfig
from colligate.server.connections import (
    SECONDS_KEPT,
    Connection,
    bound_connections,
    log_to_stderr,
    raise_descriptor_limit,
)
from colligate.server.errors import (
    PROBLEM_RESPONSES,
    CatchUnexpected,
    NotHere,
    add_error_handlers,
    problem,
    problem_response,
)
from colligate.server.metrics import RequestMetrics
from colligate.server.routes import about, documents, libraries, runs
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
    mcp = McpEndpoint(server)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with server.open(make_engine()), mcp.open():
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
    add_error_handlers(app)
    for router in (
        about.router,
        libraries.router,
        libraries.upload_router(config.upload_files),
        libraries.jobs_router,
        documents.router,
        runs.router,
    ):
        app.include_router(router, responses=PROBLEM_RESPONSES)
    app.include_router(openai.router)
    # Only POST: a GET would open a stream on which the server never sends anything.
    app.router.routes.append(Route("/mcp", mcp, methods=["POST"]))
    app.include_router(page_router)
    if (PAGE / "assets").is_dir():
        app.mount("/assets", _Assets(directory=PAGE / "assets"), name="assets")
    # The middleware added last runs first.
    app.add_middleware(CatchUnexpected)
    app.add_middleware(BodyLimits, config=config)
    app.add_middleware(Guard, config=config)
    if config.allow_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=config.allow_origins,
            allow_methods=["GET", "POST", "DELETE"],
            allow_headers=["Authorization", "Content-Type", "Last-Event-ID"],
        )
    app.add_middleware(RequestMetrics, metrics=server.metrics)
    return app


# Listening.

_log = logging.getLogger(__name__)
_POLL = 0.1  # seconds between two checks for a second signal


async def listen(
    config: ServerConfig,
    make_engine: Callable[[], Engine],
    *,
    on_opening: Listener,
    on_ready: Callable[[str], None],
    beside: Callable[[ServerState], AbstractAsyncContextManager[object]] = nullcontext,
) -> None:
    """Serve until SIGINT or SIGTERM.

    The models are opened first, which `on_opening` hears of; `on_ready` gets the URL once
    connections are accepted. `beside` is entered before, and left when nothing is served any more.
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
            async with beside(state):
                listening.listen(backlog)  # from here on clients wait and are not refused
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
        """Stop the server at the first signal, and the waiting at the second."""
        self.force_exit = self.should_exit
        self.should_exit = True

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle signals without raising them again, as uvicorn does, which ends the process."""
        before = {each: signal.signal(each, self.handle_exit) for each in HANDLED_SIGNALS}
        try:
            yield
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)


def _bind(config: ServerConfig) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            config.host, config.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        made = socket.socket(family, kind, protocol)
    except (OSError, UnicodeError) as error:  # the second: it cannot be a host's name
        raise _cannot_listen(config, error) from error
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
    except OSError as error:
        made.close()
        raise _cannot_listen(config, error) from error
    return made


def _cannot_listen(config: ServerConfig, error: OSError | UnicodeError) -> UsageError:
    what = f"cannot listen at {config.host} port {config.port}"
    why = "no host has such a name" if isinstance(error, UnicodeError) else error.strerror
    return UsageError(what, why or str(error), "choose another --host or --port")


# The page.


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


class McpEndpoint:
    """The ASGI endpoint of the MCP tools; it reports an error without the extra `mcp`.

    No sessions are kept: each request is independent, so clients survive a restart of the server.
    """

    def __init__(self, server: ServerState) -> None:
        self._server = server
        self._app: ASGIApp | None = None
        self._missing: MissingExtra | None = None

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Answer requests until the block ends."""
        try:
            from colligate.server.mcp import make_http_manager
        except MissingExtra as error:
            self._missing = error
            yield
            return
        manager = make_http_manager(self._server, self._server.config.body_bytes)
        async with manager.run():
            self._app = manager.handle_request
            yield
        self._app = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._missing is not None:
            raise self._missing.with_traceback(None)
        assert self._app is not None
        await self._app(scope, receive, send)


# Limits of request bodies.

_UPLOAD_PATH = re.compile(r"/api/libraries/[^/]+/files")
_FILE_HEADERS = 4096  # bytes that the name and the headers of a file may take
_MAX_DIGITS = 18  # of a Content-Length that is read as a number
_LINGER_BYTES = 1 << 20
_LINGER_SECONDS = 2.0


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
            busy = problem(503, "too many files are being received", hint="send them later")
            return await _refuse(busy, scope, receive, send)
        self._uploads += 1
        try:
            await self._limit(scope, receive, send, self._upload_bytes)
        finally:
            self._uploads -= 1

    async def _limit(self, scope: Scope, receive: Receive, send: Send, limit: int) -> None:
        too_long = f"the request is longer than {limit:,} bytes"
        length = Headers(scope=scope).get("content-length", "")
        if length.isdecimal() and (len(length) > _MAX_DIGITS or int(length) > limit):
            return await _refuse(problem(413, too_long), scope, receive, send)
        left = limit

        async def receive_counted() -> Message:
            nonlocal left
            message = await receive()
            left -= len(message.get("body", b""))
            if left < 0:
                raise HTTPException(413, too_long, {"Connection": "close"})
            return message

        await self._app(scope, receive_counted, send)


async def _refuse(problem: Mapping[str, Any], scope: Scope, receive: Receive, send: Send) -> None:
    """Refuse a request whose body has not arrived, and close its connection.

    A little of the body is read first: a client that is still sending would see the connection
    break, and not the reason.
    """
    left = _LINGER_BYTES
    with suppress(TimeoutError):
        async with asyncio.timeout(_LINGER_SECONDS):
            while left > 0:
                message = await receive()
                left -= len(message.get("body", b""))
                if not message.get("more_body"):
                    break
    refused = problem_response(problem, {"Connection": "close"}, path=scope["path"])
    await refused(scope, receive, send)
