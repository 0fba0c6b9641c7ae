"""The report's figures: which numbers each of them shows, and their drawing by matplotlib.

A suite asks for some of them by its `[[pictures]]`. matplotlib comes with the extra `bench`;
without it a figure has its numbers alone. The same numbers always give the same drawing.
"""

from __future__ import annotations

import gzip
import io
import json
import math
import re
import warnings
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import sha256
from html import escape
from importlib.util import find_spec
from itertools import accumulate
from pathlib import Path
from statistics import fmean, pstdev
from typing import TYPE_CHECKING, Any

from colligate.core.events import pluralize
from colligate.lab.bench.outcome import Row
from colligate.lab.bench.significance import Difference
from colligate.lab.bench.suites import Picture, PictureKind
from colligate.lab.bench.tables import (
    NONE,
    QuestionKey,
    RunResults,
    TextTable,
    Verdict,
    format_interval,
    format_number,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ALWAYS: tuple[PictureKind, ...] = ("by-gold-position", "recall-at-k", "pareto")
"""The pictures that a report has wherever the run has their numbers."""

_INTERVALS = "Whiskers are 95 % intervals, by bootstrap over the questions."


@dataclass(frozen=True)
class ReportFigure:
    """A figure of the report. `key` is its name in the page, `numbers` has the same as a table.

    `svg` is empty where there is nothing to draw (`missing` tells why) or nothing to draw with.
    """

    title: str
    note: str = ""
    svg: str = ""
    numbers: TextTable = ()
    missing: str = ""
    key: str = ""


@dataclass(frozen=True)
class Point:
    """A value at a place, with its interval where it has one."""

    x: float
    y: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Series:
    """The points of one line; `style` numbers its colour and marker."""

    label: str
    points: Sequence[Point]
    style: int = 0


@dataclass(frozen=True)
class Panel:
    """A small chart among others of one figure; the place `marked` is highlighted."""

    title: str
    series: Sequence[Series]
    marked: float | None = None


def make_figures(results: RunResults) -> tuple[ReportFigure, ...]:
    """Return the suite's pictures in its order, then those that this run has the numbers for."""
    asked = results.suite.pictures
    more = [Picture(kind) for kind in ALWAYS if all(each.kind != kind for each in asked)]
    figures = []
    for picture in (*asked, *more):
        key = re.sub(
            r"\W+", "-", "-".join(filter(None, (picture.kind, picture.dataset, picture.metric)))
        )
        found = _MAKERS[picture.kind](results, picture)
        for number, figure in enumerate(found, 1):
            if picture in asked or not figure.missing:
                figures.append(replace(figure, key=f"{key}-{number}" if number > 1 else key))
    return tuple(figures)


def _by_gold_position(results: RunResults, picture: Picture) -> list[ReportFigure]:
    """Return quality by the place of the document that holds the answer."""
    metric = _choose_metric(results, picture)
    title = f"{(metric or 'quality').capitalize()} by the place of the gold document"
    title = picture.label or title
    places = {row.key[:2]: row.gold_at + 1 for row in results.rows if row.gold_at is not None}
    series = []
    for style, method in enumerate(results.methods):
        at: dict[float, dict[QuestionKey, float]] = defaultdict(dict)
        for key, value in results.values(picture.dataset, method.name, metric).items():
            if key in places:
                at[places[key]][key] = value
        series += _make_series(results, method.label, style, at, results.scale(metric))
    if len({point.x for each in series for point in each.points}) < 2:
        why = "No data set of this run has the gold document at several places."
        return [ReportFigure(title, missing=why)]
    chart = _make_chart(title, "place of the gold document", "%", results.scale(metric))
    svg = draw_lines([Panel("", series)], chart)
    return [ReportFigure(title, _INTERVALS, svg, _tabulate(series))]


def _choose_metric(results: RunResults, picture: Picture) -> str:
    return picture.metric or results.deciding_metric(*results.members(picture.dataset))


def _make_series(
    results: RunResults,
    label: str,
    style: int,
    at: Mapping[float, Mapping[QuestionKey, float]],
    scale: float,
) -> list[Series]:
    """Return the means of the values at each place with their intervals; nothing without any."""
    points = [
        Point(x, fmean(at[x].values()) * scale, *results.interval(at[x], scale))
        for x in sorted(at)
        if at[x]
    ]
    return [Series(label, points, style)] if points else []


def _tabulate(series: Sequence[Series], places: int = 1) -> TextTable:
    """Return a row for each series, a column for each place."""
    at = sorted({point.x for each in series for point in each.points})
    rows = []
    for each in series:
        known = {p.x: format_interval(p.y, p.low, p.high, places) for p in each.points}
        rows.append((each.label, *(known.get(place, NONE) for place in at)))
    return [("", *(f"{place:g}" for place in at)), *rows]


def _make_chart(title: str, x_label: str, y_label: str, scale: float) -> Chart:
    """Return the axes of values of a scale: 100 is that of percentages."""
    if scale == 100:
        return Chart(title, x_label, y_label, (0.0, 100.0))
    return Chart(title, x_label, y_label.replace("%", "mean"))


_AT_K = re.compile(r"(?P<stem>\w+)_at_(?P<k>\d+)")


def _recall_at_k(results: RunResults, picture: Picture) -> list[ReportFigure]:
    """Return recall, or another measure of the first k that a search returned, against k."""
    stem = picture.metric or "recall"
    title = picture.label or f"{stem.capitalize()} against k"
    panels = []
    for dataset in results.members(picture.dataset):
        measured = (_AT_K.fullmatch(name) for name in results.metrics_of(dataset))
        cuts = sorted(int(match["k"]) for match in measured if match and match["stem"] == stem)
        series = []
        for style, method in enumerate(results.methods):
            at = {1.0 * k: results.values(dataset, method.name, f"{stem}_at_{k}") for k in cuts}
            series += _make_series(results, method.label, style, at, 100)
        if series and len(cuts) > 1:
            panels.append(Panel(dataset, series))
    if not panels:
        why = "No strategy of this run searched, or this was not measured."
        return [ReportFigure(title, missing=why)]
    chart = _make_chart(title, "documents looked at (k)", "%", 100)
    svg = draw_lines(panels, replace(chart, logarithmic=True))
    note = "Of the documents that searches returned, in the order in which they were first found."
    named = [replace(s, label=f"{p.title}, {s.label}") for p in panels for s in p.series]
    return [ReportFigure(title, note, svg, _tabulate(named))]


def _columns(results: RunResults, picture: Picture) -> list[ReportFigure]:
    """Return the table's columns as bars: of one data set or metric, on the first's scale."""
    title = picture.label or "The table as bars"
    shown = [
        column
        for column in results.table.columns
        if picture.dataset in ("", column.dataset) and picture.metric in ("", column.metric)
        if column.cells
    ]
    if not shown:
        why = "No column of the table that it shows was measured."
        return [ReportFigure(title, missing=why)]
    scale = shown[0].scale
    shown = [column for column in shown if column.scale == scale]
    series = []
    for style, method in enumerate(results.methods):
        cells = [(place, column.cells.get(method.name)) for place, column in enumerate(shown)]
        points = [Point(at, cell.value, cell.low, cell.high) for at, cell in cells if cell]
        series += [Series(method.label, points, style)] if points else []
    groups = [column.title for column in shown]
    svg = draw_groups(series, groups, _make_chart(title, "", "%", scale))
    _, *body = _tabulate(series)
    return [ReportFigure(title, _INTERVALS, svg, [("", *groups), *body])]


def _cost_and_quality(results: RunResults, picture: Picture) -> list[ReportFigure]:
    """Return tokens against quality, over the questions that every strategy has."""
    dataset, metric = picture.dataset, _choose_metric(results, picture)
    title = picture.label or "Cost against quality"
    methods = [each for each in results.methods if results.rows_of(dataset, each.name)]
    values = [results.values(dataset, each.name, metric) for each in methods]
    common = set.intersection(*map(set, values)) if values else set()
    if len(methods) < 2 or not common:
        why = "There are not two strategies with questions and a metric in common."
        return [ReportFigure(title, missing=why)]
    dots: list[Series] = []
    numbers = []
    for style, method in enumerate(results.methods):
        if method not in methods:
            continue
        every = results.rows_of(dataset, method.name)
        outcomes = [row.outcome for row in every if row.key[:2] in common]
        into, out, calls = (
            fmean(float(each.usage.get(name) or 0) for each in outcomes)
            for name in ("input_tokens", "output_tokens", "calls")
        )
        seconds = [each.seconds for each in outcomes if not each.usage.get("remembered")]
        prices = [each.usage.get("cost_usd") for each in outcomes]
        known = [float(price) for price in prices if price is not None]
        quality = values[methods.index(method)]
        at = {into + out: {key: quality[key] for key in quality if key in common}}
        dots += _make_series(results, method.label, style, at, results.scale(metric))
        [point] = dots[-1].points
        numbers.append(
            (
                method.label,
                format_interval(point.y, point.low, point.high),
                format_number(into + out),
                format_number(calls),
                format_number(fmean(seconds)) if seconds else "",
                format_number(fmean(known)) if len(known) == len(prices) else "?",
            )
        )
    places = [(each.points[0].x, each.points[0].y) for each in dots]
    front = _find_front(places)
    head = ("strategy", metric, "tokens", "calls", "seconds", "USD", "front")
    body = [
        (*row, "yes" if place in front else "") for row, place in zip(numbers, places, strict=True)
    ]
    note = (
        f"Means over the {pluralize(len(common), 'question')} that every strategy was asked. "
        "The line joins the strategies that no other beats on both: fewer tokens, or better "
        "answers."
    )
    label = "tokens a question, in and out"
    chart = _make_chart(title, label, f"{metric}, %", results.scale(metric))
    least, most = min(places)[0], max(places)[0]
    svg = draw_lines([Panel("", dots)], replace(chart, logarithmic=0 < 4 * least < most), front)
    return [ReportFigure(title, note, svg, (head, *body))]


def _find_front(places: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the places that no other beats: none is as good for less, or better for as little."""
    return sorted(
        (x, y)
        for x, y in set(places)
        if not any(a <= x and b >= y and (a, b) != (x, y) for a, b in places)
    )


MOST_TRACES = 250
"""How many traces of a strategy are read; more make the report slow and the lines no smoother."""


def order_by_chance(key: QuestionKey) -> str:
    """Return a key by which the same questions come first each time, from all data sets alike."""
    return sha256("\0".join(key).encode(errors="replace")).hexdigest()


def _attention_by_position(results: RunResults, picture: Picture) -> list[ReportFigure]:
    """Return a figure for each strategy with a panel for each place of the gold document.

    A trace whose strategy weighed the documents has an event `weighted` with the attention to each,
    in the order given (DuQUAD's Figure 1). Within a question the numbers become z-scores, so that
    long prompts and short ones count alike; they are then averaged by position.
    """
    title = picture.label or "Attention by position"
    figures = []
    for method in results.methods:
        rows = [row for row in results.rows_of(picture.dataset, method.name) if row.trace]
        rows.sort(key=lambda row: order_by_chance(row.key[:2]))
        # By the place of the gold document, then by position; 0 is an unknown place.
        seen: dict[int, dict[float, dict[QuestionKey, float]]] = {}
        read = 0
        for row in rows[:MOST_TRACES]:
            scores = _z_scores(_read_attention(results.directory, row))
            read += bool(scores)
            for place, score in enumerate(scores, 1):
                gold = 0 if row.gold_at is None else row.gold_at + 1
                by_place = seen.setdefault(gold, {}).setdefault(place, {})
                by_place[row.key[:2]] = score
        if not seen:
            continue
        panels = [
            Panel(
                f"Gold document at {gold or 'any place'}",
                _make_series(results, method.label, 0, seen[gold], 1),
                gold or None,
            )
            for gold in sorted(seen, key=lambda gold: gold or math.inf)
        ]
        of = f" (of {len(rows):,})" if len(rows) > read else ""
        note = (
            "Attention of the question to each document, as z-scores within a question, averaged "
            f"over {read:,} traces of {method.label}{of}. The gold document's position is marked. "
            f"{_INTERVALS}"
        )
        svg = draw_lines(panels, Chart(f"{title}, {method.label}", "position in the prompt", "z"))
        numbers = _tabulate([replace(p.series[0], label=p.title) for p in panels], 2)
        figures.append(ReportFigure(title, note, svg, numbers))
    why = "No trace of this run has a strategy's attention to the documents given."
    return figures or [ReportFigure(title, missing=why)]


def _z_scores(values: Sequence[float]) -> Sequence[float]:
    deviation = pstdev(values) if len(values) > 1 else 0.0
    if not deviation or not math.isfinite(deviation):
        return ()
    mean = fmean(values)
    return [(value - mean) / deviation for value in values]


def _read_attention(directory: Path, row: Row) -> Sequence[float]:
    """Return the first attention in a trace that was asked for in the order of the documents.

    The fusion "calibrated" asks in another order, so it tells nothing about positions. A damaged
    trace, or one outside the run's folder, has none.
    """
    file = (directory / str(row.trace)).resolve()
    if not file.is_relative_to(directory.resolve()):
        return ()
    try:
        with gzip.open(file, "rt", encoding="utf-8") as lines:
            for event in (json.loads(line) for line in lines if '"weighted"' in line):
                values = event.get("signals", {}).get("attention")
                if event["event"] == "weighted" and event.get("fusion", "sfs") == "sfs" and values:
                    return [float(value) for value in values]
    except (OSError, EOFError, ValueError, LookupError, AttributeError, TypeError, zlib.error):
        pass
    return ()


_MAKERS: Mapping[PictureKind, Callable[[RunResults, Picture], list[ReportFigure]]] = {
    "by-gold-position": _by_gold_position,
    "recall-at-k": _recall_at_k,
    "pareto": _cost_and_quality,
    "attention-by-position": _attention_by_position,
    "columns": _columns,
}

VERDICTS: Mapping[Verdict, tuple[str, str]] = {
    Verdict.RIGHT: ("#a5d8c6", "the right answer, or a refusal where the documents hold no answer"),
    Verdict.PARTLY: ("#d5e7bf", "some of what was asked for"),
    Verdict.ANSWERED: ("#dedbd3", "answered; no metric of this run decides how well"),
    Verdict.WRONG: ("#f3b9a3", "another answer than the right one"),
    Verdict.REFUSED: ("#f0dc9f", "no answer, although the documents hold it"),
    Verdict.FAILED: ("#d2bddd", "an error; counts as wrong everywhere"),
}
"""The colour and the meaning of each verdict."""


def make_verdict_figure(results: RunResults) -> ReportFigure:
    """Return the figure of how many answers of each verdict a strategy has."""
    counted = results.verdicts
    kinds = [kind for kind in Verdict if any(each[kind] for each in counted.values())]
    bars = [(each.label, [counted[each.name][kind] for kind in kinds]) for each in results.methods]
    head = ("strategy", *kinds, "answers")
    body = [(label, *(f"{count:,}" for count in row), f"{sum(row):,}") for label, row in bars]
    title = "What became of the answers"
    svg = draw_shares(bars, [VERDICTS[kind][0] for kind in kinds], title)
    return ReportFigure(title, svg=svg, numbers=(head, *body))


def make_difference_figure(results: RunResults) -> ReportFigure | None:
    """Return the figure of how far each strategy is from the best of each column."""
    labels = {each.name: each.label for each in results.methods}
    head = ("column", "best", "strategy", "difference", "low", "high", "p", "p, corrected", "", "n")
    panels, body = [], []
    for column in results.table.columns:
        gaps = [(labels[name], cell.gap) for name, cell in column.cells.items() if cell.gap]
        if not gaps:
            continue
        best = labels[str(column.best)]
        panels.append((column.title, f"difference from {best}", gaps))
        for label, gap in gaps:
            ends = (format_number(end, column.places) for end in (gap.mean, gap.low, gap.high))
            p = [
                "<.001" if each < 0.001 else f"{each:.3f}".removeprefix("0")
                for each in (gap.p, gap.corrected)
                if each is not None
            ]
            body.append((column.title, best, label, *ends, *p, gap.stars, f"{gap.questions:,}"))
    if not panels:
        return None
    note = (
        "For each column, over the questions that both were asked, with 95 % intervals of 10,000 "
        "paired resamples. A filled mark has stars: p is the larger of the bootstrap's and the "
        "sign-flip test's, corrected for all pairs of the column's strategies (Holm). So an "
        "interval of few questions may leave out zero and have none. Columns of fewer than six "
        "questions are left out: no paired test can tell anything there."
    )
    title = "Differences from the best"
    return ReportFigure(title, note, draw_differences(panels, title), (head, *body))


# Drawing

COLOURS = ("#1b5ea6", "#bf430f", "#0f756c", "#87409c", "#8c5f00", "#b0265b", "#566270", "#4c6a05")
_MARKERS = "osD^vPXp"
_INK, _SOFT, _MARKED = "#1d1c1a", "#5c5a54", "#fbe9a9"
_WIDTH = 10.0  # inches of 96 pixels in a page
_LABEL = 32  # characters of a strategy's name that a figure shows
_STYLE: dict[Any, Any] = {
    "svg.hashsalt": "colligate",  # ids depend on the drawing alone
    "svg.fonttype": "none",  # text stays text
    "text.parse_math": False,  # a label may hold dollar signs
    "font.family": ["DejaVu Sans"],  # comes with matplotlib
    "font.size": 9,
    "figure.facecolor": "none",
    "figure.constrained_layout.h_pad": 0.09,
    "axes.facecolor": "none",
    "axes.titlesize": 9,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    **dict.fromkeys(("axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), _SOFT),
    **dict.fromkeys(("axes.spines.top", "axes.spines.right", "legend.frameon"), False),
    **dict.fromkeys(("axes.grid", "axes.axisbelow"), True),
    "grid.color": "#e3e0d8",
    "text.color": _INK,
}


def can_draw() -> bool:
    """Tell whether matplotlib is installed."""
    return find_spec("matplotlib") is not None


@dataclass(frozen=True)
class Chart:
    """The title and axes of lines; `limits` are of the vertical axis, the other may be a log."""

    title: str
    x_label: str
    y_label: str
    limits: tuple[float, float | None] | None = None
    logarithmic: bool = False


def draw_lines(
    panels: Sequence[Panel], chart: Chart, front: Sequence[tuple[float, float]] = ()
) -> str:
    """Draw the lines of each panel over a common vertical axis; "" where there is no point.

    With a `front`, which is drawn as steps, the points of a series are not joined.
    """
    panels = [replace(panel, series=list(filter(_has_value, panel.series))) for panel in panels]
    panels = [panel for panel in panels if panel.series]
    places = [point.x for panel in panels for each in panel.series for point in each.points]
    # Whiskers of several series at one place stand beside each other.
    aside = 0.0 if chart.logarithmic or front or not places else 0.012 * (max(places) - min(places))
    with _make_canvas(len(panels), 3.9 if len(panels) == 1 else 2.2, True) as canvas:
        if canvas is None:
            return ""
        from matplotlib.ticker import LogLocator, MaxNLocator

        handles = {}
        for ax, panel in zip(canvas.axes, panels, strict=True):
            if panel.marked is not None:
                ax.axvspan(panel.marked - 0.4, panel.marked + 0.4, color=_MARKED, linewidth=0)
            if front:
                ax.step(*zip(*front, strict=True), where="post", color=_SOFT, linestyle="--")
            for number, each in enumerate(panel.series):
                points = sorted(each.points, key=lambda point: point.x)
                shift = min(aside, 0.7 / len(panel.series)) * (number - len(panel.series) / 2 + 0.5)
                handles[each.label, each.style] = ax.errorbar(
                    [point.x + shift for point in points],
                    [_keep_finite(point.y) for point in points],
                    _measure_whiskers(points),
                    color=COLOURS[each.style % len(COLOURS)],
                    marker=_MARKERS[(each.style + each.style // len(COLOURS)) % len(_MARKERS)],
                    linestyle="none" if front else "-",
                    elinewidth=0.8,
                )
            if chart.logarithmic:
                ax.set_xscale("log")
                ax.set_xticks([], minor=True)
            locator = LogLocator(subs=(1, 2, 5)) if chart.logarithmic else MaxNLocator(integer=True)
            ax.xaxis.set_major_locator(locator)
            ax.xaxis.set_major_formatter("{x:,.0f}")
            ax.set_title(_clean(panel.title))
            _name_axes(ax, chart)
        _add_legend(canvas, handles)
        return _save(canvas, chart.title)


def draw_groups(series: Sequence[Series], groups: Sequence[str], chart: Chart) -> str:
    """Draw a group of bars for each of `groups`, which the places of points count from 0."""
    series = list(filter(_has_value, series))
    with _make_canvas(min(1, len(series)), 3.9) as canvas:
        if canvas is None:
            return ""
        [ax] = canvas.axes
        width, handles = 0.8 / len(series), {}
        for number, each in enumerate(series):
            handles[each.label, each.style] = ax.bar(
                [point.x + (number - len(series) / 2 + 0.5) * width for point in each.points],
                [_keep_finite(point.y) for point in each.points],
                0.9 * width,
                yerr=_measure_whiskers(each.points),
                color=COLOURS[each.style % len(COLOURS)],
                alpha=1 / (1 + each.style // len(COLOURS)),
                ecolor=_INK,
            )
        ax.set_xticks(range(len(groups)), [_clean(group) for group in groups])
        ax.grid(visible=False, axis="x")
        _name_axes(ax, chart)
        _add_legend(canvas, handles)
        return _save(canvas, chart.title)


def draw_shares(
    bars: Sequence[tuple[str, Sequence[int]]], colours: Sequence[str], title: str
) -> str:
    """Draw a bar for each label, divided by its counts, one a colour; the page has the legend."""
    with _make_canvas(min(1, len(colours)), 0.7 + 0.3 * len(bars)) as canvas:
        if canvas is None:
            return ""
        [ax] = canvas.axes
        for at, (_, counts) in enumerate(bars):
            total = sum(counts)
            ends = list(accumulate((count / (total or 1) for count in counts), initial=0.0))
            for start, end, colour, count in zip(ends, ends[1:], colours, counts, strict=False):
                drawn = ax.barh(at, end - start, left=start, height=0.72, color=colour)
                if end - start > 0.04:
                    ax.bar_label(drawn, [f"{count:,}"], label_type="center")
            ax.text(1.01, at, f"{total:,}", va="center", color=_SOFT)
        _list_rows(ax, [label for label, _ in bars])
        ax.set_xlim(0, 1)
        ax.xaxis.set_visible(False)
        ax.grid(visible=False)
        ax.spines[:].set_visible(False)
        return _save(canvas, title)


def draw_differences(
    panels: Sequence[tuple[str, str, Sequence[tuple[str, Difference]]]], title: str
) -> str:
    """Draw differences from zero: panels with a title, the axis' label, and labelled rows.

    A mark is filled where the difference has stars.
    """
    rows = max((len(gaps) for *_, gaps in panels), default=0)
    with _make_canvas(len(panels), 0.9 + 0.2 * rows) as canvas:
        if canvas is None:
            return ""
        for ax, (name, x_label, gaps) in zip(canvas.axes, panels, strict=True):
            ax.axvline(0, color=_INK, linewidth=1)
            for at, (_, gap) in enumerate(gaps):
                mean, low, high = map(_keep_finite, (gap.mean, gap.low, gap.high))
                ax.hlines(at, low, high, color=COLOURS[0])
                face = COLOURS[0] if gap.stars else "white"
                ax.plot([mean], [at], "o", color=COLOURS[0], markerfacecolor=face)
                ax.annotate(f" {gap.stars}", (high, at), va="center")
            _list_rows(ax, [label for label, _ in gaps])
            ax.set(title=_clean(name), xlabel=_clean(x_label))
        return _save(canvas, title)


def _name_axes(ax: Axes, chart: Chart) -> None:
    ax.set(xlabel=_clean(chart.x_label), ylabel=_clean(chart.y_label))
    if chart.limits is not None:  # None would end the choice of limits by the values
        ax.set_ylim(*chart.limits)


def _has_value(series: Series) -> bool:
    return any(math.isfinite(_keep_finite(point.y)) for point in series.points)


def _measure_whiskers(points: Sequence[Point]) -> list[list[float]]:
    """Return how far the ends of intervals are below and above the values; NaN draws none."""
    ends = [(_keep_finite(p.low), _keep_finite(p.y), _keep_finite(p.high)) for p in points]
    below = [max(0.0, y - low) if low == low else low for low, y, _ in ends]
    return [below, [max(0.0, high - y) if high == high else high for _, y, high in ends]]


def _keep_finite(value: float | None) -> float:
    """Return a value that an axis can have ticks for, or NaN, which is not drawn."""
    if value is None or not (value == 0 or 1e-100 < abs(value) < 1e100):
        return math.nan
    return value


def _list_rows(ax: Axes, labels: Sequence[str]) -> None:
    """Name the rows of a chart, from the top."""
    ax.set_yticks(range(len(labels)), [_clean(label) for label in labels])
    ax.tick_params(axis="y", length=0, labelcolor=_INK)
    ax.grid(visible=False, axis="y")
    ax.set_ylim(len(labels) - 0.4, -0.6)


def _add_legend(canvas: Figure, handles: Mapping[tuple[str, int], Any]) -> None:
    """Add the legend of several series: beside one panel, below several."""
    if len(handles) > 1:
        labels = [_clean(label) for label, _ in handles]
        below: Any = {"loc": "outside lower center", "ncols": 4}
        where = below if len(canvas.axes) > 1 else {"loc": "outside right upper"}
        canvas.legend(list(handles.values()), labels, **where)


@contextmanager
def _make_canvas(panels: int, height: float, sharey: bool = False) -> Iterator[Figure | None]:
    """Make a figure of panels, three in a row, each of a height in inches; None without matplotlib.

    No global state is touched beyond the block: matplotlib's pyplot is not used.
    """
    if not can_draw() or not panels:
        yield None
        return
    import matplotlib
    from matplotlib.figure import Figure

    columns = min(3, panels)
    rows = math.ceil(panels / columns)
    with warnings.catch_warnings(), matplotlib.rc_context(_STYLE):
        warnings.simplefilter("ignore")  # glyphs that the measuring font lacks, cramped layouts
        canvas = Figure(figsize=(_WIDTH, height * rows + 0.5), layout="constrained")
        every = canvas.subplots(rows, columns, squeeze=False, sharey=sharey).flatten()
        for unused in every[panels:]:
            unused.remove()
        yield canvas


def _save(canvas: Figure, title: str) -> str:
    """Return the SVG element with its title, without dates and the program's name."""
    buffer = io.StringIO()
    canvas.savefig(buffer, format="svg", metadata={"Date": None})
    svg = buffer.getvalue()
    svg = re.sub(r"\s*<metadata>.*?</metadata>", "", svg[svg.index("<svg") :], flags=re.DOTALL)
    svg = svg.replace("'DejaVu Sans'", "'DejaVu Sans', Verdana, sans-serif")
    return svg.replace(">", f' role="img">\n <title>{escape(_clean(title, 200))}</title>', 1)


def _clean(text: str, most: int = _LABEL) -> str:
    """Return a text in one line that XML can hold, cut where it is long."""
    shown = "".join(letter if letter.isprintable() else " " for letter in text)
    shown = " ".join(shown.split())
    return shown if len(shown) <= most else f"{shown[: most - 1]}…"
