"""From stored documents to searchable ones: embed their passages, write them to the index.

The order of writes makes it safe to be killed anywhere: passages go to the index and are
flushed, and only then does the catalogue call their document indexed. What was written of a
document that never got so far is removed when the index is next opened.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from colligate.library.blocking import in_thread
from colligate.library.bm25 import document_terms
from colligate.library.catalogue import Catalogue
from colligate.library.passage_index import Entry, PassageIndex
from colligate.library.passages import searched_text
from colligate.library.schema import State
from colligate.models import Embedder

# Passages gathered, sorted by length and embedded together: texts of one batch are then of
# one length, and little is spent on padding.
_WINDOW = 1024
_BATCH = 64


@dataclass(frozen=True, slots=True)
class _Passage:
    number: int
    document: int
    language: str
    text: str


class Indexing:
    """Makes pending documents searchable; without an embedder, by their words alone.

    `unfinished` receives the documents of which passages may be in the index already while
    they are not indexed yet, and loses them when they are: searches leave them out.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        ready: Callable[[], Awaitable[tuple[PassageIndex, Embedder | None]]],
        unfinished: set[int],
        on_progress: Callable[[int, int], None],
    ) -> None:
        self._catalogue = catalogue
        self._ready = ready  # opened when the first passage comes, not before
        self._unfinished = unfinished
        self._tell = on_progress
        self._left: dict[int, int] = {}
        self._window: list[_Passage] = []
        self._writing: asyncio.Task[None] | None = None
        self._total = 0
        self.done = 0

    async def run(self, stored: AsyncIterator[list[int]]) -> None:
        """Index documents as they come, embedding while others are still being read.

        Raises:
            ModelError: if the embedder fails; what was done so far stays done.
        """
        # Only numbers wait here, so it need not be bounded: the documents are on disk.
        queue: asyncio.Queue[list[int] | None] = asyncio.Queue()
        feeding = asyncio.create_task(_feed(stored, queue))
        try:
            while (numbers := await queue.get()) is not None:
                for number in numbers:
                    await self._gather(number)
                    await self._embed(at_least=_WINDOW)
                if queue.empty():  # better a short window than an idle embedder
                    await self._embed(at_least=_BATCH)
            await self._embed(at_least=1)
            await self._written()
            await feeding
        finally:
            feeding.cancel()
            writing = [self._writing] if self._writing else []
            await asyncio.gather(feeding, *writing, return_exceptions=True)

    async def _gather(self, number: int) -> None:
        text = await in_thread(self._catalogue.text, number)
        if text is None or number in self._left:
            return
        placed = await in_thread(self._catalogue.passages_of, number)
        self._left[number] = len(placed)
        self._unfinished.add(number)
        self._total += len(placed)
        if not placed:
            await self._finish([number])
        for p in placed:
            found_by = searched_text(text.title, p.section, text.text[p.start : p.end])
            self._window.append(_Passage(p.number, number, text.language, found_by))

    async def _embed(self, at_least: int) -> None:
        while len(self._window) >= at_least:
            some, self._window = self._window[:_WINDOW], self._window[_WINDOW:]
            some.sort(key=lambda passage: len(passage.text))
            index, embedder = await self._ready()
            batches = [some[at : at + _BATCH] for at in range(0, len(some), _BATCH)]
            # All at once, so that no thread of the embedder waits for the end of a batch.
            tasks = [asyncio.create_task(self._vectors(embedder, batch)) for batch in batches]
            try:
                vectors = list(itertools.chain(*await asyncio.gather(*tasks)))
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
            await self._written()
            self._writing = asyncio.create_task(self._write(index, some, vectors))

    async def _vectors(
        self, embedder: Embedder | None, batch: list[_Passage]
    ) -> Sequence[NDArray[np.float32] | None]:
        if embedder is None:
            return [None] * len(batch)
        vectors = await embedder.embed([passage.text for passage in batch])
        self.done += len(batch)
        self._tell(self.done, self._total)
        return list(vectors)

    async def _written(self) -> None:
        if self._writing is not None:
            await self._writing

    async def _write(
        self,
        index: PassageIndex,
        passages: list[_Passage],
        vectors: Sequence[NDArray[np.float32] | None],
    ) -> None:
        numbers = Counter(passage.document for passage in passages)
        await in_thread(_upsert, index, passages, vectors)
        for number, count in numbers.items():
            self._left[number] -= count
        whole = [number for number in numbers if not self._left[number]]
        await self._finish(whole)

    async def _finish(self, numbers: list[int]) -> None:
        await in_thread(self._catalogue.mark, numbers, State.INDEXED)
        self._unfinished.difference_update(numbers)


async def _feed(stored: AsyncIterator[list[int]], queue: asyncio.Queue[list[int] | None]) -> None:
    try:
        async for numbers in stored:
            queue.put_nowait(numbers)
    finally:
        queue.put_nowait(None)


def _upsert(
    index: PassageIndex, passages: list[_Passage], vectors: Sequence[NDArray[np.float32] | None]
) -> None:
    index.upsert(
        [
            Entry(p.number, p.document, vector, document_terms(p.text, p.language))
            for p, vector in zip(passages, vectors, strict=True)
        ]
    )
    index.flush()
