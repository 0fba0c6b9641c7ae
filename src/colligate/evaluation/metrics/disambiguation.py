"""ASQA's Disambig-F1: what a reader finds in the answer for each reading of the question."""

from __future__ import annotations

from collections.abc import Sequence

from colligate.evaluation.metrics.backends import Reads
from colligate.evaluation.metrics.normalising import alce_output, squad
from colligate.evaluation.metrics.short_answers import f1_alce
from colligate.evaluation.question import Reading


async def disambiguation_scores(
    text: str, readings: Sequence[Reading], qa: Reads
) -> dict[str, float]:
    """Disambig-F1, QA-EM and QA-HIT: means over the readings, the best over a reading's answers.

    A refusal scores 0, also on a reading whose answer normalises to nothing.
    """
    output = alce_output(text)
    if not output or not readings:
        return {"disambig_f1": 0.0, "qa_em": 0.0, "qa_hit": 0.0}
    found = [await qa.read(reading.question, output) for reading in readings]
    pairs = list(zip(found, readings, strict=True))
    exact = sum(any(squad(said) == squad(a) for a in each.answers) for said, each in pairs)
    f1 = sum(f1_alce(said, each.answers) for said, each in pairs)
    return {
        "disambig_f1": f1 / len(readings),
        "qa_em": exact / len(readings),
        "qa_hit": float(exact == len(readings)),
    }
