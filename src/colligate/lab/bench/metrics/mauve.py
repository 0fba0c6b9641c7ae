"""MAUVE (Pillutla et al., NeurIPS 2021): how close the answers of a run are to right ones.

Features of both are clustered; the score is the area under the curve of divergences of either
histogram from mixtures of both. Written here because the authors' package is under the GPL.
k-means begins at other points than theirs does, so values differ by as much as theirs do from one
seed to another: some hundredths for a few hundred texts.
"""

from __future__ import annotations

import string
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from colligate.lab.bench.metrics.answers import list_long_golds, prepare_alce, take_whole
from colligate.lab.bench.metrics.groups import MetricGroup, import_extra
from colligate.lab.bench.outcome import Outcome
from colligate.lab.bench.question import Question

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
    """Return MAUVE of a run's long answers, as ALCE prepares both sides; nothing without golds.

    A refusal is the question alone. Blocks, and loads GPT-2-large through torch.
    """
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
