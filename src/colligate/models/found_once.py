"""What has to be asked of a server once and holds from then on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

from colligate.errors import MissingCapability

T = TypeVar("T")


class FoundOnce(Generic[T]):
    """Asks at the first use; those who come meanwhile wait for the same answer.

    That there is none (`MissingCapability`) is an answer too, and kept. Any other failure is not:
    the next use asks again.
    """

    def __init__(self, find: Callable[[], Awaitable[T]]) -> None:
        self._find = find
        self._found: tuple[T] | None = None
        self._missing: MissingCapability | None = None
        # Locks belong to the event loop they are waited for in.
        self._locks: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = (
            WeakKeyDictionary()
        )

    @property
    def known(self) -> T | None:
        """What was found so far, without asking."""
        return None if self._found is None else self._found[0]

    async def get(self) -> T:
        """What there is.

        Raises:
            MissingCapability: there is none.
        """
        async with self._locks.setdefault(asyncio.get_running_loop(), asyncio.Lock()):
            if self._missing is not None:  # raised anew: a raised error collects its callers
                missing = self._missing
                raise MissingCapability(missing.what, missing.why, missing.mend)
            if self._found is None:
                try:
                    self._found = (await self._find(),)
                except MissingCapability as missing:
                    self._missing = missing
                    raise
            return self._found[0]
