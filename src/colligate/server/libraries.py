"""The libraries of a server, by name: the one it was started with, and others next to it."""

from __future__ import annotations

import re
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from colligate.concurrency import in_thread
from colligate.engine import Engine
from colligate.library.library import AsyncLibrary
from colligate.private import make_private_folder
from colligate.server.config import DEFAULT_LIBRARY, LIBRARIES_SUFFIX
from colligate.server.errors import Conflict, NotHere

NAME = r"[a-z0-9][a-z0-9_-]{0,63}"
_NAME = re.compile(NAME)


class Libraries:
    """Engines by the names of their libraries; all share the models of the first.

    The library of `engine`, in `folder`, is "default". The others are folders in `root`:
    `papers.libraries/` next to `papers/`. At most `limit` exist.
    """

    def __init__(self, engine: Engine, folder: Path, limit: int) -> None:
        self.root = folder.with_name(folder.name + LIBRARIES_SUFFIX)
        self._engines = {DEFAULT_LIBRARY: engine}
        self._being_deleted: set[str] = set()
        self._folder = folder
        self._limit = limit

    def list_names(self) -> list[str]:
        """Return all names, "default" first."""
        try:
            found = sorted(each.name for each in self.root.iterdir() if each.is_dir())
        except FileNotFoundError:
            found = []
        others = (n for n in found if _NAME.fullmatch(n) and n not in self._being_deleted)
        return [DEFAULT_LIBRARY, *(name for name in others if name != DEFAULT_LIBRARY)]

    def folder(self, name: str) -> Path:
        """Return a library's folder; `NotHere` if there is no library of this name."""
        if name == DEFAULT_LIBRARY:
            return self._folder
        folder = self.root / name
        if not _NAME.fullmatch(name) or name in self._being_deleted or not folder.is_dir():
            raise NotHere(f"no library {name!r}", "", "GET /api/libraries lists them")
        return folder

    def engine(self, name: str) -> Engine:
        """Return the engine over a library."""
        folder = self.folder(name)
        if name not in self._engines:
            self._engines[name] = self._engines[DEFAULT_LIBRARY].with_library(folder)
        return self._engines[name]

    async def open_library(self, name: str) -> AsyncLibrary:
        """Open a library."""
        return await self.engine(name).open_library()

    async def create(self, name: str) -> None:
        """Make an empty library of a `NAME`; `Conflict` if it is taken or there are too many."""
        names = self.list_names()
        if name in names:
            raise Conflict(f"the library {name!r} exists already")
        if len(names) >= self._limit:
            raise Conflict("too many libraries", f"{len(names)} exist", "delete one")
        await in_thread(make_private_folder, self.root / name)

    @asynccontextmanager
    async def delete(self, name: str) -> AsyncIterator[None]:
        """Delete a library with everything in it when the block ends.

        From the start of the block on, nobody else finds the library.
        """
        folder = self.folder(name)
        if name == DEFAULT_LIBRARY:
            raise Conflict("cannot delete the default library", "the server was started with it")
        self._being_deleted.add(name)
        try:
            yield
            engine = self._engines.pop(name, None)
            if engine is not None:
                await engine.aclose()
            await in_thread(shutil.rmtree, folder)
        finally:
            self._being_deleted.discard(name)

    async def aclose(self) -> None:
        """Close all libraries, and the models last."""
        for name in reversed(list(self._engines)):
            await self._engines.pop(name).aclose()
