"""Several tasks at once, and tasks that are cancelled: nothing breaks and nothing stays behind."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from colligate.concurrency import in_thread
from colligate.documents.reading import read_file
from colligate.library import AsyncLibrary, InMemorySources, SearchMode


def handles(path: Path) -> int:
    """How many files under a folder this process has open."""
    return sum(
        os.path.realpath(link).startswith(str(path)) for link in Path("/proc/self/fd").iterdir()
    )


def children() -> list[str]:
    """The child processes of this one, running or not."""
    tasks = Path(f"/proc/{os.getpid()}/task")
    return [pid for task in tasks.iterdir() for pid in (task / "children").read_text().split()]


async def test_cancelled_work_in_a_thread_has_ended_when_its_task_ends() -> None:
    begun, go_on = threading.Event(), threading.Event()
    ended = []

    def work() -> None:
        begun.set()
        go_on.wait()
        ended.append(True)

    task = asyncio.create_task(in_thread(work))
    await asyncio.to_thread(begun.wait)
    for _ in range(2):
        task.cancel()
        await asyncio.sleep(0)
    assert not task.done()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == [True]


async def test_a_search_under_way_ends_before_the_library_is_closed(
    library: AsyncLibrary, write: Any
) -> None:
    parts = [f"# Part {n}\n\nOtters and herons {n}." for n in range(400)]
    await library.add(write("long.md", "\n\n".join(parts)))
    for turns in range(4):
        searches = [asyncio.create_task(library.search("otters herons", k=50)) for _ in range(4)]
        for _ in range(turns):
            await asyncio.sleep(0)
        await library.close()
        assert all(len(hits) == 50 for hits in await asyncio.gather(*searches))


async def test_given_documents_too_are_closed_after_their_searches(
    folder: Path, embedder: Any
) -> None:
    documents = [read_file(folder / name).documents[0] for name in ("heron.md", "otter.md")]
    given = InMemorySources(documents, embedder)
    for turns in range(4):
        searches = [asyncio.create_task(given.search("fish", k=2)) for _ in range(4)]
        for _ in range(turns):
            await asyncio.sleep(0)
        await given.close()
        assert all(len(hits) == 2 for hits in await asyncio.gather(*searches))
    await given.close()


async def test_what_many_tasks_open_is_opened_once(library: AsyncLibrary, folder: Path) -> None:
    await library.add(folder)
    await library.close()
    await asyncio.gather(*(library.documents() for _ in range(20)))
    many = handles(library.path)
    await library.close()
    assert handles(library.path) == 0
    await library.documents()
    assert handles(library.path) == many


async def test_searches_while_documents_come_and_go(
    library: AsyncLibrary, folder: Path, write: Any
) -> None:
    await library.add(folder)
    changing = True

    async def search() -> int:
        count = 0
        while changing:
            for mode in SearchMode:
                hits = await library.search("rivers fish setts", k=9, mode=mode)
                assert any(hit.passage.title == "Badgers" for hit in hits)
                count += 1
        return count

    searching = [asyncio.create_task(search()) for _ in range(2)]
    for n in range(2):
        added = await library.add(write(f"new-{n}.md", f"# New {n}\n\nRivers have fish.\n"))
        await library.remove(added.document_ids)
    changing = False
    assert min(await asyncio.gather(*searching)) > 0
    assert await library.verify() == []


@pytest.mark.parametrize("phase", ["reading", "embedding", "optimising", "searching", "closing"])
async def test_cancelled_anywhere_it_leaves_nothing_behind(
    tmp_path: Path, folder: Path, embedder: Any, phase: str
) -> None:
    library = AsyncLibrary(tmp_path / "library", embedder=embedder)
    reached = asyncio.Event()

    def tell(progress: Any) -> None:
        if progress.phase == phase:
            reached.set()

    work: dict[str, Callable[[], Awaitable[object]]] = {
        "searching": lambda: library.search("fish", k=3),
        "closing": library.close,
    }
    if phase in work:
        await library.add(folder)
        reached.set()
    task = asyncio.ensure_future(
        work[phase]() if phase in work else library.add(folder, on_progress=tell)
    )
    await reached.wait()
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert not [t.name for t in threading.enumerate() if t.name.startswith("parsing")]
    assert children() == []
    assert len((await library.add(folder)).document_ids) == 3
    assert await library.verify() == []
    assert await library.search("fish", k=1)
    await library.close()
    assert handles(library.path) == 0
