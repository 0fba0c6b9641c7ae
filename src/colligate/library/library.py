"""A library: documents kept on disk, and found."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray

from colligate.concurrency import in_thread
from colligate.documents import Document, Hit
from colligate.documents.chunking import Chunker, Structural
from colligate.documents.document import digest
from colligate.documents.reading import find_files
from colligate.errors import EmbedderMismatch, LibraryDamaged, SpanError
from colligate.library.catalogue import Catalogue, ids_of, prune_missing, take_out
from colligate.library.index import Indexing, PassageIndex
from colligate.library.ingest import Ingested, Ingestion, OnProgress, Progress, hold_to_chunker
from colligate.library.parsing import READER
from colligate.library.schema import State
from colligate.library.search import Searching, unknown
from colligate.library.sources import DocumentInfo, SearchMode
from colligate.library.store import RESPONSES, Store, default_path
from colligate.models import Embedder

# The one embedder a library is made with.


class LibraryEmbedder:
    """Opens an embedder when it is first needed, and holds the library to it.

    Vectors of two models do not compare, so a library with indexed documents accepts only
    the model that made them.
    """

    def __init__(self, named: Embedder | str) -> None:
        self._named = named
        self._embedder: Embedder | None = None
        self._opening = asyncio.Lock()

    async def open(self, catalogue: Catalogue) -> Embedder:
        """The embedder, for searching.

        Raises:
            EmbedderMismatch: if the library's passages were embedded by another.
            ModelError, UsageError: if the name cannot be opened.
        """
        async with self._opening:
            if self._embedder is None:
                if isinstance(self._named, str):
                    # Imported here: parser processes, too, import this package, and wait for it.
                    from colligate.models.names import open_embedder

                    self._embedder = await asyncio.to_thread(open_embedder, self._named)
                else:
                    self._embedder = self._named
        await in_thread(_check, catalogue, self._embedder)
        return self._embedder

    async def record(self, catalogue: Catalogue) -> Embedder:
        """The embedder, for indexing: from now on it is the library's."""
        embedder = await self.open(catalogue)
        await in_thread(_record, catalogue, embedder)
        return embedder

    async def close(self) -> None:
        """Free the embedder, if it was opened here by its name."""
        if self._embedder is not None and isinstance(self._named, str):
            await self._embedder.aclose()
        self._embedder = None


def _record(catalogue: Catalogue, embedder: Embedder) -> None:
    # An embedder behind an endpoint may have to ask for its dimension, which blocks.
    catalogue.set_meta(embedder=embedder.name, dimension=str(embedder.dimension))


def _check(catalogue: Catalogue, embedder: Embedder) -> None:
    name, dimension = catalogue.meta("embedder"), catalogue.meta("dimension")
    if name is None or (name, dimension) == (embedder.name, str(embedder.dimension)):
        return
    if catalogue.in_state(State.INDEXED):
        raise EmbedderMismatch(
            f"cannot use the embedder {embedder.name} ({embedder.dimension} dimensions) here",
            f"the library's passages were embedded by {name} ({dimension} dimensions)",
            f"use --embedder {name}, or another --library",
        )


# Whether a library is whole: the catalogue against itself and against the passage index.


@dataclass
class Findings:
    """What is wrong, in lines for a person and in numbers for the repair.

    `unindexed` are documents with passages missing from the index, `orphans` passages of the
    index without a document, `damaged` documents whose stored text is not what was stored.
    """

    problems: list[str] = field(default_factory=list)
    unindexed: list[int] = field(default_factory=list)
    orphans: list[int] = field(default_factory=list)
    damaged: list[int] = field(default_factory=list)


def verify(catalogue: Catalogue, index: PassageIndex | None) -> Findings:
    """Check everything; `index` is None for a library that never indexed anything."""
    findings = Findings(problems=catalogue.problems())
    for document_id, number in catalogue.numbers().items():
        why = _damage(catalogue, number)
        if why:
            findings.problems.append(f"document {document_id}: {why}")
            findings.damaged.append(number)
    if index is not None:
        _compare(catalogue, index, findings)
    return findings


def _damage(catalogue: Catalogue, number: int) -> str:
    try:
        document = catalogue.document(number)
    except (SpanError, ValueError, TypeError) as error:
        return f"its tree cannot be read ({error})"
    if document is None:
        return ""  # removed a moment ago
    info = document.tree.root.span
    if digest(document.text) != catalogue.digest(number):
        return "its text is not the text that was stored"
    if (info.start, info.end) != (0, len(document.text)):
        return "its tree does not cover its text"
    for placed in catalogue.passages_of(number):
        if not 0 <= placed.start <= placed.end <= len(document.text):
            return f"passage {placed.start}-{placed.end} reaches beyond its text"
    return ""


