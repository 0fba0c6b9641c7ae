"""Metrics of a whole run, which no single row has: `totals.json` in its folder."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from pydantic import TypeAdapter

from colligate.errors import ColligateError
from colligate.lab.bench.metrics.catalogue import find_group
from colligate.lab.bench.outcome import Key, Row
from colligate.lab.bench.plan import Plan
from colligate.lab.jobs.files import write_whole

TOTALS_FILE = "totals.json"

Totals = Mapping[tuple[str, str], Mapping[str, float]]
"""By data set and strategy, the metrics by name."""


def take_totals(directory: Path, plan: Plan, rows: Mapping[Key, Row]) -> Mapping[str, str]:
    """Take the metrics of the whole run that the file lacks; return why some could not be taken.

    Blocks.
    """
    kept, problems, changed = _read(directory), dict[str, str](), False
    for asked in plan.datasets:
        dataset, questions = asked.dataset, {each.id: each for each in asked.questions}
        for entry in plan.entries:
            key = (dataset.name, entry.method.name)
            cell = kept.get(key, _Cell(*key))
            groups = [find_group(name) for name in dataset.metrics if name not in cell.taken]
            wanted = [group for group in groups if group.of_run is not None]
            pairs = [
                (questions[row.question], row.outcome)
                for row in (rows.values() if wanted else ())
                if (row.dataset, row.strategy) == key and row.question in questions
            ]
            for group in wanted if pairs else ():
                assert group.of_run is not None
                try:
                    measures = group.of_run(pairs)
                except ColligateError as error:
                    problems[group.name] = str(error)
                else:
                    taken = (*cell.taken, group.name)
                    kept[key] = cell = _Cell(*key, {**cell.metrics, **measures}, taken)
                    changed = True
    if changed:
        _write(directory, kept.values())
    return problems


def forget_totals(directory: Path, cells: Collection[tuple[str, str]]) -> None:
    """Delete what was taken of data sets and strategies that are about to get other rows.

    So the file never has values of fewer rows than there are, even if the run is killed. Blocks.
    """
    there = _read(directory)
    if not there.keys().isdisjoint(cells):
        _write(directory, [kept for cell, kept in there.items() if cell not in cells])


def read_totals(directory: Path) -> Totals:
    """Return the metrics of a whole run in a folder; empty where none were taken."""
    return {cell: kept.metrics for cell, kept in _read(directory).items() if kept.metrics}


@dataclass(frozen=True)
class _Cell:
    """The values of a strategy on a data set, and the groups that they were taken of."""

    dataset: str
    strategy: str
    metrics: Mapping[str, float] = field(default_factory=dict)
    taken: tuple[str, ...] = ()


_CELLS = TypeAdapter(list[_Cell])


def _read(directory: Path) -> dict[tuple[str, str], _Cell]:
    file = directory / TOTALS_FILE
    if not file.is_file():
        return {}
    try:
        cells = _CELLS.validate_json(file.read_bytes())
    except (OSError, ValueError) as error:
        why, hint = f"{type(error).__name__}: {error}", "delete it; the same command makes it again"
        raise ColligateError(f"{file} cannot be read", why, hint) from error
    return {(cell.dataset, cell.strategy): cell for cell in cells}


def _write(directory: Path, cells: Iterable[_Cell]) -> None:
    text = json.dumps([asdict(cell) for cell in cells], ensure_ascii=False, indent=1)
    write_whole(directory / TOTALS_FILE, [text])
