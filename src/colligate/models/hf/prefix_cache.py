"""Keys and values of earlier prompts, for prompts with the same prefix."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

Layers = Sequence[tuple[Any, Any]]
"""Keys and values of each layer, tensors of [1, heads, tokens, width]."""


class PrefixCache:
    """The prompts used last, in at most `limit` bytes. Not safe for several threads at once."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._entries: list[_Entry] = []

    def find_longest(self, ids: Sequence[int], adapter: str = "") -> tuple[Layers, int]:
        """Return keys and values of the longest remembered prefix of `ids`, and its length."""
        best, length = None, 0
        for entry in self._entries:
            if entry.adapter == adapter and (shared := count_shared(entry.ids, ids)) > length:
                best, length = entry, shared
        if best is None:
            return (), 0
        self._entries.remove(best)
        self._entries.append(best)
        layers = tuple((k[:, :, :length], v[:, :, :length]) for k, v in best.layers)
        return layers, length

    def store(self, ids: Sequence[int], layers: Layers, adapter: str = "") -> None:
        """Remember keys and values of exactly these tokens, and forget their prefixes."""
        new = _Entry(tuple(ids), adapter, tuple(layers))
        self._entries = [
            entry
            for entry in self._entries
            if entry.adapter != adapter or count_shared(entry.ids, new.ids) < len(entry.ids)
        ]
        if new.size > self._limit:
            return
        self._entries.append(new)
        while self.size > self._limit:
            self._entries.pop(0)

    @property
    def size(self) -> int:
        """The size of all entries in bytes."""
        return sum(entry.size for entry in self._entries)

    def clear(self) -> None:
        """Forget everything."""
        self._entries.clear()


@dataclass(frozen=True)
class _Entry:
    """Keys and values of `ids` under an adapter.

    They are never written to: a cache that continues from them makes new tensors.
    """

    ids: tuple[int, ...]
    adapter: str
    layers: Layers

    @property
    def size(self) -> int:
        return sum(tensor.nbytes for pair in self.layers for tensor in pair)


def count_shared(one: Sequence[int], other: Sequence[int]) -> int:
    """Count the tokens that two sequences begin with in common."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