def _compare(catalogue: Catalogue, index: PassageIndex, findings: Findings) -> None:
    expected = catalogue.passage_numbers(State.INDEXED)
    present = index.passages()
    ids = {number: document_id for document_id, number in catalogue.numbers().items()}
    missing: dict[int, int] = {}
    for passage, document in expected.items():
        if present.get(passage) != document:
            missing[document] = missing.get(document, 0) + 1
    for document, count in sorted(missing.items()):
        line = f"document {ids.get(document, document)}: {count} passages are not in the index"
        findings.problems.append(line)
        findings.unindexed.append(document)
    findings.orphans = sorted(present.keys() - expected.keys())
    if findings.orphans:
        line = f"the index holds {len(findings.orphans)} passages that belong to no document"
        findings.problems.append(line)


# Some documents of a library, as if there were no others.


class View:
    """`Sources` over some documents of a library, in the order given."""

    def __init__(self, searching: Searching, document_ids: Iterable[str]) -> None:
        self._searching = searching
        self._ids = list(dict.fromkeys(document_ids))
        self._known = frozenset(self._ids)

    async def documents(self) -> Sequence[DocumentInfo]:
        """The documents in view.

        Raises:
            UnknownDocument: if one of them is not in the library.
        """
        infos = {info.id: info for info in await self._searching.documents()}
        if gone := [document_id for document_id in self._ids if document_id not in infos]:
            raise unknown(gone[0])
        return [infos[document_id] for document_id in self._ids]

    async def document(self, document_id: str) -> Document:
        """One document, whole.

        Raises:
            UnknownDocument: if it is not in view.
        """
        if document_id not in self._known:
            raise unknown(document_id)
        return await self._searching.document(document_id)

    async def search(
        self,
        query: str,
        *,
        k: int,
        mode: SearchMode = SearchMode.HYBRID,
        documents: Collection[str] | None = None,
    ) -> list[Hit]:
        """The `k` best passages in view.

        Raises:
            UnknownDocument: if one of `documents` is not in view.
        """
        if documents is None:
            return await self._searching.search(query, k, mode, self._ids, as_given=True)
        if outside := [document_id for document_id in documents if document_id not in self._known]:
            raise unknown(outside[0])
        within = set(documents)
        order = [document_id for document_id in self._ids if document_id in within]
        return await self._searching.search(query, k, mode, order, as_given=True)


# The index is rebuilt once this share of it is new or removed; while it has few passages, which
# takes a second or two at most, whenever some were removed (until then they count for BM25).
_REBUILD = 0.1
_FEW = 20_000

# Each parser process may hold a large file in memory.
_MOST_WORKERS = 8


