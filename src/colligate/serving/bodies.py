"""How long a request's body may be: what it says of itself, and what really comes."""

from __future__ import annotations

import re

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from colligate.serving.problems import problem, problem_response
from colligate.serving.settings import Serving

_FILES = re.compile(r"/api/libraries/[^/]+/files")
_PART = 4096  # bytes that a file's name and headers may add


class BodyLimits:
    """ASGI middleware: 413 for bodies over the limit, before or while they come."""

    def __init__(self, app: ASGIApp, serving: Serving) -> None:
        self._app = app
        self._files = serving.upload_bytes + serving.upload_files * _PART
        self._others = serving.body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        most = self._files if _FILES.fullmatch(scope["path"]) else self._others
        said = Headers(scope=scope).get("content-length", "")
        if said.isdecimal() and int(said) > most:
            # The body is not read, so the connection cannot go on.
            refused = problem_response(problem(413, _too_long(most)), {"Connection": "close"})
            return await refused(scope, receive, send)
        left = most

        async def counted() -> Message:
            nonlocal left
            message = await receive()
            left -= len(message.get("body", b""))
            if left < 0:
                raise HTTPException(413, _too_long(most), {"Connection": "close"})
            return message

        await self._app(scope, counted, send)


def _too_long(most: int) -> str:
    return f"the request is longer than {most:,} bytes"
