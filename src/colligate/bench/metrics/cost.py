"""Metrics that are taken of every answer: its cost, refusals and failures."""

from __future__ import annotations

from colligate.bench.metrics.groups import MetricGroup
from colligate.bench.outcome import Outcome
from colligate.bench.question import Question

_BY_ROLE = ("calls", "input_tokens", "output_tokens")


def cost_measures(_: Question, outcome: Outcome) -> dict[str, float]:
    """Return calls, tokens, scoring passes, rounds of retrieval, seconds and US dollars.

    `usd` is left out where a price is not known, `seconds` where models' replies came from a
    cache. Calls and tokens are also given by role, as `NAME_ROLE`, and by the steps that a
    method names, as `NAME_by_STEP`. What its events count (`Event.counts`) is added. An answer that
    failed costs what was spent until then.
    """
    usage = outcome.usage
    into, out = float(usage.get("input_tokens", 0)), float(usage.get("output_tokens", 0))
    measures = {
        "calls": float(usage.get("calls", 0)),
        "input_tokens": into,
        "output_tokens": out,
        "tokens": into + out,
        "scoring_passes": float(usage.get("scoring_passes", 0)),
        "rounds": float(usage.get("retrieval_rounds", 0)),
    }
    if not usage.get("remembered"):
        measures["seconds"] = outcome.seconds
    if (usd := usage.get("cost_usd", 0.0)) is not None:
        measures["usd"] = float(usd)
    measures.update(outcome.counts)
    for role, sums in usage.get("by_role", {}).items():
        for name in _BY_ROLE:
            measures[f"{name}_{role}"] = float(sums.get(name, 0))
    for step, sums in usage.get("by_step", {}).items():
        for name in _BY_ROLE:
            measures[f"{name}_by_{step}"] = float(sums.get(name, 0))
    return measures


COST = MetricGroup(
    "cost",
    "calls, tokens, rounds, seconds, dollars, by role",
    compute=cost_measures,
    always=True,
    lower=(
        *(*_BY_ROLE, "tokens", "scoring_passes", "rounds", "seconds", "usd"),
        *("queries", "redundant_queries"),
    ),
)


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
