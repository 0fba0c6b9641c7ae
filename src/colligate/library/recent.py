"""The things used last, up to a total weight."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Recent(Generic[K, V]):
    """A cache that forgets what was used longest ago; safe to use from threads."""

    def __init__(self, weight: Callable[[V], int], most: int) -> None:
        self._weight = weight
        self._most = most
        self._total = 0
        self._kept: OrderedDict[K, V] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: K, make: Callable[[K], V | None] | None = None) -> V | None:
        """What is kept under a key, else what `make` gives for it, which is then kept."""
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        made = make(key) if make else None
        if made is not None:
            self.put(key, made)
        return made

    def put(self, key: K, value: V) -> None:
        """Keep a value; one that is kept under this key stays."""
        with self._lock:
            self._keep(key, value)

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._kept.clear()
            self._total = 0

    def _keep(self, key: K, value: V) -> None:
        if key in self._kept:
            return
        self._kept[key] = value
        self._total += self._weight(value)
        while self._total > self._most and len(self._kept) > 1:
            _, oldest = self._kept.popitem(last=False)
            self._total -= self._weight(oldest)
