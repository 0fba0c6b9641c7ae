"""Metrics of a whole run, which no single row has: `totals.json` in its folder."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from pydantic import TypeAdapter

from colligate.errors import ColligateError
from colligate.lab.bench.metrics.catalogue import find_group
from colligate.lab.bench.outcome import Row
from colligate.lab.bench.plan import Plan
from colligate.lab.jobs.files import write_whole

TOTALS_FILE = "totals.json"


@dataclass(frozen=True)
class _Cell:
    """The values of a strategy on a data set, and the groups that they were taken of.

    `rows` is the digest of the rows they were taken of: a cell of others does not count.
    """

    dataset: str
    strategy: str
    rows: str = ""
    metrics: Mapping[str, float] = field(default_factory=dict)
    taken: tuple[str, ...] = ()


_CELLS = TypeAdapter(list[_Cell])


def take_totals(directory: Path, plan: Plan, rows: Collection[Row]) -> Mapping[str, str]:
    """Take the metrics of the whole run that the file lacks; return why some could not be taken.

    Blocks.
    """
    kept, problems = _read(directory, rows), dict[str, str]()
    before = dict(kept)
    for asked in plan.datasets:
        questions = {each.id: each for each in asked.questions}
        groups = [g for g in map(find_group, asked.dataset.metrics) if g.of_run is not None]
        for entry in plan.entries:
            key = asked.dataset.name, entry.method.name
            of = [row for row in rows if row.key[::2] == key and row.question in questions]
            cell = kept.get(key, _Cell(*key, digest_rows(of)))
            for group in groups if of else ():
                if group.of_run is None or group.name in cell.taken:
                    continue
                try:
                    found = group.of_run([(questions[row.question], row.outcome) for row in of])
                except ColligateError as error:
                    problems[group.name] = str(error)
                else:
                    metrics, taken = {**cell.metrics, **found}, (*cell.taken, group.name)
                    kept[key] = cell = replace(cell, metrics=metrics, taken=taken)
    if kept != before:
        text = json.dumps([asdict(cell) for cell in kept.values()], ensure_ascii=False, indent=1)
        write_whole(directory / TOTALS_FILE, [text])
    return problems


def read_totals(
    directory: Path, rows: Collection[Row]
) -> Mapping[tuple[str, str], Mapping[str, float]]:
    """Return the metrics of a whole run by data set and strategy, those of these rows. Blocks."""
    return {key: cell.metrics for key, cell in _read(directory, rows).items() if cell.metrics}


def _read(directory: Path, rows: Collection[Row]) -> dict[tuple[str, str], _Cell]:
    file = directory / TOTALS_FILE
    if not file.is_file():
        return {}
    try:
        cells = _CELLS.validate_json(file.read_bytes())
    except (OSError, ValueError) as error:
        why, hint = f"{type(error).__name__}: {error}", "delete it; the same command makes it again"
        raise ColligateError(f"{file} cannot be read", why, hint) from error
    of = defaultdict[tuple[str, str], list[Row]](list)
    for row in rows:
        of[row.dataset, row.strategy].append(row)
    found = {(cell.dataset, cell.strategy): cell for cell in cells}
    return {key: cell for key, cell in found.items() if cell.rows == digest_rows(of[key])}


def digest_rows(rows: Iterable[Row]) -> str:
    """Return a digest that differs where a row is another one or was asked again."""
    told = sorted((row.question, row.attempt, row.began) for row in rows)
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()[:16]
