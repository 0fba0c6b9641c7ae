"""A library: documents kept on disk, and found."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Unpack

from colligate.concurrency import in_thread
from colligate.documents.chunking import parse_chunker
from colligate.documents.reading import FoundFiles, find_files
from colligate.errors import LibraryDamaged, ModelError, SpanError, UsageError
from colligate.library import ingest, named
from colligate.library.catalogue import Catalogue, resolve_path
from colligate.library.index import DEFAULT_EMBEDDER, OWN_EMBEDDERS, Indexer, LibraryEmbedder
from colligate.library.ingest import Ingested, Progress, ProgressCallback, ReadOptions
from colligate.library.protocols import Cluster, FileRecord, PassageStore
from colligate.library.schema import DocumentState
from colligate.library.search import Searcher, View
from colligate.library.store import RESPONSES_FILE, open_store, resolve_default_path
from colligate.library.web import find_fetched, folder_of, is_address, list_addresses, parse_address
from colligate.models import Embedder
from colligate.plugins import load_plugin, plugins

# The index is rebuilt once this share of it is new or removed. While it has few passages, which
# takes a second or two at most, it is rebuilt whenever some were removed.
_REBUILD = 0.1
_FEW = 20_000

Prune = Callable[[named.Missing], Awaitable[bool]]
"""A function that decides whether the documents of a folder's missing files are removed."""


