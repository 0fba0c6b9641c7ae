"""What an index of passages must do, whoever stores it.

An index holds numbers alone: passage numbers, document numbers, vectors and hashed terms. The
text stays in the catalogue, so an index never has to be searched for what was removed.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from colligate.library.bm25 import Terms


@dataclass(frozen=True, slots=True)
class Entry:
    """One passage for the index: its number, its document's, and what it is found by.

    `vector` is of unit length; None where passages are found by their words alone.
    """

    passage: int
    document: int
    vector: NDArray[np.float32] | None
    terms: Terms


@dataclass(frozen=True, slots=True)
class Scored:
    """A passage that matched."""

    passage: int
    document: int
    score: float


@dataclass(frozen=True, slots=True)
class Scope:
    """Which documents are searched: `within` them (None: all), and never `without`."""

    within: Collection[int] | None = None
    without: Collection[int] = ()


class PassageIndex(Protocol):
    """Passages by vector and by words. Calls block; one thread writes at a time."""

    def upsert(self, entries: Sequence[Entry]) -> None:
        """Add passages, or replace those with the same number."""
        ...

    def nearest(self, vector: NDArray[np.float32], limit: int, scope: Scope) -> list[Scored]:
        """The passages with the largest cosine, best first."""
        ...

    def matching(self, terms: Terms, limit: int, scope: Scope) -> list[Scored]:
        """The passages with the largest BM25 score, best first; only those that share a term."""
        ...

    def remove(self, documents: Collection[int]) -> None:
        """Take all passages of these documents out of every search."""
        ...

    def remove_passages(self, passages: Collection[int]) -> None:
        """Take these passages out of every search."""
        ...

    def passages(self) -> dict[int, int]:
        """All passage numbers, each with its document's."""
        ...

    def count(self) -> int:
        """How many passages there are."""
        ...

    def flush(self) -> None:
        """Return once everything done so far would survive the end of the process."""
        ...

    def optimise(self) -> None:
        """Rebuild what has grown or holds removed passages, and erase the latter. May take long."""
        ...

    def close(self) -> None:
        """Flush and let go. Safe to call twice."""
        ...
