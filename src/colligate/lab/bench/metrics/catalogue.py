"""Every group of metrics by its name, and how the metrics of an outcome are taken."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib.util import find_spec
from itertools import pairwise

from colligate.errors import ColligateError, MissingExtra, UsageError
from colligate.lab.bench.metrics.alce import ALCE_ASQA, ALCE_QA, ELI5, QAMPARI
from colligate.lab.bench.metrics.every_answer import ABSTENTION, COST, VERDICT
from colligate.lab.bench.metrics.evidence import (
    CITATIONS,
    EVIDENCE,
    NLI_CITATIONS,
    PASSAGES,
    RETRIEVAL,
    ROUTING,
)
from colligate.lab.bench.metrics.groups import Backends, Measures, MetricGroup, MissingBackend
from colligate.lab.bench.metrics.judging import JUDGE_DUAL, LOONG_OFFICIAL, LOONG_SPD
from colligate.lab.bench.metrics.long_answers import DUAL_ROUGE, LONG, MAUVE, ROUGE
from colligate.lab.bench.metrics.short_answers import DUAL, FLASHRAG, SHORT
from colligate.lab.bench.outcome import Outcome
from colligate.lab.bench.question import Question
from colligate.plugins import load_plugin, plugins

# What a paper's table prints of each group.
_SAID: Mapping[MetricGroup, Sequence[str]] = {
    SHORT: ("em", "containment", "containment_raw", "f1"),
    DUAL: ("em_dual_max", "containment_dual_max", "f1_dual_max"),
    FLASHRAG: ("f1_flashrag",),
    ALCE_ASQA: ("str_em", "str_hit"),
    QAMPARI: ("qampari_precision", "qampari_recall_5", "qampari_f1_5"),
}


def measure_said(question: Question, outcome: Outcome) -> Measures | None:
    """Return `said_NAME`: metrics of the reply before its citations were checked."""
    said = replace(
        outcome,
        text=outcome.said,
        short=outcome.said_short,
        found=bool(outcome.said or outcome.said_short),
    )
    found = _take(_SAID, question, said)
    return {f"said_{name}": value for name, value in found.items()} or None


def _take(
    wanted: Mapping[MetricGroup, Sequence[str]], question: Question, outcome: Outcome
) -> dict[str, float]:
    """Return these metrics of groups that ask no model, as far as they apply."""
    found = {}
    for group, names in wanted.items():
        assert group.compute is not None
        measures = group.compute(question, outcome) or {}
        found.update({name: measures[name] for name in names if name in measures})
    return found


SAID = MetricGroup("said", measure_said)

# The main measure of questions by how deep, or how long, their documents are. A question has the
# measure of its own band alone, so a column holds the questions of one band.

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
    end = f"depth_{name_band(outcome.depth, DEPTHS)}"
    found = _take(_MAIN, question, outcome)
    return {"retrieved_depth": outcome.depth, **{f"{n}_{end}": v for n, v in found.items()}}


def _measure_by_length(question: Question, outcome: Outcome) -> Measures | None:
    if not outcome.view_tokens:
        return None
    end = f"length_{name_band(outcome.view_tokens, LENGTHS)}"
    found = _take({**_MAIN, FLASHRAG: ("f1_flashrag",)}, question, outcome)
    measured = {f"{name}_{end}": value for name, value in found.items()}
    return {"view_tokens": float(outcome.view_tokens), **measured}


# Of a question with readings, and of a short one.
_MAIN = {ALCE_ASQA: ("str_em",), SHORT: ("containment",)}


BY_DEPTH = MetricGroup("by_depth", _measure_by_depth, neutral=("retrieved_depth",))
BY_LENGTH = MetricGroup("by_length", _measure_by_length, neutral=("view_tokens",))


GROUPS: Mapping[str, MetricGroup] = {
    group.name: group
    for group in (
        *(SHORT, DUAL, DUAL_ROUGE, FLASHRAG, ALCE_ASQA, ALCE_QA, QAMPARI, ELI5, LONG),
        *(SAID, EVIDENCE, RETRIEVAL, PASSAGES, CITATIONS, NLI_CITATIONS, ABSTENTION, COST, VERDICT),
        *(JUDGE_DUAL, LOONG_OFFICIAL, LOONG_SPD),
        *(ROUTING, BY_DEPTH, BY_LENGTH),
        *(ROUGE, MAUVE),
    )
}


@cache
def all_groups() -> Mapping[str, MetricGroup]:
    """Return every group by name; a registered one never replaces one of colligate's own."""
    added = {name: load_plugin("metrics", name, MetricGroup) for name in plugins("metrics")}
    return {**GROUPS, **added, **GROUPS}


def find_group(name: str) -> MetricGroup:
    """Return the group of a name."""
    known = all_groups()
    if name not in known:
        raise UsageError(f"there are no metrics {name}", "", f"they are {', '.join(known)}")
    return known[name]


def is_of_run(name: str) -> bool:
    """Tell whether a group is taken of all answers of a strategy at once."""
    return find_group(name).of_run is not None


def require_groups(names: Sequence[str], backends: Backends) -> None:
    """Check that all these groups of single answers can be measured; nothing is asked."""
    for name in names:
        group = find_group(name)
        if group.of_run is not None:
            continue  # a run keeps its rows where these cannot be taken
        if group.needs and getattr(backends, group.needs) is None:
            what, why = f"the metrics {name} cannot be measured", "none was given"
            hint = f"give one with --{group.needs}"
            raise MissingBackend(what, f"they need a model ({group.needs}) and {why}", hint)
        for module in group.modules:
            if find_spec(module) is None:
                what, hint = f"the metrics {name} need {module}", "pip install 'colligate[bench]'"
                raise MissingExtra(what, "it is not installed", hint)


async def measure(
    names: Sequence[str], question: Question, outcome: Outcome, backends: Backends | None = None
) -> dict[str, float]:
    """Return the metrics of these groups that apply; a refusal or failure scores 0 in them."""
    given = backends or Backends()
    require_groups(names, given)
    found: dict[str, float] = {}
    for name in names:
        group = find_group(name)
        if not (question.answerable or group.always):
            continue
        measures: Measures | None = None
        if group.ask is not None:
            measures = await group.ask(question, outcome, getattr(given, group.needs))
        elif group.compute is not None and group.modules:  # too slow for the event loop
            measures = await asyncio.to_thread(group.compute, question, outcome)
        elif group.compute is not None:
            measures = group.compute(question, outcome)
        found.update(measures or {})
    return found


async def measure_each(
    names: Sequence[str], question: Question, outcome: Outcome, backends: Backends
) -> AsyncGenerator[tuple[str, Measures, str]]:
    """Yield each group with its finite metrics, or why there are none; what asks models is last."""
    for name in sorted(names, key=lambda name: find_group(name).ask is not None):
        try:
            taken = await measure([name], question, outcome, backends)
        except ColligateError as error:
            yield name, {}, f"{type(error).__name__}: {error}"
        except Exception as error:  # the packages behind some metrics may raise anything
            yield name, {}, f"internal error: {type(error).__name__}: {error}"
        else:
            yield name, {key: value for key, value in taken.items() if math.isfinite(value)}, ""


def higher_is_better(metric: str) -> bool | None:
    """Tell whether more of a metric is better; None where neither more nor less is."""
    groups = all_groups().values()
    if any(metric.startswith(group.neutral) for group in groups):
        return None
    return not any(metric.startswith(group.lower) for group in groups)
