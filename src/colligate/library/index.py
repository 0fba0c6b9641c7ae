"""From stored documents to searchable ones: embed their passages and write them to the index."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from colligate.concurrency import gather, in_thread
from colligate.documents.document import full_title
from colligate.library.bm25 import encode_document
from colligate.library.catalogue import Catalogue
from colligate.library.protocols import IndexEntry, PassageStore
from colligate.library.schema import DocumentState
from colligate.library.sources import prepend_headings
from colligate.models import Embedder

# Passages are embedded a window at a time, sorted by length: little is spent on padding a batch.
_WINDOW = 1024
_BATCH = 64


class Indexer:
    """Makes pending documents searchable; without an embedder, by their words alone.

    The order of writes makes it safe to be killed anywhere: passages are written to the index and
    flushed, and only then does the catalogue mark their document as indexed. Passages of other
    documents are removed when the index is next opened.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        open_index: Callable[[], Awaitable[tuple[PassageStore, Embedder | None]]],
        on_progress: Callable[[int, int], None],
    ) -> None:
        self._catalogue = catalogue
        self._open_index = open_index  # called for the first passage, not before
        self._report = on_progress
        self._left: dict[int, int] = {}  # passages to write, by document
        self._waiting: list[_Passage] = []
        self._writing: asyncio.Task[None] | None = None
        self._total = 0
        self.done = 0

    async def run(self, stored: AsyncIterator[list[int]]) -> None:
        """Index documents as they come, embedding while others are still being read.

        If the embedder fails, finished documents stay indexed.
        """
        # Only numbers wait in the queue, so it need not be bounded: the documents are on disk.
        queue: asyncio.Queue[list[int] | None] = asyncio.Queue()
        feeding = asyncio.create_task(_feed(stored, queue))
        try:
            while (numbers := await queue.get()) is not None:
                for number in numbers:
                    await self._gather(number)
                    await self._embed(at_least=_WINDOW)
                if queue.empty():  # a short window is better than an idle embedder
                    await self._embed(at_least=_BATCH)
            await self._embed(at_least=1)
            await self._finish_writing()
            await feeding
        finally:
            feeding.cancel()
            writing = [self._writing] if self._writing else []
            await asyncio.gather(feeding, *writing, return_exceptions=True)

    async def _gather(self, number: int) -> None:
        """Queue a document's passages for the embedder."""
        document = await in_thread(self._catalogue.document, number)
        if document is None or number in self._left:
            return
        passages = await in_thread(self._catalogue.passages_of, number)
        self._left[number] = len(passages)
        self._total += len(passages)
        if not passages:
            await self._mark_indexed([number])
        title = full_title(document.title, document.id)
        for p in passages:
            span = document.span(p.start, p.end)
            above = *p.section, document.table_head(span)
            text = prepend_headings(title, above, document.slice(span))
            self._waiting.append(_Passage(p.number, number, document.language, text))

    async def _embed(self, at_least: int) -> None:
        while len(self._waiting) >= at_least:
            window, self._waiting = self._waiting[:_WINDOW], self._waiting[_WINDOW:]
            window.sort(key=lambda passage: len(passage.text))
            index, embedder = await self._open_index()
            batches = [window[at : at + _BATCH] for at in range(0, len(window), _BATCH)]
            # All at once, so that no thread of the embedder waits for the end of a batch.
            embedded = await gather(self._embed_batch(embedder, batch) for batch in batches)
            await self._finish_writing()
            vectors = [vector for batch in embedded for vector in batch]
            self._writing = asyncio.create_task(self._write(index, window, vectors))

    async def _embed_batch(
        self, embedder: Embedder | None, batch: list[_Passage]
    ) -> Sequence[NDArray[np.float32] | None]:
        if embedder is None:
            return [None] * len(batch)
        vectors = await embedder.embed([passage.text for passage in batch])
        self.done += len(batch)
        self._report(self.done, self._total)
        return list(vectors)

    async def _finish_writing(self) -> None:
        if self._writing is not None:
            await self._writing

    async def _write(
        self,
        index: PassageStore,
        passages: list[_Passage],
        vectors: Sequence[NDArray[np.float32] | None],
    ) -> None:
        await in_thread(_upsert, index, passages, vectors)
        counts = Counter(passage.document for passage in passages)
        for number, count in counts.items():
            self._left[number] -= count
        await self._mark_indexed([number for number in counts if not self._left[number]])

    async def _mark_indexed(self, numbers: list[int]) -> None:
        await in_thread(self._catalogue.mark, numbers, DocumentState.INDEXED)


@dataclass(frozen=True, slots=True)
class _Passage:
    number: int
    document: int
    language: str
    text: str


async def _feed(stored: AsyncIterator[list[int]], queue: asyncio.Queue[list[int] | None]) -> None:
    try:
        async for numbers in stored:
            queue.put_nowait(numbers)
    finally:
        queue.put_nowait(None)


def _upsert(
    index: PassageStore, passages: list[_Passage], vectors: Sequence[NDArray[np.float32] | None]
) -> None:
    index.upsert(
        [
            IndexEntry(p.number, p.document, vector, encode_document(p.text, p.language))
            for p, vector in zip(passages, vectors, strict=True)
        ]
    )
