"""Metrics of a whole run, which no single row has: `totals.json` in its folder."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from colligate.errors import ColligateError
from colligate.evaluation.metrics.catalogue import CORPUS
from colligate.evaluation.planning import Plan
from colligate.evaluation.rows import Key, Row

FILE = "totals.json"

Totals = Mapping[tuple[str, str], Mapping[str, float]]
"""By data set and strategy, the metrics by name."""


def of_run(metrics: Sequence[str]) -> list[str]:
    """Those of the names that are metrics of a whole run."""
    return [name for name in metrics if name in CORPUS]


def totals_of(plan: Plan, rows: Mapping[Key, Row]) -> tuple[Totals, Mapping[str, str]]:
    """The metrics of a whole run, over the rows there are, and why some could not be taken.

    Blocks.
    """
    totals: dict[tuple[str, str], dict[str, float]] = {}
    problems: dict[str, str] = {}
    for asked in plan.datasets:
        dataset, questions = asked.dataset, {each.id: each for each in asked.questions}
        for name in of_run(dataset.metrics):
            for contender in plan.contenders:
                strategy = contender.method.name
                pairs = [
                    (questions[row.question], row.outcome)
                    for row in rows.values()
                    if (row.dataset, row.strategy) == (dataset.name, strategy)
                    and row.question in questions
                ]
                try:
                    measures = CORPUS[name](pairs) if pairs else {}
                except ColligateError as error:
                    problems[name] = str(error)
                else:
                    totals.setdefault((dataset.name, strategy), {}).update(measures)
    return {cell: metrics for cell, metrics in totals.items() if metrics}, problems


def write_totals(directory: Path, totals: Totals) -> None:
    """Put them down, in the place of those that stood there for the same strategies. Blocks."""
    whole = {**read_totals(directory), **totals}
    lines = [
        {"dataset": dataset, "strategy": strategy, "metrics": dict(metrics)}
        for (dataset, strategy), metrics in whole.items()
    ]
    fresh = directory / f"{FILE}.new"
    fresh.write_text(json.dumps(lines, ensure_ascii=False, indent=1), "utf-8")
    fresh.replace(directory / FILE)


def read_totals(directory: Path) -> Totals:
    """The metrics of a whole run in a folder; empty where none were taken.

    Raises:
        ColligateError: the file cannot be read.
    """
    file = directory / FILE
    if not file.is_file():
        return {}
    try:
        lines = json.loads(file.read_text("utf-8"))
        return {(each["dataset"], each["strategy"]): each["metrics"] for each in lines}
    except (OSError, ValueError, KeyError, TypeError) as error:
        why = f"{type(error).__name__}: {error}"
        raise ColligateError(
            f"{file} cannot be read", why, "the same command makes it again"
        ) from (error)
