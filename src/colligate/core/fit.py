"""Fitting: as many items, in their order, as a window or a token budget holds.

What is left out is always recorded in the trace and, for a window, warned of.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol, TypeVar

from pydantic import BaseModel

from colligate.core.events import Pruned
from colligate.core.run import Run
from colligate.documents import Passage, Span
from colligate.models import Message, Role

FOR_THE_ANSWER = 6000
"""Tokens of the budget that are reserved for the answer, or half of a small budget."""


def reserve_reading(run: Run) -> AbstractContextManager[None]:
    """Reserve a part of the token budget for the reading that follows."""
    left = run.tokens.left
    return run.tokens.reserve(0 if left is None else min(FOR_THE_ANSWER, left // 2))


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


async def fit_budget(ranked: Sequence[Passage], budget: int, run: Run) -> list[Passage]:
    """Return the first passages that have at most `budget` tokens together, titles included.

    The first one that does not fit ends the list. If that is the very first, its beginning is
    kept.
    """
    model = run.model(Role.READER)
    kept: list[Passage] = []
    left = budget
    for passage in ranked:
        tokens = await model.count_tokens(f"{passage.full_title}\n{passage.text}")
        if tokens > left:
            break
        kept.append(passage)
        left -= tokens
    if ranked and not kept and budget > 0:
        kept = await _beginning(ranked[0], budget, run)
    if len(kept) < len(ranked):
        left_out = tuple(passage.span for passage in ranked[len(kept) :])
        run.emit(Pruned(left_out, f"the budget of {budget} tokens holds {len(kept)} passages"))
    return kept


def split_by_tokens(tokens: Sequence[int], budget: float) -> list[range]:
    """Cut items in order into runs of at most `budget` tokens; a longer item is a run by itself."""
    runs, start, used = [], 0, 0
    for at, count in enumerate(tokens):
        if at > start and used + count > budget:
            runs.append(range(start, at))
            start, used = at, 0
        used += count
    return [*runs, range(start, len(tokens))]


async def _beginning(passage: Passage, budget: int, run: Run) -> list[Passage]:
    model = run.model(Role.READER)
    room = budget - await model.count_tokens(f"{passage.full_title}\n")
    ends = [end for _, end in await model.token_spans(passage.text)]
    if room < 1 or not ends:
        return []
    document = await run.document(passage.document_id)
    start = passage.span.start
    return [document.passage(document.span(start, start + ends[min(room, len(ends)) - 1]))]
