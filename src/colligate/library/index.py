"""The passage index: what it can do, and how stored documents get into it.

An index holds only numbers: passage numbers, document numbers, vectors and hashed terms. The text
stays in the catalogue, so an index never has to be searched for removed text.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from colligate.concurrency import gather, in_thread
from colligate.documents import Document, Kind, Span
from colligate.documents.chunking import Chunker
from colligate.library.bm25 import Terms, encode_document
from colligate.library.catalogue import Catalogue
from colligate.library.schema import DocumentState
from colligate.models import Embedder


class PassageIndex(Protocol):
    """Passages by vector and by words. Calls block; one thread writes at a time."""

    def upsert(self, entries: Sequence[IndexEntry]) -> None:
        """Add passages, or replace those with the same number."""
        ...

    def nearest(self, vector: NDArray[np.float32], limit: int, scope: Scope) -> list[ScoredPassage]:
        """Return the passages with the largest cosine, best first."""
        ...

    def matching(self, terms: Terms, limit: int, scope: Scope) -> list[ScoredPassage]:
        """Return the passages that share a term, by BM25 score, best first."""
        ...

    def remove(self, documents: Collection[int]) -> None:
        """Take all passages of these documents out of every search."""
        ...

    def remove_passages(self, passages: Collection[int]) -> None:
        """Take these passages out of every search."""
        ...

    def passages(self) -> dict[int, int]:
        """Return all passage numbers, each with its document's."""
        ...

    def count(self) -> int:
        """Return the number of passages."""
        ...

    def flush(self) -> None:
        """Return once all changes so far would survive the end of the process."""
        ...

    def optimise(self) -> None:
        """Rebuild grown segments and those with removed passages, and erase the latter. Slow."""
        ...

    def close(self) -> None:
        """Flush and close. Safe to call twice."""
        ...


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


# Passages are embedded a window at a time, sorted by length: little is spent on padding a batch.
_WINDOW = 1024
_BATCH = 64


class Indexer:
    """Makes pending documents searchable; without an embedder, by their words alone.

    The order of writes makes it safe to be killed anywhere: passages are written to the index and
    flushed, and only then does the catalogue mark their document as indexed. What was written of
    other documents is removed when the index is next opened.

    `unfinished` holds the documents that may have some passages in the index and are not indexed
    yet; searches leave them out.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        open_index: Callable[[], Awaitable[tuple[PassageIndex, Embedder | None]]],
        unfinished: set[int],
        on_progress: Callable[[int, int], None],
    ) -> None:
        self._catalogue = catalogue
        self._open_index = open_index  # called for the first passage, not before
        self._unfinished = unfinished
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
        document = await in_thread(self._catalogue.text, number)
        if document is None or number in self._left:
            return
        passages = await in_thread(self._catalogue.passages_of, number)
        self._left[number] = len(passages)
        self._unfinished.add(number)
        self._total += len(passages)
        if not passages:
            await self._mark_indexed([number])
        for p in passages:
            text = prepend_headings(document.title, p.section, document.text[p.start : p.end])
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
        index: PassageIndex,
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
        self._unfinished.difference_update(numbers)


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
    index: PassageIndex, passages: list[_Passage], vectors: Sequence[NDArray[np.float32] | None]
) -> None:
    index.upsert(
        [
            IndexEntry(p.number, p.document, vector, encode_document(p.text, p.language))
            for p, vector in zip(passages, vectors, strict=True)
        ]
    )
    index.flush()


# Passages


def cut_passages(document: Document, chunker: Chunker) -> list[Span]:
    """Return a document's chunks, without the bare headings of sections that have sub-sections.

    Such a heading is also on the heading path of every passage below it, and would only take a
    better passage's place among the few that are read.
    """
    bare = {
        _trim(document, node.heading)
        for node in document.tree.sections
        if node.heading is not None
        and any(child.kind is Kind.SECTION for child in document.tree.children(node))
    }
    return [span for span in chunker(document) if _trim(document, span) not in bare]


def _trim(document: Document, span: Span) -> tuple[int, int]:
    text = document.slice(span)
    start = span.start + len(text) - len(text.lstrip())
    return start, start + len(text.strip())


def prepend_headings(title: str, section: Iterable[str], text: str) -> str:
    """Return the text a passage is found by: its document's title, heading path and own text."""
    headings = [title, *(heading for heading in section if heading != title)]
    return "\n".join([" > ".join(filter(None, headings)), text])
