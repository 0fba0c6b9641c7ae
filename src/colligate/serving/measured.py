"""Requests counted and timed, by the route that answered."""

from __future__ import annotations

import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from colligate.serving.metrics import Metrics

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
