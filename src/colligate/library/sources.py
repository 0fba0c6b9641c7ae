"""Sources: the documents a strategy reads and searches, and the passages they are cut into."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from colligate.documents import Document, Hit, Kind, Span

if TYPE_CHECKING:
    from colligate.documents.chunking import Chunker


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


def cut_passages(document: Document, chunker: Chunker) -> list[Span]:
    """Return a document's chunks, without the bare headings of sections that have sub-sections.

    Such a heading is also on the heading path of every passage below it, and would only take a
    better passage's place among the few that are read.
    """
    bare = {
        document.trim(node.heading.start, node.heading.end)
        for node in document.tree.sections
        if node.heading is not None
        and any(child.kind is Kind.SECTION for child in document.tree.children(node))
    }
    return [s for s in chunker(document) if document.trim(s.start, s.end) not in bare]


_LONGEST = 10_000  # characters of a passage with some hundred tokens


def prepend_headings(title: str, section: Iterable[str], text: str) -> str:
    """Return the text a passage is found by: its document's title, heading path and own text."""
    if len(text) > _LONGEST:  # mostly blanks, on which a tokenizer may take minutes
        text = " ".join(text.split())
    headings = [title, *(heading for heading in section if heading != title)]
    return "\n".join([" > ".join(filter(None, headings)), text])
