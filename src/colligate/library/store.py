"""A library's folder: its database, its vectors, and files that repeat its text.

catalogue.sqlite   documents, passages, words, files; with its log (-wal) while it is open
vectors-N.f32      the passages' vectors, of N numbers each
adding             held by the process that adds documents, empty
responses.sqlite   what models said about documents, if a strategy keeps it
files/, runs/      files sent to a server, and its runs over them
cells.jsonl        the finished cells of a server's tables
web/               files fetched from web addresses
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import threading
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from filelock import FileLock, Timeout

from colligate.concurrency import in_thread
from colligate.errors import LibraryDamaged, LibraryError, UsageError
from colligate.library.catalogue import Catalogue
from colligate.library.passages import PassageIndex, VectorFile, list_vectors, name_vectors
from colligate.library.protocols import PassageStore
from colligate.library.schema import MEMORY, Database, DocumentState
from colligate.library.search import SearchStore
from colligate.library.web import WEB_FOLDER, folder_of, is_address
from colligate.models.cache import ResponseCache
from colligate.models.weights import home
from colligate.plugins import load_plugin, plugins
from colligate.private import make_private_file, make_private_folder

# These may repeat the library's text, so they are kept in it, and removal reaches them.
RESPONSES_FILE = "responses.sqlite"
FILES_FOLDER = "files"
RUNS_FOLDER = "runs"
CELLS_FILE = "cells.jsonl"

LOCK_FILE = "adding"

# What may be in a folder that has no catalogue yet.
_OURS = frozenset(
    {FILES_FOLDER, RUNS_FOLDER, RESPONSES_FILE, WEB_FOLDER, LOCK_FILE}
    | {CELLS_FILE + ending for ending in ("", ".lock", ".new")}
)


def resolve_default_path(embedder: str) -> Path:
    """Return COLLIGATE_LIBRARY, or a folder of the user's data for each embedder."""
    if named := os.environ.get("COLLIGATE_LIBRARY"):
        return Path(named)
    return home() / "libraries" / re.sub(r"[^\w.-]+", "-", embedder).strip("-")


def find_bucket(path: Path | str) -> str:
    """Return the address of a library in a bucket; empty for a folder.

    >>> find_bucket(Path("s3://papers/mine/"))
    's3://papers/mine'
    """
    match = re.fullmatch(r"s3:/+(.*[^/])/*", str(path))  # `Path` makes one slash of two
    return f"s3://{match[1]}" if match else ""


# What a library may keep its documents in, each with the file that shows it.
ENGINES = {name: f"catalogue.{name}" for name in ("sqlite", *plugins("stores"))}


