"""What a strategy reads from: the whole library, or a given ordered list of documents."""

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


@dataclass(frozen=True, slots=True)
class DocumentInfo:
    """A document as a list shows it: no text."""

    id: str
    title: str
    source: str
    characters: int
    pages: int
    passages: int
    language: str


@runtime_checkable
class Sources(Protocol):
    """The documents in view. Two implementations: `Library.view()` and `Given`."""

    async def documents(self) -> Sequence[DocumentInfo]:
        """All documents in view, in order."""
        ...

    async def document(self, document_id: str) -> Document:
        """One document, whole.

        Raises:
            UnknownDocument: if it is not in view.
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
        """The `k` best passages, best first, optionally only within some documents.

        A query without a searchable word returns nothing. Equal scores come in document order.
        """
        ...
