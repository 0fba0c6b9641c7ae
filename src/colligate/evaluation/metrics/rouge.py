"""ROUGE by the two packages that papers use; their values differ."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from colligate.documents.sentences import sentences
from colligate.evaluation.metrics.answers import raw
from colligate.evaluation.metrics.extras import extra
from colligate.evaluation.metrics.normalising import alce_output
from colligate.evaluation.outcome import Outcome
from colligate.evaluation.question import Question

_RESAMPLES = 1000  # of rouge_score's aggregator


def dual_rouge(prediction: str, golds: Sequence[str]) -> dict[str, float]:
    """DualRAG's ROUGE-2 and ROUGE-L: F of the package `rouge`, each the best over the golds.

    Nothing is normalised. Of a text without words the package raises; it scores 0 here.
    """
    best = {"rouge_2_dual": 0.0, "rouge_l_dual": 0.0}
    if not _said(prediction):
        return best
    for gold in filter(_said, golds):
        scores = _dual_scorer().get_scores(prediction, gold)[0]
        best["rouge_2_dual"] = max(best["rouge_2_dual"], float(scores["rouge-2"]["f"]))
        best["rouge_l_dual"] = max(best["rouge_l_dual"], float(scores["rouge-l"]["f"]))
    return best


def long_rouge(prediction: str, golds: Sequence[str]) -> dict[str, float]:
    """ALCE's ROUGE-Lsum, and ROUGE-L: F of Google's `rouge_score`, stemmed, the best over golds.

    The prediction is prepared as ALCE does; both sides are lower case, a sentence a line.
    """
    said = _by_sentence(alce_output(prediction))
    scores = [_long_scorer().score(_by_sentence(gold), said) for gold in golds]
    return {
        "rouge_l": max((float(score["rougeL"].fmeasure) for score in scores), default=0.0),
        "rouge_lsum": max((float(score["rougeLsum"].fmeasure) for score in scores), default=0.0),
    }


def rouge_of_run(answered: Sequence[tuple[Question, Outcome]]) -> dict[str, float]:
    """ALCE's aggregate of ROUGE-Lsum: the median of bootstrapped means, seeded here."""
    values = [
        long_rouge(raw(outcome), golds)["rouge_lsum"]
        for question, outcome in answered
        if (golds := question.long_answers)
    ]
    if not values:
        return {}
    drawn = np.random.default_rng(0).integers(len(values), size=(_RESAMPLES, len(values)))
    means = np.asarray(values)[drawn].mean(axis=1)
    return {"rouge_lsum_mid": float(np.percentile(means, 50))}


def _said(text: str) -> bool:
    return bool(text.replace(".", " ").strip())


def _by_sentence(text: str) -> str:
    text = text.lower()
    return "\n".join(text[start:end] for start, end in sentences(text, "en"))


@cache
def _dual_scorer() -> Any:
    return extra("rouge").Rouge()


@cache
def _long_scorer() -> Any:
    return extra("rouge_score.rouge_scorer").RougeScorer(["rougeL", "rougeLsum"], use_stemmer=True)
