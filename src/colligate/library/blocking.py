"""Where blocking work (SQLite, the index, files) leaves the event loop."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from contextlib import suppress
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


async def in_thread(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run blocking work in a thread; a cancelled task waits for its end before it lets go.

    A thread cannot be stopped. Would the task go on at once, the locks it holds would open, and
    others would find files half written and handles that nobody has.
    """
    running = asyncio.get_running_loop().run_in_executor(
        None, functools.partial(work, *args, **kwargs)
    )
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        while not running.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait([running])
        if not running.cancelled():
            running.exception()  # else asyncio complains that nobody looked
        raise
