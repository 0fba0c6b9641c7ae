"""Any number of processes search and change a library at once; nobody waits for long."""

import asyncio
import sqlite3
import subprocess
import threading

import pytest

from colligate.errors import EmbedderMismatch, LibraryError, LibraryLocked
from colligate.library import SearchMode
from colligate.library.library import AsyncLibrary
from support.embedders import Interrupted, WordEmbedder
from support.processes import start_child

pytestmark = pytest.mark.parametrize("engine", ["sqlite"])

WORKERS = """
import asyncio, json, sys
from pathlib import Path
from colligate.library import SearchMode
from colligate.library.library import AsyncLibrary
from support.embedders import WordEmbedder

async def write(library, number):
    for turn in range(6):
        file = Path(sys.argv[3]) / f"{number}-{turn}.md"
        file.write_text(f"# New {number}-{turn}\\n\\nRivers have fish {number}.\\n")
        added = await library.add(file, workers=1)
        assert not added.failed, added.failed
        if turn % 2:
            await library.remove(added.document_ids)

async def read(library, number):
    for turn in range(50):
        mode = list(SearchMode)[turn % 3]
        hits = await library.search("rivers fish setts", k=9, mode=mode)
        assert any(hit.passage.title == "Badgers" for hit in hits), hits
        assert len({hit.passage.id for hit in hits}) == len(hits)

async def main():
    kind, number = sys.argv[1].split("-")
    async with AsyncLibrary(sys.argv[2], embedder=WordEmbedder()) as library:
        await library.documents()
        print("ready", flush=True)
        sys.stdin.readline()
        await {"read": read, "write": write}[kind](library, number)
        print("done", flush=True)

asyncio.run(main())
"""


async def test_four_read_and_two_write_at_once(full, folder, embedder):
    names = ["write-1", "write-2", *(f"read-{n}" for n in range(4))]
    streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    started = [start_child(WORKERS, name, full.path, folder, **streams) for name in names]
    children = [each.__enter__() for each in started]
    try:
        assert [each.stdout.readline() for each in children] == ["ready\n"] * 6
        for each in children:
            each.stdin.write("go\n")
            each.stdin.flush()
        done = [await asyncio.to_thread(each.stdout.readline) for each in children]
        assert done == ["done\n"] * 6
    finally:
        for each in started:
            each.__exit__(None, None, None)
    infos = [info.title for info in await full.documents()]
    expected = [f"New {number}-{turn}" for number in (1, 2) for turn in (0, 2, 4)]
    assert sorted(infos) == sorted([*expected, "Badgers", "Herons", "Otters"])
    assert await full.verify() == []
    await full.close()
    # The same as a library that only ever had these files.
    kept = [folder / f"{name}.md" for name in ("badger", "heron", "otter")]
    kept += [folder / f"{title.removeprefix('New ')}.md" for title in expected]
    async with AsyncLibrary(full.path.parent / "alone", embedder=embedder) as alone:
        await alone.add(kept)
        for mode in SearchMode:
            found, wanted = [
                {(hit.passage.id, round(hit.score, 4)) for hit in hits}
                for hits in [await each.search("fish", k=50, mode=mode) for each in (full, alone)]
            ]
            assert found == wanted


async def test_what_is_removed_while_another_indexes_it_stays_gone(open_library, folder):
    embedder = Interrupted()
    async with open_library(embedder=embedder) as writer, open_library() as other:

        async def remove():
            await other.remove([folder / "otter.md"])

        embedder.meanwhile = remove
        await writer.add(folder)
        assert [info.title for info in await writer.documents()] == ["Badgers", "Herons"]
        assert await other.verify() == []
        assert b"swim in rivers" not in read_all(other.path)


async def test_two_that_begin_with_other_embedders_do_not_mix_them(open_library, folder):
    embedder = Interrupted()
    async with open_library(embedder=embedder) as one, open_library(embedder="static") as two:

        async def add():
            await two.add(folder / "otter.md")

        embedder.meanwhile = add
        with pytest.raises(EmbedderMismatch):
            await one.add(folder)
        assert await two.add(folder)
        assert await two.verify() == []


async def test_a_writer_waits_for_another_and_says_what_it_waits_for(full, folder, monkeypatch):
    monkeypatch.setattr("colligate.library.schema.WAIT_SECONDS", 0.1)
    other = sqlite3.connect(full.path / "catalogue.sqlite", check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    (info, *_) = await full.documents()
    assert await full.search("fish", k=1)
    with pytest.raises(LibraryLocked, match="another process is writing it; try again") as raised:
        await full.remove([info.id])
    assert "\n" not in str(raised.value)
    await full.close()
    monkeypatch.setattr("colligate.library.schema.WAIT_SECONDS", 30.0)
    async with AsyncLibrary(full.path, embedder=WordEmbedder()) as patient:
        threading.Timer(0.2, other.rollback).start()
        assert await patient.remove([info.id]) == [info.id]
    other.close()


async def test_removal_says_that_a_reader_keeps_the_log(full, monkeypatch):
    monkeypatch.setattr("colligate.library.schema.WAIT_SECONDS", 0.1)
    reader = sqlite3.connect(full.path / "catalogue.sqlite")
    reader.execute("BEGIN")
    reader.execute("SELECT * FROM meta").fetchall()
    (info, *_) = await full.documents()
    with pytest.raises(LibraryLocked, match="cannot empty the write-ahead log"):
        await full.remove([info.id])
    reader.close()
    await full.remove([(await full.documents())[0].id])
    assert b"earthworms" not in read_all(full.path)


async def test_a_disk_without_shared_memory_is_named(tmp_path, folder, monkeypatch, engine):
    class Remote(sqlite3.Connection):
        def execute(self, statement, *values):
            statement = statement.replace("journal_mode = WAL", "journal_mode = DELETE")
            return super().execute(statement, *values)

    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *a, **more: connect(*a, factory=Remote, **more))
    async with AsyncLibrary(tmp_path / "library", embedder=WordEmbedder()) as library:
        with pytest.raises(LibraryError, match="a disk of this machine") as raised:
            await library.add(folder)
    assert "\n" not in str(raised.value)


def read_all(folder):
    return b"".join(file.read_bytes() for file in folder.rglob("*") if file.is_file())
