"""The report's figures: which numbers each of them shows.

A suite asks for some of them by its `[[pictures]]`.
"""

from __future__ import annotations

import gzip
import json
import math
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

from colligate.bench.figures import (
    Interval,
    IntervalPanel,
    Panel,
    Point,
    Series,
    draw_bars,
    draw_front,
    draw_groups,
    draw_intervals,
    draw_lines,
)
from colligate.bench.outcome import Row
from colligate.bench.results import (
    NONE,
    QuestionKey,
    RunResults,
    Verdict,
    format_count,
    format_interval,
    format_number,
    order_by_chance,
)
from colligate.bench.significance import FEWEST, bootstrap
from colligate.bench.suites import Picture, PictureKind
from colligate.bench.tables import ColumnComparison, TextTable, make_result_table

ALWAYS: tuple[PictureKind, ...] = ("by-gold-position", "recall-at-k", "pareto")
"""The pictures that a report has wherever the run has their numbers."""

_INTERVALS = "Whiskers are 95 % intervals, by bootstrap over the questions."


@dataclass(frozen=True)
class ReportFigure:
    """A figure of the report. `key` is its name in the page, `numbers` has the same as a table.

    `svg` is empty where there is nothing to draw (`missing` tells why) or nothing to draw with.
    """

    key: str
    title: str
    note: str = ""
    svg: str = ""
    numbers: TextTable = ()
    missing: str = ""


def make_figures(results: RunResults) -> tuple[ReportFigure, ...]:
    """Return the suite's pictures in its order, then those that this run has the numbers for."""
    asked = results.suite.pictures
    found = [figure for each in asked for figure in _MAKERS[each.kind](results, each)]
    for kind in ALWAYS:
        if all(picture.kind != kind for picture in asked):
            more = _MAKERS[kind](results, Picture(kind))
            found += [figure for figure in more if not figure.missing]
    return tuple(found)


# Quality by the place of the document that holds the answer


def _by_gold_position(results: RunResults, picture: Picture) -> list[ReportFigure]:
    datasets = results.members(picture.dataset) if picture.dataset else results.datasets
    metric = picture.metric or results.deciding_metric(*datasets)
    named = metric or "quality"
    title = picture.label or f"{named.capitalize()} by the place of the gold document"
    scale = results.scale(metric)
    series = []
    for style, method in enumerate(results.methods):
        at: dict[int, dict[QuestionKey, float]] = {}
        for name in datasets:
            values = results.values(name, method.name, metric)
            for row in results.rows_of(name, method.name):
                key = (name, row.question)
                if row.gold_at is not None and key in values:
                    at.setdefault(row.gold_at, {})[key] = values[key]
        points = tuple(_mean_at(results, gold + 1, at[gold], scale) for gold in sorted(at))
        if points:
            series.append(Series(method.label, points, style))
    if len({point.x for each in series for point in each.points}) < 2:
        why = "No data set of this run has the gold document at several places."
        return [ReportFigure(_make_key(picture), title, missing=why)]
    svg = draw_lines(
        [Panel("", tuple(series))],
        title=title,
        x_label="place of the gold document",
        y_label=_axis_label(scale, "%"),
        limits=_choose_limits(scale),
        ticks_at_points=True,
    )
    return [ReportFigure(_make_key(picture), title, _INTERVALS, svg, _tabulate(series))]


def _mean_at(
    results: RunResults, x: float, values: Mapping[QuestionKey, float], scale: float
) -> Point:
    """Return the mean of some questions with its interval; too few questions have none."""
    mean = fmean(values.values()) * scale
    if len(values) < FEWEST:
        return Point(x, mean)
    low, high = bootstrap([*values.values()], results.seed, **results.resampling(values))
    return Point(x, mean, low * scale, high * scale)


def _tabulate(series: Sequence[Series], places: int = 1) -> TextTable:
    """Return a row for each series, a column for each place."""
    at = sorted({point.x for each in series for point in each.points})
    rows = []
    for each in series:
        known = {p.x: format_interval(p.y, p.low, p.high, places) for p in each.points}
        rows.append((each.label, *(known.get(place, NONE) for place in at)))
    return [("", *(f"{place:g}" for place in at)), *rows]


def _make_key(picture: Picture, more: str = "") -> str:
    parts = (picture.kind, picture.dataset, picture.metric, more)
    return re.sub(r"[^A-Za-z0-9]+", "-", "-".join(part for part in parts if part))


