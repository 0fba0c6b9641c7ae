"""Log-probabilities of a text's tokens with the place of each token in it."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from colligate.errors import MissingCapability
from colligate.models import Role
from colligate.strategies.run import Run

MARGIN = 8
"""Tokens of a window that are left free: what begins a text is one or two."""

_MOST = 1024  # tokens that are scored, and as many that come before them, in one pass


@dataclass(frozen=True, slots=True)
class Token:
    """A token's half-open range of characters and its natural log-probability."""

    start: int
    end: int
    logprob: float


async def token_scores(
    run: Run, pairs: Sequence[tuple[str, str]], role: Role = Role.SCORER
) -> list[list[Token]]:
    """The tokens of each continuation after its prefix, of each (prefix, continuation).

    Raises:
        MissingCapability: the model gives no likelihoods, or not where its tokens stand.
        ContextTooSmall, BudgetExceeded: as `Run.likelihoods`.
    """
    values = await run.likelihoods(pairs, role=role)
    model = run.model(role)
    found = []
    for (_, text), logprobs in zip(pairs, values, strict=True):
        spans = await model.token_spans(text)
        if len(spans) != len(logprobs):
            raise MissingCapability(
                f"{model.name} does not say where its tokens stand",
                f"it scored {len(logprobs)} tokens of a text and counts {len(spans)}",
                "take gguf:PATH or hf:NAME as the scorer",
            )
        tokens = zip(spans, logprobs, strict=True)
        found.append([Token(start, end, value) for (start, end), value in tokens])
    return found


async def running_scores(
    run: Run, text: str, cuts: Sequence[tuple[int, int]], role: Role = Role.SCORER
) -> list[list[Token]]:
    """The tokens of each stretch of a text, scored after what comes before it in the text.

    `cuts` are half-open stretches in order. Where the text is longer than the model's window, or
    than 1,024 tokens, it is scored in parts, each after as much of what precedes it. Tokens of a
    stretch have their places in the whole text.
    """
    if not cuts:
        return []
    model = run.model(role)
    window = math.inf if model.context_tokens is None else model.context_tokens - MARGIN
    most = max(1, min(_MOST, window // 2))
    begun = [start for start, _ in await model.token_spans(text)]
    counts = [bisect_left(begun, end) - bisect_left(begun, start) for start, end in cuts]
    parts = _parts(counts, most)
    pairs = []
    for first, stop in parts:
        room = min(most, window - sum(counts[first:stop]))
        before = first
        while before and sum(counts[before - 1 : first]) <= room:
            before -= 1
        start = cuts[first][0]
        pairs.append((text[cuts[before][0] : start], text[start : cuts[stop - 1][1]]))
    scored = await token_scores(run, pairs, role)
    found: list[list[Token]] = []
    for (first, stop), tokens in zip(parts, scored, strict=True):
        offset = cuts[first][0]
        placed = [Token(t.start + offset, t.end + offset, t.logprob) for t in tokens]
        # A token that crosses into the next stretch belongs to the one it begins in; one of a
        # blank in between to the one that follows.
        found += _divided(placed, [end for _, end in cuts[first:stop]])
    return found


def _parts(counts: Sequence[int], most: float) -> list[tuple[int, int]]:
    """Runs of stretches with at most so many tokens together; a longer one stands alone."""
    parts, first, held = [], 0, 0
    for place, count in enumerate(counts):
        if place > first and held + count > most:
            parts.append((first, place))
            first, held = place, 0
        held += count
    return [*parts, (first, len(counts))]


def _divided(tokens: Sequence[Token], ends: Sequence[int]) -> list[list[Token]]:
    rows: list[list[Token]] = [[] for _ in ends]
    row = 0
    for token in tokens:
        while row < len(ends) - 1 and token.start >= ends[row]:
            row += 1
        rows[row].append(token)
    return rows