class LibraryStore:
    """The parts of a library on disk, each opened when it is first needed. Other processes may read
    and write it meanwhile; a change waits for one that is being written."""

    catalogue_name = "catalogue.sqlite"

    def __init__(self, path: Path) -> None:
        self.path = path
        self.uri = str(path)
        # It ends with the process, even if that is killed.
        self._lock = FileLock(path / LOCK_FILE, mode=0o600, thread_local=False)
        self._catalogue: Catalogue | None = None
        self._empty: Catalogue | None = None
        self._index: PassageStore | None = None
        self._opening = asyncio.Lock()
        self._opening_catalogue = threading.Lock()

    async def open_catalogue(self) -> Catalogue:
        """Open the catalogue, or an empty one if there is no library yet."""
        if self._catalogue is not None:
            return self._catalogue
        return await in_thread(self._load_catalogue, make=False)

    async def lock_catalogue(self) -> Catalogue:
        """Open the catalogue to write in it; make the library if there is none."""
        async with self._opening:
            await self._hold()
            catalogue = await in_thread(self._load_catalogue, make=True)
            if catalogue.database.read_only:
                hint = "name a folder you can write with --library"
                raise LibraryError(f"cannot write the library {self.uri}", "it is read-only", hint)
            return catalogue

    async def lock_to_erase(self, *, force: bool) -> Catalogue:
        """Open the catalogue while no other process writes."""
        return await self.lock_catalogue()

    def end_change(self) -> None:
        """Note the end of a change to the library."""
        self._lock.release()

    def is_written_elsewhere(self) -> bool:
        """Return whether another process is adding documents."""
        if self._lock.is_locked:
            return False
        try:
            if not self._try_lock():
                return True
        except LibraryError:  # writing will say so
            return False
        self._lock.release()
        return False

    def keep_lock(self) -> None:
        """Take the lock if it is free: the process that had it may have ended."""
        with suppress(LibraryError):  # it only tells others what to leave
            if not self._lock.is_locked:
                self._try_lock()

    async def pin(self) -> SearchStore:
        """Return what searches read, pinned as it is now if the engine has versions."""
        return self

    def list_snapshots(self) -> list[str]:
        """Return the names of the snapshots, in order."""
        return []

    async def take_snapshot(self, name: str) -> None:
        """Keep the library as it is now under a name."""
        what = f"cannot take a snapshot of {self.uri}"
        hint = "copy its folder; one made by `colligate index --engine lance` keeps them"
        raise UsageError(what, "a library of SQLite keeps no older versions", hint)

    def delete_snapshot(self, name: str) -> None:
        """Forget a snapshot; what it alone has is erased with other old versions."""
        raise NotImplementedError

    def restore(self, name: str, catalogue: Catalogue) -> None:
        """Go back to a snapshot. The catalogue is that of `lock_to_erase`."""
        raise NotImplementedError

    def list_leftovers(self) -> list[str]:
        """Return the files that may still hold something of removed documents."""
        return []

    async def open_index(self, dimension: int | None = None) -> PassageStore | None:
        """Open the passage index; None if there is none. With `dimension` it is made if there is
        none; the catalogue is locked."""
        catalogue = await self.open_catalogue()
        async with self._opening:
            if self._index is None:
                self._index = await in_thread(self._load_index, catalogue, dimension)
            return self._index

    def drop_index(self, catalogue: Catalogue) -> None:
        """Delete the index, whatever its state; all documents are pending again."""
        if self._index is not None:
            self._index.close()
            self._index = None
        catalogue.mark(catalogue.in_state(DocumentState.INDEXED), DocumentState.PENDING)
        self._delete_index()

    def purge(self, catalogue: Catalogue) -> None:
        """Delete the documents that are being removed, and first everything that repeats them."""
        if removed := catalogue.list_removed():
            _, ids, sources = zip(*removed, strict=True)
            responses = ResponseCache(self.path / RESPONSES_FILE)
            responses.remove(ids)
            responses.close()
            kept = {info.source for info in catalogue.infos()}
            _erase_traces(self.path, ids, set(sources) - kept)
        catalogue.purge([number for number, *_ in removed])

    def close(self) -> None:
        """Close everything. Safe to call twice."""
        for part in (self._index, self._catalogue, self._empty):
            if part is not None:
                part.close()
        self._index = self._catalogue = self._empty = None
        self._lock.release()

    async def _hold(self) -> None:
        """Get ready to write. Several may; to the first one others leave what is pending."""
        await in_thread(self._check_folder)
        await in_thread(self.keep_lock)

    def _try_lock(self) -> bool:
        """Take the lock of the folder, unless another process has it; return whether it is held."""
        what = f"cannot open the library {self.path}"
        try:
            self._lock.acquire(timeout=0)
        except Timeout:
            return False
        except OSError as error:
            hint = "name a folder you can write with --library"
            raise LibraryError(what, error.strerror or str(error), hint) from error
        return True

    def _check_folder(self) -> None:
        if self.path.exists() and not self.path.is_dir():
            raise self._not_a_library("it is a file")
        try:
            make_private_folder(self.path)
            names = {entry.name for entry in self.path.iterdir()}
        except OSError as error:
            what = f"cannot open the library {self.path}"
            hint = "name another folder with --library"
            raise LibraryError(what, error.strerror or str(error), hint) from error
        if self.catalogue_name not in names and not names <= _OURS:
            raise self._not_a_library("the folder holds other files")

    def _not_a_library(self, why: str) -> LibraryDamaged:
        hint = "name a library, or a new or empty folder, with --library"
        return LibraryDamaged(f"{self.path} is not a library", why, hint)

    def _load_catalogue(self, *, make: bool) -> Catalogue:
        with self._opening_catalogue:
            if self._catalogue is None:
                self._catalogue = self._open_catalogue(make=make)
            if self._catalogue is not None:
                return self._catalogue
            if self.path.exists():
                self._check_folder()
            self._empty = self._empty or Catalogue(Database(Path(MEMORY)))
            return self._empty

    def _open_catalogue(self, *, make: bool) -> Catalogue | None:
        """Open the catalogue; None if there is none and none is to be made."""
        file = self.path / self.catalogue_name
        return Catalogue(Database(file)) if make or file.exists() else None

    def _load_index(self, catalogue: Catalogue, dimension: int | None) -> PassageStore | None:
        files, searchable = list_vectors(self.path), catalogue.is_searchable()
        if not (dimension or files or searchable):
            return None  # make nothing, to find nothing
        length = int(catalogue.meta("dimension") or 0) if dimension is None else dimension
        file = name_vectors(self.path, length)
        if not searchable:
            # No vector counts yet: those of other lengths are another embedder's.
            make_private_file(file)
            for other in set(files) - {file}:
                other.unlink(missing_ok=True)
        elif not file.exists():
            what = f"cannot search the library {self.path}"
            hint = "rebuild it with `colligate library verify --repair`"
            raise LibraryDamaged(what, "its passage index is missing", hint)
        return PassageIndex(catalogue.database, VectorFile(file, length))

    def _delete_index(self) -> None:
        assert self._catalogue is not None
        with self._catalogue.database.transaction() as db:
            db.execute("DELETE FROM words")
            for file in list_vectors(self.path):
                file.unlink(missing_ok=True)


