"""Equal calls at the same time are one call, whoever of those who wait gives up."""

from __future__ import annotations

import asyncio

import pytest

from colligate.models.cache import InFlight


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


async def waiting(in_flight: InFlight, work: Work, count: int) -> list[asyncio.Task[object]]:
    tasks = [asyncio.create_task(in_flight.share("key", work)) for _ in range(count)]
    await work.started.wait()
    return tasks


async def test_one_call_for_all_who_ask_meanwhile() -> None:
    in_flight, work = InFlight(), Work()
    tasks = await waiting(in_flight, work, 3)
    assert "key" in in_flight
    work.done.set()
    assert await asyncio.gather(*tasks) == [("result", True), ("result", False), ("result", False)]
    assert work.begun == 1
    assert "key" not in in_flight
    assert await in_flight.share("key", work) == ("result", True)
    assert work.begun == 2


@pytest.mark.parametrize("gone", [0, 1])
async def test_cancelling_one_leaves_the_call_to_the_other(gone: int) -> None:
    in_flight, work = InFlight(), Work()
    tasks = await waiting(in_flight, work, 2)
    tasks[gone].cancel()
    with pytest.raises(asyncio.CancelledError):
        await tasks[gone]
    work.done.set()
    assert (await tasks[1 - gone])[0] == "result"  # type: ignore[index]
    assert (work.begun, work.cancelled) == (1, 0)


async def test_when_nobody_waits_any_more_the_call_is_broken_off() -> None:
    in_flight, work = InFlight(), Work()
    tasks = await waiting(in_flight, work, 2)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    assert work.cancelled == 1
    assert "key" not in in_flight


async def test_all_are_told_of_a_failure() -> None:
    async def fail() -> None:
        await asyncio.sleep(0)
        raise ValueError("no")

    in_flight = InFlight()
    calls = (in_flight.share("key", fail) for _ in range(2))
    assert [str(error) for error in await asyncio.gather(*calls, return_exceptions=True)] == [
        "no",
        "no",
    ]
    assert "key" not in in_flight
