"""A library's folder: opening its catalogue and its index, and holding its lock.

catalogue.sqlite   documents, passages, files
index/             the passages' vectors and terms
lock, holder.json  who has it open for searching or writing
server.json        where the server that holds it answers
files/, runs/      what a server keeps: files sent to it, and the runs over them
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

from colligate.concurrency import in_thread
from colligate.errors import LibraryDamaged, LibraryError
from colligate.library import address
from colligate.library.catalogue import Catalogue
from colligate.library.edge import EdgeIndex
from colligate.library.lock import LibraryLock
from colligate.library.schema import State
from colligate.library.traces import FILES, RUNS, erase
from colligate.models.cache import ResponseCache
from colligate.models.weights import home

_CATALOGUE = "catalogue.sqlite"
# Where models' responses over this library are kept, if they are: they may repeat its text.
RESPONSES = "responses.sqlite"
_SPARE = 64 << 20  # bytes
_OURS = frozenset(
    {
        "lock",
        "holder.json",
        "holder.new",
        address.FILE,
        address.NEW,
        "index",
        FILES,
        RUNS,
        RESPONSES,
    }
)


def default_path(embedder: str) -> Path:
    """COLLIGATE_LIBRARY, else a folder of colligate's data for each embedder."""
    if named := os.environ.get("COLLIGATE_LIBRARY"):
        return Path(named)
    return home() / "libraries" / re.sub(r"[^\w.-]+", "-", embedder).strip("-")


