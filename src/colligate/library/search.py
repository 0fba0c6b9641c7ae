"""Searching a library: from a query to passages, and from an id to its document."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar

import numpy as np
from cachetools import LRUCache
from numpy.typing import NDArray

from colligate.concurrency import in_thread
from colligate.documents import Document, Hit, Passage, Span, clean_text
from colligate.documents.document import SHEETS
from colligate.errors import UnknownDocument
from colligate.library.bm25 import Terms, encode_query, split_words
from colligate.library.catalogue import Catalogue, resolve_path
from colligate.library.protocols import PassageStore, Scope, ScoredPassage, StoredText
from colligate.library.schema import DocumentState
from colligate.library.sources import DocumentInfo, SearchMode
from colligate.models import Embedder

# Characters of documents, and of texts without their trees, kept in memory after use.
_DOCUMENTS_KEPT = 8_000_000
_TEXTS_KEPT = 32_000_000

_MAX_K = 1 << 31  # the index counts no further
_TRIES = 3  # of a search some of whose passages another process removes meanwhile

T = TypeVar("T", Document, StoredText)


class SearchStore(Protocol):
    """Opens the catalogue and the index when they are needed."""

    async def open_catalogue(self) -> Catalogue:
        """Open the catalogue."""

    async def open_index(self) -> PassageStore | None:
        """Open the index; None while nothing is indexed."""


class Searcher:
    """What the views of one library share: its store, its embedder and documents in memory."""

    def __init__(
        self,
        store: SearchStore,
        open_embedder: Callable[[Catalogue], Awaitable[Embedder]],
        folders: Iterable[Path | str] = (),
    ) -> None:
        self.store = store
        # If there are some, the views have no documents but those of the files in them.
        self.folders = tuple(map(resolve_path, folders))
        self.open_embedder = open_embedder
        # A document larger than the whole cache is kept alone in it.
        self._documents: LRUCache[int, Document] = LRUCache(
            _DOCUMENTS_KEPT, lambda document: min(len(document.text), _DOCUMENTS_KEPT)
        )
        self._texts: LRUCache[int, StoredText] = LRUCache(
            _TEXTS_KEPT, lambda stored: min(len(stored.text), _TEXTS_KEPT)
        )
        self._caching = threading.Lock()
        self._calls = 0  # under way
        self._entering = asyncio.Lock()
        self._left = asyncio.Event()

    @asynccontextmanager
    async def pause(self) -> AsyncIterator[None]:
        """Wait until no call is under way, and let new ones wait: the store may be closed."""
        async with self._entering:
            while self._calls:
                self._left.clear()
                await self._left.wait()
            yield

    @asynccontextmanager
    async def open_catalogue(self) -> AsyncIterator[Catalogue]:
        """Yield the catalogue for one call, during which nothing is closed."""
        async with self._entering:
            self._calls += 1
        try:
            catalogue = await self.store.open_catalogue()
            if self.folders:
                catalogue = await in_thread(catalogue.confine, self.folders)
            yield catalogue
        finally:
            self._calls -= 1
            self._left.set()

    def clear_cache(self) -> None:
        """Drop the documents kept in memory."""
        with self._caching:
            self._documents.clear()
            self._texts.clear()

    def read(self, catalogue: Catalogue, document_id: str) -> Document:
        """Return one whole document."""
        (number,) = _find_numbers(catalogue, [document_id])
        document = self._load(self._documents, number, catalogue.document)
        if document is None:  # removed since
            raise _unknown(document_id)
        return document

    def to_hits(self, catalogue: Catalogue, best: Sequence[ScoredPassage]) -> list[Hit]:
        """Return the passages as they are shown, without those that were removed meanwhile."""
        stored = catalogue.passages([scored.passage for scored in best])
        hits = []
        for scored in best:
            p = stored.get(scored.passage)
            document = self._load(self._texts, p.document, catalogue.text) if p else None
            if p is None or document is None:
                continue  # removed since
            span = Span(document.id, p.start, p.end)
            text = document.text[p.start : p.end]
            place = (document.title, p.section, p.page, document.source, document.date)
            whole = None
            if document.media_type in SHEETS:  # its tree is small
                whole = self._load(self._documents, p.document, catalogue.document)
            row = whole.row_of(span) if whole else None
            hits.append(Hit(Passage(span, text, *place), scored.score, row))
        return hits

    def _load(
        self, cache: LRUCache[int, T], number: int, read: Callable[[int], T | None]
    ) -> T | None:
        with self._caching:
            found = cache.get(number)
        if found is None and (found := read(number)) is not None:
            with self._caching:
                cache[number] = found
        return found


class View:
    """`Sources` over documents of a library: over those with these ids, in this order, or all.

    Searches skip documents that are not indexed whole.
    """

    def __init__(self, searcher: Searcher, document_ids: Iterable[str] | None = None) -> None:
        self._searcher = searcher
        self._ids = None if document_ids is None else list(dict.fromkeys(document_ids))
        self._known = frozenset(self._ids or ())

    def view(self, document_ids: Iterable[str]) -> View:
        """Return some of the documents, in this order, as `Sources`."""
        return View(self._searcher, document_ids)

    async def documents(self) -> Sequence[DocumentInfo]:
        """Return all documents, in the order they were added or given."""
        async with self._searcher.open_catalogue() as catalogue:
            infos = await in_thread(catalogue.infos)
        if self._ids is None:
            return infos
        by_id = {info.id: info for info in infos}
        require_known(self._ids, by_id)
        return [by_id[document_id] for document_id in self._ids]

    async def document(self, document_id: str) -> Document:
        """Return one whole document.

        Raises:
            UnknownDocument: it is not here.
        """
        if self._ids is not None:
            require_known([document_id], self._known)
        async with self._searcher.open_catalogue() as catalogue:
            return await in_thread(self._searcher.read, catalogue, document_id)

    async def search(
        self,
        query: str,
        *,
        k: int = 10,
        mode: SearchMode = SearchMode.HYBRID,
        documents: Collection[str] | None = None,
    ) -> list[Hit]:
        """Return the `k` best passages of indexed documents, best first.

        A passage is found by its document's title, its heading path and its own text. Equal scores
        come in the order of the view.

        Raises:
            UnknownDocument: one of `documents` is not here.
        """
        within = None if documents is None else list(documents)
        if self._ids is not None:
            require_known(within or (), self._known)
            wanted = self._known if within is None else set(within)
            within = [document_id for document_id in self._ids if document_id in wanted]
        mode = SearchMode(mode)  # a plain string will do
        query = clean_text(query)  # a command line or a model may give half a surrogate pair
        if k < 1 or not any(True for _ in split_words(query)):
            return []
        async with self._searcher.open_catalogue() as catalogue:
            alone = bool(self._searcher.folders)
            if within is None and alone:
                within = await in_thread(lambda: list(catalogue.numbers()))
            numbers = None if within is None else await in_thread(_find_numbers, catalogue, within)
            index = await self._searcher.store.open_index()
            if index is None or numbers == []:
                return []
            vector = None
            if mode is not SearchMode.SPARSE:
                embedder = await self._searcher.open_embedder(catalogue)
                vector = (await embedder.embed([query], kind="query"))[0]
            in_order = () if self._ids is None else numbers or ()
            place = {number: i for i, number in enumerate(in_order)}

            def order(found: ScoredPassage) -> tuple[int, int]:
                return place.get(found.document, found.document), found.passage

            def find() -> tuple[list[Hit], bool]:
                dense = mode is SearchMode.DENSE
                terms = None if dense else encode_query(query, catalogue.languages())
                unfinished = (DocumentState.PENDING, DocumentState.REMOVING)
                hidden = [number for state in unfinished for number in catalogue.in_state(state)]
                scope = Scope(numbers, hidden, catalogue.numbers().values() if alone else None)
                best = rank_passages(index, vector, terms, scope, order, min(k, _MAX_K))
                hits = self._searcher.to_hits(catalogue, best)
                return hits, len(hits) == len(best)

            for _ in range(_TRIES):
                hits, whole = await in_thread(find)
                if whole:
                    break
            return hits


def require_known(ids: Iterable[str], known: Collection[str]) -> None:
    """Raise `UnknownDocument` for the first of these ids that is not known."""
    for document_id in ids:
        if document_id not in known:
            raise _unknown(document_id)


def _unknown(document_id: str) -> UnknownDocument:
    why = "it is not one of the documents here"
    hint = "a list of the documents shows their ids"
    return UnknownDocument(f"no document {document_id}", why, hint)


def _find_numbers(catalogue: Catalogue, ids: Sequence[str]) -> list[int]:
    numbers = catalogue.numbers(ids)
    require_known(ids, numbers)
    return [numbers[document_id] for document_id in ids]


# Ranking, with the same order for the same passages every time

# The weight of the cosine in hybrid search; BM25 has the rest. Chosen by measurement: decision 37.
_COSINE = 0.6

# Fusion reads this many passages of each list for each one asked for, and at least so many.
_DEPTH, _MIN_DEPTH = 3, 50

# Scores that differ by less are equal: embedding in another batch moves the last digits.
_DIGITS = 5

Order = Callable[[ScoredPassage], tuple[int, int]]


def rank_passages(
    index: PassageStore,
    vector: NDArray[np.float32] | None,
    terms: Terms | None,
    scope: Scope,
    order: Order,
    k: int,
) -> list[ScoredPassage]:
    """Return the `k` best passages by the query's embedding, by its terms or, if both are given, by
    both, best first; equal scores in the order of `order`."""
    depth = k if vector is None or terms is None else max(_DEPTH * k, _MIN_DEPTH)
    by_vector: list[ScoredPassage] = []
    by_words: list[ScoredPassage] = []
    if vector is not None:
        by_vector = _take(partial(index.search_vector, vector, scope=scope), depth, order)
    if terms is not None:
        by_words = _take(partial(index.search_terms, terms, scope=scope), depth, order)
    if vector is None or terms is None:
        return by_vector or by_words
    return _fuse(by_vector, by_words, depth, order)[:k]


def _take(
    search: Callable[[int], list[ScoredPassage]], depth: int, order: Order
) -> list[ScoredPassage]:
    """Return the best `depth`; if the cut falls among equals, fetch and order all of them."""
    limit = depth + 1
    while True:
        found = search(limit)
        if len(found) < limit or _rounded(found[-1]) < _rounded(found[depth - 1]):
            return sorted(found, key=lambda s: (-_rounded(s), order(s)))[:depth]
        limit *= 2


def _rounded(scored: ScoredPassage) -> float:
    return round(scored.score, _DIGITS)


def _fuse(
    by_vector: list[ScoredPassage], by_words: list[ScoredPassage], depth: int, order: Order
) -> list[ScoredPassage]:
    """Return the passages of both searches, the best weighted sum of z-scores first.

    z-scores are the ZMUV of Montague and Aslam (CIKM 2001). Unlike reciprocal rank fusion (Cormack,
    Clarke and Buettcher, SIGIR 2009) they keep how much better a passage is than the next. One that
    a search did not return has the least score there; 0 if all that match were returned. The sum is
    counted from the lowest one, so that no score is negative.
    """
    if not (found := {each.passage: each for each in (*by_vector, *by_words)}):
        return []
    sums = np.zeros(len(found))
    for scored, weight in ((by_vector, _COSINE), (by_words, 1 - _COSINE)):
        scores = {each.passage: each.score for each in scored}
        least = scored[-1].score if len(scored) >= depth else 0.0
        values = np.round([scores.get(passage, least) for passage in found], _DIGITS)
        deviation = values.std()
        if deviation > 10**-_DIGITS:  # otherwise all are equal
            sums += weight * (values - values.mean()) / deviation
    totals: list[float] = np.round(sums - sums.min(), _DIGITS).tolist()
    fused = [
        ScoredPassage(each.passage, each.document, total)
        for each, total in zip(found.values(), totals, strict=True)
    ]
    return sorted(fused, key=lambda each: (-each.score, order(each)))
