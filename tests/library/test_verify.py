"""`verify` finds damage and repairs it where that is possible."""

import re
import sqlite3
from contextlib import contextmanager

import numpy as np
import pytest

from colligate.errors import LibraryDamaged, LibraryVersion
from colligate.library import SearchMode
from colligate.library.bm25 import Terms
from colligate.library.catalogue import Catalogue
from colligate.library.library import AsyncLibrary
from colligate.library.passages import PassageIndex, VectorFile
from colligate.library.protocols import IndexEntry
from colligate.library.schema import Database

OWN_FILES = pytest.mark.parametrize("engine", ["sqlite"])


@contextmanager
def open_catalogue(library):
    connection = sqlite3.connect(library.path / "catalogue.sqlite")
    yield connection
    connection.commit()
    connection.close()


@contextmanager
def open_index(library):
    catalogue = Catalogue(Database(library.path / "catalogue.sqlite"))
    yield PassageIndex(catalogue.database, VectorFile(library.path / "vectors-64.f32", 64))
    catalogue.close()


async def test_a_whole_library_has_no_problems(full):
    assert await full.verify() == []


def lose_passages(library):
    with open_index(library) as index:
        index.remove_passages([1, 2])


def add_a_stray_passage(library):
    with open_index(library) as index:
        vector = np.zeros(64, dtype=np.float32)
        index.upsert([IndexEntry(999, 1, vector, Terms([1], [1.0]))])


def change_a_text(library):
    with open_catalogue(library) as db:
        db.execute("UPDATE documents SET text = replace(text, 'setts', 'holes')")


def lengthen_a_passage(library):
    with open_catalogue(library) as db:
        db.execute('UPDATE passages SET "end" = 10000 WHERE number = 1')


@OWN_FILES
@pytest.mark.parametrize(
    ("damage", "problem", "found"),
    [
        (lose_passages, "document badger-.*2 passages are not in the index", 3),
        (add_a_stray_passage, "1 passages that belong to no document", 3),
        (change_a_text, "document badger-.*its text is not the text that was stored", 2),
        (lengthen_a_passage, "document badger-.*reaches beyond its text", 2),
    ],
)
async def test_damage_is_found_and_repaired(full, folder, damage, problem, found):
    damage(full)
    (line,) = await full.verify()
    assert re.search(problem, line)
    assert await full.verify(repair=True) == [line]
    assert await full.verify() == []
    assert len(await full.documents()) == found
    assert len((await full.add(folder)).added) == 3 - found
    assert await full.search("earthworms", k=1, mode=SearchMode.SPARSE)


@OWN_FILES
@pytest.mark.parametrize("damage", ["missing", "garbled"])
async def test_a_lost_index_is_reported_and_rebuilt(full, damage):
    (file,) = full.path.glob("vectors-*")
    if damage == "garbled":
        file.write_text("nonsense")
        assert await full.search("fish", k=1) == []
    else:
        file.unlink()
        with pytest.raises(LibraryDamaged, match="verify --repair"):
            await full.search("fish", k=1)
    assert any("index" in problem for problem in await full.verify(repair=True))
    assert await full.verify() == []
    assert await full.search("fish", k=1)


@OWN_FILES
async def test_half_a_surrogate_pair_of_an_older_library_is_replaced(full):
    with open_catalogue(full) as db:
        db.execute("UPDATE documents SET metadata = ?", (r'{"attachments": "caf\udce9.txt"}',))
    (document, *_) = await full.documents()
    assert (await full.document(document.id)).metadata == {"attachments": "caf\ufffd.txt"}
    assert await full.verify() == []


@OWN_FILES
@pytest.mark.parametrize("version", [2, 99])
async def test_a_library_of_another_version(full, version):
    with open_catalogue(full) as db:
        db.execute(f"PRAGMA user_version = {version}")
    with pytest.raises(LibraryVersion, match=f"version {version} .* reads version 3; index the"):
        await full.documents()


def write_text(file):
    file.write_text("just some text, long enough to be no header" * 9)


def write_another_database(file):
    file.unlink()
    with sqlite3.connect(file) as db:
        db.execute("CREATE TABLE songs (title)")
    db.close()


def tear(file):
    data = file.read_bytes()
    file.write_bytes(data[:4096] + b"\xff" * (len(data) - 4096))


@OWN_FILES
@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (write_text, "file is not a database"),
        (write_another_database, "not a catalogue of colligate"),
        (tear, "malformed"),
    ],
)
async def test_a_catalogue_that_cannot_be_read(full, spoil, why):
    await full.close()
    spoil(full.path / "catalogue.sqlite")
    with pytest.raises(LibraryDamaged, match=why) as raised:
        await full.documents()
    assert "\n" not in str(raised.value)


async def test_a_folder_of_other_things_is_no_library(folder, embedder):
    async with AsyncLibrary(folder, embedder=embedder) as library:
        with pytest.raises(LibraryDamaged, match="holds other files"):
            await library.documents()
        with pytest.raises(LibraryDamaged, match="holds other files"):
            await library.add(folder)
    assert not (folder / "catalogue.sqlite").exists()


async def test_a_file_is_no_library(folder, embedder):
    async with AsyncLibrary(folder / "otter.md", embedder=embedder) as library:
        with pytest.raises(LibraryDamaged, match="it is a file"):
            await library.add(folder)


async def test_the_default_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("COLLIGATE_LIBRARY", str(tmp_path / "mine"))
    assert AsyncLibrary().path == tmp_path / "mine"
    monkeypatch.delenv("COLLIGATE_LIBRARY")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert AsyncLibrary(embedder="openai:e@http://h/v1").path.name == "openai-e-http-h-v1"
    assert AsyncLibrary().path.name == "minilm"
