"""Several signals about the same passages as one score."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from colligate.evidence.signals import Signal, standardised


class Fusion(StrEnum):
    """How signals become one score."""

    SFS = "sfs"  # DuQUAD's Structural Fusion Score
    CALIBRATED = "calibrated"  # ours: the order in which passages are given plays no part


Weights = Mapping[Signal, float]

WEIGHTS: Mapping[Fusion, Weights] = {
    # Table 6 of the paper.
    Fusion.SFS: {Signal.SIMILARITY: 0.5, Signal.LIKELIHOOD: 1.0, Signal.ATTENTION: 0.5},
    # Learned from development questions: docs/benchmarks.md.
    Fusion.CALIBRATED: {Signal.SIMILARITY: 0.4, Signal.LIKELIHOOD: 0.6, Signal.ATTENTION: 0.6},
}


def softmax(values: Sequence[float]) -> NDArray[np.float64]:
    """Exponentials that sum to 1, of temperature 1."""
    array = np.asarray(values, np.float64)
    if not array.size:
        return array
    exponentials = np.exp(array - array.max())
    shares: NDArray[np.float64] = exponentials / exponentials.sum()
    return shares


def reweighted(weights: Weights, missing: Collection[Signal]) -> dict[Signal, float]:
    """The weights of the signals there are, raised alike so that their sum stays."""
    there = {signal: weight for signal, weight in weights.items() if signal not in missing}
    whole, left = sum(weights.values()), sum(there.values())
    return {signal: weight * (whole / left) for signal, weight in there.items()} if left else {}


def fused(
    fusion: Fusion, signals: Mapping[Signal, Sequence[float]], weights: Weights
) -> list[float]:
    """One score a passage: a weighted sum of its signals, each put on a common scale first.

    By softmax over the passages for the Structural Fusion Score (DuQUAD's equation 3, whose
    likelihood is the negative of its loss and whose attention is the contrast); by z-scores for
    the calibrated one, since a softmax of cosines is nearly flat and hardly counts.
    """
    scale = softmax if Fusion(fusion) is Fusion.SFS else standardised
    terms = [weights.get(signal, 0.0) * scale(values) for signal, values in signals.items()]
    return [float(score) for score in sum(terms[1:], terms[0])] if terms else []
