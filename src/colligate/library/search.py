"""Finding passages in a library, and showing them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from colligate.concurrency import in_thread
from colligate.documents import Document, Hit, Passage, Span
from colligate.errors import UnknownDocument
from colligate.library.bm25 import Terms, query_terms, words
from colligate.library.catalogue import Catalogue, Text
from colligate.library.index import PassageIndex, Scope, Scored
from colligate.library.recent import Recent
from colligate.library.schema import State
from colligate.library.sources import DocumentInfo, SearchMode
from colligate.models import Embedder

# From two lists of passages to one: reciprocal rank fusion, the same every time.

# The constant of Cormack, Clarke and Buettcher (SIGIR 2009).
_RRF = 60

# How far down each list fusion looks, in passages for each one asked for, and at least.
_DEPTH, _LEAST = 3, 50

# Scores that differ by less are equal: embedding in another batch moves the last digits.
_DIGITS = 5

Order = Callable[[Scored], tuple[int, int]]


def rank(
    index: PassageIndex,
    *,
    mode: SearchMode,
    k: int,
    vector: NDArray[np.float32] | None,
    terms: Terms,
    scope: Scope,
    order: Order,
) -> list[Scored]:
    """The `k` best passages, best first; equal scores in the order of `order`.

    `vector` is the query's embedding, needed unless `mode` is sparse.
    """
    depth = max(_DEPTH * k, _LEAST) if mode is SearchMode.HYBRID else k
    lists = []
    if mode is not SearchMode.SPARSE:
        assert vector is not None
        unit = vector
        lists.append(_top(lambda limit: index.nearest(unit, limit, scope), depth, order))
    if mode is not SearchMode.DENSE:
        lists.append(_top(lambda limit: index.matching(terms, limit, scope), depth, order))
    return lists[0] if len(lists) == 1 else _fuse(lists, order)[:k]


def _top(search: Callable[[int], list[Scored]], depth: int, order: Order) -> list[Scored]:
    """The best `depth`; where the cut falls among equals, all of them are fetched and ordered."""
    limit = depth + 1
    while True:
        found = search(limit)
        if len(found) < limit or _rounded(found[-1]) < _rounded(found[depth - 1]):
            return sorted(found, key=lambda s: (-_rounded(s), order(s)))[:depth]
        limit *= 2


def _rounded(scored: Scored) -> float:
    return round(scored.score, _DIGITS)


def _fuse(lists: list[list[Scored]], order: Order) -> list[Scored]:
    sums: dict[int, float] = {}
    documents: dict[int, int] = {}
    for found in lists:
        for place, scored in enumerate(found, start=1):
            sums[scored.passage] = sums.get(scored.passage, 0.0) + 1 / (_RRF + place)
            documents[scored.passage] = scored.document
    fused = [Scored(passage, documents[passage], score) for passage, score in sums.items()]
    return sorted(fused, key=lambda s: (-s.score, order(s)))


# Characters of documents, and of their texts alone, kept in memory after use.
_DOCUMENTS_KEPT = 8_000_000
_TEXTS_KEPT = 32_000_000

_MOST = 1 << 31  # passages asked for: the index counts no further


class Opened(Protocol):
    """What is searched: a catalogue and an index, each opened when it is needed."""

    async def reading(self) -> Catalogue:
        """The catalogue."""
        ...

    async def index(self) -> PassageIndex | None:
        """The index; None while nothing was indexed."""
        ...


class Embedding(Protocol):
    """Where a query's embedder comes from."""

    async def open(self, catalogue: Catalogue) -> Embedder:
        """The embedder the catalogue's passages were embedded with."""
        ...