def _choose_limits(scale: float) -> tuple[float, float] | None:
    return (0.0, 100.0) if scale == 100 else None


def _axis_label(scale: float, label: str) -> str:
    return label if scale == 100 else label.replace("%", "mean")


# Recall, or another measure of the first k that a search returned, against k

_AT_K = re.compile(r"(?P<stem>\w+)_at_(?P<k>\d+)")


def _recall_at_k(results: RunResults, picture: Picture) -> list[ReportFigure]:
    stem = picture.metric or "recall"
    title = picture.label or f"{stem.capitalize()} against k"
    panels = []
    for dataset in results.members(picture.dataset) if picture.dataset else results.datasets:
        measured = (_AT_K.fullmatch(name) for name in results.metrics_of(dataset))
        cuts = sorted(int(match["k"]) for match in measured if match and match["stem"] == stem)
        series = []
        for style, method in enumerate(results.methods):
            at = {k: results.values(dataset, method.name, f"{stem}_at_{k}") for k in cuts}
            points = [_mean_at(results, k, at[k], 100.0) for k in cuts if at[k]]
            if points:
                series.append(Series(method.label, tuple(points), style))
        if series and len(cuts) > 1:
            panels.append(Panel(dataset, tuple(series)))
    if not panels:
        why = "No strategy of this run searched, or this was not measured."
        return [ReportFigure(_make_key(picture), title, missing=why)]
    if len(panels) == 1:
        title = f"{title}, {panels[0].title}"
        panels = [Panel("", panels[0].series)]
    svg = draw_lines(
        panels,
        title=title,
        x_label="documents looked at (k)",
        y_label="%",
        limits=(0.0, 100.0),
        logarithmic=True,
        ticks_at_points=True,
    )
    named = [
        Series(f"{panel.title}, {each.label}" if panel.title else each.label, each.points)
        for panel in panels
        for each in panel.series
    ]
    note = "Of the documents that searches returned, in the order in which they were first found."
    return [ReportFigure(_make_key(picture), title, note, svg, _tabulate(named))]


# The table's columns as bars


def _columns(results: RunResults, picture: Picture) -> list[ReportFigure]:
    """Those of one data set or metric where the picture names it, on the first one's scale."""
    title = picture.label or "The table as bars"
    table, _ = make_result_table(results)
    chosen = [
        (at, head)
        for at, head in enumerate(table.columns)
        if picture.dataset in ("", head.dataset) and picture.metric in ("", head.metric) and head.n
    ]
    shown = [(at, head) for at, head in chosen if head.scale == chosen[0][1].scale]
    series = []
    rows = [(block.label, block.cells) for block in table.blocks if block.cells is not None]
    for style, (label, cells) in enumerate(rows):
        there = [(place, cells[at]) for place, (at, _) in enumerate(shown)]
        points = [Point(at, cell.value, cell.low, cell.high) for at, cell in there if cell]
        if points:
            series.append(Series(label, tuple(points), style))
    if not series:
        why = "No column of the table that it shows was measured."
        return [ReportFigure(_make_key(picture), title, missing=why)]
    scale, groups = shown[0][1].scale, [head.title for _, head in shown]
    y_label = "%" if scale == 100 else "mean"
    limits = _choose_limits(scale)
    svg = draw_groups(series, groups, title=title, y_label=y_label, limits=limits)
    _, *body = _tabulate(series)
    return [ReportFigure(_make_key(picture), title, _INTERVALS, svg, [("", *groups), *body])]


# Cost against quality


