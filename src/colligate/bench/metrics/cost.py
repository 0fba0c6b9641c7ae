"""What an answer cost, from the usage that its outcome keeps."""

from __future__ import annotations

from colligate.bench.metrics.groups import MetricGroup
from colligate.bench.outcome import Outcome
from colligate.bench.question import Question

_BY_ROLE = ("calls", "input_tokens", "output_tokens")


def cost_measures(_: Question, outcome: Outcome) -> dict[str, float]:
    """Return calls, tokens, scoring passes, rounds of retrieval, seconds and US dollars.

    `usd` is left out where a price is not known, `seconds` where models' replies came from a
    cache. Calls and tokens are also given by role, as `NAME_ROLE`. An answer that failed costs
    what was spent until then.
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
    for role, sums in usage.get("by_role", {}).items():
        for name in _BY_ROLE:
            measures[f"{name}_{role}"] = float(sums.get(name, 0))
    return measures


COST = MetricGroup(
    "cost",
    "calls, tokens, rounds, seconds, dollars, by role",
    compute=cost_measures,
    always=True,
    lower=(*_BY_ROLE, "tokens", "scoring_passes", "rounds", "seconds", "usd"),
)
