"""Events and lines as they come, clients that hang up, and JSON that any text fits in."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from typing import Any

from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from colligate.server.work import Work

_SECONDS_TO_LOOK = 0.5  # between two looks whether a client is still there


class EventStream(EventSourceResponse):
    """Send events as they come, and a ping every 15 seconds.

    What is given as bytes is sent as it is. `on_end` is called when all were sent or the client has
    hung up. When the server shuts down, the stream has `grace` seconds to send the end of its run.
    """

    media_type = "text/event-stream"  # FastAPI reads it from the class
    DEFAULT_SEPARATOR = "\n"

    def __init__(
        self,
        events: AsyncIterator[ServerSentEvent | bytes],
        on_end: Callable[[], None],
        grace: float,
        status_code: int = 200,  # FastAPI reads the default
        **more: Any,
    ) -> None:
        super().__init__(events, status_code, shutdown_grace_period=grace, **more)
        self._on_end = on_end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._on_end()


def sse(event: str, data: bytes | object, number: int | None = None) -> ServerSentEvent:
    """Return an event; `data` is JSON as bytes, or a value to write as JSON."""
    text = data if isinstance(data, bytes) else encode_json(data)
    return ServerSentEvent(
        text.decode(), event=event, id=None if number is None else str(number), sep="\n"
    )


async def is_heard(request: Request, run: Work) -> bool:
    """Wait for the end of a run; return False if the client hung up first."""
    while not run.ended:
        if await request.is_disconnected():
            return False
        await run.wait(_SECONDS_TO_LOOK)
    return True


class AsciiJSONResponse(JSONResponse):
    """JSON in ASCII, so that half a surrogate pair in a document does no harm."""

    def render(self, content: Any) -> bytes:
        return encode_json(content)


def encode_json(value: Any) -> bytes:
    """Return a value as JSON on one line, with null for numbers that JSON does not have."""
    text = json.dumps(value)
    if "NaN" in text or "Infinity" in text:
        text = json.dumps(json.loads(text, parse_constant=lambda _: None))
    return text.encode()
