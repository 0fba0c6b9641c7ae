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
from colligate.server.config import DEFAULT_LIBRARY, LIBRARIES_SUFFIX, LIBRARY_NAME
from colligate.server.errors import Conflict, Forbidden, NotHere
from colligate.server.tokens import CALLER
from colligate.session import Session

_NAME = re.compile(LIBRARY_NAME)
_Key = tuple[str, frozenset[str]]  # a library, and the folders in view; without any, all of it


class Libraries:
    """Engines by the names of their libraries; all share the models of the first.

    Here alone is decided what the named token of a request sees: any other library does not exist,
    and an engine has no documents but those of its folders.

    The library of `engine`, in `folder`, is "default". The others are folders in `root`:
    `papers.libraries/` next to `papers/`. At most `limit` exist.
    """

    def __init__(self, engine: Engine, folder: Path, limit: int) -> None:
        self.root = folder.with_name(folder.name + LIBRARIES_SUFFIX)
        self._engines: dict[_Key, Engine] = {(DEFAULT_LIBRARY, frozenset()): engine}
        self.models: Session = engine
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
        names = [DEFAULT_LIBRARY, *(name for name in others if name != DEFAULT_LIBRARY)]
        return [name for name in names if _folders_seen(name)]

    def folder(self, name: str) -> Path:
        """Return a library's folder; `NotHere` if the caller sees no library of this name."""
        folder = self._folder if name == DEFAULT_LIBRARY else self.root / name
        # What the caller does not see is not even looked up, so that times do not tell of it.
        if (
            not _folders_seen(name)
            or not _NAME.fullmatch(name)
            or name in self._being_deleted
            or not (name == DEFAULT_LIBRARY or folder.is_dir())
        ):
            raise NotHere(f"no library {name!r}", "", "GET /api/libraries lists them")
        return folder

    def is_whole(self, name: str) -> bool:
        """Return whether the caller sees all of a library."""
        return "" in _folders_seen(name)

    def engine(self, name: str) -> Engine:
        """Return the engine over what the caller sees of a library."""
        folder, folders = self.folder(name), _folders_seen(name)
        key = (name, frozenset() if "" in folders else folders)
        if key not in self._engines:
            engine = self._engines[DEFAULT_LIBRARY, frozenset()]
            engine = engine if name == DEFAULT_LIBRARY else engine.with_library(folder)
            self._engines[key] = engine.within(sorted(key[1]))
        return self._engines[key]

    async def open_library(self, name: str) -> AsyncLibrary:
        """Open what the caller sees of a library."""
        return await self.engine(name).open_library()

    async def create(self, name: str) -> None:
        """Make an empty library; `Conflict` if the name is taken or there are too many."""
        if (caller := CALLER.get()) is not None and caller.libraries is not None:
            why = "it is bound to others"
            raise Forbidden(f"the token {caller.name} cannot make libraries", why)
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
            for key in [key for key in self._engines if key[0] == name]:
                await self._engines.pop(key).aclose()
            await in_thread(shutil.rmtree, folder)
        finally:
            self._being_deleted.discard(name)

    async def aclose(self) -> None:
        """Close all libraries, and the models last."""
        for key in reversed(list(self._engines)):
            await self._engines.pop(key).aclose()


def _folders_seen(library: str) -> frozenset[str]:
    """Return what the caller sees of a library, as `NamedToken.folders` does."""
    caller = CALLER.get()
    return frozenset({""}) if caller is None else caller.folders(library)
