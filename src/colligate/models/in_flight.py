"""Equal calls made at the same time are one call."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")


@dataclass
class _Call:
    task: asyncio.Task[Any]
    waiting: int = 0


class InFlight:
    """The calls under way, by key; each event loop has its own.

    Cancelling one who waits leaves the call to the others. When nobody is left, it is cancelled.
    """

    def __init__(self) -> None:
        self._calls: dict[tuple[asyncio.AbstractEventLoop, str], _Call] = {}

    def __contains__(self, key: str) -> bool:
        """Whether a call with this key is under way here."""
        return (asyncio.get_running_loop(), key) in self._calls

    async def share(self, key: str, work: Callable[[], Coroutine[Any, Any, T]]) -> tuple[T, bool]:
        """The result of the work under way with this key, else of `work`; and whether of `work`.

        What the work raises, all who wait for it raise.
        """
        place = (asyncio.get_running_loop(), key)
        call = self._calls.get(place)
        own = call is None
        if call is None:
            call = self._calls[place] = _Call(asyncio.create_task(work()))
        call.waiting += 1
        try:
            await asyncio.wait([call.task])
            result: T = call.task.result()
            return result, own
        finally:
            call.waiting -= 1
            if not call.waiting:
                del self._calls[place]
                if not call.task.done():
                    call.task.cancel()
                    await asyncio.wait([call.task])
                    if not call.task.cancelled():
                        call.task.exception()  # nobody is left to hear of it
