"""Attention by position, out of the traces: DuQUAD's Figure 1.

A trace whose strategy weighed the documents given has an event `weighted` with the attention to
each, in the order given: that of its other fusion, "calibrated", is asked in another order and
says nothing of positions. Within a question the numbers become z-scores, so that long prompts and
short ones count alike; they are then averaged by position, apart for each gold position.
"""

from __future__ import annotations

import gzip
import json
import math
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

from colligate.bench.report.charts import Point
from colligate.bench.report.contents import Contents
from colligate.bench.rows import Row
from colligate.bench.significance import bootstrap
from colligate.strategies.duquad.signals import Fusion

MOST_TRACES = 250
"""How many traces of a strategy are read; more make the report slow and the lines no smoother."""


@dataclass(frozen=True)
class Attention:
    """A strategy's attention: `at` has the points of each gold position (from 1), None where the
    data set does not move it. `questions` are those read, of `traced`.
    """

    method: str
    label: str
    style: int
    at: dict[int | None, tuple[Point, ...]]
    questions: int
    traced: int


def attention(contents: Contents, dataset: str = "") -> list[Attention]:
    """What the traces of each strategy say; strategies without any are left out."""
    found = []
    for style, method in enumerate(contents.methods):
        datasets = [dataset] if dataset else contents.datasets
        rows = [row for name in datasets for row in contents.of(name, method.name) if row.trace]
        chosen = sorted(rows, key=_chance)[:MOST_TRACES]
        seen: dict[int | None, list[Sequence[float]]] = {}
        for row in chosen:
            if scores := _z_scores(_attention_in(contents.directory, row)):
                gold = None if row.gold_at is None else row.gold_at + 1
                seen.setdefault(gold, []).append(scores)
        if seen:
            order = sorted(seen, key=lambda gold: (gold is None, gold or 0))
            at = {gold: _points(seen[gold], gold, contents.seed) for gold in order}
            read = sum(map(len, seen.values()))
            label = method.label or method.name
            found.append(Attention(method.name, label, style, at, read, len(rows)))
    return found


def _chance(row: Row) -> str:
    """The same traces each time, of all data sets alike."""
    return sha256(f"{row.dataset}\0{row.question}".encode(errors="replace")).hexdigest()


def _points(seen: list[Sequence[float]], gold: int | None, seed: int) -> tuple[Point, ...]:
    points = []
    for place in range(max(map(len, seen))):
        values = [scores[place] for scores in seen if place < len(scores)]
        low, high = bootstrap(values, seed)
        mean = fmean(values)
        mark = ", the gold document" if place + 1 == gold else ""
        points.append(Point(place + 1, mean, low, high, f"position {place + 1}{mark}: {mean:.2f}"))
    return tuple(points)


def _z_scores(values: Sequence[float]) -> Sequence[float]:
    deviation = pstdev(values) if len(values) > 1 else 0.0
    if not deviation or not math.isfinite(deviation):
        return ()
    mean = fmean(values)
    return [(value - mean) / deviation for value in values]


def _attention_in(directory: Path, row: Row) -> Sequence[float]:
    """The first attention that a trace has, in the order in which the documents were given."""
    for event in _events(directory, row.trace or "", '"weighted"'):
        values = event.get("signals", {}).get("attention")
        if event.get("event") == "weighted" and event.get("fusion") == Fusion.SFS and values:
            return [float(value) for value in values]
    return ()


def _events(directory: Path, trace: str, holding: str) -> Iterator[dict[str, Any]]:
    """The events of a trace whose line holds a text; a trace that is torn or gone has none."""
    file = (directory / trace).resolve()
    if not file.is_relative_to(directory.resolve()):
        return
    try:
        with (
            gzip.open(file, "rt", encoding="utf-8")
            if file.suffix == ".gz"
            else file.open(encoding="utf-8") as lines
        ):
            for line in lines:
                if holding in line:
                    event = json.loads(line)
                    if isinstance(event, dict):
                        yield event
    except (OSError, EOFError, ValueError, zlib.error):
        return
