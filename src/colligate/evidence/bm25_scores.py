"""BM25 of a few texts against each other: their own statistics, no index."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence


def bm25_scores(
    query: Sequence[str], texts: Sequence[Sequence[str]], *, k1: float = 1.5, b: float = 0.75
) -> list[float]:
    """The score of each text for a query, all given as words; 0 where they share none.

    Robertson's formula with Lucene's inverse document frequency, log(1 + (N - n + 0.5) / (n +
    0.5)), which is never negative: among twenty texts on one subject a word stands in most.
    """
    counts = [Counter(words) for words in texts]
    average = sum(map(len, texts)) / max(1, len(texts)) or 1.0
    weights = {}
    for word in set(query):
        having = sum(word in count for count in counts)
        weights[word] = math.log(1 + (len(texts) - having + 0.5) / (having + 0.5))
    scores = []
    for words, count in zip(texts, counts, strict=True):
        long = k1 * (1 - b + b * len(words) / average)
        scores.append(
            math.fsum(
                weights[word] * count[word] * (k1 + 1) / (count[word] + long)
                for word in dict.fromkeys(query)
            )
        )
    return scores
