"""Metrics of a whole run, which no single row has: `totals.json` in its folder."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from colligate.bench.metrics.catalogue import find_group
from colligate.bench.plan import Plan
from colligate.bench.rows import Key, Row
from colligate.errors import ColligateError
from colligate.jobs.files import write_whole

TOTALS_FILE = "totals.json"

Totals = Mapping[tuple[str, str], Mapping[str, float]]
"""By data set and strategy, the metrics by name."""


def take_totals(directory: Path, plan: Plan, rows: Mapping[Key, Row]) -> Mapping[str, str]:
    """Take the metrics of the whole run that the file lacks; return why some could not be taken.

    Blocks.

    Raises:
        ColligateError: the file cannot be read.
    """
    kept, problems, changed = _read(directory), dict[str, str](), False
    for asked in plan.datasets:
        dataset, questions = asked.dataset, {each.id: each for each in asked.questions}
        for entry in plan.entries:
            strategy = entry.method.name
            cell = kept.get((dataset.name, strategy), _Cell())
            groups = [find_group(name) for name in dataset.metrics if name not in cell.taken]
            wanted = [group for group in groups if group.of_run is not None]
            pairs = [
                (questions[row.question], row.outcome)
                for row in (rows.values() if wanted else ())
                if (row.dataset, row.strategy) == (dataset.name, strategy)
                and row.question in questions
            ]
            for group in wanted if pairs else ():
                assert group.of_run is not None
                try:
                    measures = group.of_run(pairs)
                except ColligateError as error:
                    problems[group.name] = str(error)
                else:
                    cell = _Cell({**cell.metrics, **measures}, (*cell.taken, group.name))
                    kept[dataset.name, strategy] = cell
                    changed = True
    if changed:
        _write(directory, kept)
    return problems


def forget_totals(directory: Path, cells: Collection[tuple[str, str]]) -> None:
    """Delete what was taken of data sets and strategies that are about to get other rows.

    So the file never has values of fewer rows than there are, even if the run is killed. Blocks.
    """
    there = _read(directory)
    if not there.keys().isdisjoint(cells):
        _write(directory, {cell: kept for cell, kept in there.items() if cell not in cells})


def read_totals(directory: Path) -> Totals:
    """Return the metrics of a whole run in a folder; empty where none were taken.

    Raises:
        ColligateError: the file cannot be read.
    """
    return {cell: kept.metrics for cell, kept in _read(directory).items() if kept.metrics}


@dataclass(frozen=True)
class _Cell:
    """The values of a strategy on a data set, and the groups that they were taken of."""

    metrics: Mapping[str, float] = field(default_factory=dict)
    taken: tuple[str, ...] = ()


def _read(directory: Path) -> dict[tuple[str, str], _Cell]:
    file = directory / TOTALS_FILE
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
        why, hint = f"{type(error).__name__}: {error}", "delete it; the same command makes it again"
        raise ColligateError(f"{file} cannot be read", why, hint) from error


def _write(directory: Path, cells: Mapping[tuple[str, str], _Cell]) -> None:
    lines = [
        {
            "dataset": dataset,
            "strategy": strategy,
            "metrics": dict(cell.metrics),
            "taken": list(cell.taken),
        }
        for (dataset, strategy), cell in cells.items()
    ]
    write_whole(directory / TOTALS_FILE, [json.dumps(lines, ensure_ascii=False, indent=1)])
