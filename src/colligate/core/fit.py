"""Fitting: as many items, in their order, as a window holds.

What is left out is always recorded in the trace and, for a window, warned of.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from pydantic import BaseModel

from colligate.core.events import Pruned
from colligate.core.run import Run
from colligate.documents import Span
from colligate.models import Message, Role


class HasSpan(Protocol):
    """A passage, or something that stands for one."""

    @property
    def span(self) -> Span: ...


T = TypeVar("T", bound=HasSpan)


@dataclass(frozen=True)
class Room:
    """What a prompt must leave room for: a reply of a role's model; `last` is as in `Run.room`."""

    max_tokens: int
    role: Role = Role.READER
    schema: type[BaseModel] | None = None
    last: bool = False


async def fit_window(
    ranked: Sequence[T],
    prompt: Callable[[Sequence[T]], Sequence[Message]],
    run: Run,
    reply: Room,
    *,
    least: int = 1,
    warning: str = "",
) -> list[T]:
    """Return the first items whose prompt fits the model's window together with its reply.

    `least` items are kept in any case: the call itself reports that they do not fit. `warning`
    replaces the standard one, which counts the items.
    """

    async def fits(count: int) -> bool:
        messages = prompt(ranked[:count])
        room = await run.room(
            reply.role, messages, reply.max_tokens, schema=reply.schema, last=reply.last
        )
        return room is None or room >= 0

    if len(ranked) <= least or await fits(len(ranked)):
        return list(ranked)
    kept, too_many = least, len(ranked)
    while too_many - kept > 1:  # more items make a longer prompt, so halving finds the number
        middle = (kept + too_many) // 2
        if await fits(middle):
            kept = middle
        else:
            too_many = middle
    left_out = ranked[kept:]
    share = f"{len(left_out)} of {len(ranked)} passages"
    model, left = run.model(reply.role), run.tokens.left
    spent = reply.last and left is not None and left < (model.context_tokens or math.inf)
    limit = "what is left of the token budget" if spent else f"the window of {model.name}"
    reason = f"{share} do not fit {limit}"
    run.emit(Pruned(tuple(each.span for each in left_out), reason))
    run.warn(warning or reason)
    return list(ranked[:kept])


def split_by_tokens(tokens: Sequence[int], budget: float) -> list[range]:
    """Cut items in order into runs of at most `budget` tokens; a longer item is a run by itself."""
    runs, start, used = [], 0, 0
    for at, count in enumerate(tokens):
        if at > start and used + count > budget:
            runs.append(range(start, at))
            start, used = at, 0
        used += count
    return [*runs, range(start, len(tokens))]
