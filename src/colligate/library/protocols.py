"""What a library keeps its documents and passages in: two protocols, and the rows they exchange.

`Catalogue` with `PassageIndex` (SQLite) is one implementation, `LanceCatalogue` with `LanceIndex`
the other. Terms, ranking and the order of equal scores are the library's own, so that
a question finds the same passages over both. Calls block and may come from any thread.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from colligate.documents import Document, Span
from colligate.documents.reading import Limits
from colligate.library.bm25 import Terms
from colligate.library.parsing import ParsedFile
from colligate.library.schema import DocumentState
from colligate.library.sources import DocumentInfo
from colligate.models import Embedder


class DocumentStore(Protocol):
    """Documents with their passages' places, files, and facts about the library.

    A document's number grows with the order in which documents were added, a passage's number with
    its place in the document.
    """

    @property
    def read_only(self) -> bool:
        """Whether it cannot be written."""

    @property
    def in_memory(self) -> bool:
        """Whether it stands for a library that does not exist yet."""

    def infos(self) -> list[DocumentInfo]:
        """Return all documents that are not being removed, in the order they were added."""

    def numbers(self, ids: Iterable[str] | None = None) -> dict[str, int]:
        """Return the numbers of these documents (None: of all), without unknown ones."""

    def ids(self, numbers: Sequence[int]) -> list[str]:
        """Return the ids of these documents, whatever their state."""

    def in_state(self, state: DocumentState) -> list[int]:
        """Return the numbers of the documents in a state, in order."""

    def is_searchable(self) -> bool:
        """Return whether any passage should be in the index."""

    def languages(self) -> list[str]:
        """Return the languages of the searchable documents."""

    def document(self, number: int) -> Document | None:
        """Return one whole document."""

    def text(self, number: int) -> StoredText | None:
        """Return one document's text, without building its tree."""

    def digest(self, number: int) -> str:
        """Return the SHA-256 of a document's text as it was stored."""

    def passages(self, numbers: Sequence[int]) -> dict[int, StoredPassage]:
        """Return the passages with these numbers that belong to searchable documents."""

    def passages_of(self, document: int) -> list[StoredPassage]:
        """Return all passages of one document, in order."""

    def passage_numbers(self, state: DocumentState) -> dict[int, int]:
        """Return the passages of all documents in a state, each with its document."""

    def file(self, path: Path) -> FileRecord | None:
        """Return what is recorded of a file that was read, or could not be."""

    def files(self) -> list[Path]:
        """Return the paths of all recorded files."""

    def files_of(self, document: int) -> list[FileRecord]:
        """Return the files that a document was read from."""

    def documents_of(self, path: Path) -> list[str]:
        """Return the ids of a file's documents, in the file's order."""

    def copies_of(self, path: Path) -> list[set[Path]]:
        """Return, for each document of a file, all files that have it."""

    def sources_only_of(self, numbers: Sequence[int]) -> list[str]:
        """Return the files of these documents from which no remaining document was read."""

    def note_file(self, file: FileRecord) -> None:
        """Record how a file was found; its documents, if any, stay as they are."""

    def store(self, files: Sequence[ReadFile]) -> list[int]:
        """Replace the documents of files, in one transaction; return which are pending."""

    def forget_file(self, path: Path) -> None:
        """Delete a file's record and remove the documents that no other file has."""

    def remove(self, numbers: Collection[int]) -> None:
        """Remove documents; their files are read again when they are added again."""

    def mark(self, numbers: Collection[int], state: DocumentState) -> None:
        """Move documents to a state, except those that are being removed."""

    def purge(self, numbers: Collection[int]) -> None:
        """Delete those of these documents that are being removed."""

    def checkpoint(self, *, erase: bool = False) -> None:
        """Write out or put together what many small changes have left.

        With `erase`, older versions are erased too, whoever reads them.
        """

    def meta(self, key: str) -> str | None:
        """Return one fact about the library."""

    def set_meta(self, **facts: str) -> None:
        """Record facts about the library."""

    def check(self) -> list[str]:
        """Return the problems of the storage itself."""

    def close(self) -> None:
        """Close it. Safe to call twice."""


class PassageStore(Protocol):
    """Passages by vector and by words: numbers only, no text.

    Each change has reached the disk when it returns.
    """

    def upsert(self, entries: Sequence[IndexEntry]) -> None:
        """Add passages, or replace those with the same number."""

    def search_vector(
        self, vector: NDArray[np.float32], limit: int, scope: Scope
    ) -> list[ScoredPassage]:
        """Return the passages with the largest cosine, best first."""

    def search_terms(self, terms: Terms, limit: int, scope: Scope) -> list[ScoredPassage]:
        """Return the passages that share a term, by BM25 score, best first."""

    def entries(self, documents: Collection[int]) -> list[IndexEntry]:
        """Return all that is stored of the passages of these documents, in order."""

    def remove(self, documents: Collection[int]) -> None:
        """Take all passages of these documents out of every search."""

    def remove_passages(self, passages: Collection[int]) -> None:
        """Take these passages out of every search."""

    def passages(self) -> dict[int, int]:
        """Return all passage numbers, each with its document's."""

    def count(self) -> int:
        """Return the number of passages."""

    def optimise(self, *, erase: bool = True) -> None:
        """Rebuild what has grown, and erase what was removed. Slow.

        With `erase`, older versions are erased too, whoever reads them.
        """

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
    date: str
    text: str
    media_type: str


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """One passage for the index: its number, its document's, its vector and its terms.

    `vector` is of unit length; None if passages are found by their words alone.
    """

    passage: int
    document: int
    vector: NDArray[np.float32] | None
    terms: Terms


@dataclass(frozen=True, slots=True)
class ScoredPassage:
    """A passage that matched."""

    passage: int
    document: int
    score: float


@dataclass(frozen=True, slots=True)
class Scope:
    """Which documents are searched: `within` them (None: all), and never `without`."""

    within: Collection[int] | None = None
    without: Collection[int] = ()


class Parsers(Protocol):
    """What reads files: processes of this machine, or the workers of a cluster."""

    def read(self, path: Path, size: int = 0, known: str = "") -> ParsedFile:
        """Read one file; block until it is read. One whose SHA-256 is `known` is not parsed."""

    def grow(self) -> None:
        """Put one more process in the place of one that a slow file holds up."""

    def close(self) -> None:
        """End what is being read."""


class Cluster(Protocol):
    """Other machines that read and embed: an entry point of `colligate.workers`."""

    @property
    def count(self) -> int:
        """How many tasks run at once."""

    def parsers(self, reader: str, limits: Limits) -> Parsers:
        """Return what reads files on the workers."""

    def embedder(self, name: str, own: Embedder) -> Embedder:
        """Return an embedder that embeds passages on the workers; `own` is the one of this name."""

    def close(self) -> None:
        """End the connection. Safe to call twice."""
