"""`verify` finds damage and repairs it where that is possible."""

from __future__ import annotations

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


@pytest.mark.parametrize("engine", ["sqlite"])  # of its own files
async def test_passages_missing_from_the_index(full):
    with open_index(full) as index:
        index.remove_passages([1, 2])
    (problem,) = await full.verify()
    assert problem.startswith("document badger-")
    assert "2 passages are not in the index" in problem
    assert await full.search("earthworms", k=1, mode=SearchMode.SPARSE) == []
    assert await full.verify(repair=True) == [problem]
    assert await full.verify() == []
    assert await full.search("earthworms", k=1, mode=SearchMode.SPARSE)


@pytest.mark.parametrize("engine", ["sqlite"])  # of its own files
async def test_passages_of_no_document(full):
    with open_index(full) as index:
        vector = np.zeros(64, dtype=np.float32)
        index.upsert([IndexEntry(999, 1, vector, Terms([1], [1.0]))])
    (problem,) = await full.verify(repair=True)
    assert "1 passages that belong to no document" in problem
    assert await full.verify() == []


@pytest.mark.parametrize("engine", ["sqlite"])  # of its own files
async def test_text_that_is_not_what_was_stored(full, folder):
    with open_catalogue(full) as db:
        db.execute("UPDATE documents SET text = replace(text, 'setts', 'holes')")
    (problem,) = await full.verify()
    assert "its text is not the text that was stored" in problem
    await full.verify(repair=True)
    assert await full.verify() == []
    assert len(await full.documents()) == 2
    assert [path.name for path in (await full.add(folder)).added] == ["badger.md"]


@pytest.mark.parametrize("engine", ["sqlite"])  # of its own files
async def test_a_passage_beyond_its_text(full):
    with open_catalogue(full) as db:
        db.execute('UPDATE passages SET "end" = 10000 WHERE number = 1')
    (problem,) = await full.verify()
    assert "reaches beyond its text" in problem


@pytest.mark.parametrize("engine", ["sqlite"])  # of its own files
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


@pytest.mark.parametrize("engine", ["sqlite"])  # of its own files
async def test_half_a_surrogate_pair_of_an_older_library_is_replaced(full):
    with open_catalogue(full) as db:
        db.execute("UPDATE documents SET metadata = ?", (r'{"attachments": "caf\udce9.txt"}',))
    (document, *_) = await full.documents()
    assert (await full.document(document.id)).metadata == {"attachments": "caf\ufffd.txt"}
    assert await full.verify() == []


@pytest.mark.parametrize("engine", ["sqlite"])  # of its own files
async def test_a_library_of_another_version(full):
    with open_catalogue(full) as db:
        db.execute("PRAGMA user_version = 99")
    with pytest.raises(LibraryVersion, match="version 99 and this colligate reads version 3"):
        await full.documents()


@pytest.mark.parametrize("engine", ["sqlite"])  # of its own files
async def test_a_library_with_its_index_elsewhere_is_indexed_again_and_not_read(
    full, folder, embedder
):
    before = [(hit.passage, hit.score) for hit in await full.search("fish", k=9)]
    await full.close()
    with open_catalogue(full) as db:
        db.execute("DROP TABLE words")
        db.execute("PRAGMA user_version = 2")
    (full.path / "index").mkdir()
    (full.path / "index" / "segment").write_text("earthworms")
    next(full.path.glob("vectors-*")).unlink()
    embedder.passages.clear()
    assert await full.search("fish", k=1) == []
    assert await full.index_pending() == len(embedder.passages) > 0
    assert [(hit.passage, hit.score) for hit in await full.search("fish", k=9)] == before
    assert not (full.path / "index").exists()
    assert len((await full.add(folder)).unchanged) == 3
    assert await full.verify() == []


@pytest.mark.parametrize("engine", ["sqlite"])  # of its own files
async def test_a_catalogue_that_is_no_database(full):
    (full.path / "catalogue.sqlite").write_text("just some text, long enough to be no header" * 9)
    with pytest.raises(LibraryDamaged, match="file is not a database"):
        await full.documents()


@pytest.mark.parametrize("engine", ["sqlite"])  # of its own files
async def test_a_database_of_something_else(full):
    (full.path / "catalogue.sqlite").unlink()
    with open_catalogue(full) as db:
        db.execute("CREATE TABLE songs (title)")
    with pytest.raises(LibraryDamaged, match="not a catalogue of colligate"):
        await full.documents()


@pytest.mark.parametrize("engine", ["sqlite"])  # of its own files
async def test_a_torn_catalogue(full):
    file = full.path / "catalogue.sqlite"
    data = file.read_bytes()
    file.write_bytes(data[:4096] + b"\xff" * (len(data) - 4096))
    with pytest.raises(LibraryDamaged) as raised:
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
