"""Token scores: log-probabilities of tokens with their places, and cutting a text by them."""

from __future__ import annotations

import math
import re
import string
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from colligate.core.fit import split_by_tokens
from colligate.core.run import Run
from colligate.documents.tokens import CJK
from colligate.errors import MissingCapability
from colligate.models import Role

MARGIN = 8
"""Tokens of a window that stay free: a text begins with one or two special ones."""

_MOST = 1024  # tokens that are scored, and as many that come before them, in one pass


@dataclass(frozen=True, slots=True)
class TokenScore:
    """A token's half-open range of characters and its natural log-probability."""

    start: int
    end: int
    logprob: float


async def score_tokens(run: Run, pairs: Sequence[tuple[str, str]]) -> list[list[TokenScore]]:
    """Score the tokens of each continuation after its prefix, for each (prefix, continuation)."""
    values = await run.likelihoods(pairs)
    model = run.model(Role.SCORER)
    found = []
    for (_, text), logprobs in zip(pairs, values, strict=True):
        spans = await model.token_spans(text)
        if len(spans) != len(logprobs):
            raise MissingCapability(
                f"{model.name} does not report the places of its tokens",
                f"it scored {len(logprobs)} tokens of a text and counts {len(spans)}",
                "use bundled, gguf:PATH or hf:NAME as the scorer",
            )
        tokens = zip(spans, logprobs, strict=True)
        found.append([TokenScore(start, end, value) for (start, end), value in tokens])
    return found


async def score_running_tokens(
    run: Run, text: str, cuts: Sequence[tuple[int, int]]
) -> list[list[TokenScore]]:
    """Score the tokens of each stretch of a text after what comes before it in the text.

    `cuts` are half-open stretches in order. A text longer than the model's window, or than 1,024
    tokens, is scored in parts, each after as many tokens of what precedes it. Places are those in
    the whole text.
    """
    if not cuts:
        return []
    model = run.model(Role.SCORER)
    window = math.inf if model.context_tokens is None else model.context_tokens - MARGIN
    most = max(1, min(_MOST, window // 2))
    begun = [start for start, _ in await model.token_spans(text)]
    counts = [bisect_left(begun, end) - bisect_left(begun, start) for start, end in cuts]
    parts = split_by_tokens(counts, most)
    pairs = []
    for part in parts:
        room = min(most, window - sum(counts[part.start : part.stop]))
        before = part.start
        while before and sum(counts[before - 1 : part.start]) <= room:
            before -= 1
        start = cuts[part.start][0]
        pairs.append((text[cuts[before][0] : start], text[start : cuts[part.stop - 1][1]]))
    found: list[list[TokenScore]] = []
    for part, tokens in zip(parts, await score_tokens(run, pairs), strict=True):
        offset = cuts[part.start][0]
        rows: list[list[TokenScore]] = [[] for _ in part]
        ends = [cuts[at][1] for at in part[:-1]]
        for token in tokens:
            # A token that crosses into the next stretch belongs to the one it begins in; one of a
            # blank in between to the one that follows.
            placed = TokenScore(token.start + offset, token.end + offset, token.logprob)
            rows[bisect_right(ends, placed.start)].append(placed)
        found += rows
    return found


_UNSPACED = re.compile(f"[{CJK}]")


def group_words(text: str, tokens: Sequence[tuple[int, int]]) -> list[list[int]]:
    """Group tokens, half-open ranges of the text in order, into words; return their indexes.

    A word begins after a blank; a punctuation mark is a word, and so is each token of a script
    without blanks. Tokens without characters belong to the word before.
    """
    words: list[list[int]] = []
    for place, (start, end) in enumerate(tokens):
        bare = text[start:end].strip()
        first = end - len(text[start:end].lstrip())
        begins = bool(bare) and (
            first == 0
            or text[first - 1].isspace()
            or all(character in string.punctuation for character in bare)
            or _UNSPACED.match(bare) is not None
        )
        if begins or not words:
            words.append([place])
        else:
            words[-1].append(place)
    return words


def cut_pieces(
    start: int, end: int, tokens: Sequence[tuple[int, int]], most: int
) -> list[tuple[int, int]]:
    """Cut the stretch from `start` to `end` into pieces of at most `most` of its tokens.

    `tokens` are half-open and counted from `start`. A blank goes with the token after it.

    >>> cut_pieces(10, 15, [(0, 1), (2, 3), (4, 5)], 2)
    [(10, 13), (13, 15)]
    """
    cuts = [start + last for _, last in tokens[most - 1 : len(tokens) - 1 : most]]
    return [pair for pair in zip([start, *cuts], [*cuts, end], strict=True) if pair[0] < pair[1]]


def keep_above_percentile(scores: Sequence[float], percent: float, *, least: bool) -> list[int]:
    """Return the indexes of the scores above a percentile, with `least` also those at it."""
    bar = np.percentile(scores, min(100.0, max(0.0, percent))) if scores else 0.0
    return [i for i, score in enumerate(scores) if score > bar or (least and score == bar)]
