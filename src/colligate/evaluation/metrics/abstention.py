"""Refusals, right ones and wrong ones apart; what broke is neither."""

from __future__ import annotations

from colligate.evaluation.outcome import Outcome
from colligate.evaluation.question import Question


def abstention_measures(question: Question, outcome: Outcome) -> dict[str, float]:
    """`right_refusal` where the documents hold no answer, else `wrong_refusal`; and `failed`."""
    refused = float(not outcome.found and not outcome.error)
    name = "wrong_refusal" if question.answerable else "right_refusal"
    return {name: refused, "failed": float(bool(outcome.error))}
