"""Where a text falls into chunks, blocks and pieces."""

from __future__ import annotations

from collections.abc import Sequence


def at_minima(values: Sequence[float], threshold: float = 0.0) -> list[int]:
    """The sentences after which Meta-Chunking cuts, given the perplexity of each.

    Those less surprising than the one before and the one after, by `threshold` at least on one
    side; or than the one before by that much, and as surprising as the one after. As in the
    published code, neither the first nor the last, and the sentence itself ends its chunk.

    >>> at_minima([5, 2, 4, 1, 1, 3])
    [1, 3]
    """
    found = []
    for place in range(1, len(values) - 1):
        fall, rise = values[place - 1] - values[place], values[place + 1] - values[place]
        if fall > 0 and rise >= 0 and max(fall, rise) >= threshold:
            found.append(place)
    return found


def merged(
    chunks: Sequence[tuple[int, int]], sizes: Sequence[int], most: int
) -> list[tuple[int, int]]:
    """Neighbouring chunks together as long as they have no more than `most` words.

    Chunks are half-open runs of sentences in order, `sizes` the words of each sentence.
    """
    found: list[tuple[int, int]] = []
    words = 0
    for start, end in chunks:
        more = sum(sizes[start:end])
        if found and words + more <= most:
            found[-1] = (found[-1][0], end)
            words += more
        else:
            found.append((start, end))
            words = more
    return found


def runs(count: int, cuts: Sequence[int]) -> list[tuple[int, int]]:
    """Half-open runs of so many sentences, cut after each of these.

    >>> runs(5, [1, 3])
    [(0, 2), (2, 4), (4, 5)]
    """
    ends = [cut + 1 for cut in cuts if cut + 1 < count]
    return [pair for pair in zip([0, *ends], [*ends, count], strict=True) if pair[0] < pair[1]]


def pieces(
    start: int, end: int, tokens: Sequence[tuple[int, int]], most: int
) -> list[tuple[int, int]]:
    """The stretch from `start` to `end` in pieces of at most `most` of its tokens.

    `tokens` are half-open and counted from `start`. A blank goes with the token after it.

    >>> pieces(10, 15, [(0, 1), (2, 3), (4, 5)], 2)
    [(10, 13), (13, 15)]
    """
    cuts = [start + last for _, last in tokens[most - 1 : len(tokens) - 1 : most]]
    return [pair for pair in zip([start, *cuts], [*cuts, end], strict=True) if pair[0] < pair[1]]
