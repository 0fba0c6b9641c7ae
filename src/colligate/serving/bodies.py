"""How long a request's body may be, and how many with files come in at once."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from colligate.serving.problems import problem, problem_response
from colligate.serving.settings import Serving

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
            said = problem(503, "too many files are coming in", mend="send them later")
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
