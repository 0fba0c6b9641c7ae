"""ROUGE by the rules of the two packages that papers use; their values differ."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import chain, pairwise
from typing import Any

import numpy as np

from colligate.documents.sentences import split_sentences
from colligate.lab.bench.metrics.answers import (
    list_golds,
    list_long_golds,
    prepare_alce,
    score_separately,
    take_whole,
)
from colligate.lab.bench.metrics.groups import Measures, MetricGroup, import_extra
from colligate.lab.bench.outcome import Outcome
from colligate.lab.bench.question import Question
from colligate.lab.bench.significance import resampled_means

# ALCE's: Google's package rouge_score


def _measure_long(question: Question, outcome: Outcome) -> Measures | None:
    golds = list_long_golds(question)
    if not golds:
        return None
    said = take_whole(outcome)
    return {**rouge_long(said, golds), "length": float(len(prepare_alce(said).split()))}


def rouge_long(prediction: str, golds: Sequence[str]) -> dict[str, float]:
    """Return ROUGE-Lsum and ROUGE-L: F of `rouge_score`, stemmed, the best over golds.

    The prediction is prepared as ALCE does; both sides are lower case, a sentence a line.
    """
    said = _break_sentences(prepare_alce(prediction))
    scores = [_scorer().score(_break_sentences(gold), said) for gold in golds]
    return {
        "rouge_l": max((float(score["rougeL"].fmeasure) for score in scores), default=0.0),
        "rouge_lsum": max((float(score["rougeLsum"].fmeasure) for score in scores), default=0.0),
    }


@cache
def _scorer() -> Any:
    module = import_extra("rouge_score.rouge_scorer")
    return module.RougeScorer(["rougeL", "rougeLsum"], use_stemmer=True)


def _break_sentences(text: str) -> str:
    text = text.lower()
    return "\n".join(text[start:end] for start, end in split_sentences(text, "en"))


LONG = MetricGroup("long", _measure_long, modules=("rouge_score",), neutral=("length",))

_RESAMPLES = 1000  # of rouge_score's aggregator


def rouge_of_run(answered: Sequence[tuple[Question, Outcome]]) -> dict[str, float]:
    """Return ALCE's aggregate of ROUGE-Lsum: the median of bootstrapped means, seeded here."""
    values = [
        rouge_long(take_whole(outcome), golds)["rouge_lsum"]
        for question, outcome in answered
        if (golds := list_long_golds(question))
    ]
    if not values:
        return {}
    means = resampled_means(np.asarray(values), seed=0, resamples=_RESAMPLES)
    return {"rouge_lsum_mid": float(np.percentile(means, 50))}


ROUGE = MetricGroup("rouge", of_run=rouge_of_run)


# DualRAG's: the package rouge 1.0.1

_Words = list[str]


def _measure_dual_rouge(question: Question, outcome: Outcome) -> Measures | None:
    golds = list_golds(question)
    if not golds:
        return None
    return score_separately(lambda text: rouge_dual(text, golds), outcome)


def rouge_dual(prediction: str, golds: Sequence[str]) -> dict[str, float]:
    """Return DualRAG's ROUGE-2 and ROUGE-L, each the best over the golds.

    F as the package `rouge` 1.0.1 computes it, by its rules: full stops end sentences, blanks
    separate words, nothing is normalised, and what occurs twice counts once. The package raises on
    an empty text and fails from about a thousand words on; here an empty text scores 0.
    """
    said = _split_sentences(prediction)
    wanted = [gold for gold in map(_split_sentences, golds) if gold]
    pairs = [(said, gold) for gold in wanted] if said else []
    return {
        "rouge_2_dual": max((_rouge_2(*pair) for pair in pairs), default=0.0),
        "rouge_l_dual": max((_rouge_l(*pair) for pair in pairs), default=0.0),
    }


DUAL_ROUGE = MetricGroup("dual_rouge", _measure_dual_rouge)


def _split_sentences(text: str) -> list[_Words]:
    """Return the words between full stops; a blank piece has one empty word, as there."""
    return [piece.split() or [""] for piece in text.split(".") if piece] if text.strip() else []


def _rouge_2(said: list[_Words], wanted: list[_Words]) -> float:
    ours, theirs = ({*pairwise(chain(*sentences))} for sentences in (said, wanted))
    return _f(len(ours & theirs), len(ours), len(theirs))


def _rouge_l(said: list[_Words], wanted: list[_Words]) -> float:
    shared = {word for gold in wanted for each in said for word in _common_words(gold, each)}
    return _f(len(shared), len({*chain(*said)}), len({*chain(*wanted)}))


def _f(shared: int, said: int, wanted: int) -> float:
    precision = shared / said if said else 0.0
    recall = shared / wanted if wanted else 0.0
    return 2 * (precision * recall) / (precision + recall + 1e-8)


def _common_words(wanted: _Words, said: _Words) -> _Words:
    """Return a longest common subsequence: of several the first from the end, as the package."""
    lengths = [[0] * (len(said) + 1)]
    for word in wanted:
        row, above = [0], lengths[-1]
        for column, other in enumerate(said):
            row.append(above[column] + 1 if word == other else max(above[column + 1], row[-1]))
        lengths.append(row)
    found: _Words = []
    i, j = len(wanted), len(said)
    while i and j:
        if wanted[i - 1] == said[j - 1]:
            i, j = i - 1, j - 1
            found.append(wanted[i])
        elif lengths[i - 1][j] > lengths[i][j - 1]:
            i -= 1
        else:
            j -= 1
    return found
