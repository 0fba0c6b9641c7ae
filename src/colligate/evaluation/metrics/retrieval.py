"""Metrics of a ranking of documents, through ir_measures (trec_eval's rules)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from colligate.evaluation.metrics.extras import extra

CUTS = (1, 5, 10, 20, 50, 100)
_NAMES = {"nDCG": "ndcg", "RR": "mrr", "R": "recall", "AP": "map", "P": "precision"}


def retrieval_scores(ranked: Sequence[str], gold: Sequence[str]) -> dict[str, float]:
    """nDCG, MRR, recall, MAP and precision at 1, 5, 10, 20, 50 and 100, as `NAME_at_K`.

    `ranked` are documents, best first, each once. A ranking without any scores 0.
    """
    measures = _measures()
    scores = dict.fromkeys(measures.values(), 0.0)
    if not ranked:
        return scores
    relevant = {"q": dict.fromkeys(gold, 1)}
    run = {"q": {document: float(len(ranked) - rank) for rank, document in enumerate(ranked)}}
    for found in extra("ir_measures").iter_calc(list(measures), relevant, run):
        scores[measures[found.measure]] = float(found.value)
    return scores


@cache
def _measures() -> dict[Any, str]:
    library = extra("ir_measures")
    return {
        getattr(library, theirs) @ k: f"{ours}_at_{k}"
        for theirs, ours in _NAMES.items()
        for k in CUTS
    }
