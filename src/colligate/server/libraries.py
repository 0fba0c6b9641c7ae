"""The libraries a server has, by name: one it was started with, others in a folder beside it."""

from __future__ import annotations

import re
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from colligate.concurrency import in_thread
from colligate.engine import Engine
from colligate.errors import UsageError
from colligate.library.library import AsyncLibrary
from colligate.server.answering import BESIDE, DEFAULT_LIBRARY
from colligate.server.errors import Conflict, NotHere

NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")


class Libraries:
    """Engines by the names of their libraries; all share the models of the one given.

    The library of `engine` is "default". Others are folders in `root`, which stands beside it:
    `papers.libraries/` beside `papers/`. `most` bounds their number.
    """

    def __init__(self, engine: Engine, folder: Path, most: int) -> None:
        self.root = folder.with_name(folder.name + BESIDE)
        self._engines = {DEFAULT_LIBRARY: engine}
        self._leaving: set[str] = set()
        self._folder = folder
        self._most = most

    def names(self) -> list[str]:
        """All names, "default" first."""
        try:
            there = sorted(each.name for each in self.root.iterdir() if each.is_dir())
        except FileNotFoundError:
            there = []
        others = (name for name in there if NAME.fullmatch(name) and name not in self._leaving)
        return [DEFAULT_LIBRARY, *(name for name in others if name != DEFAULT_LIBRARY)]

    def folder(self, name: str) -> Path:
        """A library's folder.

        Raises:
            NotHere: there is no library of this name.
        """
        if name == DEFAULT_LIBRARY:
            return self._folder
        folder = self.root / name
        if not NAME.fullmatch(name) or name in self._leaving or not folder.is_dir():
            raise NotHere(f"no library {name!r}", "", "GET /api/libraries lists them")
        return folder

    def engine(self, name: str) -> Engine:
        """The engine over a library.

        Raises:
            NotHere: there is no library of this name.
        """
        folder = self.folder(name)
        if name not in self._engines:
            self._engines[name] = self._engines[DEFAULT_LIBRARY].beside(folder)
        return self._engines[name]

    async def library(self, name: str) -> AsyncLibrary:
        """A library, opened.

        Raises:
            NotHere: there is none of this name.
            LibraryError: it cannot be opened.
        """
        return await self.engine(name).open_library()

    async def create(self, name: str) -> None:
        """Make an empty library.

        Raises:
            UsageError: the name is none a library may have.
            Conflict: there is one of this name, or there are too many.
        """
        if not NAME.fullmatch(name):
            why = "names are small letters, digits, - and _, at most 64"
            raise UsageError(f"no library can be called {name!r}", why)
        names = self.names()
        if name in names:
            raise Conflict(f"there is a library {name!r} already")
        if len(names) >= self._most:
            raise Conflict("no more libraries", f"there are {len(names)}", "delete one")
        await in_thread((self.root / name).mkdir, parents=True, exist_ok=True)

    @asynccontextmanager
    async def leaving(self, name: str) -> AsyncIterator[None]:
        """Delete a library with everything in it, once the work inside is done.

        From the beginning of that work on, nobody else finds the library.

        Raises:
            NotHere: there is no library of this name.
            Conflict: it is the default one.
        """
        folder = self.folder(name)
        if name == DEFAULT_LIBRARY:
            raise Conflict("the default library stays", "the server was started with it")
        self._leaving.add(name)
        try:
            yield
            engine = self._engines.pop(name, None)
            if engine is not None:
                await engine.aclose()
            await in_thread(shutil.rmtree, folder)
        finally:
            self._leaving.discard(name)

    async def aclose(self) -> None:
        """Close all libraries, and the models last."""
        for name in reversed(list(self._engines)):
            await self._engines.pop(name).aclose()
