"""What a picture of the report is, and the words and numbers that all of them need."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from colligate.bench.report import charts
from colligate.bench.report.charts import NARROW, WIDE, Axis, Line, Point
from colligate.bench.report.numbers import NONE, said
from colligate.bench.significance import FEWEST, bootstrap
from colligate.bench.suites import Method, Picture

Numbers = Sequence[Sequence[str]]
"""A table; its first row is its head."""


@dataclass(frozen=True)
class Panel:
    """A small chart among others of one picture."""

    title: str
    drawing: str


@dataclass(frozen=True)
class Figure:
    """A picture: `wide` and `narrow` are the same chart, or `panels` stand side by side.

    `key` is its name in the page. `legend` are labels with their styles, `numbers` say the same in
    figures. `missing` says why there is no picture.
    """

    key: str
    title: str
    note: str = ""
    wide: str = ""
    narrow: str = ""
    panels: tuple[Panel, ...] = ()
    legend: tuple[tuple[str, int], ...] = ()
    numbers: Numbers = ()
    missing: str = ""


def key_of(picture: Picture, more: str = "") -> str:
    """A picture's name in the page, of letters, digits and hyphens."""
    parts = (picture.kind, picture.dataset, picture.metric, more)
    return re.sub(r"[^A-Za-z0-9]+", "-", "-".join(part for part in parts if part))


def line_figure(
    key: str, title: str, note: str, series: Sequence[Line], x: Axis, y: Axis, numbers: Numbers
) -> Figure:
    """Lines with labels where there is room, with a legend where there is not."""
    wide = charts.lines(series, x, y, title=title, width=WIDE)
    narrow = charts.lines(series, x, y, title=title, width=NARROW, labels=False)
    legend = tuple((line.label, line.style) for line in series)
    return Figure(key, title, note, wide, narrow, legend=legend, numbers=numbers)


def mean_of(values: Sequence[float], x: float, seed: int, scale: float) -> Point:
    """The mean of some questions at a place, with its interval: none of too few."""
    if len(values) < FEWEST:
        mean = fmean(values) * scale
        return Point(x, mean, mean, mean)
    low, high = bootstrap(list(values), seed)
    return Point(x, fmean(values) * scale, low * scale, high * scale)


def across(series: Mapping[str, Sequence[Point]], places: int = 1) -> list[tuple[str, ...]]:
    """A row for each of some series, a column for each place of the others."""
    at = sorted({point.x for points in series.values() for point in points})
    rows = []
    for label, points in series.items():
        known = {point.x: interval(point, places) for point in points}
        rows.append((label, *(known.get(place, NONE) for place in at)))
    return [("", *(f"{place:g}" for place in at)), *rows]


def label_of(method: Method) -> str:
    """What a strategy is called in the report."""
    return method.label or method.name


def interval(point: Point, places: int = 1) -> str:
    """A value and its interval, where it has one."""
    if point.low == point.high:
        return said(point.y, places)
    low, high = said(point.low, places), said(point.high, places)
    return f"{said(point.y, places)} [{low}, {high}]"


def share_axis(scale: float, label: str = "%") -> Axis:
    """An upright axis; shares go from 0 to 100."""
    return Axis(label, 0.0, 100.0) if scale == 100 else Axis(label.replace("%", "mean"))


def common(metrics: Iterable[str]) -> str:
    """The metric that most data sets are decided by."""
    known = [metric for metric in metrics if metric]
    return max(known, key=known.count) if known else ""
