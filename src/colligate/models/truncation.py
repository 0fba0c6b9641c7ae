"""Cutting a text to a number of tokens so that what is kept is still a place in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from colligate.models.protocols import ChatModel

Keep = Literal["head", "tail", "head+tail"]
"""What is kept: the beginning, the end, or both, with the middle left out."""


def truncate(
    text: str, spans: Sequence[tuple[int, int]], budget: int, keep: Keep = "head"
) -> list[tuple[int, int]]:
    """The half-open character ranges of a text that `budget` tokens hold, in order: two at most.

    `spans` are the text's tokens as `ChatModel.token_spans` gives them. A text within the budget
    is kept whole; a budget of 0 or less keeps nothing. Else cuts fall where one token ends and
    the next begins: tokens that share a character stay together or are left out together, so
    that a little less than the budget may be kept. With "head+tail" each gets half, the head
    the odd token.
    """
    if budget <= 0 or not text:
        return []
    if len(spans) <= budget:
        return [(0, len(text))]
    if keep == "head":
        kept = [_head(spans, budget)]
    elif keep == "tail":
        kept = [_tail(text, spans, budget)]
    else:
        kept = [_head(spans, budget - budget // 2), _tail(text, spans, budget // 2)]
    return [(start, end) for start, end in kept if start < end]


def _head(spans: Sequence[tuple[int, int]], tokens: int) -> tuple[int, int]:
    while tokens and spans[tokens - 1][1] > spans[tokens][0]:
        tokens -= 1
    return (0, spans[tokens - 1][1] if tokens else 0)


def _tail(text: str, spans: Sequence[tuple[int, int]], tokens: int) -> tuple[int, int]:
    first = len(spans) - tokens
    while first < len(spans) and spans[first - 1][1] > spans[first][0]:
        first += 1
    return (spans[first][0] if first < len(spans) else len(text), len(text))


@dataclass(frozen=True)
class Truncated:
    """What was kept of a text: `text` is its `ranges`, put together."""

    text: str
    ranges: tuple[tuple[int, int], ...]

    def source(self, start: int, end: int) -> list[tuple[int, int]]:
        """Where a half-open range of `text` stands in the whole text: two ranges across the cut."""
        found = []
        at = 0
        for first, last in self.ranges:
            a, b = max(start, at), min(end, at + last - first)
            if a < b:
                found.append((first + a - at, first + b - at))
            at += last - first
        return found


async def truncated(model: ChatModel, text: str, budget: int, keep: Keep = "head") -> Truncated:
    """A text cut to `budget` tokens of the model, as its tokenizer (or its estimate) has them.

    The budget holds for the tokens as they stood in the whole text. Tokenised again, what is kept
    may count a few more or less: at a cut, and where head and tail meet, letters may merge that
    did not before. Measured with SmolLM2 and Qwen 2.5, a head or a tail took up to two tokens
    less and never more, both together from four less to two more.
    """
    ranges = truncate(text, await model.token_spans(text), budget, keep)
    return Truncated("".join(text[start:end] for start, end in ranges), tuple(ranges))