class Store:
    """The parts of a library on disk, each opened when it is first needed.

    The catalogue alone can be read beside another process; everything else takes the lock. A
    library that cannot be written is searched in a temporary copy of its index.
    """

    def __init__(self, path: Path, wait: float) -> None:
        self.path = path
        self._wait = wait
        self._catalogue: Catalogue | None = None
        self._nothing: Catalogue | None = None
        self._index: EdgeIndex | None = None
        self._copy: tempfile.TemporaryDirectory[str] | None = None
        self._lock: LibraryLock | None = None
        self._opening = asyncio.Lock()
        self._opening_catalogue = threading.Lock()

    async def reading(self) -> Catalogue:
        """The catalogue; an empty one where there is no library yet."""
        if self._catalogue is not None:
            return self._catalogue
        return await in_thread(self._open_catalogue, make=False)

    async def writing(self, on_wait: Callable[[str], None] | None = None) -> Catalogue:
        """The catalogue, with the lock held; the library is made if need be.

        `on_wait` is told, once, which process has to be waited for.

        Raises:
            LibraryLocked: if another process holds it for longer than may be waited.
            LibraryError: if it cannot be written.
        """
        async with self._opening:
            await self._hold(on_wait)
            return await in_thread(self._open_catalogue, make=True)

    def check_space(self) -> None:
        """Refuse to fill the disk: the index maps its files, and a full disk kills the process.

        Raises:
            LibraryError: if little is free.
        """
        free = shutil.disk_usage(self.path).free
        if free < _SPARE:
            raise LibraryError(
                f"cannot index into the library {self.path}",
                f"{free >> 20} MB are free on its disk, and at least {_SPARE >> 20} MB are needed",
                "free some space, or name a library elsewhere with --library",
            )

    async def index(self, dimension: int | None = None) -> EdgeIndex | None:
        """The passage index, with the lock held; made for vectors of `dimension` if need be.

        None if there is none and no dimension is given.
        """
        catalogue = await self.reading()
        writing = dimension is not None or (self._lock is not None and self._lock.held)
        if not writing and not await in_thread(catalogue.can_be_searched):
            return None  # nothing is made, and nobody waited for, to find nothing
        async with self._opening:
            if self._index is None:
                if not catalogue.read_only:
                    await self._hold()
                    catalogue = await in_thread(self._open_catalogue, make=True)
                await in_thread(self._open_index, catalogue, dimension)
            return self._index

    async def drop_index(self) -> None:
        """Delete the index, whatever state it is in; all documents are pending again."""
        catalogue = await self.writing()
        async with self._opening:
            await in_thread(self._drop_index, catalogue)

    def purge(self, catalogue: Catalogue) -> None:
        """Delete the documents that are leaving: from what repeats them, then for good."""
        leaving = catalogue.in_state(State.LEAVING)
        if leaving:
            ids = catalogue.ids(leaving)
            responses = ResponseCache(self.path / RESPONSES)
            responses.remove(ids)
            responses.close()
            erase(self.path, ids, catalogue.sources_only_of(leaving))
        catalogue.purge(leaving)

    def close(self) -> None:
        """Let everything go. Safe to call twice."""
        if self._index is not None:
            self._index.close()
            self._index = None
        if self._copy is not None:
            self._copy.cleanup()
            self._copy = None
        if self._catalogue is not None:
            if self._lock is not None and self._lock.held:
                self._catalogue.checkpoint()
            self._catalogue.close()
            self._catalogue = None
        if self._nothing is not None:
            self._nothing.close()
            self._nothing = None
        if self._lock is not None:
            self._lock.release()

    async def _hold(self, on_wait: Callable[[str], None] | None = None) -> None:
        if self._lock is None:
            self._lock = LibraryLock(self.path)
        if not self._lock.held:
            await in_thread(self._check_folder)
            await self._lock.acquire(self._wait, on_wait)

    def _check_folder(self) -> None:
        if self.path.exists() and not self.path.is_dir():
            raise self._no_library("it is a file")
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            names = {entry.name for entry in self.path.iterdir()}
        except OSError as error:
            raise LibraryError(
                f"cannot open the library {self.path}",
                error.strerror or str(error),
                "name another folder with --library",
            ) from error
        if _CATALOGUE not in names and not names <= _OURS:
            raise self._no_library("the folder holds other files")

    def _open_catalogue(self, *, make: bool) -> Catalogue:
        with self._opening_catalogue:
            if self._catalogue is None:
                file = self.path / _CATALOGUE
                if not make and not file.exists():
                    if self.path.exists():
                        self._check_folder()
                    self._nothing = self._nothing or Catalogue(Path(":memory:"))
                    return self._nothing
                self._catalogue = Catalogue(file)
            return self._catalogue

    def _open_index(self, catalogue: Catalogue, dimension: int | None) -> None:
        folder = self.path / "index"
        if not catalogue.can_be_searched():
            # Nothing in it counts yet; a crash may have left it half made.
            if not catalogue.read_only:
                shutil.rmtree(folder, ignore_errors=True)
                self.purge(catalogue)
            if dimension is not None:
                self._index = EdgeIndex.create(folder, dimension)
            return
        if not folder.exists():
            raise LibraryDamaged(
                f"cannot search the library {self.path}",
                "its passage index is missing",
                "rebuild it with `colligate library verify --repair`",
            )
        if catalogue.read_only:
            folder = self._copied(folder)
        index = self._index = EdgeIndex.open(folder)
        # What a killed process left: passages of documents that never became searchable, and
        # of those that were being removed.
        leaving = catalogue.in_state(State.LEAVING)
        index.remove(catalogue.in_state(State.PENDING) + leaving)
        index.flush()
        if leaving and not catalogue.read_only:
            index.optimise()
            self.purge(catalogue)

    def _copied(self, folder: Path) -> Path:
        """A copy of the index that can be written: Qdrant opens no other."""
        self._copy = tempfile.TemporaryDirectory(prefix="colligate-", ignore_cleanup_errors=True)
        try:
            copy = Path(shutil.copytree(folder, Path(self._copy.name) / "index"))
            for each in (copy, *copy.rglob("*")):
                each.chmod(0o700)  # the permissions were copied too
            return copy
        except (OSError, shutil.Error) as error:
            raise LibraryError(
                f"cannot search the library {self.path}",
                f"it cannot be written, and its index not be copied ({error})",
                "copy it to a folder you can write, and name that with --library",
            ) from error

    def _drop_index(self, catalogue: Catalogue) -> None:
        if self._index is not None:
            self._index.close()
            self._index = None
        catalogue.mark(catalogue.in_state(State.INDEXED), State.PENDING)
        shutil.rmtree(self.path / "index", ignore_errors=True)

    def _no_library(self, why: str) -> LibraryDamaged:
        hint = "name a library, or a new or empty folder, with --library"
        return LibraryDamaged(f"{self.path} is not a library", why, hint)
