"""The main measure of questions by how deep, or how long, their documents are.

A question has the measure of its own band alone, so a column holds the questions of one band.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise

from colligate.lab.bench.metrics.alce import ALCE_ASQA
from colligate.lab.bench.metrics.groups import Measures, MetricGroup
from colligate.lab.bench.metrics.short_answers import FLASHRAG, SHORT
from colligate.lab.bench.outcome import Outcome
from colligate.lab.bench.question import Question

DEPTHS = (0, 2, 4, math.inf)
"""RDR2's bands of depth (Table 13): up to 2, above 2 up to 4, above 4. The paper's ends at 7."""

LENGTHS = (0, 2_000, 5_000, 10_000, 20_000, math.inf)
"""Bands of tokens of the documents together, our own: LongRefiner's Figure 4 prints none."""


def name_band(value: float, limits: Sequence[float]) -> str:
    """Return the band of a value as part of a metric's name: "2_4" is above 2, up to 4."""
    for low, high in pairwise(limits):
        if value <= high:
            return f"{low:g}_{high:g}" if math.isfinite(high) else f"above_{low:g}"
    raise ValueError(f"{value} is in no band")


def _measure_by_depth(question: Question, outcome: Outcome) -> Measures | None:
    if not outcome.depth:
        return None
    band = name_band(outcome.depth, DEPTHS)
    found = _rename(_find_main(question, outcome), "depth", band)
    return {"retrieved_depth": outcome.depth, **found}


def _measure_by_length(question: Question, outcome: Outcome) -> Measures | None:
    if not outcome.view_tokens:
        return None
    band = name_band(outcome.view_tokens, LENGTHS)
    found = {**_find_main(question, outcome)}
    if flashrag := FLASHRAG.compute and FLASHRAG.compute(question, outcome):
        found["f1_flashrag"] = flashrag["f1_flashrag"]
    return {"view_tokens": float(outcome.view_tokens), **_rename(found, "length", band)}


def _find_main(question: Question, outcome: Outcome) -> Mapping[str, float]:
    """Return STR-EM of a question with readings, containment of a short one."""
    for group, metric in ((ALCE_ASQA, "str_em"), (SHORT, "containment")):
        found = group.compute(question, outcome) if group.compute else None
        if found and metric in found:
            return {metric: found[metric]}
    return {}


def _rename(found: Mapping[str, float], what: str, band: str) -> dict[str, float]:
    return {f"{metric}_{what}_{band}": value for metric, value in found.items()}


BY_DEPTH = MetricGroup("by_depth", _measure_by_depth, neutral=("retrieved_depth",))
BY_LENGTH = MetricGroup("by_length", _measure_by_length, neutral=("view_tokens",))
