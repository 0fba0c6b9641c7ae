"""Server-sent events, clients that hang up, and JSON that any text fits in."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send


class EventStream(EventSourceResponse):
    """Send events as they come, and a ping every 15 seconds.

    `on_end` is called when all were sent or the client has hung up. When the server shuts down,
    the stream has `grace` seconds to send the end of its run.
    """

    media_type = "text/event-stream"  # FastAPI reads it from the class
    DEFAULT_SEPARATOR = "\n"

    def __init__(
        self,
        events: AsyncIterator[ServerSentEvent],
        on_end: Callable[[], None],
        grace: float,
        status_code: int = 200,  # FastAPI reads the default
    ) -> None:
        super().__init__(events, status_code, shutdown_grace_period=grace)
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


async def finish_unless_hung_up(request: Request, work: Callable[[], Awaitable[None]]) -> bool:
    """Wait for some work; return False if the client hung up first."""

    async def wait_for_hang_up() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    both = [asyncio.ensure_future(work()), asyncio.ensure_future(wait_for_hang_up())]
    try:
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if both[0].done():
            both[0].result()
            return True
        return False
    finally:
        for each in both:
            each.cancel()
        await asyncio.gather(*both, return_exceptions=True)


class AsciiJSONResponse(JSONResponse):
    """JSON in ASCII, so that half a surrogate pair in a document does no harm."""

    def render(self, content: Any) -> bytes:
        """Return the body."""
        return encode_json(content)


def encode_json(value: Any) -> bytes:
    """Return a value as JSON on one line, with null for numbers that JSON does not have."""
    try:
        return json.dumps(value, allow_nan=False).encode()
    except ValueError:
        return json.dumps(_replace_non_finite(value)).encode()


def _replace_non_finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _replace_non_finite(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_replace_non_finite(each) for each in value]
    return value
