"""ROUGE by the rules of the two packages that papers use; their values differ."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import chain, pairwise
from typing import Any

import numpy as np

from colligate.bench.metrics.answers import raw
from colligate.bench.metrics.retrieval import extra
from colligate.bench.metrics.short_answers import alce_output
from colligate.bench.outcome import Outcome
from colligate.bench.question import Question
from colligate.bench.significance import resampled_means
from colligate.documents.sentences import split_sentences

_RESAMPLES = 1000  # of rouge_score's aggregator


def dual_rouge(prediction: str, golds: Sequence[str]) -> dict[str, float]:
    """DualRAG's ROUGE-2 and ROUGE-L, each the best over the golds.

    F as the package `rouge` 1.0.1 computes it, by its rules: full stops end sentences, blanks
    part words, nothing is normalised, and what occurs twice counts once. Of an empty text it
    raises and from about a thousand words on it fails; here the first scores 0.
    """
    said = _sentences(prediction)
    wanted = [gold for gold in map(_sentences, golds) if gold]
    pairs = [(said, gold) for gold in wanted] if said else []
    return {
        "rouge_2_dual": max((_rouge_2(*pair) for pair in pairs), default=0.0),
        "rouge_l_dual": max((_rouge_l(*pair) for pair in pairs), default=0.0),
    }


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
    means = resampled_means(np.asarray(values), seed=0, resamples=_RESAMPLES)
    return {"rouge_lsum_mid": float(np.percentile(means, 50))}


Words = list[str]


def _sentences(text: str) -> list[Words]:
    """The words of what full stops part; of a piece that is blank, one empty word, as there."""
    return [piece.split() or [""] for piece in text.split(".") if piece] if text.strip() else []


def _rouge_2(said: list[Words], wanted: list[Words]) -> float:
    ours, theirs = ({*pairwise(chain(*sentences))} for sentences in (said, wanted))
    return _f(len(ours & theirs), len(ours), len(theirs))


def _rouge_l(said: list[Words], wanted: list[Words]) -> float:
    shared = {word for gold in wanted for each in said for word in _common(gold, each)}
    return _f(len(shared), len({*chain(*said)}), len({*chain(*wanted)}))


def _f(shared: int, said: int, wanted: int) -> float:
    precision = shared / said if said else 0.0
    recall = shared / wanted if wanted else 0.0
    return 2 * (precision * recall) / (precision + recall + 1e-8)


def _common(wanted: Words, said: Words) -> Words:
    """A longest common subsequence: of several the one the package finds, going back to front."""
    lengths = [[0] * (len(said) + 1)]
    for word in wanted:
        row, above = [0], lengths[-1]
        for column, other in enumerate(said):
            row.append(above[column] + 1 if word == other else max(above[column + 1], row[-1]))
        lengths.append(row)
    found: Words = []
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


def _by_sentence(text: str) -> str:
    text = text.lower()
    return "\n".join(text[start:end] for start, end in split_sentences(text, "en"))


@cache
def _long_scorer() -> Any:
    return extra("rouge_score.rouge_scorer").RougeScorer(["rougeL", "rougeLsum"], use_stemmer=True)
