"""Server-sent events, and clients that hang up."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from fastapi.sse import KEEPALIVE_COMMENT, format_sse_event
from starlette.requests import Request
from starlette.responses import JSONResponse, StreamingResponse
from starlette.types import Receive, Scope, Send

from colligate.server.answering import OnStep

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


# What a run is doing, in one line, for programs that show progress.


def line(event: Mapping[str, Any]) -> str:
    """Return the line of an event as `Event.to_json` writes it; else the event's name."""
    if event.get("event") == "queued":
        return f"waiting in the queue, at place {event.get('place')}"
    # A line break would end a comment in an event stream.
    return " ".join(str(event.get("line") or event.get("event", "")).split())


@asynccontextmanager
async def telling(tell: Callable[[int, str], Awaitable[None]]) -> AsyncIterator[OnStep]:
    """A listener whose events are told as (how many so far, the newest one's line).

    While one is being told those that come are passed over but for the newest, so a slow client
    holds nothing up.
    """
    newest: list[str] = []
    seen = 0
    waiting = asyncio.Event()
    loop = asyncio.get_running_loop()

    def hear(text: str) -> None:
        nonlocal seen
        seen += 1
        newest[:] = [text]
        waiting.set()

    def on_step(event: Mapping[str, Any]) -> None:
        loop.call_soon_threadsafe(hear, line(event))  # weights are fetched in a thread

    async def forward() -> None:
        while True:
            await waiting.wait()
            waiting.clear()
            await tell(seen, newest[0])

    forwarding = asyncio.create_task(forward())
    try:
        yield on_step
    finally:
        forwarding.cancel()
        await asyncio.gather(forwarding, return_exceptions=True)


# JSON that any text can be in.


class Json(JSONResponse):
    """ASCII alone, so half a surrogate pair in a document does no harm; what is no number, null."""

    def render(self, content: Any) -> bytes:
        """The body."""
        return encoded(content)


def encoded(value: Any) -> bytes:
    """A value as JSON that any client can read, on one line: what is no number becomes null."""
    try:
        return json.dumps(value, allow_nan=False).encode()
    except ValueError:
        return json.dumps(_finite(value)).encode()


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_finite(each) for each in value]
    return value
