"""What a run is doing, in one line, for programs that show progress."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from colligate.serving.answering import OnStep


def line(event: Mapping[str, Any]) -> str:
    """One line for an event; nothing of a prompt or of a document's text is in it."""
    return " ".join(_said(event).split())  # a line break would end a comment in an event stream


def _said(event: Mapping[str, Any]) -> str:
    match event:
        case {"event": "queued", "place": place}:
            return f"waiting for its turn, at place {place}"
        case {"event": "progressed", "phase": phase, "done": done, "total": total}:
            return f"{phase} {done:,} of {total:,}" if total else str(phase)
        case {"event": "noted", "text": text}:
            return str(text)
        case {"event": "retrieved", "spans": spans}:
            return f"found {len(spans):,} passages"
        case {"event": "scored", "signal": signal, "spans": spans}:
            return f"scored {len(spans):,} passages by {signal}"
        case {"event": "pruned", "spans": spans}:
            return f"left out {len(spans):,} passages"
        case {"event": "asking" | "asked", "role": role, "model": model}:
            return f"asking the {role} {model}"
        case {"event": "measured", "role": role, "model": model}:
            return f"measured by the {role} {model}"
    return str(event.get("event", ""))


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
