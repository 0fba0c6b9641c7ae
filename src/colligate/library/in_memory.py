"""A given list of documents as sources, kept nowhere but in memory and a temporary folder."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import weakref
from collections.abc import AsyncIterator, Collection, Sequence
from pathlib import Path
from typing import Self

from colligate.concurrency import in_thread
from colligate.documents import Document, Hit
from colligate.documents.chunking import Chunker, Structural
from colligate.errors import UsageError
from colligate.library.catalogue import Catalogue, FileRecord
from colligate.library.edge import EdgeIndex
from colligate.library.index import Indexing, passages_of
from colligate.library.schema import State
from colligate.library.search import Searching, unknown
from colligate.library.sources import DocumentInfo, SearchMode
from colligate.models import Embedder


class InMemorySources:
    """`Sources` over these documents, in this order; indexed when they are first searched.

    It finds what a library of the same documents would find. Without an embedder only
    `SearchMode.SPARSE` can be searched. Close it, or use `async with`.

    Raises:
        UsageError: if two of the documents have the same id.
    """

    def __init__(
        self,
        documents: Sequence[Document],
        embedder: Embedder | None = None,
        *,
        chunker: Chunker = Structural(),  # noqa: B008 (it is immutable)
    ) -> None:
        self._by_id = {document.id: document for document in documents}
        if len(self._by_id) < len(documents):
            raise UsageError("two documents have the same id", "", "give each an id of its own")
        self._store = _Temporary(documents, embedder, chunker)
        self._searching = Searching(self._store, self._store, set())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def documents(self) -> Sequence[DocumentInfo]:
        """All documents, in order."""
        return await self._searching.documents()

    async def document(self, document_id: str) -> Document:
        """One document, whole.

        Raises:
            UnknownDocument: if it was not given.
        """
        if document_id not in self._by_id:
            raise unknown(document_id)
        return self._by_id[document_id]

    async def search(
        self,
        query: str,
        *,
        k: int,
        mode: SearchMode = SearchMode.HYBRID,
        documents: Collection[str] | None = None,
    ) -> list[Hit]:
        """The `k` best passages.

        Raises:
            UnknownDocument: if one of `documents` was not given.
            UsageError: if `mode` needs an embedder and none was given.
        """
        within = None if documents is None else list(documents)
        return await self._searching.search(query, k, mode, within)

    async def close(self) -> None:
        """Delete the temporary folder. Safe to call twice."""
        async with self._searching.paused():
            await self._store.close()
            self._searching.forget()


class _Temporary:
    """A catalogue in memory and an index in a temporary folder."""

    def __init__(
        self, documents: Sequence[Document], embedder: Embedder | None, chunker: Chunker
    ) -> None:
        self._documents = documents
        self._embedder = embedder
        self._chunker = chunker
        self._catalogue: Catalogue | None = None
        self._index: EdgeIndex | None = None
        self._clean = _nothing
        self._opening = asyncio.Lock()

    async def reading(self) -> Catalogue:
        async with self._opening:
            if self._catalogue is None:
                await in_thread(self._store)
            assert self._catalogue is not None
            return self._catalogue

    async def open(self, _: Catalogue) -> Embedder:
        if self._embedder is None:
            raise UsageError(
                "cannot search these documents by meaning",
                "they were given without an embedder",
                "give one, or search with SearchMode.SPARSE",
            )
        return self._embedder

    async def index(self) -> EdgeIndex | None:
        """The index, with all documents in it; None if they have no passage."""
        catalogue = await self.reading()
        async with self._opening:
            pending = await in_thread(catalogue.in_state, State.PENDING)
            if pending:
                ready = self._ready
                await Indexing(catalogue, ready, set(), lambda *_: None).run(_only(pending))
            return self._index

    async def close(self) -> None:
        async with self._opening:
            if self._index is not None:
                await in_thread(self._index.close)
                self._index = None
            if self._catalogue is not None:
                self._catalogue.close()
                self._catalogue = None
            self._clean()

    async def _ready(self) -> tuple[EdgeIndex, Embedder | None]:
        if self._index is None:
            # An embedder behind an endpoint may have to ask for its dimension, which blocks.
            await in_thread(self._create)
        assert self._index is not None
        return self._index, self._embedder

    def _create(self) -> None:
        folder = tempfile.mkdtemp(prefix="colligate-")
        self._clean = weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        dimension = None if self._embedder is None else self._embedder.dimension
        self._index = EdgeIndex.create(Path(folder), dimension)

    def _store(self) -> None:
        catalogue = Catalogue(Path(":memory:"))
        # Stored as one file: of two equal texts each document has its own.
        chunked = [(each, passages_of(each, self._chunker)) for each in self._documents]
        catalogue.store(FileRecord(Path(), 0, 0, 0, ""), chunked)
        self._catalogue = catalogue


def _nothing() -> None:
    pass


async def _only(numbers: list[int]) -> AsyncIterator[list[int]]:
    yield numbers
