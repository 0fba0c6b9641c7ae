"""Metrics of a whole run, which no single row has: `totals.json` in its folder."""

from __future__ import annotations

import json
import math
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from colligate.bench.metrics.backends import Backends
from colligate.bench.metrics.catalogue import CORPUS, GROUPS, measured
from colligate.bench.outcome import Outcome
from colligate.bench.plan import Plan
from colligate.bench.question import Question, Task
from colligate.bench.rows import Key, Row
from colligate.errors import ColligateError
from colligate.jobs.files import write_whole

FILE = "totals.json"

Totals = Mapping[tuple[str, str], Mapping[str, float]]
"""By data set and strategy, the metrics by name."""


def of_run(metrics: Sequence[str]) -> list[str]:
    """Those of the names that are metrics of a whole run."""
    return [name for name in metrics if name in CORPUS]


def take_totals(directory: Path, plan: Plan, rows: Mapping[Key, Row]) -> Mapping[str, str]:
    """Take those metrics of the whole run that do not stand there; why some could not be. Blocks.

    Raises:
        ColligateError: the file cannot be read.
    """
    kept, problems, changed = _read(directory), dict[str, str](), False
    for asked in plan.datasets:
        dataset, questions = asked.dataset, {each.id: each for each in asked.questions}
        for entry in plan.entries:
            strategy = entry.method.name
            cell = kept.get((dataset.name, strategy), _Cell())
            wanted = [name for name in of_run(dataset.metrics) if name not in cell.taken]
            pairs = [
                (questions[row.question], row.outcome)
                for row in (rows.values() if wanted else ())
                if (row.dataset, row.strategy) == (dataset.name, strategy)
                and row.question in questions
            ]
            for name in wanted if pairs else ():
                try:
                    measures = CORPUS[name](pairs)
                except ColligateError as error:
                    problems[name] = str(error)
                else:
                    cell = _Cell({**cell.metrics, **measures}, (*cell.taken, name))
                    kept[dataset.name, strategy] = cell
                    changed = True
    if changed:
        _write(directory, kept)
    return problems


def forget_totals(directory: Path, cells: Collection[tuple[str, str]]) -> None:
    """Strike out what was taken of data sets and strategies that are about to have other rows.

    So what stands there is never that of fewer rows, whenever the run is killed. Blocks.
    """
    there = _read(directory)
    if not there.keys().isdisjoint(cells):
        _write(directory, {cell: kept for cell, kept in there.items() if cell not in cells})


def read_totals(directory: Path) -> Totals:
    """The metrics of a whole run in a folder; empty where none were taken.

    Raises:
        ColligateError: the file cannot be read.
    """
    return {cell: kept.metrics for cell, kept in _read(directory).items() if kept.metrics}


@dataclass(frozen=True)
class _Cell:
    """What was taken of a strategy on a data set: the values, and the metrics that gave them."""

    metrics: Mapping[str, float] = field(default_factory=dict)
    taken: tuple[str, ...] = ()


def _read(directory: Path) -> dict[tuple[str, str], _Cell]:
    file = directory / FILE
    if not file.is_file():
        return {}
    try:
        lines = json.loads(file.read_text("utf-8"))
        return {
            (each["dataset"], each["strategy"]): _Cell(
                each["metrics"], tuple(each.get("taken", ()))
            )
            for each in lines
        }
    except (OSError, ValueError, KeyError, TypeError) as error:
        why, hint = f"{type(error).__name__}: {error}", "delete it: the same command makes it again"
        raise ColligateError(f"{file} cannot be read", why, hint) from error


def _write(directory: Path, cells: Mapping[tuple[str, str], _Cell]) -> None:
    """Put them down whole: a process killed meanwhile leaves what was there before."""
    lines = [
        {
            "dataset": dataset,
            "strategy": strategy,
            "metrics": dict(cell.metrics),
            "taken": list(cell.taken),
        }
        for (dataset, strategy), cell in cells.items()
    ]
    write_whole(directory / FILE, [json.dumps(lines, ensure_ascii=False, indent=1)])


# The metrics of a row, group by group: one that cannot be taken costs no other, nor the row.


async def measured_groups(
    groups: Sequence[str], question: Question, outcome: Outcome, backends: Backends
) -> AsyncGenerator[tuple[str, Mapping[str, float], str]]:
    """Each group with its metrics, or why they could not be taken; those that ask models last."""
    for group in sorted(groups, key=lambda name: GROUPS[name].asking is not None):
        try:
            taken = await measured([group], question, outcome, backends)
        except ColligateError as error:
            yield group, {}, f"{type(error).__name__}: {error}"
        except Exception as error:  # the packages behind some metrics may raise anything
            yield group, {}, f"internal error: {type(error).__name__}: {error}"
        else:
            finite = {name: value for name, value in taken.items() if math.isfinite(value)}
            yield group, finite, ""


def right_answers(question: Question) -> tuple[str, ...]:
    """What a person reads as the right answers, whatever the kind of question."""
    if question.task is Task.READINGS:
        return tuple(reading.answers[0] for reading in question.readings if reading.answers)
    if question.task is Task.SET:
        return tuple(member[0] for member in question.members if member)
    return question.answers or question.long_answers or question.claims
