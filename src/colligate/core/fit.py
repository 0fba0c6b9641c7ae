"""Fit as many passages as a prompt, a window or a token budget holds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from pydantic import BaseModel

from colligate.core.events import Pruned
from colligate.core.run import Run
from colligate.documents import Passage
from colligate.models import Message, Role

T = TypeVar("T")


async def first_that_fit(
    ranked: Sequence[T],
    prompt: Callable[[Sequence[T]], Sequence[Message]],
    run: Run,
    *,
    role: Role,
    max_tokens: int,
    schema: type[BaseModel] | None = None,
) -> list[T]:
    """As many of the first as a prompt in the model's window holds beside its reply; at least one.

    The more there are, the longer is the prompt: their number is found by halving.
    """

    async def fits(count: int) -> bool:
        room = await run.room(role, prompt(ranked[:count]), max_tokens, schema=schema)
        return room is None or room >= 0

    if len(ranked) < 2 or await fits(len(ranked)):
        return list(ranked)
    kept, too_many = 1, len(ranked)
    while too_many - kept > 1:
        middle = (kept + too_many) // 2
        if await fits(middle):
            kept = middle
        else:
            too_many = middle
    return list(ranked[:kept])


async def within(ranked: Sequence[Passage], budget: int, run: Run) -> list[Passage]:
    """The first passages that have no more than `budget` tokens together, each with its title.

    The first that does not fit ends it. Should that be the very first, its beginning is kept.
    """
    model = run.model(Role.READER)
    kept: list[Passage] = []
    left = budget
    for passage in ranked:
        tokens = await model.count_tokens(f"{passage.title}\n{passage.text}")
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


async def _beginning(passage: Passage, budget: int, run: Run) -> list[Passage]:
    model = run.model(Role.READER)
    room = budget - await model.count_tokens(f"{passage.title}\n")
    ends = [end for _, end in await model.token_spans(passage.text)]
    if room < 1 or not ends:
        return []
    document = await run.document(passage.document_id)
    start = passage.span.start
    return [document.passage(document.span(start, start + ends[min(room, len(ends)) - 1]))]


def split_by_tokens(tokens: Sequence[int], budget: int) -> list[range]:
    """Things in order, cut into runs of at most `budget` tokens; one that is longer is a run."""
    runs, start, used = [], 0, 0
    for at, count in enumerate(tokens):
        if at > start and used + count > budget:
            runs.append(range(start, at))
            start, used = at, 0
        used += count
    return [*runs, range(start, len(tokens))]
