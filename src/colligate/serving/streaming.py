"""Server-sent events, and clients that hang up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable

from fastapi.sse import KEEPALIVE_COMMENT, format_sse_event
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from colligate.serving.run_files import encoded

_PING = 15.0  # seconds without an event
_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


def sse(event: str, data: bytes | object, number: int | None = None) -> bytes:
    """One event; `data` is a JSON value, or one already written."""
    text = data if isinstance(data, bytes) else encoded(data)
    return format_sse_event(
        event=event, data_str=text.decode(), id=None if number is None else str(number)
    )


class EventStream(StreamingResponse):
    """Events as they come, with a comment whenever none came for a while.

    `ended` is called when all were sent or the client has hung up.
    """

    media_type = "text/event-stream"

    def __init__(
        self, events: AsyncIterator[bytes], ended: Callable[[], None], status_code: int = 200
    ) -> None:
        super().__init__(_with_pings(events), status_code, headers=_HEADERS)
        self._ended = ended

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._ended()


async def _with_pings(events: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    coming: asyncio.Future[bytes] | None = None
    try:
        while True:
            coming = coming or asyncio.ensure_future(_next(events))
            done, _ = await asyncio.wait([coming], timeout=_PING)
            if not done:
                yield KEEPALIVE_COMMENT
                continue
            event, coming = coming.result(), None
            if not event:
                return
            yield event
    finally:
        if coming is not None:
            coming.cancel()
            await asyncio.gather(coming, return_exceptions=True)
        if isinstance(events, AsyncGenerator):
            await events.aclose()


async def _next(events: AsyncIterator[bytes]) -> bytes:
    """The next event, nothing after the last."""
    return await anext(events, b"")


async def unless_hung_up(request: Request, work: Callable[[], Awaitable[None]]) -> bool:
    """Wait for some work; False if the client hung up before its end."""

    async def gone() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    both = [asyncio.ensure_future(work()), asyncio.ensure_future(gone())]
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
