"""One process holds a library; others wait, or get an error of one line that names it."""

from __future__ import annotations

import os
import subprocess

import pytest

from colligate.errors import LibraryError, LibraryLocked
from colligate.library.lock import find_holder
from support.processes import start_child

HOLDER = """
import asyncio, sys
from colligate.library.library import AsyncLibrary
from support.embedders import WordEmbedder

async def main():
    async with AsyncLibrary(sys.argv[1], embedder=WordEmbedder()) as library:
        await library.search("fish", k=1)
        print("held", flush=True)
        sys.stdin.read()

asyncio.run(main())
"""


@pytest.fixture
def holder(full):
    """A process that has searched the library, and holds it until killed or its input closes."""
    streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with start_child(HOLDER, full.path, text=True, **streams) as process:
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


@pytest.mark.parametrize("engine", ["edge"])  # of its own files
async def test_a_second_process_is_told_who_holds_it(full, folder, holder):
    with pytest.raises(LibraryLocked) as raised:
        await full.search("fish", k=1)
    assert f"-c (process {holder.pid})" in str(raised.value)
    assert "has been using it since 20" in str(raised.value)
    assert "\n" not in str(raised.value)
    with pytest.raises(LibraryLocked):
        await full.add(folder)


async def test_lists_and_documents_are_read_while_another_holds_it(full, holder):
    infos = await full.documents()
    assert [info.title for info in infos] == ["Badgers", "Herons", "Otters"]
    assert "earthworms" in (await full.document(infos[0].id)).text


@pytest.mark.parametrize("engine", ["edge"])  # of its own files
async def test_it_waits_for_the_holder_and_reports_it(open_library, folder, holder):
    steps = []

    def note(progress):
        steps.append(progress)
        if progress.phase == "waiting":
            holder.stdin.close()  # now the holder ends

    async with open_library(wait=60) as patient:
        await patient.add(folder, on_progress=note)
        assert await patient.search("fish", k=1)
    waiting = [step for step in steps if step.phase == "waiting"]
    assert len(waiting) == 1
    assert waiting[0].file.startswith("for the library: ")
    assert str(holder.pid) in waiting[0].file


@pytest.mark.parametrize("engine", ["edge"])  # of its own files
async def test_a_killed_holder_holds_nothing(full, holder):
    holder.kill()
    holder.wait()
    assert (full.path / "holder.json").exists()
    assert await full.search("fish", k=1)


@pytest.mark.usefixtures("in_a_folder")
async def test_two_libraries_of_one_process_exclude_each_other(library, open_library, folder):
    await library.add(folder)
    async with open_library() as other:
        with pytest.raises(LibraryLocked, match=str(os.getpid())):
            await other.add(folder)
        await library.close()
        assert len((await other.add(folder)).unchanged) == 3


@pytest.mark.parametrize("engine", ["edge"])  # of its own files
async def test_a_lock_that_cannot_be_signed_is_released(full):
    in_the_way = full.path / "holder.new"
    in_the_way.mkdir()
    with pytest.raises(LibraryError, match="name a folder you can write"):
        await full.search("fish", k=1)
    in_the_way.rmdir()
    assert await full.search("fish", k=1)


@pytest.mark.usefixtures("in_a_folder")
async def test_it_can_be_held_before_it_is_used(library, open_library):
    assert find_holder(library.path) is None
    await library.hold()
    assert find_holder(library.path).pid == os.getpid()
    async with open_library(embedder="static") as another:
        with pytest.raises(LibraryLocked):
            await another.hold()
        assert await another.documents() == []
    await library.close()
    assert find_holder(library.path) is None
