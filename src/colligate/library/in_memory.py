"""A given list of documents as sources, kept in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Self

from colligate.concurrency import in_thread
from colligate.documents import Document
from colligate.documents.chunking import STRUCTURAL, parse_chunker
from colligate.errors import UsageError
from colligate.library.catalogue import Catalogue
from colligate.library.index import Indexer
from colligate.library.passages import PassageIndex, Vectors
from colligate.library.protocols import FileRecord
from colligate.library.schema import MEMORY, Database, DocumentState
from colligate.library.search import Searcher, View, require_known
from colligate.library.sources import cut_passages
from colligate.models import Embedder


class InMemorySources(View):
    """`Sources` over these documents, in this order; indexed when they are first searched.

    It finds what a library of the same documents would find. Without an embedder it finds passages
    by their words alone (`SearchMode.SPARSE`). Close it, or use `async with`.

    Raises:
        UsageError: two of the documents have the same id, or a search needs an embedder.
    """

    def __init__(
        self,
        documents: Sequence[Document],
        embedder: Embedder | None = None,
        *,
        chunker: str = STRUCTURAL,
    ) -> None:
        super().__init__(Searcher(self, self._open_embedder))
        self._by_id = {document.id: document for document in documents}
        if len(self._by_id) < len(documents):
            raise UsageError("two documents have the same id", "", "give each an id of its own")
        self._embedder = embedder
        self._chunker = parse_chunker(chunker)
        self._catalogue: Catalogue | None = None
        self._index: PassageIndex | None = None
        self._opening = asyncio.Lock()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def document(self, document_id: str) -> Document:
        """Return one of the documents, as it was given."""
        require_known([document_id], self._by_id)
        return self._by_id[document_id]

    async def close(self) -> None:
        """Free the index. Safe to call twice."""
        async with self._searcher.pause():
            self._searcher.clear_cache()
            if self._catalogue is not None:
                self._catalogue.close()
            self._catalogue = self._index = None

    async def open_catalogue(self) -> Catalogue:
        """Open a catalogue of all documents."""
        async with self._opening:
            if self._catalogue is None:
                await in_thread(self._make_catalogue)
            assert self._catalogue is not None
            return self._catalogue

    async def open_index(self) -> PassageIndex | None:
        """Open the index with all documents in it; None if they have no passage."""
        catalogue = await self.open_catalogue()
        async with self._opening:
            if pending := await in_thread(catalogue.in_state, DocumentState.PENDING):
                indexer = Indexer(catalogue, self._make_index, lambda *_: None)
                await indexer.run(_yield_once(pending))
            return self._index

    async def _open_embedder(self, _: Catalogue) -> Embedder:
        if self._embedder is None:
            why = "they were given without an embedder"
            hint = "give one, or search with SearchMode.SPARSE"
            raise UsageError("cannot search these documents by meaning", why, hint)
        return self._embedder

    def _make_catalogue(self) -> None:
        catalogue = Catalogue(Database(Path(MEMORY)))
        # Stored as one file: two documents with equal texts then stay two.
        passages = [(each, cut_passages(each, self._chunker)) for each in self._by_id.values()]
        catalogue.store([(FileRecord(Path(), 0, 0, 0, ""), passages)])
        self._catalogue = catalogue  # here, since a cancelled task loses its result

    async def _make_index(self) -> tuple[PassageIndex, Embedder | None]:
        if self._index is None:
            assert self._catalogue is not None
            # An embedder behind an endpoint may have to ask for its dimension, which blocks.
            length = await in_thread(lambda: self._embedder.dimension if self._embedder else 0)
            self._index = PassageIndex(self._catalogue.database, Vectors(length))
        return self._index, self._embedder


async def _yield_once(numbers: list[int]) -> AsyncGenerator[list[int], None]:
    yield numbers
