"""From two lists of passages to one: reciprocal rank fusion, the same every time."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from colligate.library.bm25 import Terms
from colligate.library.passage_index import PassageIndex, Scope, Scored
from colligate.library.sources import SearchMode

# The constant of Cormack, Clarke and Buettcher (SIGIR 2009).
_RRF = 60

# How far down each list fusion looks, in passages for each one asked for, and at least.
_DEPTH, _LEAST = 3, 50

# Scores that differ by less are equal: embedding in another batch moves the last digits.
_DIGITS = 5

Order = Callable[[Scored], tuple[int, int]]


def rank(
    index: PassageIndex,
    *,
    mode: SearchMode,
    k: int,
    vector: NDArray[np.float32] | None,
    terms: Terms,
    scope: Scope,
    order: Order,
) -> list[Scored]:
    """The `k` best passages, best first; equal scores in the order of `order`.

    `vector` is the query's embedding, needed unless `mode` is sparse.
    """
    depth = max(_DEPTH * k, _LEAST) if mode is SearchMode.HYBRID else k
    lists = []
    if mode is not SearchMode.SPARSE:
        assert vector is not None
        unit = vector
        lists.append(_top(lambda limit: index.nearest(unit, limit, scope), depth, order))
    if mode is not SearchMode.DENSE:
        lists.append(_top(lambda limit: index.matching(terms, limit, scope), depth, order))
    return lists[0] if len(lists) == 1 else _fuse(lists, order)[:k]


def _top(search: Callable[[int], list[Scored]], depth: int, order: Order) -> list[Scored]:
    """The best `depth`; where the cut falls among equals, all of them are fetched and ordered."""
    limit = depth + 1
    while True:
        found = search(limit)
        if len(found) < limit or _rounded(found[-1]) < _rounded(found[depth - 1]):
            return sorted(found, key=lambda s: (-_rounded(s), order(s)))[:depth]
        limit *= 2


def _rounded(scored: Scored) -> float:
    return round(scored.score, _DIGITS)


def _fuse(lists: list[list[Scored]], order: Order) -> list[Scored]:
    sums: dict[int, float] = {}
    documents: dict[int, int] = {}
    for found in lists:
        for place, scored in enumerate(found, start=1):
            sums[scored.passage] = sums.get(scored.passage, 0.0) + 1 / (_RRF + place)
            documents[scored.passage] = scored.document
    fused = [Scored(passage, documents[passage], score) for passage, score in sums.items()]
    return sorted(fused, key=lambda s: (-s.score, order(s)))
