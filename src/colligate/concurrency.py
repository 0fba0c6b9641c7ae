"""Concurrency: coroutines together, equal calls as one, and work in threads."""

from __future__ import annotations

import asyncio
import functools
import os
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

from colligate.errors import ModelError

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R")


async def gather(calls: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Run coroutines together and return their results in order.

    The first failure is raised as it is, after the others were cancelled and have ended. How many
    run at once is bounded by the models, not here.
    """
    tasks = [asyncio.ensure_future(call) for call in calls]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def map_concurrent(
    items: Sequence[T], work: Callable[[T], Awaitable[R]], most: int
) -> list[R]:
    """Apply `work` to each item, at most `most` at once, and return the results in order."""
    results: dict[int, R] = {}
    waiting = iter(enumerate(items))

    async def worker() -> None:
        for place, item in waiting:
            results[place] = await work(item)

    await gather(worker() for _ in range(min(most, len(items))))
    return [results[place] for place in range(len(items))]


class SingleFlight:
    """Makes equal calls that overlap in time one call. Each event loop has its own.

    Cancelling one waiter leaves the call to the others; when none is left, it is cancelled.
    """

    def __init__(self) -> None:
        self._calls: dict[tuple[asyncio.AbstractEventLoop, Hashable], _Call] = {}

    def __contains__(self, key: Hashable) -> bool:
        """Whether a call with this key is under way in this event loop."""
        return (asyncio.get_running_loop(), key) in self._calls

    async def run(self, key: Hashable, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Return the result of the call under way with this key; start `work` if there is none.

        What the call raises is raised to all who wait for it.
        """
        place = (asyncio.get_running_loop(), key)
        call = self._calls.get(place)
        if call is None:
            call = self._calls[place] = _Call(asyncio.create_task(work()))
        call.waiting += 1
        try:
            await asyncio.wait([call.task])
            result: T = call.task.result()
            return result
        finally:
            call.waiting -= 1
            if not call.waiting:
                del self._calls[place]
                if not call.task.done():
                    call.task.cancel()
                    await asyncio.gather(call.task, return_exceptions=True)


@dataclass
class _Call:
    task: asyncio.Task[Any]
    waiting: int = 0


class Slots:
    """Bounds how many calls with the same key are under way, in each event loop of its own."""

    def __init__(self) -> None:
        self._made: WeakKeyDictionary[
            asyncio.AbstractEventLoop, dict[tuple[Hashable, int], asyncio.Semaphore]
        ] = WeakKeyDictionary()

    def of(self, key: Hashable, most: int) -> asyncio.Semaphore:
        """Return the semaphore of a key, which lets `most` calls through at once."""
        here = self._made.setdefault(asyncio.get_running_loop(), {})
        return here.setdefault((key, most), asyncio.Semaphore(most))


async def in_thread(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run blocking work (SQLite, the index, files) in a thread.

    A cancelled task waits for the end of the work before it is cancelled. A thread cannot be
    stopped: if the task ended at once, its locks would open while files are half written.
    """
    running = asyncio.get_running_loop().run_in_executor(
        None, functools.partial(work, *args, **kwargs)
    )
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        while not running.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait([running])
        if not running.cancelled():
            running.exception()  # otherwise asyncio complains that nobody retrieved it
        raise


class Threads:
    """`count` threads of one model, usable from any event loop until `aclose`."""

    def __init__(self, name: str, count: int = 1) -> None:
        self._name, self._count = name, count
        self._process = os.getpid()
        self._executor = ThreadPoolExecutor(count, thread_name_prefix=name)
        self._given: set[Future[Any]] = set()  # work that has not ended

    @property
    def wanted(self) -> bool:
        """Whether work waits for a thread."""
        return len(self._given) > self._count

    def run(self, work: Callable[[], T]) -> asyncio.Future[T]:
        """Run work in one of the threads; cancelling the future before it begins prevents it.

        ModelError if the model was closed, or belongs to the process this one was forked from.
        """
        if os.getpid() != self._process:
            # Threads do not survive a fork: the wait would never end.
            what = f"{self._name} belongs to another process"
            raise ModelError(what, "this process was forked from it", "open the model again")
        try:
            future = self._executor.submit(work)
        except RuntimeError as error:
            raise ModelError(f"{self._name} was closed", "", "open the model again") from error
        self._given.add(future)
        future.add_done_callback(self._given.discard)
        return asyncio.wrap_future(future)

    async def aclose(self) -> None:
        """End the threads after the work they were given is done. Safe to call twice."""
        await asyncio.to_thread(self._executor.shutdown)


def physical_cores() -> int:
    """Return how many cores this process may use.

    Two hardware threads of one core do not compute faster than one.
    """
    try:
        usable = os.sched_getaffinity(0)
        topology = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"
        return len({Path(topology.format(cpu)).read_text() for cpu in usable})
    except (AttributeError, OSError):  # not Linux, or a container without /sys
        return os.cpu_count() or 1


def wait_without_spinning() -> None:
    """Tell OpenMP's threads not to spin while they wait; call it before their library is loaded.

    Next to another busy process, spinning costs ten times the work. libgomp sets the same when it
    sees more threads than cores.
    """
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")