class AsyncLibrary:
    """Documents in a folder on disk, with their passages ready to be searched.

    It is itself `Sources` over all its documents; `view` shows some of them. One process
    searches or writes a library at a time, waiting up to `wait` seconds for another; lists and
    single documents can be read meanwhile. Close it, or use `async with`.

    Args:
        path: its folder; by default COLLIGATE_LIBRARY, else one of the user's data folder.
        embedder: a model or its name; the library remembers which one made its vectors.
        chunker: cuts documents into passages; all documents of a library are cut alike.
        wait: seconds to wait for another process that holds the library.
        reader: the function that reads a file, as `module:function`; runs in other processes.

    Raises:
        LibraryError: from any method, one of its subclasses.
    """

    def __init__(
        self,
        path: Path | str | None = None,
        *,
        embedder: Embedder | str = "minilm",
        chunker: Chunker = Structural(),  # noqa: B008 (it is immutable)
        wait: float = 0.0,
        reader: str = READER,
    ) -> None:
        name = embedder if isinstance(embedder, str) else embedder.name
        self.path = default_path(name) if path is None else Path(path)
        self._store = Store(self.path, wait)
        self._embedder = LibraryEmbedder(embedder)
        self._chunker = chunker
        self._reader = reader
        self._unfinished: set[int] = set()
        self._searching = Searching(self._store, self._embedder, self._unfinished)
        self._changing = asyncio.Lock()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def responses(self) -> Path:
        """The file for responses of models that may repeat its documents; removal empties it."""
        return self.path / RESPONSES

    async def hold(self) -> None:
        """Take the library for this process now, and not when it is first searched or changed.

        One that may not be written is left as it is: it is searched in a copy.

        Raises:
            LibraryLocked: another process holds it for longer than may be waited.
        """
        if not (await self._store.reading()).read_only:
            await self._writing(_silent)

    # Reading

    async def documents(self) -> Sequence[DocumentInfo]:
        """All documents, in the order they were added."""
        return await self._searching.documents()

    async def document(self, document_id: str) -> Document:
        """One document, whole.

        Raises:
            UnknownDocument: if it is not in the library.
        """
        return await self._searching.document(document_id)

    async def search(
        self,
        query: str,
        *,
        k: int,
        mode: SearchMode = SearchMode.HYBRID,
        documents: Collection[str] | None = None,
    ) -> list[Hit]:
        """The `k` best passages of documents that are indexed, best first.

        A passage is found by its document's title, its heading path and its own text.
        """
        within = None if documents is None else list(documents)
        return await self._searching.search(query, k, mode, within)

    async def embed(
        self, texts: Sequence[str], kind: Literal["passage", "query"] = "passage"
    ) -> NDArray[np.float32]:
        """Vectors by the library's own embedder, as `Embedder.embed` gives them."""
        embedder = await self._embedder.open(await self._store.reading())
        return await embedder.embed(texts, kind=kind)

    def view(self, document_ids: Iterable[str]) -> View:
        """Some of the documents, in this order, as `Sources`."""
        return View(self._searching, document_ids)

    # Changing

    async def add(
        self,
        paths: Path | str | Iterable[Path | str],
        *,
        index: bool = True,
        workers: int | None = None,
        prune: bool = False,
        on_progress: OnProgress | None = None,
    ) -> Ingested:
        """Read files and folders into the library; what has not changed is left alone.

        Args:
            paths: files, folders, globs.
            index: make the documents searchable; without it they are only stored, and a
                later call indexes them without reading the files again.
            workers: processes that parse; as many as there are cores by default, 8 at most.
            prune: remove files that were added before from the folders given and are gone.
            on_progress: told of each step, in the event loop's thread.

        Paths and files that cannot be read are in the result; the others are added. A file that
        could be read before and no longer can keeps the documents it had, so that the library
        still finds them; they are not in `Ingested.document_ids`, since the file may say
        something else by now. Remove them with `remove`.

        Raises:
            ModelError: if the embedder fails. What was stored stays, and is indexed next time.
        """
        tell = on_progress or _silent
        several = [paths] if isinstance(paths, Path | str) else list(paths)
        found = await in_thread(find_files, several, [self.path])
        result = Ingested(problems=list(found.problems))
        async with self._changing:
            catalogue = await self._writing(tell)
            await in_thread(hold_to_chunker, catalogue, self._chunker)
            if prune:
                result.removed = await in_thread(prune_missing, catalogue, several)
            ingestion = Ingestion(catalogue, self._chunker, self._reader, tell)
            workers = workers or min(os.cpu_count() or 1, _MOST_WORKERS)
            stored = ingestion.run(found.files, workers, result)
            if index:
                result.passages = await self._index(catalogue, stored, tell)
            else:
                async for _ in stored:
                    pass
            await self._tidy(catalogue, tell, embedded=result.passages)
            if result.added or result.updated or result.removed:
                self._searching.forget()
            unread = {path for path, _ in result.failed}
            read = [path for path in found.files if path not in unread]
            result.document_ids = await in_thread(ids_of, catalogue, read)
        return result

    async def index_pending(self, on_progress: OnProgress | None = None) -> int:
        """Index what was only stored; returns how many passages were embedded."""
        tell = on_progress or _silent
        if not await in_thread((await self._store.reading()).in_state, State.PENDING):
            return 0  # also where nothing may be written
        async with self._changing:
            catalogue = await self._writing(tell)
            embedded = await self._index(catalogue, _no_more(), tell)
            await self._tidy(catalogue, tell, embedded=embedded)
        return embedded

    async def remove(self, ids_or_paths: Iterable[str | Path]) -> list[str]:
        """Remove documents, or those of files or folders; nothing of their text stays on disk.

        Returns the ids removed. Of a file that holds other documents too, the others stay; a
        document that another file holds too stays when one of the files is removed.

        Raises:
            UnknownDocument: if something is neither a document nor a file here; nothing is
                removed then.
        """
        async with self._changing:
            catalogue = await self._existing(_silent)
            before = await in_thread(catalogue.numbers)
            await in_thread(take_out, catalogue, list(ids_or_paths))
            await self._tidy(catalogue, _silent, erase=True)
            self._searching.forget()
            after = await in_thread(catalogue.numbers)
        return [document_id for document_id in before if document_id not in after]

    async def verify(
        self, *, repair: bool = False, on_progress: OnProgress | None = None
    ) -> list[str]:
        """What is wrong with the library, a line each; nothing if it is whole.

        With `repair`, passages missing from the index are embedded again, stray ones removed,
        and documents whose stored text is damaged are taken out, to be added again.
        """
        tell = on_progress or _silent
        async with self._changing:
            catalogue = await self._existing(tell)
            try:
                index = await self._store.index()
                findings = await in_thread(verify, catalogue, index)
            except LibraryDamaged as error:
                index = None
                findings = await in_thread(verify, catalogue, None)
                findings.problems.append(str(error))
                if repair:
                    async with self._searching.paused():
                        await self._store.drop_index()
            if repair and findings.problems:
                await self._repair(catalogue, index, findings, tell)
        return findings.problems

    async def close(self) -> None:
        """Let everything go, once searches under way have ended. Safe to call twice."""
        async with self._changing, self._searching.paused():
            try:
                await in_thread(self._store.close)
            finally:
                self._searching.forget()
                await self._embedder.close()

    async def _writing(self, tell: OnProgress) -> Catalogue:
        return await self._store.writing(lambda holder: tell(Progress("waiting", 0, 1, holder)))

    async def _existing(self, tell: OnProgress) -> Catalogue:
        """The catalogue, with the lock held; a library that is not there is not made."""
        catalogue = await self._store.reading()
        return catalogue if catalogue.in_memory else await self._writing(tell)

    async def _index(
        self, catalogue: Catalogue, stored: AsyncIterator[list[int]], tell: OnProgress
    ) -> int:
        """Index what is pending and what comes; returns how many passages were embedded."""

        async def ready() -> tuple[PassageIndex, Embedder]:
            await in_thread(self._store.check_space)
            embedder = await self._embedder.record(catalogue)
            index = await self._store.index(embedder.dimension)
            assert index is not None
            return index, embedder

        async def everything() -> AsyncIterator[list[int]]:
            yield await in_thread(catalogue.in_state, State.PENDING)
            async for numbers in stored:
                yield numbers

        def embedded(done: int, total: int) -> None:
            tell(Progress("embedding", done, total))

        indexing = Indexing(catalogue, ready, self._unfinished, embedded)
        await indexing.run(everything())
        return indexing.done

    async def _tidy(
        self, catalogue: Catalogue, tell: OnProgress, *, embedded: int = 0, erase: bool = False
    ) -> None:
        """Delete what is leaving, and rebuild the index when much of it is new or removed.

        With `erase` it is rebuilt in any case, so that nothing of what was removed is left in
        it. The catalogue forgets last: a crash before that leaves the work to the next opening.
        """
        leaving = await in_thread(catalogue.in_state, State.LEAVING)
        if not (leaving or embedded):
            return
        if index := await self._store.index():
            removed = await in_thread(_remove, index, leaving) if leaving else 0
            # A pass that was interrupted has taken some out already, and may have been to erase.
            erase = erase or removed < await in_thread(catalogue.count_passages, leaving)
            changed = embedded + removed + int(await in_thread(catalogue.meta, "changed") or 0)
            count = await in_thread(index.count)
            if erase or changed > _REBUILD * count or (removed and count <= _FEW):
                tell(Progress("optimising", 0, 1))
                await in_thread(index.optimise)
                tell(Progress("optimising", 1, 1))
                changed = 0
            elif removed:
                await in_thread(index.flush)
            await in_thread(catalogue.set_meta, changed=str(changed))
        await in_thread(self._store.purge, catalogue)

    async def _repair(
        self,
        catalogue: Catalogue,
        index: PassageIndex | None,
        findings: Findings,
        tell: OnProgress,
    ) -> None:
        if index is not None:
            await in_thread(index.remove_passages, findings.orphans)
            await in_thread(index.flush)
        await in_thread(catalogue.mark, findings.unindexed, State.PENDING)
        await in_thread(catalogue.leave, findings.damaged)
        embedded = await self._index(catalogue, _no_more(), tell)
        await self._tidy(catalogue, tell, embedded=embedded, erase=True)


def _silent(_: Progress) -> None:
    pass


async def _no_more() -> AsyncIterator[list[int]]:
    return
    yield


def _remove(index: PassageIndex, documents: list[int]) -> int:
    before = index.count()
    index.remove(documents)
    return before - index.count()
