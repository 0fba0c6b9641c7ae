"""The passage index of a library and a cluster that works for it, and the rows they exchange.

`PassageIndex` (SQLite) is one implementation of the index, `LanceIndex` the other. Terms, ranking
and the order of equal scores are the library's own, so that a question finds the same passages in
both. Calls block and may come from any thread.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from colligate.documents import Document, Span
from colligate.documents.reading import Limits
from colligate.library.bm25 import Terms
from colligate.library.parsing import ParserPool
from colligate.models import Embedder


class PassageStore(Protocol):
    """Passages by vector and by words: numbers only, no text. Each change has reached the disk when
    it returns."""

    def upsert(self, entries: Sequence[IndexEntry]) -> None:
        """Add passages, or replace those with the same number."""

    def search_vector(
        self, vector: NDArray[np.float32], limit: int, scope: Scope
    ) -> list[ScoredPassage]:
        """Return the passages with the largest cosine, best first."""

    def search_terms(self, terms: Terms, limit: int, scope: Scope) -> list[ScoredPassage]:
        """Return the passages that share a term, by BM25 score, best first."""

    def remove(self, documents: Collection[int]) -> None:
        """Take all passages of these documents out of every search."""

    def remove_passages(self, passages: Collection[int]) -> None:
        """Take these passages out of every search."""

    def passages(self) -> dict[int, int]:
        """Return all passage numbers, each with its document's."""

    def count(self) -> int:
        """Return the number of passages."""

    def optimise(self, *, erase: bool = True) -> None:
        """Rebuild what has grown, and erase what was removed. Slow. With `erase`, older versions
        are erased too, whoever reads them."""

    def close(self) -> None:
        """Close it. Safe to call twice."""


@dataclass(frozen=True, slots=True)
class FileRecord:
    """A file as it was when it was read, to find out whether it has changed since.

    `failure` is empty for a file that was read. Otherwise it holds which readers there were (the
    release of colligate, and formats of other packages), then the error's class, why and hint.
    """

    path: Path
    size: int
    mtime_ns: int
    checked_ns: int
    sha256: str
    warnings: tuple[str, ...] = ()
    failure: tuple[str, ...] = ()


ReadFile = tuple[FileRecord, Sequence[tuple[Document, list[Span]]]]
"""A file and the documents that were read from it, each with the spans of its passages."""


@dataclass(frozen=True, slots=True)
class StoredPassage:
    """A passage in the catalogue."""

    number: int
    document: int
    start: int
    end: int
    page: int | None
    section: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StoredText:
    """The parts of a document that are needed to show or embed its passages."""

    id: str
    title: str
    language: str
    source: str
    text: str
    media_type: str
    date: str


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """One passage for the index: its number, its document's, its vector and its terms."""

    passage: int
    document: int
    vector: NDArray[np.float32] | None  # of unit length; None if found by words alone
    terms: Terms


@dataclass(frozen=True, slots=True)
class ScoredPassage:
    """A passage that matched."""

    passage: int
    document: int
    score: float


@dataclass(frozen=True, slots=True)
class Scope:
    """Which documents are searched: `within` them (None: all), and never `without`.

    How rare a word is counts over all passages (decision 37), or over those of the documents
    `among`, where nothing may tell of the others.
    """

    within: Collection[int] | None = None
    without: Collection[int] = ()
    among: Collection[int] | None = None


class Cluster(Protocol):
    """Other machines that read and embed: an entry point of `colligate.workers`."""

    @property
    def count(self) -> int:
        """How many tasks run at once."""

    def parsers(self, reader: str, limits: Limits) -> ParserPool:
        """Return what reads files on the workers."""

    def embedder(self, name: str, own: Embedder) -> Embedder:
        """Return an embedder that embeds passages on the workers; `own` is the one of this name."""

    def close(self) -> None:
        """End the connection. Safe to call twice."""
