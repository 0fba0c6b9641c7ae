"""QAMPARI: a list of answers, separated by commas, against a set with aliases."""

from __future__ import annotations

import re
from collections.abc import Sequence

from colligate.evaluation.metrics.normalising import alce_output, squad

_TOP = 5
_BULLET = re.compile(r"\s*(?:[-*•]|\d+[.)])\s+")


def in_commas(text: str) -> str:
    """A list that was written a line each as ALCE wants it; one that has commas as it is.

    >>> in_commas("1. Ann\\n2. Bob")
    'Ann, Bob'
    """
    return ", ".join(_BULLET.sub("", line, count=1) for line in text.splitlines() if line.strip())


def qampari_scores(text: str, members: Sequence[Sequence[str]]) -> dict[str, float]:
    """Precision, recall, recall of at most five, and F1 with either, as ALCE computes them.

    A prediction is right when it is an alias after normalisation; containment is not enough. One
    said twice counts twice in precision.
    """
    items = alce_output(text).rstrip().rstrip(".").rstrip(",").split(",")
    said = [item for item in map(squad, items) if item]
    wanted = [{squad(alias) for alias in member} for member in members]
    right = sum(any(item in member for member in wanted) for item in said)
    hits = sum(any(item in member for item in said) for member in wanted)
    precision = right / len(said) if said else 0.0
    recall = hits / len(wanted) if wanted else 0.0
    recall_5 = min(_TOP, hits) / min(_TOP, len(wanted)) if wanted else 0.0
    return {
        "qampari_precision": precision,
        "qampari_recall": recall,
        "qampari_recall_5": recall_5,
        "qampari_f1": _harmonic(precision, recall),
        "qampari_f1_5": _harmonic(precision, recall_5),
    }


def _harmonic(first: float, second: float) -> float:
    return 2 * first * second / (first + second) if first + second else 0.0
