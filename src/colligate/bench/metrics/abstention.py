"""Refusals, right and wrong ones, and failures, which are neither."""

from __future__ import annotations

from colligate.bench.metrics.groups import MetricGroup
from colligate.bench.outcome import Outcome
from colligate.bench.question import Question


def abstention_measures(question: Question, outcome: Outcome) -> dict[str, float]:
    """Return `failed`, and `right_refusal` or `wrong_refusal`.

    A refusal is right where the documents hold no answer. Of a question that brings neither an
    answer nor gold nobody knows which it is, and neither is returned.
    """
    measures = {"failed": float(bool(outcome.error))}
    refused = float(not outcome.found and not outcome.error)
    if not question.answerable:
        measures["right_refusal"] = refused
    elif _has_gold(question):
        measures["wrong_refusal"] = refused
    return measures


def _has_gold(question: Question) -> bool:
    known = (question.answers, question.gold, question.readings, question.members, question.claims)
    return any(known) or bool(question.long_answers)


ABSTENTION = MetricGroup(
    "abstention",
    "right refusals, wrong refusals, failures",
    compute=abstention_measures,
    always=True,
    lower=("wrong_refusal", "failed"),
)
