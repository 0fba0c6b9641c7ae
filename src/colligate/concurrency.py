"""The threads a model in process computes in, so that the event loop never waits for it."""

from __future__ import annotations

import asyncio
import functools
import os
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from colligate.errors import ModelError

T = TypeVar("T")


class Threads:
    """`count` threads of one model, for any event loop; they end with `aclose`."""

    def __init__(self, name: str, count: int = 1) -> None:
        self._name = name
        self._process = os.getpid()
        self._executor = ThreadPoolExecutor(count, thread_name_prefix=name)

    def run(self, work: Callable[[], T]) -> asyncio.Future[T]:
        """The work's result to come; cancelling it before it began prevents it.

        Raises:
            ModelError: the model was closed, or belongs to the process this one was forked from.
        """
        if (
            os.getpid() != self._process
        ):  # Threads do not survive a fork: the wait would be endless.
            raise ModelError(
                f"{self._name} belongs to another process",
                "this one was forked from it",
                "make the model anew",
            )
        try:
            return asyncio.get_running_loop().run_in_executor(self._executor, work)
        except RuntimeError as error:
            raise ModelError(f"{self._name} was closed", "", "make the model anew") from error

    async def aclose(self) -> None:
        """End the threads, once what they were given is done. Safe to call twice."""
        await asyncio.to_thread(self._executor.shutdown)


# How many cores there are to compute on, and how threads wait on them.


def physical_cores() -> int:
    """Cores this process may use; two hardware threads of one core do not compute faster."""
    try:
        usable = os.sched_getaffinity(0)
        topology = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"
        return len({Path(topology.format(cpu)).read_text() for cpu in usable})
    except (AttributeError, OSError):  # Not Linux, or a container without /sys.
        return os.cpu_count() or 1


def wait_without_spinning() -> None:
    """Tell OpenMP's threads not to spin while they wait; before their library is loaded.

    Beside another busy process spinning costs ten times the work. This is what libgomp does
    itself when it sees more threads than cores.
    """
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")


# Where blocking work (SQLite, the index, files) leaves the event loop.

P = ParamSpec("P")


async def in_thread(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run blocking work in a thread; a cancelled task waits for its end before it lets go.

    A thread cannot be stopped. Would the task go on at once, the locks it holds would open, and
    others would find files half written and handles that nobody has.
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
            running.exception()  # else asyncio complains that nobody looked
        raise


# Several calls under way at once, as one.


async def gather(calls: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """The results, in the order given; how many run at once is the models' to bound.

    The first failure is raised as it is, once the others are cancelled and have ended.
    """
    tasks = [asyncio.ensure_future(call) for call in calls]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


R = TypeVar("R")


async def map_concurrent(
    items: Sequence[T], work: Callable[[T], Awaitable[R]], most: int
) -> list[R]:
    """The result of each item, in their order, at most `most` under way at once."""
    results: dict[int, R] = {}
    waiting = iter(enumerate(items))

    async def worker() -> None:
        for place, item in waiting:
            results[place] = await work(item)

    await gather(worker() for _ in range(min(most, len(items))))
    return [results[place] for place in range(len(items))]
