"""From a command to the event loop and back."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end. An interrupt cancels it, and its clean-up still runs.

    After a failure the loop is left unclosed: closing waits for threads that may never stop,
    and the process is about to end.
    """
    runner = asyncio.Runner()
    result = runner.run(work)
    runner.close()
    return result