def _cost_and_quality(results: RunResults, picture: Picture) -> list[ReportFigure]:
    """Tokens against quality, over the questions that every strategy has."""
    datasets = results.members(picture.dataset) if picture.dataset else results.datasets
    metric = picture.metric or results.deciding_metric(*datasets)
    title = picture.label or "Cost against quality"
    scale = results.scale(metric)
    common = _find_common_questions(results, datasets, metric)
    dots: list[Series] = []
    numbers: list[tuple[str, ...]] = []
    for style, method in enumerate(results.methods):
        cells = [results.rows_of(name, method.name) for name in datasets]
        rows = [row for cell in cells for row in cell if (row.dataset, row.question) in common]
        if not rows:
            continue
        values = [results.values(name, method.name, metric) for name in datasets]
        quality = {key: each[key] for each in values for key in each if key in common}
        usage = [row.outcome.usage for row in rows]
        into, out, calls = (
            fmean(float(each.get(name) or 0) for each in usage)
            for name in ("input_tokens", "output_tokens", "calls")
        )
        seconds = [row.outcome.seconds for row in rows if not row.outcome.usage.get("remembered")]
        point = _mean_at(results, into + out, quality, scale)
        dots.append(Series(method.label, (point,), style))
        numbers.append(
            (
                method.label,
                format_interval(point.y, point.low, point.high),
                format_number(into + out),
                format_number(calls),
                format_number(fmean(seconds)) if seconds else "",
                _mean_dollars(usage),
            )
        )
    if len(dots) < 2:
        why = "There are not two strategies with questions and a metric in common."
        return [ReportFigure(_make_key(picture), title, missing=why)]
    best = _find_front([dot.points[0] for dot in dots])
    head = ("strategy", metric, "tokens", "calls", "seconds", "USD", "front")
    body = [(*row, "yes" if on else "") for row, on in zip(numbers, best, strict=True)]
    note = (
        f"Means over the {format_count(len(common), 'question')} that every strategy was asked. "
        "The line joins the strategies that no other beats on both: fewer tokens, or better "
        "answers."
    )
    y_label = _axis_label(scale, f"{metric}, %")
    svg = draw_front(dots, best, title=title, y_label=y_label, limits=_choose_limits(scale))
    return [ReportFigure(_make_key(picture), title, note, svg, (head, *body))]


def _find_common_questions(
    results: RunResults, datasets: Sequence[str], metric: str
) -> set[QuestionKey]:
    """Return the questions that every strategy has the metric of."""
    found: set[QuestionKey] = set()
    there = [m for m in results.methods if any(results.rows_of(name, m.name) for name in datasets)]
    for dataset in datasets:
        each = [set(results.values(dataset, method.name, metric)) for method in there]
        found |= set.intersection(*each) if each else set()
    return found


def _find_front(points: Sequence[Point]) -> list[bool]:
    """Return which points no other beats: none is as good for less, or better for as little."""
    return [
        not any(
            other.x <= point.x and other.y >= point.y and (other.x, other.y) != (point.x, point.y)
            for other in points
        )
        for point in points
    ]


def _mean_dollars(usage: Sequence[Mapping[str, Any]]) -> str:
    prices = [each.get("cost_usd") for each in usage]
    known = [float(price) for price in prices if price is not None]
    return format_number(fmean(known)) if len(known) == len(prices) else "?"


# Attention by position, out of the traces: DuQUAD's Figure 1

MOST_TRACES = 250
"""How many traces of a strategy are read; more make the report slow and the lines no smoother."""


def _attention_by_position(results: RunResults, picture: Picture) -> list[ReportFigure]:
    """Return a figure for each strategy with a panel for each place of the gold document.

    A trace whose strategy weighed the documents has an event `weighted` with the attention to each,
    in the order given. Within a question the numbers become z-scores, so that long prompts and
    short ones count alike; they are then averaged by position.
    """
    title = picture.label or "Attention by position"
    figures = []
    for method in results.methods:
        datasets = results.members(picture.dataset) if picture.dataset else results.datasets
        rows = [row for name in datasets for row in results.rows_of(name, method.name) if row.trace]
        seen: dict[int | None, dict[QuestionKey, Sequence[float]]] = {}
        # The same traces are chosen each time, from all data sets alike.
        for row in sorted(rows, key=lambda row: order_by_chance(row.dataset, row.question))[
            :MOST_TRACES
        ]:
            if scores := _z_scores(_read_attention(results.directory, row)):
                gold = None if row.gold_at is None else row.gold_at + 1
                seen.setdefault(gold, {})[row.dataset, row.question] = scores
        if not seen:
            continue
        panels = [
            Panel(
                "Gold document at any place" if gold is None else f"Gold document at {gold}",
                (Series(method.label, _mean_by_position(results, seen[gold])),),
                gold,
            )
            for gold in sorted(seen, key=lambda gold: (gold is None, gold or 0))
        ]
        read = sum(map(len, seen.values()))
        of = f" (of {len(rows):,})" if len(rows) > read else ""
        note = (
            "Attention of the question to each document, as z-scores within a question, averaged "
            f"over {read:,} traces of {method.label}{of}. The gold document's position is marked. "
            f"{_INTERVALS}"
        )
        svg = draw_lines(
            panels,
            title=f"{title}, {method.label}",
            x_label="position in the prompt",
            y_label="z",
            ticks_at_points=True,
        )
        numbers = _tabulate([Series(panel.title, panel.series[0].points) for panel in panels], 2)
        figures.append(ReportFigure(_make_key(picture, method.name), title, note, svg, numbers))
    if not figures:
        why = "No trace of this run has a strategy's attention to the documents given."
        return [ReportFigure(_make_key(picture), title, missing=why)]
    return figures