class AsyncLibrary(View):
    """Documents in a folder on disk, with their passages ready to be searched.

    It is `Sources` over all its documents; `view` limits it to some. Any number of processes may
    search and change it at once. Close it, or use `async with`.

    Args:
        path: its folder, or "s3://bucket/name"; by default COLLIGATE_LIBRARY, or a folder of the
            user's data.
        embedder: a model or its name; the library remembers which one made its vectors. By
            default it is that one; a new library takes `minilm`, or `e5` (where it can be had) if a
            fifth of the first documents are in other languages than English.
        engine: what a new library keeps its documents in: "sqlite" (the default) or "lance" (Lance
            tables, which have versions; extra `scale`; always in a bucket). A library that exists
            keeps its own.
        folders: only the documents of the files in these are in view, and nothing is changed.
        reading: how files are read.

    Raises:
        LibraryError: one of its subclasses, from any method.
    """

    def __init__(
        self,
        path: Path | str | None = None,
        *,
        embedder: Embedder | str | None = None,
        engine: str | None = None,
        folders: Sequence[Path | str] = (),
        **reading: Unpack[ReadOptions],
    ) -> None:
        given = embedder or DEFAULT_EMBEDDER
        name = given if isinstance(given, str) else given.name
        place = resolve_default_path(name) if path is None else path
        if unknown := reading.keys() - ReadOptions.__annotations__.keys():
            raise TypeError(f"AsyncLibrary has no option {', '.join(sorted(unknown))}")
        if chunker := reading.get("chunker"):
            parse_chunker(chunker)
        self._store = open_store(place, engine)
        self.path = self._store.path
        self._reading = reading
        self._embedder = LibraryEmbedder(embedder)
        super().__init__(Searcher(self._store, self._embedder.open, folders))
        self._changing = asyncio.Lock()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def uri(self) -> str:
        """Its folder or its place in a bucket; `path` is then the folder that this machine has."""
        return self._store.uri

    @property
    def responses(self) -> Path:
        """The file for what strategies keep, which may repeat documents; removal deletes that."""
        return self.path / RESPONSES_FILE

    # Reading

    async def files(self, document_id: str) -> list[FileRecord]:
        """Return the files that a document was read from, as they were then."""
        async with self._searcher.open_catalogue() as catalogue:
            numbers = await in_thread(catalogue.numbers, [document_id])
            return await in_thread(catalogue.files_of, numbers.get(document_id, 0))

    @property
    def refused_embedder(self) -> ModelError | None:
        """Why a new library does not have the embedder for the languages of its documents."""
        return self._embedder.refused

    async def embedder_name(self) -> str | None:
        """Return the name of the embedder that made the vectors; None if there are none yet."""
        async with self._searcher.open_catalogue() as catalogue:
            made = await in_thread(catalogue.meta, "embedder")
            if self._searcher.folders and not await in_thread(catalogue.numbers):
                made = None
        return None if made is None else OWN_EMBEDDERS.get(made, made)

    async def embed(
        self, texts: Sequence[str], kind: Literal["passage", "query"] = "passage"
    ) -> NDArray[np.float32]:
        """Return vectors of the library's own embedder, as `Embedder.embed` does."""
        embedder = await self._embedder.open(await self._store.open_catalogue())
        return await embedder.embed(texts, kind=kind)

    async def pin(self, document_ids: Iterable[str] | None = None) -> View:
        """Return all documents or some, in this order, as they are now.

        With Lance tables what other processes change from now on is not seen, unless the version is
        erased meanwhile: then the newest is read. SQLite has no versions.
        """
        store, searcher = await self._store.pin(), self._searcher
        if store is not self._store:
            searcher = Searcher(store, self._embedder.open, searcher.folders)
        return View(searcher, document_ids)

    # Changing

    async def add(
        self,
        paths: Path | str | Iterable[Path | str],
        *,
        index: bool = True,
        workers: int | str | None = None,
        prune: bool | Prune = False,
        on_progress: ProgressCallback | None = None,
    ) -> Ingested:
        """Read files, folders and web addresses into the library; skip what has not changed.

        Args:
            paths: files, folders, and addresses (`https:`), which are fetched.
            index: make the documents searchable. Without it they are only stored, and a later
                call indexes them without reading the files again.
            workers: processes that parse; by default one per core, 8 at most. "ray" or
                "ray:HOST:PORT" reads and embeds on the workers of a Ray cluster (extra `scale`),
                here or there; embedders other than colligate's own stay in this process.
            prune: remove files of the given folders that were added before and no longer exist; a
                function decides for each folder, except for files that were only moved.
            on_progress: called at each step, in the event loop's thread.

        Paths and files that cannot be read are reported in the result; the others are added. A
        file that could be read before and no longer can keeps its documents in the library; they
        are not in `Ingested.document_ids`, since the file may have another content now. Remove
        them with `remove`.

        Raises:
            ModelError: the embedder fails. What was stored is kept, and indexed next time.
        """
        report = on_progress or _ignore
        wanted = [paths] if isinstance(paths, Path | str) else list(paths)
        given = [path for path in wanted if not is_address(path)]
        await in_thread(ingest.require_readers, self._reading)
        result = Ingested()
        async with open_cluster(workers) as cluster, self._change():
            catalogue = await self._store.lock_catalogue()
            ingestion = await in_thread(ingest.Ingestion, catalogue, self._reading, report, cluster)
            # Listed first: a disk may be unmounted while the others are read.
            missing = await in_thread(named.find_missing, catalogue, given) if prune else []
            gone = {path for each in missing for path in each.files}
            given = [path for path in given if resolve_path(path) not in gone]
            found = await self._list_files(given)
            result.problems += found.problems
            await ingestion.fetch(filter(is_address, wanted), self.path, result)
            files = [*found.files, *result.addresses]
            stored = ingestion.run(files, result, workers if isinstance(workers, int) else None)
            chosen = await in_thread(self._embedder.is_chosen, catalogue)
            if not (index and chosen):  # their languages choose it: all are read first
                async for _ in stored:
                    await in_thread(self._store.keep_lock)
            if index:
                ready = stored if chosen else None
                result.passages = await self._index(catalogue, ready, report, cluster)
            fetched = [folder_of(self.path, address) for address in result.addresses.values()]
            for each in await in_thread(named.find_missing, catalogue, fetched):  # renamed
                await in_thread(named.forget_missing, catalogue, each.files)
            for each in missing:
                lost = tuple(await in_thread(named.list_only_copies, catalogue, each.files, gone))
                if lost and callable(prune) and not await prune(replace(each, files=lost)):
                    result.kept += lost
                forgotten = [path for path in each.files if path not in result.kept]
                result.removed += await in_thread(named.forget_missing, catalogue, forgotten)
            await in_thread(named.record_folders, catalogue, given)
            await self._tidy(catalogue, report, embedded=result.passages)
            if result.added or result.updated or result.removed:
                self._searcher.clear_cache()
            result.name_addresses()
            failed = {path for path, _ in result.failed}
            read = [path for path in files if path not in failed]
            result.document_ids = await in_thread(named.list_document_ids, catalogue, read)
        return result

    async def named(self) -> list[str]:
        """Return what to add again to bring the library up to date: the folders and web addresses
        that were named, and the files outside them."""
        catalogue = await self._store.open_catalogue()
        paths = await in_thread(named.list_named, catalogue, resolve_path(self.path))
        return [*map(str, paths), *await in_thread(list_addresses, self.path)]

    async def searchable(self, paths: Sequence[Path | str]) -> list[str]:
        """Return the ids of the documents of these files and folders that can be searched now."""
        catalogue = await self._store.open_catalogue()
        found = await self._list_files([path for path in paths if not is_address(path)])
        addresses = [parse_address(path) for path in paths if is_address(path)]

        def find() -> list[str]:
            fetched = [find_fetched(self.path, address) for address in addresses]
            ids = named.list_document_ids(catalogue, [*found.files, *filter(None, fetched)])
            numbers = catalogue.numbers(ids)
            indexed = set(catalogue.in_state(DocumentState.INDEXED))
            return [id_ for id_ in ids if numbers.get(id_) in indexed]

        return await in_thread(find)

    async def _list_files(self, paths: Sequence[Path | str]) -> FoundFiles:
        links, ocr = self._reading.get("follow_links", False), self._reading.get("ocr")
        work = partial(find_files, follow_links=links, pictures=bool(ocr))
        return await in_thread(work, paths, [self.path])

    async def index_pending(self, on_progress: ProgressCallback | None = None) -> int:
        """Index what was only stored; return the number of passages embedded.

        What another call, or another process that writes while this one searches, is adding is left
        to that if there is something to search already.
        """
        report = on_progress or _ignore
        catalogue = await self._store.open_catalogue()
        if not await in_thread(catalogue.in_state, DocumentState.PENDING):
            return 0  # also where nothing may be written
        searchable = await in_thread(catalogue.is_searchable)
        if searchable and self._changing.locked():
            return 0
        async with self._change():
            if searchable and await in_thread(self._store.is_written_elsewhere):
                return 0
            catalogue = await self._store.lock_catalogue()
            embedded = await self._index(catalogue, None, report)
            await self._tidy(catalogue, report, embedded=embedded)
        return embedded

    async def remove(self, ids_or_paths: Iterable[str | Path]) -> list[str]:
        """Remove documents, or those of files, folders or web addresses; no byte of their text
        stays on disk. In a bucket, and in snapshots, it stays until `erase` or `delete_snapshot`.

        Return the ids removed. When one document of a file is removed the others stay; when one of
        two files with the same document is removed the document stays.

        Raises:
            UnknownDocument: a name is neither a document nor a file here; nothing is removed.
        """
        async with self._change():
            catalogue = await self._lock_existing()
            before = await in_thread(catalogue.numbers)
            await in_thread(named.remove_named, catalogue, list(ids_or_paths), self.path)
            await self._tidy(catalogue, _ignore, erase=True)
            self._searcher.clear_cache()
            after = await in_thread(catalogue.numbers)
        return [id_ for id_ in before if id_ not in after]

    async def verify(
        self, *, repair: bool = False, on_progress: ProgressCallback | None = None
    ) -> list[str]:
        """Return the library's problems, one line each.

        With `repair`, passages missing from the index are embedded again, stray ones deleted, and
        documents whose stored text is damaged removed, so that they can be added again.
        """
        report = on_progress or _ignore
        async with self._change():
            catalogue = await self._lock_existing()
            try:
                index = await self._store.open_index()
                damage = await in_thread(_find_damage, catalogue, index)
            except LibraryDamaged as error:
                index = None
                damage = await in_thread(_find_damage, catalogue, None)
                damage.problems.append(str(error))
                if repair:
                    async with self._searcher.pause():
                        await in_thread(self._store.drop_index, catalogue)
            if repair and damage.problems:
                if index is not None:
                    await in_thread(index.remove_passages, damage.orphans)
                await in_thread(catalogue.mark, damage.unindexed, DocumentState.PENDING)
                await in_thread(catalogue.remove, damage.damaged)
                embedded = await self._index(catalogue, None, report)
                await self._tidy(catalogue, report, embedded=embedded, erase=True)
        return damage.problems

    async def erase(self, *, force: bool = False) -> list[str]:
        """Erase what is left of removed documents; return the files that may still hold some of it.

        `remove` does so itself in a folder. In a bucket it only makes documents invisible, since
        other processes may be reading or writing; this needs that no other one writes. One that
        reads repeats its search.

        Args:
            force: do so though processes are recorded as writing: they were killed.

        Raises:
            LibraryLocked: another process writes the library.
            UsageError: a snapshot may have some of it.
        """
        if names := await self.snapshots():
            why = f"they may hold removed documents: {', '.join(names)}"
            hint = "delete them with `colligate library snapshot NAME --delete`"
            raise UsageError(f"{self.uri} has snapshots", why, hint)
        async with self._change():
            catalogue = await self._store.open_catalogue()
            if catalogue.database.in_memory:
                return []
            catalogue = await self._store.lock_to_erase(force=force)
            if index := await self._store.open_index():
                known = await in_thread(catalogue.numbers)
                stored = set((await in_thread(index.passages)).values())
                await in_thread(index.remove, sorted(stored.difference(known.values())))
                await in_thread(index.optimise)
            await in_thread(self._store.purge, catalogue)
            await in_thread(partial(catalogue.checkpoint, erase=True))
            self._searcher.clear_cache()
            return await in_thread(self._store.list_leftovers)

    async def snapshots(self) -> list[str]:
        """Return the names of the snapshots, in order."""
        return await in_thread(self._store.list_snapshots)

    async def take_snapshot(self, name: str) -> None:
        """Keep the library as it is now under a name; others may read and write meanwhile.

        It holds the text of documents that are removed later, until it is deleted.

        Raises:
            UsageError: the name is taken or has other characters than letters, digits, ".", "-" and
                "_", or the library's engine keeps no versions.
        """
        await self._store.take_snapshot(name)

    async def delete_snapshot(self, name: str) -> None:
        """Forget a snapshot, and erase in a folder what only it had.

        Raises:
            UsageError: the snapshot does not exist.
        """
        await self._require_snapshot(name)
        async with self._change():
            catalogue = await self._store.lock_catalogue()
            await in_thread(self._store.delete_snapshot, name)
            if index := await self._store.open_index():
                await in_thread(index.optimise)
            await in_thread(partial(catalogue.checkpoint, erase=True))

    async def restore(self, name: str) -> None:
        """Go back to a snapshot; what was added or removed since is undone. No other process may
        write meanwhile; those that read see it with their next question.

        Raises:
            LibraryLocked: another process writes the library.
            UsageError: the snapshot does not exist.
        """
        await self._require_snapshot(name)
        async with self._change():
            catalogue = await self._store.lock_to_erase(force=False)
            await in_thread(self._store.restore, name, catalogue)
            self._searcher.clear_cache()

    async def _require_snapshot(self, name: str) -> None:
        known = await self.snapshots()
        if name not in known:
            why = f"its snapshots are {', '.join(known)}" if known else "it has none"
            raise UsageError(f"no snapshot {name!r} of {self.uri}", why)

    async def close(self) -> None:
        """Close everything once searches under way have ended. Safe to call twice."""
        async with self._changing, self._searcher.pause():
            try:
                await in_thread(self._store.close)
            finally:
                self._searcher.clear_cache()
                await self._embedder.close()

    @asynccontextmanager
    async def _change(self) -> AsyncIterator[None]:
        if self._searcher.folders:
            raise UsageError("cannot change the library", "only some of its folders are in view")
        async with self._changing:
            try:
                yield
            finally:
                await in_thread(self._store.end_change)

    async def _lock_existing(self) -> Catalogue:
        """Lock and return the catalogue; an empty one if there is no library."""
        catalogue = await self._store.open_catalogue()
        return catalogue if catalogue.database.in_memory else await self._store.lock_catalogue()

    async def _index(
        self,
        catalogue: Catalogue,
        stored: AsyncGenerator[list[int], None] | None,
        report: ProgressCallback,
        cluster: Cluster | None = None,
    ) -> int:
        """Index pending and newly stored documents; return the number of passages embedded."""

        async def open_index() -> tuple[PassageStore, Embedder]:
            await in_thread(self._store.keep_lock)
            embedder = await self._embedder.record(
                catalogue, lambda done, total, what: report(Progress("pulling", done, total, what))
            )
            index = await self._store.open_index(embedder.dimension)
            assert index is not None
            if cluster and embedder.name in OWN_EMBEDDERS:
                embedder = cluster.embedder(OWN_EMBEDDERS[embedder.name], embedder)
            return index, embedder

        async def list_numbers() -> AsyncGenerator[list[int], None]:
            yield await in_thread(catalogue.in_state, DocumentState.PENDING)
            if stored is not None:
                async with aclosing(stored):
                    async for numbers in stored:
                        await in_thread(self._store.keep_lock)
                        yield numbers

        indexer = Indexer(
            catalogue, open_index, lambda done, total: report(Progress("embedding", done, total))
        )
        await indexer.run(list_numbers())
        return indexer.done

    async def _tidy(
        self,
        catalogue: Catalogue,
        report: ProgressCallback,
        *,
        embedded: int = 0,
        erase: bool = False,
    ) -> None:
        """Delete removed documents, and rebuild the index if much of it is new or removed.

        With `erase` it is rebuilt in any case, so that nothing removed is left in it. The
        catalogue is purged last: after a crash before that, the next opening finishes the work.
        """
        removing = await in_thread(catalogue.in_state, DocumentState.REMOVING)
        if not (removing or embedded):
            return
        if index := await self._store.open_index():
            removed, left = 0, 0
            if removing:
                removed, left = await in_thread(_remove_passages, (catalogue, index), removing)
            changed = embedded + removed + int(await in_thread(catalogue.meta, "changed") or 0)
            count = await in_thread(index.count)
            # If some were gone already, a removal was interrupted, and it may have been to erase.
            erase = erase or left > 0 or (removed > 0 and count <= _FEW)
            if erase or changed > _REBUILD * count:
                report(Progress("optimising", 0, 1))
                await in_thread(partial(index.optimise, erase=erase or removed > 0))
                report(Progress("optimising", 1, 1))
                changed = 0
            await in_thread(catalogue.set_meta, changed=str(changed))
        await in_thread(self._store.purge, catalogue)


