"""Calls that run together, equal calls that are one, and threads that end."""

import asyncio
import threading

import pytest

from colligate.concurrency import SingleFlight, Threads, gather, map_concurrent
from colligate.errors import ModelError


async def test_gather_ends_the_others_at_the_first_failure():
    ended: list[str] = []

    async def wait() -> str:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cancelled")
        return "never"

    async def fail() -> str:
        await asyncio.sleep(0)
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await gather([wait(), fail(), wait()])
    assert ended == ["cancelled"] * 2


async def test_map_concurrent_keeps_order_and_bound():
    running = most = 0

    async def double(number: int) -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        for _ in range(number % 3):
            await asyncio.sleep(0)
        running -= 1
        return 2 * number

    assert await map_concurrent(range(10), double, 3) == [2 * number for number in range(10)]
    assert most == 3


class Work:
    """Counts how often it was begun and how often it was broken off; done when told."""

    def __init__(self) -> None:
        self.begun = 0
        self.cancelled = 0
        self.started = asyncio.Event()
        self.done = asyncio.Event()

    async def __call__(self) -> str:
        self.begun += 1
        self.started.set()
        try:
            await self.done.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return "result"


async def waiting(flight: SingleFlight, work: Work, count: int) -> list[asyncio.Task[str]]:
    tasks = [asyncio.create_task(flight.run("key", work)) for _ in range(count)]
    await work.started.wait()
    return tasks


@pytest.mark.parametrize("gone", [0, 1])
async def test_cancelling_one_leaves_the_call_to_the_other(gone):
    flight, work = SingleFlight(), Work()
    tasks = await waiting(flight, work, 2)
    tasks[gone].cancel()
    with pytest.raises(asyncio.CancelledError):
        await tasks[gone]
    work.done.set()
    assert await tasks[1 - gone] == "result"
    assert (work.begun, work.cancelled) == (1, 0)


async def test_a_call_that_nobody_waits_for_is_cancelled():
    flight, work = SingleFlight(), Work()
    tasks = await waiting(flight, work, 2)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    assert work.cancelled == 1
    assert "key" not in flight


async def test_closing_waits_for_what_is_under_way_and_leaves_no_thread():
    threads, gate = Threads("the model", 2), threading.Event()
    asked = threads.run(gate.wait)
    gate.set()
    await threads.aclose()
    assert await asked
    assert not [thread for thread in threading.enumerate() if "the model" in thread.name]
    with pytest.raises(ModelError, match="the model was closed"):
        threads.run(gate.wait)
