"""A library that cannot be written can still be read."""

import os
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest

from colligate.errors import LibraryError
from colligate.library import SearchMode
from colligate.library.library import AsyncLibrary

pytestmark = pytest.mark.posix
NOBODY = 65534


@contextmanager
def copy_read_only(library):
    """A copy that this process may read and not write, whoever runs it."""
    home = Path(tempfile.mkdtemp())
    path = Path(shutil.copytree(library, home / "library"))
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


@pytest.fixture
async def locked(full, embedder):
    with copy_read_only(full.path) as path:
        async with AsyncLibrary(path, embedder=embedder) as library:
            yield library


@pytest.mark.usefixtures("in_a_folder")
async def test_it_is_listed_shown_and_searched(locked):
    infos = await locked.documents()
    assert [info.title for info in infos] == ["Badgers", "Herons", "Otters"]
    assert "earthworms" in (await locked.document(infos[0].id)).text
    assert await locked.index_pending() == 0
    for mode in SearchMode:
        (hit,) = await locked.search("dig setts", k=1, mode=mode)
        assert "setts" in hit.passage.text


@pytest.mark.usefixtures("in_a_folder")
async def test_it_is_not_changed(locked):
    for change in (locked.add([]), locked.remove(["x"]), locked.verify()):
        with pytest.raises(LibraryError, match="name a folder you can write") as raised:
            await change
        assert "\n" not in str(raised.value)


@pytest.fixture
def interrupted(full):
    """A log that the last process to write the library left in it."""
    (full.path / "catalogue.sqlite-wal").write_bytes(b"what it wrote")


@pytest.mark.parametrize("engine", ["sqlite"])  # of its own files
async def test_a_log_that_was_not_written_out_is_reported(interrupted, locked):
    with pytest.raises(LibraryError, match="open the library once where it can be written"):
        await locked.documents()
