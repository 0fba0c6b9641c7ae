"""The threads a model in process computes in, so that the event loop never waits for it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

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
