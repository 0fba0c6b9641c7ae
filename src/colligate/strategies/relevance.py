"""How relevant each of some passages is to the question, by what the run has for it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Literal

from colligate.documents import Passage
from colligate.errors import UsageError
from colligate.evidence.bm25_scores import bm25_scores
from colligate.library.bm25 import words
from colligate.strategies.run import Run, shown
from colligate.strategies.signals import similarities
from colligate.strategies.trace import Scored

Relevance = Literal["auto", "reranker", "embedder", "bm25"]
"""Whose scores: `auto` takes the first of these that the run has."""


async def relevance(
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
        return await run.rerank_scores(question, passages)
    began = time.perf_counter()
    if by == "embedder":
        scores = await similarities(question, passages, run)
    else:
        scores = await asyncio.to_thread(_bm25, question, passages, k1, b)
    spans = tuple(passage.span for passage in passages)
    run.emit(Scored(by, spans, tuple(scores), time.perf_counter() - began))
    return scores


def _bm25(question: str, passages: Sequence[Passage], k1: float, b: float) -> list[float]:
    texts = [_words(shown(passage)) for passage in passages]
    return bm25_scores(_words(question), texts, k1=k1, b=b)


def _words(text: str) -> list[str]:
    return [word.casefold() for word in words(text)]
