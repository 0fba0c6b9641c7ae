"""What an index of passages must do, whoever stores it.

An index holds numbers alone: passage numbers, document numbers, vectors and hashed terms. The
text stays in the catalogue, so an index never has to be searched for what was removed.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from colligate.concurrency import in_thread
from colligate.documents import Document, Kind, Span
from colligate.documents.chunking import Chunker
from colligate.library.bm25 import Terms, document_terms
from colligate.library.catalogue import Catalogue
from colligate.library.schema import State
from colligate.models import Embedder


@dataclass(frozen=True, slots=True)
class Entry:
    """One passage for the index: its number, its document's, and what it is found by.

    `vector` is of unit length; None where passages are found by their words alone.
    """

    passage: int
    document: int
    vector: NDArray[np.float32] | None
    terms: Terms


@dataclass(frozen=True, slots=True)
class Scored:
    """A passage that matched."""

    passage: int
    document: int
    score: float


@dataclass(frozen=True, slots=True)
class Scope:
    """Which documents are searched: `within` them (None: all), and never `without`."""

    within: Collection[int] | None = None
    without: Collection[int] = ()


class PassageIndex(Protocol):
    """Passages by vector and by words. Calls block; one thread writes at a time."""

    def upsert(self, entries: Sequence[Entry]) -> None:
        """Add passages, or replace those with the same number."""
        ...

    def nearest(self, vector: NDArray[np.float32], limit: int, scope: Scope) -> list[Scored]:
        """The passages with the largest cosine, best first."""
        ...

    def matching(self, terms: Terms, limit: int, scope: Scope) -> list[Scored]:
        """The passages with the largest BM25 score, best first; only those that share a term."""
        ...

    def remove(self, documents: Collection[int]) -> None:
        """Take all passages of these documents out of every search."""
        ...

    def remove_passages(self, passages: Collection[int]) -> None:
        """Take these passages out of every search."""
        ...

    def passages(self) -> dict[int, int]:
        """All passage numbers, each with its document's."""
        ...

    def count(self) -> int:
        """How many passages there are."""
        ...

    def flush(self) -> None:
        """Return once everything done so far would survive the end of the process."""
        ...

    def optimise(self) -> None:
        """Rebuild what has grown or holds removed passages, and erase the latter. May take long."""
        ...

    def close(self) -> None:
        """Flush and let go. Safe to call twice."""
        ...


# What of a document is searched: which spans, and the words each is found by.


def passages_of(document: Document, chunker: Chunker) -> list[Span]:
    """A document's chunks, less those that are the bare heading of a section with sub-sections.

    Such a heading says nothing that is not also on the heading path of every passage below it,
    and would only take a better passage's place among the few that are read.
    """
    bare = {
        node.heading
        for node in document.tree.sections
        if node.heading is not None
        and any(child.kind is Kind.SECTION for child in document.tree.children(node))
    }
    trimmed = {_trimmed(document, heading) for heading in bare}
    return [span for span in chunker(document) if _trimmed(document, span) not in trimmed]


def searched_text(title: str, section: Iterable[str], text: str) -> str:
    """What a passage is found by: the document's title, the heading path, and its own text."""
    headings = [title, *(heading for heading in section if heading != title)]
    return "\n".join([" > ".join(filter(None, headings)), text])


def _trimmed(document: Document, span: Span) -> tuple[int, int]:
    text = document.slice(span)
    start = span.start + len(text) - len(text.lstrip())
    return start, start + len(text.strip())


# From stored documents to searchable ones: embed their passages, write them to the index.
#
# The order of writes makes it safe to be killed anywhere: passages go to the index and are
# flushed, and only then does the catalogue call their document indexed. What was written of a
# document that never got so far is removed when the index is next opened.

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
