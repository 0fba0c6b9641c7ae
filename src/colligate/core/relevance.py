"""How relevant each of some passages is to the question, by what the run has for it."""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from collections.abc import Sequence
from typing import Literal

from colligate.core.events import Scored
from colligate.core.run import Run, titled_text
from colligate.documents import Passage
from colligate.errors import UsageError
from colligate.library.bm25 import words

# BM25 of a few texts against each other: their own statistics, no index.


def score_bm25(
    query: Sequence[str], texts: Sequence[Sequence[str]], *, k1: float = 1.5, b: float = 0.75
) -> list[float]:
    """The score of each text for a query, all given as words; 0 where they share none.

    Robertson's formula with Lucene's inverse document frequency, log(1 + (N - n + 0.5) / (n +
    0.5)), which is never negative: among twenty texts on one subject a word stands in most.
    """
    counts = [Counter(text) for text in texts]
    average = sum(map(len, texts)) / max(1, len(texts)) or 1.0
    weights = {}
    for word in set(query):
        having = sum(word in count for count in counts)
        weights[word] = math.log(1 + (len(texts) - having + 0.5) / (having + 0.5))
    scores = []
    for text, count in zip(texts, counts, strict=True):
        long = k1 * (1 - b + b * len(text) / average)
        scores.append(
            math.fsum(
                weights[word] * count[word] * (k1 + 1) / (count[word] + long)
                for word in dict.fromkeys(query)
            )
        )
    return scores


async def score_similarity(question: str, passages: Sequence[Passage], run: Run) -> list[float]:
    """Cosine of the question and each passage with its title and headings; 0 for a blank one."""
    query = (await run.embed([question], kind="query"))[0]
    vectors = await run.embed([titled_text(passage) for passage in passages])
    cosines = (vectors @ query).tolist()
    return [
        float(cosine) if passage.text.strip() else 0.0
        for cosine, passage in zip(cosines, passages, strict=True)
    ]


Relevance = Literal["auto", "reranker", "embedder", "bm25"]
"""Whose scores: `auto` takes the first of these that the run has."""


async def score_relevance(
    question: str,
    passages: Sequence[Passage],
    run: Run,
    by: Relevance = "auto",
    *,
    k1: float = 1.5,
    b: float = 0.75,
) -> list[float]:
    """A score for each passage with its title and headings, the better the higher.

    `k1` and `b` are those of BM25, which knows the statistics of these passages alone.

    Raises:
        UsageError: the run has no reranker, and its scores are asked for.
        MissingCapability: it has no embedder, and its scores are asked for.
    """
    if by == "auto":
        by = "reranker" if run.reranker else "embedder" if run.embedder else "bm25"
    if not passages:
        return []
    if by == "reranker":
        if run.reranker is None:
            raise UsageError(
                "there is no reranker", "its scores are asked for", "name a --reranker"
            )
        return await run.rerank(question, passages)
    began = time.perf_counter()
    if by == "embedder":
        scores = await score_similarity(question, passages, run)
    else:
        scores = await asyncio.to_thread(_bm25, question, passages, k1, b)
    spans = tuple(passage.span for passage in passages)
    run.emit(Scored(by, spans, tuple(scores), time.perf_counter() - began))
    return scores


def _bm25(question: str, passages: Sequence[Passage], k1: float, b: float) -> list[float]:
    texts = [_words(titled_text(passage)) for passage in passages]
    return score_bm25(_words(question), texts, k1=k1, b=b)


def _words(text: str) -> list[str]:
    return [word.casefold() for word in words(text)]