@asynccontextmanager
async def open_cluster(workers: int | str | None) -> AsyncIterator[Cluster | None]:
    """Open the cluster that `workers` names (`ray`, `ray:HOST:PORT`); None if it names none."""
    if not isinstance(workers, str):
        yield None
        return
    scheme, _, address = workers.partition(":")
    if scheme not in plugins("workers"):
        hint = "give ray or ray:HOST:PORT"
        raise UsageError(f"no workers {workers!r}", "its name is unknown", hint)
    opener = await in_thread(load_plugin, "workers", scheme, type)
    cluster: Cluster = await in_thread(opener, address)
    try:
        yield cluster
    finally:
        await in_thread(cluster.close)


def _ignore(_: Progress) -> None:
    pass


def _remove_passages(of: tuple[Catalogue, PassageStore], documents: list[int]) -> tuple[int, int]:
    """Take documents out of the index; return how many of their passages it had, and had not."""
    catalogue, index = of
    before = index.count()
    index.remove(documents)
    removed = max(0, before - index.count())  # others may add meanwhile
    return removed, len(catalogue.passage_numbers(DocumentState.REMOVING)) - removed


@dataclass
class _Damage:
    """Problems in lines for a person, and in numbers for the repair."""

    problems: list[str]
    unindexed: list[int] = field(default_factory=list)  # documents
    orphans: list[int] = field(default_factory=list)  # passages of the index without a document
    damaged: list[int] = field(default_factory=list)  # documents whose stored text has changed


