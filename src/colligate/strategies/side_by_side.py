"""Several calls under way at once, as one."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

T = TypeVar("T")


async def side_by_side(calls: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
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
