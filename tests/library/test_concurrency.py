"""Several tasks at once, and tasks that are cancelled: nothing breaks and nothing stays behind."""

import asyncio
import contextlib
import os
import threading
from pathlib import Path

import pytest

from colligate.concurrency import in_thread
from colligate.documents.reading import read_file
from colligate.library.in_memory import InMemorySources
from support.parsers import left


def count_handles(path):
    """How many files under a folder this process has open."""
    return sum(os.path.realpath(at).startswith(str(path)) for at in Path("/proc/self/fd").iterdir())


def list_children():
    """The child processes of this one, running or not."""
    found = []
    for task in Path(f"/proc/{os.getpid()}/task").iterdir():
        with contextlib.suppress(OSError):  # the thread has ended
            found += (task / "children").read_text().split()
    return found


async def test_cancelled_work_in_a_thread_has_ended_when_its_task_ends():
    begun, go_on = threading.Event(), threading.Event()
    ended = []

    def work():
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


@pytest.mark.parametrize("kind", ["library", "memory"])
async def test_searches_under_way_end_before_it_is_closed(library, write, embedder, kind):
    parts = [f"# Part {n}\n\nOtters and herons {n}." for n in range(400)]
    path = write("long.md", "\n\n".join(parts))
    if kind == "library":
        sources = library
        await library.add(path)
    else:
        sources = InMemorySources(read_file(path).documents, embedder)
    for turns in range(4):
        searches = [asyncio.create_task(sources.search("otters herons", k=50)) for _ in range(4)]
        for _ in range(turns):
            await asyncio.sleep(0)
        await sources.close()
        assert all(len(hits) == 50 for hits in await asyncio.gather(*searches))
    await sources.close()


@pytest.mark.linux
async def test_what_many_tasks_open_is_opened_once(full):
    await asyncio.gather(*(full.documents() for _ in range(20)))
    many = count_handles(full.path)
    await full.close()
    assert count_handles(full.path) == 0
    await full.documents()
    assert count_handles(full.path) == many


@pytest.mark.parametrize("phase", ["reading", "embedding", "optimising", "searching", "closing"])
@pytest.mark.linux
async def test_cancelled_anywhere_it_leaves_nothing_behind(library, folder, phase):
    reached = asyncio.Event()
    others = set(list_children()) - left.ids()  # of other tests: servers

    def note(progress):
        if progress.phase == phase:
            reached.set()

    if phase in ("searching", "closing"):
        await library.add(folder)
        reached.set()
        work = library.search("fish", k=3) if phase == "searching" else library.close()
    else:
        work = library.add(folder, on_progress=note)
    task = asyncio.create_task(work)
    await reached.wait()
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert not [t.name for t in threading.enumerate() if t.name.startswith("parsing")]
    assert set(list_children()) - left.ids() <= others  # what is left reads nothing
    assert len((await library.add(folder)).document_ids) == 3
    assert await library.verify() == []
    assert await library.search("fish", k=1)
    await library.close()
    assert count_handles(library.path) == 0
