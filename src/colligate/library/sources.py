"""What a strategy reads from: a library, a view of it, or a given list of documents."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, runtime_checkable

from colligate.documents import Document, Hit


class SearchMode(StrEnum):
    """How passages are found."""

    DENSE = "dense"  # cosine of embeddings
    SPARSE = "sparse"  # BM25
    HYBRID = "hybrid"  # both, joined by reciprocal rank fusion


@runtime_checkable
class Sources(Protocol):
    """The documents in view: an `AsyncLibrary`, a `View` of one, or `InMemorySources`."""

    async def documents(self) -> Sequence[DocumentInfo]:
        """Return all documents in view, in order."""
        ...

    async def document(self, document_id: str) -> Document:
        """Return one whole document.

        Raises:
            UnknownDocument: the document is not in view.
        """
        ...

    async def search(
        self,
        query: str,
        *,
        k: int,
        mode: SearchMode = SearchMode.HYBRID,
        documents: Collection[str] | None = None,
    ) -> list[Hit]:
        """Return the `k` best passages, best first, optionally only of some documents.

        A query without a searchable word returns nothing. Equal scores come in document order.

        Raises:
            UnknownDocument: one of `documents` is not in view.
        """
        ...


@dataclass(frozen=True, slots=True)
class DocumentInfo:
    """A document as lists show it, without its text."""

    id: str
    title: str
    source: str
    characters: int
    pages: int
    passages: int
    language: str
