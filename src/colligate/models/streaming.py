"""From a thread that generates text to the event loop that waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from colligate.models.protocols import OnToken
from colligate.models.thinking import ThinkingFilter
from colligate.models.threads import Threads

T = TypeVar("T")


async def streamed(
    threads: Threads,
    generate: Callable[[Callable[[str], None]], T],
    halt: Callable[[], None],
    on_token: OnToken | None,
    *,
    inside_thinking: bool = False,
) -> T:
    """What `generate` returns; the pieces it hands over reach `on_token` in this event loop.

    Thinking is held back. `halt` is called when nobody waits any more: the caller was cancelled,
    `on_token` raised, or the event loop was closed.
    """
    loop = asyncio.get_running_loop()
    pieces: asyncio.Queue[str | None] = asyncio.Queue()

    def forward(piece: str) -> None:
        try:
            loop.call_soon_threadsafe(pieces.put_nowait, piece)
        except RuntimeError:  # The loop was closed.
            halt()

    answer = threads.run(lambda: generate(forward))
    answer.add_done_callback(lambda _: pieces.put_nowait(None))
    try:
        visible = ThinkingFilter(inside=inside_thinking)
        while (piece := await pieces.get()) is not None:
            shown = visible.feed(piece)
            if on_token and shown:
                on_token(shown)
        if on_token and (shown := visible.close()):
            on_token(shown)
        return await answer
    finally:
        halt()
        answer.cancel()  # Does nothing to one that is done.
