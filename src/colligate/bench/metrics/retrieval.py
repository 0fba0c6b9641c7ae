"""Metrics of a ranking of documents, through pytrec_eval (trec_eval's own code)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

from colligate.bench.metrics.short_answers import squad
from colligate.errors import MissingExtra

# Packages that only some metrics need, imported when one of these is measured.


def extra(module: str) -> Any:
    """A package of the extra `bench`.

    Raises:
        MissingExtra: it is not installed.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingExtra(
            f"this metric needs {module.partition('.')[0]}",
            f"{error.name or 'it'} is not installed",
            "pip install 'colligate[bench]'",
        ) from error


CUTS = (1, 5, 10, 20, 50, 100)
_NAMES = {"ndcg_cut": "ndcg", "recall": "recall", "map_cut": "map", "P": "precision"}


def retrieval_scores(ranked: Sequence[str], grades: Mapping[str, int]) -> dict[str, float]:
    """nDCG, MRR, recall, MAP and precision at 1, 5, 10, 20, 50 and 100, as `NAME_at_K`.

    `ranked` are documents, best first, each once; `grades` how relevant documents are, those
    above 0 are gold. Only nDCG tells grades apart. A ranking without any document scores 0.
    """
    if not ranked:
        names = ("mrr", *_NAMES.values())
        return {f"{name}_at_{k}": 0.0 for name in names for k in CUTS}
    cuts = ",".join(map(str, CUTS))
    measures = {f"{theirs}.{cuts}" for theirs in _NAMES} | {"recip_rank"}
    relevant = {"q": dict(grades)}
    run = {"q": {document: float(len(ranked) - rank) for rank, document in enumerate(ranked)}}
    found = extra("pytrec_eval").RelevanceEvaluator(relevant, measures).evaluate(run)["q"]
    first = found["recip_rank"]  # 1 / the rank of the first gold document, wherever it is
    scores = {f"mrr_at_{k}": float(first if first * k >= 1 else 0) for k in CUTS}
    for theirs, ours in _NAMES.items():
        scores.update({f"{ours}_at_{k}": float(found[f"{theirs}_{k}"]) for k in CUTS})
    return scores


def hit_scores(passages: Sequence[str], answers: Sequence[str]) -> dict[str, float]:
    """`hit_at_K`: an answer is contained in one of the first K passages."""
    wanted = [gold for gold in map(squad, answers) if gold]  # once, not for each of the passages
    said = enumerate(map(squad, passages), 1)
    first = next((rank for rank, text in said if any(gold in text for gold in wanted)), None)
    return {f"hit_at_{k}": float(first is not None and first <= k) for k in CUTS}
