"""Keeping the best nodes of some articles within a budget, in the tokens of a model."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from colligate.documents import Passage
from colligate.evidence.article import Article
from colligate.evidence.selection import passages, pieces, render, select, shortened
from colligate.models import ChatModel
from colligate.token_estimate import estimate_tokens


@dataclass(frozen=True)
class Kept:
    """What fits: as text, as passages, its tokens, and those of all there was."""

    text: str
    passages: tuple[Passage, ...]
    tokens: int
    of_tokens: int


async def under_budget(
    articles: Sequence[Article],
    scores: Sequence[Sequence[float]],
    budget: int,
    model: ChatModel,
    *,
    stop_at_first_overflow: bool = False,
) -> Kept:
    """The best nodes whose text has at most `budget` tokens by the model's count.

    Where not even the best paragraph fits, its beginning is kept. Pieces are counted before they
    are chosen; should they have more tokens put together, less is chosen.
    """
    counts: dict[str, int] = {}
    of_tokens = 0
    for article in articles:
        of_tokens += await _count(list(pieces(article)), model, counts)
    room = budget
    while room > 0:
        selection = select(
            articles,
            scores,
            room,
            counts.__getitem__,
            stop_at_first_overflow=stop_at_first_overflow,
        )
        found = tuple(passage for each in passages(articles, selection) for passage in each)
        text = render(articles, selection)
        if not found:
            cut = shortened(articles, scores, room, estimate_tokens)
            found, text = ((cut,), cut.text) if cut else ((), "")
        tokens = await model.count_tokens(text)
        if tokens <= budget:
            return Kept(text, found, tokens, of_tokens)
        room -= tokens - budget
    return Kept("", (), 0, of_tokens)


async def _count(texts: Sequence[str], model: ChatModel, counts: dict[str, int]) -> int:
    """The tokens of each text into `counts`, and of all together: the model is asked once.

    A token across a boundary is counted on both sides of it.
    """
    spans = await model.token_spans("".join(texts))
    starts, ends = [start for start, _ in spans], [end for _, end in spans]
    for text, stop in zip(texts, accumulate(map(len, texts)), strict=True):
        counts[text] = bisect_left(starts, stop) - bisect_right(ends, stop - len(text))
    return len(spans)
