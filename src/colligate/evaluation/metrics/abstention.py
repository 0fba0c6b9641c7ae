"""Refusals, right ones and wrong ones apart; what broke is neither."""

from __future__ import annotations

from colligate.evaluation.outcome import Outcome
from colligate.evaluation.question import Question


def abstention_measures(question: Question, outcome: Outcome) -> dict[str, float]:
    """`right_refusal` where the documents hold no answer, else `wrong_refusal`; and `failed`.

    Of a question that brings neither an answer nor gold nobody knows which a refusal is.
    """
    measures = {"failed": float(bool(outcome.error))}
    refused = float(not outcome.found and not outcome.error)
    if not question.answerable:
        measures["right_refusal"] = refused
    elif _has_an_answer(question):
        measures["wrong_refusal"] = refused
    return measures


def _has_an_answer(question: Question) -> bool:
    known = (question.answers, question.gold, question.readings, question.members, question.claims)
    return any(known) or bool(question.long_answers)
