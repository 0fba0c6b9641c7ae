"""ASQA, as ALCE and RDR2 measure it: which readings of the question an answer serves."""

from __future__ import annotations

from collections.abc import Sequence

from colligate.evaluation.metrics.normalising import alce_output
from colligate.evaluation.metrics.short_answers import containment
from colligate.evaluation.question import Reading


def str_em(text: str, readings: Sequence[Reading]) -> float:
    """STR-EM: the share of readings of which an answer stands in the text."""
    if not readings:
        return 0.0
    return sum(containment(text, reading.answers) for reading in readings) / len(readings)


def asqa_scores(text: str, readings: Sequence[Reading]) -> dict[str, float]:
    """STR-EM, HIT (all readings are served) and words of an answer, prepared as ALCE does."""
    output = alce_output(text)
    share = str_em(output, readings)
    return {"str_em": share, "str_hit": float(share == 1), "length": float(len(output.split()))}
