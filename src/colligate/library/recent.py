"""The things used last, up to a total weight."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

V = TypeVar("V")


class Recent(Generic[V]):
    """A cache by number that forgets what was used longest ago; safe to use from threads."""

    def __init__(self, weight: Callable[[V], int], most: int) -> None:
        self._weight = weight
        self._most = most
        self._total = 0
        self._kept: OrderedDict[int, V] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, number: int, make: Callable[[int], V | None]) -> V | None:
        """What is kept under a number, else what `make` gives for it, which is then kept."""
        with self._lock:
            if number in self._kept:
                self._kept.move_to_end(number)
                return self._kept[number]
        made = make(number)
        if made is not None:
            with self._lock:
                self._keep(number, made)
        return made

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._kept.clear()
            self._total = 0

    def _keep(self, number: int, value: V) -> None:
        if number in self._kept:
            return
        self._kept[number] = value
        self._total += self._weight(value)
        while self._total > self._most and len(self._kept) > 1:
            _, oldest = self._kept.popitem(last=False)
            self._total -= self._weight(oldest)
