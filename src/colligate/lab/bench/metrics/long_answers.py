"""Long answers: ROUGE by the rules of the two packages that papers use, and MAUVE.

The values of the two packages differ. MAUVE (Pillutla et al., NeurIPS 2021) says how close the
answers of a run are to right ones: features of both are clustered; the score is the area under the
curve of divergences of either histogram from mixtures of both. It is written here because the
authors' package is under the GPL; k-means begins at other points than theirs does, so values differ
by as much as theirs do from one seed to another: some hundredths for a few hundred texts.
"""

from __future__ import annotations

import string
from collections.abc import Sequence
from functools import cache
from itertools import chain, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
    """Return ALCE's ROUGE-Lsum and ROUGE-L: F of `rouge_score`, stemmed, the best over golds."""
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


# MAUVE

MODEL = "openai-community/gpt2-large"

# The authors' defaults
_VARIANCE = 0.9
_REDONE = 5
_ROUNDS = 500
_SCALE = 5
_MIXTURES = 25
_SEED = 25

# ALCE's
_WORDS = 100
_TOKENS = 512

Features = NDArray[np.float64]


def mauve_of_run(answered: Sequence[tuple[Question, Outcome]]) -> dict[str, float]:
    """Return MAUVE of a run's long answers as ALCE prepares them. Blocks; loads GPT-2-large."""
    from colligate.lab.baselines.encoders import compute_last_token_features

    pairs = [
        (_cut(question.text, golds[0]), _cut(question.text, prepare_alce(take_whole(outcome))))
        for question, outcome in answered
        if (golds := list_long_golds(question))
    ]
    if not pairs:
        return {}
    right, given = zip(*pairs, strict=True)
    features = compute_last_token_features(MODEL, [*right, *given], most=_TOKENS)
    return {"mauve": mauve(features[: len(right)], features[len(right) :])}


def _cut(question: str, answer: str) -> str:
    words = f"{question} {answer.strip()}".split()[:_WORDS]
    return " ".join(words).rstrip(string.punctuation)


MAUVE = MetricGroup("mauve", of_run=mauve_of_run)


def mauve(references: Features, outputs: Features) -> float:
    """Return MAUVE in [0, 1] of features [texts, width] of right answers and of given ones."""
    if not len(references) or not len(outputs):
        raise ValueError("MAUVE needs texts on both sides")
    clusters = max(2, round(min(len(references), len(outputs)) / 10))
    labels = _cluster(np.vstack([outputs, references]), clusters)
    given = _histogram(labels[: len(outputs)], clusters)
    right = _histogram(labels[len(outputs) :], clusters)
    return area_under_curve(right, given)


def area_under_curve(right: Features, given: Features) -> float:
    """Return MAUVE of two histograms over the same clusters, each of sum 1."""
    curve = [(0.0, 1.0)]
    for weight in np.linspace(1e-6, 1 - 1e-6, _MIXTURES):
        mixture = weight * right + (1 - weight) * given
        divergences = np.array([_kl(given, mixture), _kl(right, mixture)])
        curve.append(tuple(np.exp(-_SCALE * divergences)))
    x, y = np.array([*curve, (1.0, 0.0)]).T
    return float(_area(x, y) + _area(y, x)) / 2


def _cluster(rows: Features, clusters: int) -> NDArray[np.int32]:
    """Return the cluster of each row: k-means of unit rows in the components of 90 % variance."""
    units = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
    if not np.ptp(units, axis=0).any():
        return np.zeros(len(rows), np.int32)
    # scikit-learn comes with sentence-transformers (extra `local`), as what makes the features.
    components = import_extra("sklearn.decomposition").PCA(_VARIANCE, svd_solver="full")
    means = import_extra("sklearn.cluster").KMeans(
        clusters, n_init=_REDONE, max_iter=_ROUNDS, random_state=_SEED
    )
    return np.asarray(means.fit_predict(components.fit_transform(units)), np.int32)


def _histogram(labels: NDArray[np.int32], clusters: int) -> Features:
    counts: Features = np.bincount(labels, minlength=clusters).astype(np.float64)
    shares: Features = counts / len(labels)
    return shares


def _kl(first: Features, second: Features) -> float:
    there = first > 0
    return float((first[there] * np.log(first[there] / second[there])).sum())


def _area(x: Features, y: Features) -> float:
    order = np.lexsort((-y, x))  # the curve falls; where it is vertical its top comes first
    x, y = x[order], y[order]
    return float((np.diff(x) * (y[1:] + y[:-1])).sum() / 2)  # the trapezoidal rule
