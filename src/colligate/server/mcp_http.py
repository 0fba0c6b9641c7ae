"""MCP over HTTP: the tools of `mcp_server` at one path of the server's app."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.types import ASGIApp, Receive, Scope, Send

from colligate.errors import MissingExtra
from colligate.server.served import Served
from colligate.server.server import Server


class McpEndpoint:
    """An ASGI endpoint that answers while it is open.

    No sessions are kept: each request stands alone, so a restart of the server goes unnoticed.
    """

    def __init__(self, server: Server) -> None:
        self._server = server
        self._app: ASGIApp | None = None
        self._missing: MissingExtra | None = None

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Answer requests meanwhile; without the extra `mcp` each is told so."""
        try:
            from colligate.server.mcp import http_manager
        except MissingExtra as error:
            self._missing = error
            yield
            return
        manager = http_manager(Served(self._server), self._server.serving.body_bytes)
        async with manager.run():
            self._app = manager.handle_request
            yield
        self._app = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._missing is not None:
            raise self._missing.with_traceback(None)
        assert self._app is not None
        await self._app(scope, receive, send)