def _mean_by_position(
    results: RunResults, seen: Mapping[QuestionKey, Sequence[float]]
) -> tuple[Point, ...]:
    points = []
    for place in range(max(map(len, seen.values()))):
        values = {key: scores[place] for key, scores in seen.items() if place < len(scores)}
        shared = results.resampling(values)
        ends = bootstrap([*values.values()], results.seed, **shared)
        points.append(Point(place + 1, fmean(values.values()), *ends))
    return tuple(points)


def _z_scores(values: Sequence[float]) -> Sequence[float]:
    deviation = pstdev(values) if len(values) > 1 else 0.0
    if not deviation or not math.isfinite(deviation):
        return ()
    mean = fmean(values)
    return [(value - mean) / deviation for value in values]


def _read_attention(directory: Path, row: Row) -> Sequence[float]:
    """Return the first attention in a trace that was asked for in the order of the documents.

    The fusion "calibrated" asks in another order, so it tells nothing about positions.
    """
    for event in _read_events(directory, row.trace or "", '"weighted"'):
        values = event.get("signals", {}).get("attention")
        # A fusion that an older version had was not the paper's.
        if event.get("event") == "weighted" and event.get("fusion", "sfs") == "sfs" and values:
            return [float(value) for value in values]
    return ()


def _read_events(directory: Path, trace: str, containing: str) -> Iterator[dict[str, Any]]:
    """Yield the events of a trace whose line contains a text; a damaged trace ends early."""
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
                if containing in line:
                    event = json.loads(line)
                    if isinstance(event, dict):
                        yield event
    except (OSError, EOFError, ValueError, zlib.error):
        return


_MAKERS: Mapping[PictureKind, Callable[[RunResults, Picture], list[ReportFigure]]] = {
    "by-gold-position": _by_gold_position,
    "recall-at-k": _recall_at_k,
    "pareto": _cost_and_quality,
    "attention-by-position": _attention_by_position,
    "columns": _columns,
}


# What became of the answers, and differences from the best


VERDICT_COLOURS: Mapping[Verdict, str] = {
    Verdict.RIGHT: "#a5d8c6",
    Verdict.PARTLY: "#d5e7bf",
    Verdict.ANSWERED: "#dedbd3",
    Verdict.WRONG: "#f3b9a3",
    Verdict.REFUSED: "#f0dc9f",
    Verdict.FAILED: "#d2bddd",
}


def make_verdict_figure(results: RunResults) -> ReportFigure:
    """Return the figure of how many answers of each verdict a strategy has."""
    counted = results.verdicts
    kinds = [kind for kind in Verdict if any(each[kind] for each in counted.values())]
    bars = [
        (method.label, [counted[method.name][kind] for kind in kinds]) for method in results.methods
    ]
    head = ("strategy", *(kind.value for kind in kinds), "answers")
    body = [(label, *(f"{count:,}" for count in row), f"{sum(row):,}") for label, row in bars]
    title = "What became of the answers"
    colours = {kind.value: VERDICT_COLOURS[kind] for kind in kinds}
    svg = draw_bars(bars, colours, title=title)
    return ReportFigure("verdicts", title, svg=svg, numbers=(head, *body))


def make_difference_figure(
    comparisons: Sequence[ColumnComparison], numbers: TextTable
) -> ReportFigure | None:
    """Return the figure of how far each strategy is from the best of each column."""
    if not comparisons:
        return None
    note = (
        "For each column, over the questions that both were asked, with 95 % intervals of 10,000 "
        "paired resamples. A filled mark has stars: p is the larger of the bootstrap's and the "
        "sign-flip test's, corrected for all pairs of the column's strategies (Holm). So an "
        "interval of few questions may leave out zero and have none. Columns of fewer than six "
        "questions are left out: no paired test can tell anything there."
    )
    title = "Differences from the best"
    panels = [
        IntervalPanel(
            each.head.title,
            f"difference from {each.best.label}",
            tuple(Interval(gap.method.label, gap.difference) for gap in each.others),
        )
        for each in comparisons
    ]
    svg = draw_intervals(panels, title=title)
    return ReportFigure("difference-panels", title, note, svg, numbers)