def open_store(given: Path | str, engine: str | None) -> LibraryStore:
    """Return the store of a folder or bucket, by the engine that it was made with."""
    uri = find_bucket(given)
    if not uri and is_address(given):
        why = f"nothing keeps libraries at {str(given).partition('/')[0]}//"
        hint = "name a folder or s3://BUCKET/NAME"
        raise UsageError(f"cannot open the library {given}", why, hint)
    own = Path(os.path.expanduser(given))  # noqa: PTH111 (pathlib may refuse)
    path = home() / "buckets" / uri.removeprefix("s3://") if uri else own
    if engine not in (None, *ENGINES):
        hint = f"the engines are {' and '.join(ENGINES)}"
        raise UsageError(f"no library engine {engine!r}", "its name is unknown", hint)
    there = (each for each, name in ENGINES.items() if (path / name).exists())
    made = "lance" if uri else next(there, None)
    if engine and made not in (None, engine):
        why = f"it was made with {made}"
        raise UsageError(f"cannot open {uri or path} with {engine}", why, "name another --library")
    chosen = made or engine
    if chosen in plugins("stores"):
        store: LibraryStore = load_plugin("stores", chosen, type)(path, uri)
        return store
    return LibraryStore(path)


# Files that may repeat a document: a server's runs, uploads, and what was fetched.
#
# A run is a file of events and a file with its result; both name, as JSON strings, every document
# whose text they hold. `"earlier": null` stands for any document: an earlier answer of the
# conversation came without its citations.


def _erase_traces(library: Path, documents: Collection[str], sources: Collection[str]) -> None:
    """Delete the runs that name one of `documents`, and those of `sources` that were uploaded
    or fetched.

    `sources` are the files of removed documents from which no other document was read.
    """
    runs = library / RUNS_FOLDER
    if runs.is_dir():
        found = (file for file in runs.iterdir() if holds_id(file, documents))
        for run in {file.with_suffix("") for file in found}:
            for suffix in (".jsonl", ".json", ".new"):
                run.with_name(run.name + suffix).unlink(missing_ok=True)
    erase_cells(library, documents)
    own = Path(os.path.realpath(library / FILES_FOLDER))
    for source in sources:
        if is_address(source):
            shutil.rmtree(folder_of(library, source), ignore_errors=True)
            continue
        file = Path(os.path.realpath(source))
        if own in file.parents:
            file.unlink(missing_ok=True)
            with suppress(OSError):  # other files are in its folder
                file.parent.rmdir()


def erase_cells(library: Path, documents: Collection[str]) -> None:
    """Delete the cells of documents from a library's tables."""
    file, ids = library / CELLS_FILE, _encode(documents)
    if holds_id(file, documents):
        new = file.with_name(f"{file.name}.new")
        make_private_file(new)
        with file.open("rb") as lines, new.open("wb") as kept:
            kept.writelines(line for line in lines if not _names(line, ids))
        new.replace(file)


_UNKNOWN = b'"earlier": null'  # in a string its quotes would have backslashes
_STRING = re.compile(rb'"([^"\\]*(?:\\.[^"\\]*)*)"')  # of JSON


def _encode(documents: Collection[str]) -> set[bytes]:
    return {json.dumps(document)[1:-1].encode() for document in documents}


def _names(line: bytes, ids: set[bytes]) -> bool:
    return not ids.isdisjoint(_STRING.findall(line))


def holds_id(file: Path, documents: Collection[str]) -> bool:
    """Return whether a file of JSON lines has one of these ids as a string, or cannot say."""
    ids = _encode(documents)
    try:
        with file.open("rb") as lines:
            return any(_UNKNOWN in line or _names(line, ids) for line in lines)
    except FileNotFoundError:
        return False
