"""Which text of an outcome is scored."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache

from colligate.bench.metrics.short_answers import unmarked
from colligate.bench.outcome import Outcome

_FINAL = re.compile(r"so the final answer is:?\s*", re.IGNORECASE)


def raw(outcome: Outcome) -> str:
    """The whole answer without marks; empty where it refused or broke."""
    return unmarked(outcome.text) if outcome.found and not outcome.error else ""


def short(outcome: Outcome) -> str:
    """The short answer alone; empty where there is none, or it refused or broke."""
    return unmarked(outcome.short) if outcome.found and not outcome.error else ""


def short_or_raw(outcome: Outcome) -> str:
    """The short answer or, without one, the whole."""
    return short(outcome) or raw(outcome)


def final(outcome: Outcome) -> str:
    """The short answer, else what follows the last "So the final answer is:", else the whole."""
    return short(outcome) or _FINAL.split(raw(outcome))[-1]


Score = Callable[[str], Mapping[str, float]]


def with_raw(score: Score, outcome: Outcome) -> dict[str, float]:
    """Scores of the short answer (or the whole), and of the whole as `NAME_raw`."""
    scored = cache(score)
    whole = {f"{name}_raw": value for name, value in scored(raw(outcome)).items()}
    return {**scored(short_or_raw(outcome)), **whole}


def apart(score: Score, outcome: Outcome) -> dict[str, float]:
    """Scores of the short answer (or the whole), and apart as DualRAG's report needs them.

    `NAME_raw` is the whole's, `NAME_short` the short answer's (0 without one), and `NAME_max` the
    better of the two.
    """
    scored = cache(score)
    scores = dict(scored(short_or_raw(outcome)))
    whole, cut = scored(raw(outcome)), scored(short(outcome))
    for name in list(scores):
        scores[f"{name}_raw"] = whole[name]
        scores[f"{name}_short"] = cut[name]
        scores[f"{name}_max"] = max(whole[name], cut[name])
    return scores
