"""What a model's numbers say about each of some passages for a question: DuQUAD's signals."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from colligate.documents import Passage
from colligate.evidence.material import material

Span = tuple[int, int]

_DELIMITER = "[DOC] "

MIDDLE = (0.5, 0.67)
"""The depths of the layers that look for what is asked, as shares of all."""


class Signal(StrEnum):
    """What speaks for a passage; more is better, of each."""

    SIMILARITY = "similarity"  # cosine of the question and the passage
    LIKELIHOOD = "likelihood"  # mean log-probability of the question's tokens after the passage
    ATTENTION = "attention"  # what the question's tokens pay, less what place alone explains


def likelihood_pair(question: str, passage: Passage, *, told: bool = False) -> tuple[str, str]:
    """Prefix and continuation whose likelihood is asked: the passage, then the question.

    `told` says before the question what it is, as UPR does (Sachan et al. 2022).
    """
    between = "Please write a question that this passage answers.\n" if told else ""
    before = "Passage: " if told else ""
    return f"{before}{_body(passage)}\n\n{between}Question: ", material(question.strip())


def attention_prompt(
    question: str, passages: Sequence[Passage], *, lead: bool = True
) -> tuple[str, list[Span]]:
    """The passages, then the question, with which the text ends; and where each passage stands.

    With `lead` the question comes before the passages too: the "query-aware" prompt of Lost in
    the Middle.
    """
    asked = f"Question: {material(question.strip())}"
    text, spans = f"{asked}\n\n" if lead else "", []
    for passage in passages:
        body = _body(passage)
        start = len(text) + len(_DELIMITER)
        spans.append((start, start + len(body)))
        text += f"{_DELIMITER}{body}\n\n"
    return text + asked, spans


def _body(passage: Passage) -> str:
    return material(f"{passage.title}\n{passage.text.strip()}")


def standardised(values: Sequence[float]) -> NDArray[np.float64]:
    """z-scores by the population's deviation; zeros where all values are the same."""
    array = np.asarray(values, np.float64)
    deviation = array.std() if array.size else 0.0
    if deviation <= 1e-12 * max(1.0, float(np.abs(array).max(initial=0.0))):
        return np.zeros_like(array)
    standard: NDArray[np.float64] = (array - array.mean()) / deviation
    return standard


def contrast(attention: Sequence[float]) -> list[float]:
    """How much more attention each passage gets than its neighbours, in standard deviations.

    The mean of both neighbours in between, the one neighbour at either end: DuQUAD's appendix H,
    which pads nothing. A passage alone has no contrast.
    """
    z = standardised(attention)
    if z.size < 2:
        return [0.0] * z.size
    beside = np.empty_like(z)
    beside[1:-1] = (z[:-2] + z[2:]) / 2
    beside[0], beside[-1] = z[1], z[-2]
    return [float(value) for value in z - beside]


def calibrated(forth: Sequence[float], back: Sequence[float]) -> list[float]:
    """The attention that passages get in one order and in its reverse: the mean of the z-scores.

    What one order favours by place the other does not, as far as both ends are alike. Of passages
    ordered by something else than where they were given, that place plays no part at all. FiM
    (Hsieh et al. 2024) estimates what a place gets with a dummy document instead.
    """
    return [float(mean) for mean in (standardised(forth) + standardised(back)) / 2]
