"""Relevance: scores of passages for a question by reranker, embedder or BM25."""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from collections.abc import Sequence
from typing import Literal

from colligate.core.events import Scored
from colligate.core.run import Run
from colligate.documents import Passage
from colligate.errors import UsageError
from colligate.library.bm25 import split_words
from colligate.library.ranking import titled_text


def score_bm25(query: Sequence[str], texts: Sequence[Sequence[str]]) -> list[float]:
    """Return the BM25 score of each text for a query, all given as words; no index is needed.

    Robertson's formula with Lucene's inverse document frequency, log(1 + (N - n + 0.5) / (n +
    0.5)), which is never negative: of twenty texts on one subject most contain the same words.
    """
    k1, b = 1.5, 0.75
    counts = [Counter(text) for text in texts]
    average = sum(map(len, texts)) / max(1, len(texts)) or 1.0
    words, weights = list(dict.fromkeys(query)), {}
    for word in words:
        having = sum(word in count for count in counts)
        weights[word] = math.log(1 + (len(texts) - having + 0.5) / (having + 0.5))
    scores = []
    for text, count in zip(texts, counts, strict=True):
        long = k1 * (1 - b + b * len(text) / average)
        parts = (weights[word] * count[word] * (k1 + 1) / (count[word] + long) for word in words)
        scores.append(math.fsum(parts))
    return scores


async def score_similarity(question: str, passages: Sequence[Passage], run: Run) -> list[float]:
    """Return the cosine of the question and each passage with title and headings; 0 if blank."""
    query = (await run.embed([question], kind="query"))[0]
    vectors = await run.embed([titled_text(passage) for passage in passages])
    cosines = (vectors @ query).tolist()
    return [
        float(cosine) if passage.text.strip() else 0.0
        for cosine, passage in zip(cosines, passages, strict=True)
    ]


Relevance = Literal["auto", "reranker", "embedder", "bm25"]
"""Whose scores: `auto` uses the first of these that the run has and that knows the language."""


async def score_relevance(
    question: str, passages: Sequence[Passage], run: Run, by: Relevance = "auto"
) -> list[float]:
    """Return a score for each passage with its title and headings, the better the higher.

    BM25 has the statistics of these passages alone.
    """
    if by == "auto":
        suits = await run.suits_reranker(passages)
        by = "reranker" if suits else "embedder" if run.embedder else "bm25"
    if by == "reranker" and run.reranker is None:
        what = "the run has no reranker"
        raise UsageError(what, "scores by reranker are wanted", "name a --reranker")
    if not passages:
        return []
    if by == "reranker":
        return await run.rerank(question, passages)
    began = time.perf_counter()
    if by == "embedder":
        scores = await score_similarity(question, passages, run)
    else:

        def bm25() -> list[float]:
            query, *texts = map(_words, [question, *map(titled_text, passages)])
            return score_bm25(query, texts)

        scores = await asyncio.to_thread(bm25)
    spans = tuple(passage.span for passage in passages)
    run.emit(Scored(by, spans, tuple(scores), time.perf_counter() - began))
    return scores


def _words(text: str) -> list[str]:
    return [word.casefold() for word in split_words(text)]
