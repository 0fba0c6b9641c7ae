"""What a run is doing, in one line, for programs that show progress."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from colligate.strategies.trace import (
    Asked,
    Asking,
    Event,
    Listener,
    Measured,
    Noted,
    Progressed,
    Pruned,
    Retrieved,
    Scored,
)


def line(event: Event) -> str:
    """One line for an event; nothing of a prompt or of a document's text is in it."""
    match event:
        case Progressed(phase=phase, done=done, total=total):
            return f"{phase} {done:,} of {total:,}" if total else phase
        case Noted(text=text):
            return text
        case Retrieved(spans=spans):
            return f"found {len(spans):,} passages"
        case Scored(signal=signal, spans=spans):
            return f"scored {len(spans):,} passages by {signal}"
        case Pruned(spans=spans):
            return f"left out {len(spans):,} passages"
        case Asking(role=role, model=model) | Asked(role=role, model=model):
            return f"asking the {role} {model}"
        case Measured(role=role, model=model):
            return f"measured by the {role} {model}"
    return type(event).__name__.lower()


@asynccontextmanager
async def telling(tell: Callable[[int, str], Awaitable[None]]) -> AsyncIterator[Listener]:
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

    def on_event(event: Event) -> None:
        loop.call_soon_threadsafe(hear, line(event))  # weights are fetched in a thread

    async def forward() -> None:
        while True:
            await waiting.wait()
            waiting.clear()
            await tell(seen, newest[0])

    forwarding = asyncio.create_task(forward())
    try:
        yield on_event
    finally:
        forwarding.cancel()
        await asyncio.gather(forwarding, return_exceptions=True)
