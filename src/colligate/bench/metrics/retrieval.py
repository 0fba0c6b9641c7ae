"""Metrics of a ranking of documents, through pytrec_eval (trec_eval's own code)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from colligate.bench.metrics.answers import normalise_squad
from colligate.bench.metrics.evidence import has_searched, list_documents, verbatim_answers
from colligate.bench.metrics.groups import Measures, MetricGroup, import_extra
from colligate.bench.outcome import Outcome
from colligate.bench.question import Question
from colligate.errors import ColligateError

CUTS = (1, 5, 10, 20, 50, 100)
_NAMES = {"ndcg_cut": "ndcg", "recall": "recall", "map_cut": "map", "P": "precision"}


def retrieval_measures(question: Question, outcome: Outcome) -> Measures | None:
    """Rank what searches returned: by document, and by passage for an answer in it.

    Raises:
        ColligateError: the passages come without their texts, as a row keeps them.
    """
    if not has_searched(outcome):
        return None
    measures: dict[str, float] = {}
    if question.gold:
        grades = question.meta.get("qrels") or dict.fromkeys(question.gold, 1)  # BEIR's
        measures.update(retrieval_scores(list_documents(outcome.retrieved), grades))
    if answers := verbatim_answers(question):
        texts = [piece.text for piece in outcome.retrieved]
        if texts and not any(texts):
            raise ColligateError(
                "hit_at_K cannot be measured of a row",
                "it keeps the places of retrieved passages without their texts",
                "ask the question again",
            )
        measures.update(hit_scores(texts, answers))
    return measures or None


RETRIEVAL = MetricGroup(
    "retrieval",
    "nDCG, MRR, recall, MAP and precision of what searches returned, by document",
    "trec_eval, DualRAG",
    retrieval_measures,
    modules=("pytrec_eval",),
)


def retrieval_scores(ranked: Sequence[str], grades: Mapping[str, int]) -> dict[str, float]:
    """Return nDCG, MRR, recall, MAP and precision at 1, 5, 10, 20, 50 and 100, as `NAME_at_K`.

    `ranked` are documents, best first, each once; `grades` how relevant documents are, those
    above 0 are gold. Only nDCG distinguishes grades. An empty ranking scores 0.
    """
    if not ranked:
        names = ("mrr", *_NAMES.values())
        return {f"{name}_at_{k}": 0.0 for name in names for k in CUTS}
    cuts = ",".join(map(str, CUTS))
    measures = {f"{theirs}.{cuts}" for theirs in _NAMES} | {"recip_rank"}
    relevant = {"q": dict(grades)}
    run = {"q": {document: float(len(ranked) - rank) for rank, document in enumerate(ranked)}}
    evaluator = import_extra("pytrec_eval").RelevanceEvaluator(relevant, measures)
    found = evaluator.evaluate(run)["q"]
    first = found["recip_rank"]  # 1 / the rank of the first gold document, wherever it is
    scores = {f"mrr_at_{k}": float(first if first * k >= 1 else 0) for k in CUTS}
    for theirs, ours in _NAMES.items():
        scores.update({f"{ours}_at_{k}": float(found[f"{theirs}_{k}"]) for k in CUTS})
    return scores


def hit_scores(passages: Sequence[str], answers: Sequence[str]) -> dict[str, float]:
    """Return `hit_at_K`: 1 where one of the first K passages contains an answer."""
    wanted = [gold for gold in map(normalise_squad, answers) if gold]
    said = enumerate(map(normalise_squad, passages), 1)
    first = next((rank for rank, text in said if any(gold in text for gold in wanted)), None)
    return {f"hit_at_{k}": float(first is not None and first <= k) for k in CUTS}
