"""A library that cannot be written can still be read."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from colligate.errors import LibraryError
from colligate.library import AsyncLibrary, SearchMode
from colligate.library.lock import find_holder

NOBODY = 65534


@pytest.fixture
async def kept(library: AsyncLibrary, folder: Path) -> Path:
    await library.add(folder)
    await library.close()
    return library.path


@pytest.fixture
def locked(kept: Path) -> Iterator[Path]:
    """A copy that this process may read and not write, whoever runs it."""
    home = Path(tempfile.mkdtemp())
    path = Path(shutil.copytree(kept, home / "library"))
    for each in [*path.rglob("*"), path, home]:
        each.chmod(0o555 if each.is_dir() else 0o444)
    user = os.geteuid()
    if user == 0:
        os.seteuid(NOBODY)  # the superuser may write anything
    yield path
    os.seteuid(user)
    for each in [home, *home.rglob("*")]:
        each.chmod(0o755)
    shutil.rmtree(home)


async def test_it_is_listed_shown_and_searched(locked: Path, embedder: Any) -> None:
    async with AsyncLibrary(locked, embedder=embedder) as library:
        infos = await library.documents()
        assert [info.title for info in infos] == ["Badgers", "Herons", "Otters"]
        assert "earthworms" in (await library.document(infos[0].id)).text
        assert await library.index_pending() == 0
        for mode in SearchMode:
            (hit,) = await library.search("dig setts", k=1, mode=mode)
            assert "setts" in hit.passage.text


async def test_it_is_not_changed(locked: Path, embedder: Any) -> None:
    async with AsyncLibrary(locked, embedder=embedder) as library:
        for change in (library.add([]), library.remove(["x"]), library.verify()):
            with pytest.raises(LibraryError, match="name a folder you can write") as told:
                await change
            assert "\n" not in str(told.value)


@pytest.fixture
def unfinished(kept: Path) -> None:
    """A log that the last process to write the library left behind."""
    (kept / "catalogue.sqlite-wal").write_bytes(b"what it wrote")


async def test_what_was_not_written_out_is_said(
    unfinished: None, locked: Path, embedder: Any
) -> None:
    async with AsyncLibrary(locked, embedder=embedder) as library:
        with pytest.raises(LibraryError, match="open the library once where it can be written"):
            await library.documents()


async def test_it_is_served_without_being_held(locked: Path, embedder: Any) -> None:
    async with AsyncLibrary(locked, embedder=embedder) as library:
        await library.hold()
        assert find_holder(locked) is None
        assert await library.search("dig setts", k=1)
