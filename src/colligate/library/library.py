"""A library: documents kept on disk, and found."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Collection, Iterable, Sequence
from pathlib import Path
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray

from colligate.documents import Document, Hit
from colligate.documents.chunking import Chunker, Structural
from colligate.documents.reading import find_files
from colligate.errors import LibraryDamaged
from colligate.library import contents
from colligate.library.blocking import in_thread
from colligate.library.catalogue import Catalogue
from colligate.library.embedder import LibraryEmbedder
from colligate.library.indexing import Indexing
from colligate.library.ingestion import (
    Ingested,
    Ingestion,
    OnProgress,
    Progress,
    hold_to_chunker,
)
from colligate.library.parsing import READER
from colligate.library.passage_index import PassageIndex
from colligate.library.schema import State
from colligate.library.searching import Searching
from colligate.library.sources import DocumentInfo, SearchMode
from colligate.library.store import RESPONSES, Store, default_path
from colligate.library.verification import Findings, verify
from colligate.library.view import View
from colligate.models import Embedder

# The index is rebuilt once this share of it is new or removed; while it has few passages, which
# takes a second or two at most, whenever some were removed (until then they count for BM25).
_REBUILD = 0.1
_FEW = 20_000

# Each parser process may hold a large file in memory.
_MOST_WORKERS = 8


class Library:
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
                result.removed = await in_thread(contents.prune, catalogue, several)
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
            result.document_ids = await in_thread(contents.ids_of, catalogue, read)
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
            await in_thread(contents.take_out, catalogue, list(ids_or_paths))
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
