"""From a command to the event loop and back."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end. An interrupt cancels it, and its clean-up still runs.

    After a failure no thread is waited for: one that is in C code may never stop.
    """
    runner = asyncio.Runner()
    try:
        result = runner.run(work)
    except BaseException:
        runner.get_loop().close()
        raise
    runner.close()
    return result
