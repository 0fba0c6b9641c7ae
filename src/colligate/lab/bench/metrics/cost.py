"""Metrics that are taken of every answer: its cost, refusals and failures."""

from __future__ import annotations

from colligate.lab.bench.metrics.groups import MetricGroup
from colligate.lab.bench.outcome import Outcome
from colligate.lab.bench.question import Question

_BY_ROLE = ("calls", "input_tokens", "output_tokens")
_COUNTED = ("queries", "redundant_queries")  # by the events of a method


def cost_measures(_: Question, outcome: Outcome) -> dict[str, float]:
    """Return calls, tokens, scoring passes, searches, rounds, seconds and US dollars.

    `tokens` are of chat calls (`chat_tokens`) and of scoring (`scoring_tokens`) together.
    `offline_...` is the part that prepared documents for all questions (LongRefiner's structuring),
    `online_...` the rest. `rounds` are those that the strategy reports; where it reports none, each
    search is one. `rounds_dual` is at least 1, as DualRAG counts a question that searched not at
    all. `usd` is left out where a price is not known, seconds where models' replies came from a
    cache. Calls and tokens are also given by role, as `NAME_ROLE`, and by the steps that a method
    names, as `NAME_by_STEP`; queries as its events count them. An answer that failed costs what was
    spent until then.
    """
    usage = outcome.usage
    into, out = float(usage.get("input_tokens", 0)), float(usage.get("output_tokens", 0))
    scoring, searches = usage.get("scoring_tokens", 0), float(usage.get("retrieval_rounds", 0))
    rounds = searches if outcome.rounds is None else float(outcome.rounds)
    measures = {
        "calls": float(usage.get("calls", 0)),
        "input_tokens": into,
        "output_tokens": out,
        "tokens": into + out,
        "chat_tokens": into + out - scoring,
        "scoring_tokens": float(scoring),
        "scoring_passes": float(usage.get("scoring_passes", 0)),
        "searches": searches,
        "rounds": rounds,
        "rounds_dual": max(1.0, rounds),
    }
    if not usage.get("remembered"):
        measures["seconds"] = outcome.seconds
    if (usd := usage.get("cost_usd", 0.0)) is not None:
        measures["usd"] = float(usd)
    offline = {name: float(value or 0) for name, value in usage.get("offline", {}).items()}
    prepared = offline.get("input_tokens", 0.0)
    offline["tokens"] = prepared + offline.get("output_tokens", 0.0)
    offline["usd"] = offline.get("cost_usd", 0.0)
    for name in ("calls", "tokens", "seconds", "usd"):
        if name in measures:
            measures[f"offline_{name}"] = offline.get(name, 0.0)
            measures[f"online_{name}"] = measures[name] - offline.get(name, 0.0)
    measures["online_input_tokens"] = into - prepared
    measures |= {name: outcome.counts[name] for name in _COUNTED if name in outcome.counts}
    steps = {f"by_{step}": sums for step, sums in usage.get("by_step", {}).items()}
    for part, sums in {**usage.get("by_role", {}), **steps}.items():
        measures |= {f"{name}_{part}": float(sums.get(name, 0)) for name in _BY_ROLE}
    return measures


COST = MetricGroup(
    "cost",
    cost_measures,
    always=True,
    lower=(
        *(*_BY_ROLE, "tokens", "chat_tokens", "scoring_", "searches", "rounds", "seconds", "usd"),
        *("offline_", "online_", *_COUNTED),
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
    "abstention", abstention_measures, always=True, lower=("wrong_refusal", "failed")
)