def _find_damage(catalogue: Catalogue, index: PassageStore | None) -> _Damage:
    """Check the catalogue against itself and the index, which is None if nothing was indexed."""
    damage = _Damage(catalogue.check())
    for document_id, number in catalogue.numbers().items():
        if why := _check_document(catalogue, number):
            damage.problems.append(f"document {document_id}: {why}")
            damage.damaged.append(number)
    if index is None:
        return damage
    present = index.passages()  # read first: another process may write meanwhile
    expected = catalogue.passage_numbers(DocumentState.INDEXED)
    pending = catalogue.passage_numbers(DocumentState.PENDING)
    ids = {number: document_id for document_id, number in catalogue.numbers().items()}
    missing = Counter(
        document for passage, document in expected.items() if present.get(passage) != document
    )
    for document, count in sorted(missing.items()):
        line = f"document {ids.get(document, document)}: {count} passages are not in the index"
        damage.problems.append(line)
    damage.unindexed = sorted(missing)
    damage.orphans = sorted(present.keys() - expected.keys() - pending.keys())
    if damage.orphans:
        line = f"the index has {len(damage.orphans)} passages that belong to no document"
        damage.problems.append(line)
    return damage


def _check_document(catalogue: Catalogue, number: int) -> str:
    try:
        document = catalogue.document(number)
    except (SpanError, ValueError, TypeError) as error:
        return f"its tree cannot be read ({error})"
    if document is None:
        return ""  # removed a moment ago
    root = document.tree.root.span
    if document.digest != catalogue.digest(number):
        return "its text is not the text that was stored"
    if (root.start, root.end) != (0, len(document.text)):
        return "its tree does not cover its text"
    for passage in catalogue.passages_of(number):
        if not 0 <= passage.start <= passage.end <= len(document.text):
            return f"passage {passage.start}-{passage.end} reaches beyond its text"
    return ""