class Searching:
    """Reads what a store holds. `unfinished` are documents whose passages are not all there."""

    def __init__(self, store: Opened, embedder: Embedding, unfinished: set[int]) -> None:
        self._store = store
        self._embedder = embedder
        self._unfinished = unfinished
        self._documents = Recent[int, Document](
            lambda document: len(document.text), _DOCUMENTS_KEPT
        )
        self._texts = Recent[int, Text](lambda text: len(text.text), _TEXTS_KEPT)
        self._reading = 0  # how many calls are under way
        self._begin = asyncio.Lock()
        self._ended = asyncio.Event()

    async def documents(self) -> Sequence[DocumentInfo]:
        """All documents, in the order they were added."""
        async with self._under_way():
            return await in_thread((await self._store.reading()).infos)

    async def document(self, document_id: str) -> Document:
        """One document, whole.

        Raises:
            UnknownDocument: if it is not in the library.
        """
        async with self._under_way():
            catalogue = await self._store.reading()
            return await in_thread(self._load, catalogue, document_id)

    async def search(
        self,
        query: str,
        k: int,
        mode: SearchMode,
        within: Sequence[str] | None,
        *,
        as_given: bool = False,
    ) -> list[Hit]:
        """The `k` best passages, of all documents or of those in `within`.

        Equal scores come in the order the documents were added, or that of `within`.

        Raises:
            UnknownDocument: if one of those is not in the library.
        """
        mode = SearchMode(mode)  # its name will do
        query = query.encode("utf-8", "replace").decode()  # it may hold half a surrogate pair
        if k < 1 or not any(True for _ in words(query)):
            return []
        async with self._under_way():
            return await self._search(query, k, mode, within, as_given)

    @asynccontextmanager
    async def paused(self) -> AsyncIterator[None]:
        """Calls under way have ended, and new ones wait: the store may be closed."""
        async with self._begin:
            while self._reading:
                self._ended.clear()
                await self._ended.wait()
            yield

    @asynccontextmanager
    async def _under_way(self) -> AsyncIterator[None]:
        async with self._begin:
            self._reading += 1
        try:
            yield
        finally:
            self._reading -= 1
            self._ended.set()

    async def _search(
        self, query: str, k: int, mode: SearchMode, within: Sequence[str] | None, as_given: bool
    ) -> list[Hit]:
        catalogue = await self._store.reading()
        numbers = None if within is None else await in_thread(_numbers, catalogue, within)
        if numbers == []:
            return []
        index = await self._store.index()
        if index is None:
            return []
        vector = None
        if mode is not SearchMode.SPARSE:
            embedder = await self._embedder.open(catalogue)
            vector = (await embedder.embed([query], kind="query"))[0]

        def found() -> list[Hit]:
            place = {number: i for i, number in enumerate(numbers or ())} if as_given else {}
            best = rank(
                index,
                mode=mode,
                k=min(k, _MOST),
                vector=vector,
                terms=query_terms(query, catalogue.languages()),
                scope=Scope(numbers, self._unfinished.union(catalogue.in_state(State.LEAVING))),
                order=lambda scored: (place.get(scored.document, scored.document), scored.passage),
            )
            return self._hits(catalogue, best)

        return await in_thread(found)

    def forget(self) -> None:
        """Drop what is kept in memory."""
        self._documents.clear()
        self._texts.clear()

    def _load(self, catalogue: Catalogue, document_id: str) -> Document:
        (number,) = _numbers(catalogue, [document_id])
        document = self._documents.get(number, catalogue.document)
        if document is None:
            raise unknown(document_id)
        return document

    def _hits(self, catalogue: Catalogue, best: Iterable[Scored]) -> list[Hit]:
        best = list(best)
        placed = catalogue.passages([scored.passage for scored in best])
        hits = []
        for scored in best:
            p = placed.get(scored.passage)
            text = self._texts.get(p.document, catalogue.text) if p else None
            if p is None or text is None:
                continue  # removed since
            span = Span(text.id, p.start, p.end)
            passage = Passage(span, text.text[p.start : p.end], text.title, p.section, p.page)
            hits.append(Hit(passage, scored.score))
        return hits


def unknown(document_id: str) -> UnknownDocument:
    """That a document is not here."""
    return UnknownDocument(
        f"no document {document_id}", "it is not in view", "see `colligate library list`"
    )


def _numbers(catalogue: Catalogue, ids: Sequence[str]) -> list[int]:
    known = catalogue.numbers(ids)
    for document_id in ids:
        if document_id not in known:
            raise unknown(document_id)
    return [known[document_id] for document_id in ids]
