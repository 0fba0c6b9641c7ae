"""One process holds a library; others wait, or get one line that says who it is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from colligate.errors import LibraryError, LibraryLocked
from colligate.library import AsyncLibrary, Progress
from colligate.library.lock import find_holder

HOLDER = """
import asyncio, sys
sys.path.insert(0, sys.argv[1])
from conftest import WordEmbedder
from colligate.library import AsyncLibrary

async def main():
    async with AsyncLibrary(sys.argv[2], embedder=WordEmbedder()) as library:
        await library.search("fish", k=1)
        print("held", flush=True)
        sys.stdin.read()

asyncio.run(main())
"""


@pytest.fixture
def held(library: AsyncLibrary) -> Any:
    """`held()` starts a process that searches the library and keeps it until killed or told."""
    processes = []

    def start() -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", HOLDER, str(Path(__file__).parent), str(library.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        processes.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        return process

    yield start
    for process in processes:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


async def test_a_second_process_is_told_who_holds_it(
    library: AsyncLibrary, folder: Path, held: Any
) -> None:
    await library.add(folder)
    await library.close()
    holder = held()
    with pytest.raises(LibraryLocked) as told:
        await library.search("fish", k=1)
    assert f"process {holder.pid} (-c" in str(told.value)
    assert "has held it since 20" in str(told.value)
    assert "\n" not in str(told.value)
    with pytest.raises(LibraryLocked):
        await library.add(folder)


async def test_lists_and_documents_are_read_beside_the_holder(
    library: AsyncLibrary, folder: Path, held: Any
) -> None:
    ids = (await library.add(folder)).document_ids
    await library.close()
    held()
    assert [info.id for info in await library.documents()] == ids
    assert "earthworms" in (await library.document(ids[0])).text


async def test_it_waits_for_the_holder_and_says_so(
    library: AsyncLibrary, folder: Path, held: Any, embedder: Any
) -> None:
    await library.add(folder)
    await library.close()
    holder = held()
    steps: list[Progress] = []

    def tell(progress: Progress) -> None:
        steps.append(progress)
        if progress.phase == "waiting":
            holder.stdin.close()  # now the holder ends

    async with AsyncLibrary(library.path, embedder=embedder, wait=60) as patient:
        await patient.add(folder, on_progress=tell)
        assert await patient.search("fish", k=1)
    waiting = [step for step in steps if step.phase == "waiting"]
    assert len(waiting) == 1
    assert str(holder.pid) in waiting[0].file


async def test_a_killed_holder_holds_nothing(
    library: AsyncLibrary, folder: Path, held: Any
) -> None:
    await library.add(folder)
    await library.close()
    holder = held()
    holder.kill()
    holder.wait()
    assert (library.path / "holder.json").exists()
    assert await library.search("fish", k=1)


async def test_two_libraries_of_one_process_exclude_each_other(
    library: AsyncLibrary, folder: Path, embedder: Any
) -> None:
    await library.add(folder)
    async with AsyncLibrary(library.path, embedder=embedder) as other:
        with pytest.raises(LibraryLocked, match=str(os.getpid())):
            await other.add(folder)
        await library.close()
        assert len((await other.add(folder)).unchanged) == 3


async def test_a_lock_that_cannot_be_signed_is_let_go(library: AsyncLibrary, folder: Path) -> None:
    await library.add(folder)
    await library.close()
    in_the_way = library.path / "holder.new"
    in_the_way.mkdir()
    with pytest.raises(LibraryError, match="name a folder you can write"):
        await library.search("fish", k=1)
    in_the_way.rmdir()
    assert await library.search("fish", k=1)


async def test_it_can_be_held_before_it_is_used(library: AsyncLibrary, tmp_path: Path) -> None:
    assert find_holder(library.path) is None
    await library.hold()
    assert find_holder(library.path) == os.getpid()
    async with AsyncLibrary(library.path, embedder="static") as another:
        with pytest.raises(LibraryLocked):
            await another.hold()
        assert await another.documents() == []
    await library.close()
    assert find_holder(library.path) is None
