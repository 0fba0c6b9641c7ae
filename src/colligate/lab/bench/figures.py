"""The report's figures: which numbers each of them shows, by the suite's `[[pictures]]`.

matplotlib, which comes with the extra `bench`, draws them as SVG files; without it every drawing
is "". The same numbers always give the same drawing.
"""

from __future__ import annotations

import io
import math
import re
import warnings
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from statistics import fmean, pstdev
from typing import Any

from colligate.core.events import pluralize
from colligate.lab.bench.suites import Method, Picture, PictureKind
from colligate.lab.bench.tables import (
    NONE,
    QuestionKey,
    RunResults,
    TextTable,
    format_interval,
    format_number,
)

_INTERVALS = "Whiskers are 95 % intervals, by bootstrap over the questions."


@dataclass(frozen=True)
class ReportFigure:
    """A figure of the report. `key` names its file, `numbers` has the same as a table.

    `svg` is empty where there is nothing to draw with; where there is nothing to draw, there are
    no numbers either, and the note says why.
    """

    title: str
    note: str = ""
    svg: str = ""
    numbers: TextTable = ()
    key: str = ""


def make_figures(results: RunResults) -> tuple[ReportFigure, ...]:
    """Return the suite's pictures, in its order."""
    figures = []
    for picture in results.suite.pictures:
        figure = _MAKERS[picture.kind](results, picture)
        named = filter(None, (picture.kind, picture.dataset, picture.metric))
        figures.append(replace(figure, key=re.sub(r"\W+", "-", "-".join(named))))
    return tuple(figures)


def _by_gold_position(results: RunResults, picture: Picture) -> ReportFigure:
    """Return quality by the place of the document that holds the answer."""
    metric = _choose_metric(results, picture)
    title = f"{(metric or 'quality').capitalize()} by the place of the gold document"
    title, scale = picture.label or title, results.scale(metric)
    places = {row.key[:2]: row.gold_at + 1 for row in results.rows if row.gold_at is not None}
    series = []
    for method in results.methods:
        at: dict[float, dict[QuestionKey, float]] = defaultdict(dict)
        for key, value in results.values(picture.dataset, method.name, metric).items():
            if key in places:
                at[places[key]][key] = value
        series += _make_series(results, method, at, scale)
    if len({point.x for each in series for point in each.points}) < 2:
        return ReportFigure(title, "No data set of this run has the gold document at two places.")
    svg = draw_lines([Panel("", series)], _make_chart("place of the gold document", scale))
    return ReportFigure(title, _INTERVALS, svg, _tabulate(series))


def _choose_metric(results: RunResults, picture: Picture) -> str:
    return picture.metric or results.deciding_metric(*results.members(picture.dataset))


def _make_series(
    results: RunResults,
    method: Method,
    at: Mapping[float, Mapping[QuestionKey, float]],
    scale: float,
) -> list[Series]:
    """Return the means of the values at each place with their intervals; nothing without any."""
    points = [
        Point(x, fmean(at[x].values()) * scale, *results.interval(at[x], scale))
        for x in sorted(at)
        if at[x]
    ]
    return [Series(method.label, points, results.methods.index(method))] if points else []


def _tabulate(series: Sequence[Series], places: int = 1) -> TextTable:
    """Return a row for each series, a column for each place."""
    at = sorted({point.x for each in series for point in each.points})
    rows = []
    for each in series:
        known = {p.x: _format_point(p, places) for p in each.points}
        rows.append((each.label, *(known.get(place, NONE) for place in at)))
    return [("", *(f"{place:g}" for place in at)), *rows]


def _format_point(point: Point, places: int = 1) -> str:
    """Return a value, with its interval in brackets where that has a width."""
    text = format_number(point.y, places)
    if point.low is None or point.high is None or point.low == point.high:
        return text
    return f"{text} {format_interval(point.low, point.high, places)}"


def _make_chart(x_label: str, scale: float, metric: str = "") -> Chart:
    """Return the axes of values of a scale: 100 is that of percentages."""
    unit = "%" if scale == 100 else "mean"
    limits = (0.0, 100.0) if scale == 100 else None
    return Chart(x_label, f"{metric}, {unit}" if metric else unit, limits)


_AT_K = re.compile(r"(?P<stem>\w+)_at_(?P<k>\d+)")


def _recall_at_k(results: RunResults, picture: Picture) -> ReportFigure:
    """Return recall, or another measure of the first k that a search returned, against k."""
    stem = picture.metric or "recall"
    title = picture.label or f"{stem.capitalize()} against k"
    panels = []
    for dataset in results.members(picture.dataset):
        measured = (_AT_K.fullmatch(name) for name in results.metrics_of(dataset))
        cuts = sorted(int(match["k"]) for match in measured if match and match["stem"] == stem)
        series = []
        for method in results.methods:
            at = {1.0 * k: results.values(dataset, method.name, f"{stem}_at_{k}") for k in cuts}
            series += _make_series(results, method, at, 100)
        if series and len(cuts) > 1:
            panels.append(Panel(dataset, series))
    if not panels:
        return ReportFigure(title, "No strategy of this run searched, or this was not measured.")
    chart = _make_chart("documents looked at (k)", 100)
    svg = draw_lines(panels, replace(chart, logarithmic=True))
    note = "Of the documents that searches returned, in the order in which they were first found."
    named = [replace(s, label=f"{p.title}, {s.label}") for p in panels for s in p.series]
    return ReportFigure(title, note, svg, _tabulate(named))


def _columns(results: RunResults, picture: Picture) -> ReportFigure:
    """Return the table's columns side by side: of one data set or metric, on the first's scale."""
    title = picture.label or "The table as a figure"
    shown = [
        column
        for column in results.table.columns
        if picture.dataset in ("", column.dataset) and picture.metric in ("", column.metric)
        if column.cells
    ]
    if not shown:
        return ReportFigure(title, "No column of the table that it shows was measured.")
    scale = shown[0].scale
    shown = [column for column in shown if column.scale == scale]
    series = []
    for style, method in enumerate(results.methods):
        cells = [(place, column.cells.get(method.name)) for place, column in enumerate(shown)]
        points = [Point(at, cell.value, cell.low, cell.high) for at, cell in cells if cell]
        series += [Series(method.label, points, style)] if points else []
    groups = [column.label for column in shown]
    _, *body = _tabulate(series)
    chart = replace(_make_chart("", scale), groups=groups)
    svg = draw_lines([Panel("", series)], chart)
    return ReportFigure(title, _INTERVALS, svg, [("", *groups), *body])


def _cost_and_quality(results: RunResults, picture: Picture) -> ReportFigure:
    """Return tokens against quality, over the questions that every strategy has."""
    dataset, metric = picture.dataset, _choose_metric(results, picture)
    title, scale = picture.label or "Cost against quality", results.scale(metric)
    values: dict[Method, dict[QuestionKey, float]] = {}
    for method in results.methods:
        tokens = results.values(dataset, method.name, _COSTS[0])
        quality = results.values(dataset, method.name, metric)
        if tokens:
            values[method] = {key: each for key, each in quality.items() if key in tokens}
    common = set.intersection(*map(set, values.values())) if values else set()
    if len(values) < 2 or not common:
        why = "There are not two strategies with questions, tokens and a metric in common."
        return ReportFigure(title, why)
    dots: list[Series] = []
    numbers = []
    for method, every in values.items():
        quality = {key: value for key, value in every.items() if key in common}
        costs = [results.values(dataset, method.name, name) for name in _COSTS]
        # Seconds of remembered replies and unknown prices are not measured.
        cost = [fmean(of[key] for key in common) if common <= of.keys() else None for of in costs]
        dots += _make_series(results, method, {cost[0] or 0.0: quality}, scale)
        mean = _format_point(dots[-1].points[0])
        numbers.append((method.label, mean, *map(format_number, cost)))
    places = [(each.points[0].x, each.points[0].y) for each in dots]
    front = _find_front(places)
    head = ("strategy", metric, *_COSTS, "front")
    body = [
        (*row, "yes" if place in front else "") for row, place in zip(numbers, places, strict=True)
    ]
    note = (
        f"Means over the {pluralize(len(common), 'question')} that every strategy was asked. "
        "The line joins the strategies that no other beats on both: fewer tokens, or better "
        "answers."
    )
    least, most = min(places)[0], max(places)[0]
    chart = _make_chart("tokens a question, in and out", scale, metric)
    svg = draw_lines([Panel("", dots)], replace(chart, logarithmic=0 < 4 * least < most), front)
    return ReportFigure(title, note, svg, (head, *body))


_COSTS = ("tokens", "calls", "seconds", "usd")


def _find_front(places: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the places that no other beats: none is as good for less, or better for as little."""
    return sorted(
        (x, y)
        for x, y in set(places)
        if not any(a <= x and b >= y and (a, b) != (x, y) for a, b in places)
    )


def _attention_by_position(results: RunResults, picture: Picture) -> ReportFigure:
    """Return the attention to each place, a panel for each place of the gold document.

    An outcome has the attention to each document, in the order given, where its strategy asked for
    it (DuQUAD's Figure 1). Within a question the numbers become z-scores, so that long prompts and
    short ones count alike; they are then averaged by position.
    """
    title = picture.label or "Attention by position"
    panels, counts = [], []
    for method in results.methods:
        # By the place of the gold document, last where it is unknown, then by position.
        seen: dict[float, dict[float, dict[QuestionKey, float]]] = {}
        read = 0
        for row in results.rows_of(picture.dataset, method.name):
            gold = math.inf if row.gold_at is None else row.gold_at + 1
            scores = _z_scores(row.outcome.attention)
            read += bool(scores)
            for place, score in enumerate(scores, 1):
                seen.setdefault(gold, {}).setdefault(place, {})[row.key[:2]] = score
        for gold in sorted(seen):
            known = math.isfinite(gold)
            named = f"Gold document at {f'{gold:g}' if known else 'any place'}"
            series = _make_series(results, method, seen[gold], 1)
            panels.append(Panel(named, series, gold if known else None))
        if read:
            counts.append(f"{read:,} answers of {method.label}")
    if not panels:
        why = "No row of this run has a strategy's attention to the documents given."
        return ReportFigure(title, why)
    note = (
        "Attention of the question to each document, as z-scores within a question, averaged over "
        f"{' and '.join(counts)}. The gold document's position is marked. {_INTERVALS}"
    )
    if len(counts) > 1:
        panels = [replace(p, title=f"{p.title}, {p.series[0].label}") for p in panels]
    svg = draw_lines(panels, Chart("position in the prompt", "z"))
    numbers = _tabulate([replace(p.series[0], label=p.title) for p in panels], 2)
    return ReportFigure(title, note, svg, numbers)


def _z_scores(values: Sequence[float]) -> Sequence[float]:
    deviation = pstdev(values) if len(values) > 1 else 0.0
    if not deviation or not math.isfinite(deviation):
        return ()
    mean = fmean(values)
    return [(value - mean) / deviation for value in values]


_BINS = 5  # of a reliability diagram, with as many answers each


def _reliability(results: RunResults, picture: Picture) -> ReportFigure:
    """Return how many answers are right, by the probability that they were given."""
    title = picture.label or "Right answers by their probability"
    series = []
    for method in results.methods:
        rated = _rated(results, picture, method)
        size = max(1, math.ceil(len(rated) / _BINS))
        at: dict[float, dict[QuestionKey, float]] = defaultdict(dict)
        for start in range(0, len(rated), size):
            part = rated[start : start + size]
            at[round(100 * fmean(p for p, _, _ in part), 1)] |= {k: right for _, right, k in part}
        series += _make_series(results, method, at, 100)
    if not series:
        return ReportFigure(title, "No answer of this run has a probability.")
    note = (
        f"Answers in {_BINS} groups of like probability: on the diagonal as many are right as was "
        f"said. {_INTERVALS}"
    )
    chart = _make_chart("probability, mean of the group, %", 100, "right")
    diagonal = Series("as said", [Point(0, 0), Point(100, 100)], len(results.methods))
    svg = draw_lines([Panel("", [*series, diagonal])], chart)
    return ReportFigure(title, note, svg, _tabulate(series))


def _risk_coverage(results: RunResults, picture: Picture) -> ReportFigure:
    """Return which share of the surest answers is wrong, by the share of questions they answer."""
    title = picture.label or "Wrong among the surest answers"
    series = []
    for method in results.methods:
        rated = _rated(results, picture, method)
        asked = len(results.rows_of(picture.dataset, method.name))
        shares = [tenth / 10 for tenth in range(1, 11) if tenth * asked <= 10 * len(rated)]
        cuts = {round(100 * share, 1): round(asked * share) for share in shares}
        cuts |= {round(100 * len(rated) / asked, 1): len(rated)} if rated else {}
        at = {x: {key: 1 - right for _, right, key in rated[:n]} for x, n in cuts.items()}
        series += _make_series(results, method, at, 100)
    if not series:
        return ReportFigure(title, "No answer of this run has a probability.")
    note = f"The surest answers come first; the last point has all with a probability. {_INTERVALS}"
    chart = _make_chart("questions answered, %", 100, "wrong of these")
    return ReportFigure(title, note, draw_lines([Panel("", series)], chart), _tabulate(series))


def _rated(
    results: RunResults, picture: Picture, method: Method
) -> list[tuple[float, float, QuestionKey]]:
    """Return the answers whose probability is known, the surest first: is it right, and which."""
    right = results.values(picture.dataset, method.name, "right")
    rated = [
        (row.outcome.probability, right[key], key)
        for row in results.rows_of(picture.dataset, method.name)
        if row.outcome.probability is not None and (key := row.key[:2]) in right
    ]
    return sorted(rated, key=lambda each: (-each[0], each[2]))


_MAKERS: Mapping[PictureKind, Callable[[RunResults, Picture], ReportFigure]] = {
    "by-gold-position": _by_gold_position,
    "recall-at-k": _recall_at_k,
    "pareto": _cost_and_quality,
    "attention-by-position": _attention_by_position,
    "columns": _columns,
    "reliability": _reliability,
    "risk-coverage": _risk_coverage,
}


# Drawing: lines with intervals, in one chart or in several small ones
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


@dataclass(frozen=True)
class Chart:
    """The axes of lines: `limits` of the vertical one; the other is a log, or has `groups`."""

    x_label: str
    y_label: str
    limits: tuple[float, float | None] | None = None
    logarithmic: bool = False
    groups: Sequence[str] = ()


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
    "figure.facecolor": "white",
    "axes.facecolor": "none",
    "axes.titlesize": 9,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    **dict.fromkeys(("axes.spines.top", "axes.spines.right", "legend.frameon"), False),
    **dict.fromkeys(("axes.grid", "axes.axisbelow"), True),
    "grid.color": "#e3e0d8",
    "text.color": _INK,
}


def can_draw() -> bool:
    """Tell whether matplotlib is installed."""
    return find_spec("matplotlib") is not None


def draw_lines(
    panels: Sequence[Panel], chart: Chart, front: Sequence[tuple[float, float]] = ()
) -> str:
    """Draw the lines of each panel over a common vertical axis, as an SVG file without a date.

    It is "" where there is no point, or no matplotlib. With a `front`, which is drawn as steps, or
    with groups the points of a series are not joined.
    """
    panels = [replace(panel, series=_keep_finite(panel.series)) for panel in panels]
    panels = [panel for panel in panels if panel.series]
    if not can_draw() or not panels:
        return ""
    import matplotlib
    from matplotlib.figure import Figure  # pyplot would touch what is global
    from matplotlib.ticker import LogLocator, MaxNLocator

    columns = min(3, len(panels))
    rows, height = math.ceil(len(panels) / columns), 3.9 if len(panels) == 1 else 2.2
    with warnings.catch_warnings(), matplotlib.rc_context(_STYLE):
        warnings.simplefilter("ignore")  # glyphs that the measuring font lacks, cramped layouts
        canvas = Figure(figsize=(_WIDTH, height * rows + 0.5), layout="constrained")
        every = canvas.subplots(rows, columns, squeeze=False, sharey=True).flatten()
        for unused in every[len(panels) :]:
            unused.remove()
        handles: dict[tuple[str, int], Any] = {}
        for ax, panel in zip(canvas.axes, panels, strict=True):
            if panel.marked is not None:
                ax.axvspan(panel.marked - 0.4, panel.marked + 0.4, color=_MARKED, linewidth=0)
            if front:
                ax.step(*zip(*front, strict=True), where="post", color=_SOFT, linestyle="--")
            for number, each in enumerate(panel.series):
                # In a group the series stand side by side.
                aside = (number - (len(panel.series) - 1) / 2) * 0.8 / len(panel.series)
                handles[each.label, each.style] = ax.errorbar(
                    [point.x + (aside if chart.groups else 0) for point in each.points],
                    [point.y for point in each.points],
                    _measure_whiskers(each.points),
                    color=COLOURS[each.style % len(COLOURS)],
                    marker=_MARKERS[(each.style + each.style // len(COLOURS)) % len(_MARKERS)],
                    linestyle="none" if front or chart.groups else "-",
                    elinewidth=0.8,
                )
            if chart.logarithmic:
                ax.set_xscale("log")
                ax.set_xticks([], minor=True)
            if chart.groups:
                ax.set_xticks(range(len(chart.groups)), list(map(_clean, chart.groups)))
            else:
                log, whole = LogLocator(subs=(1, 2, 5)), MaxNLocator(integer=True)
                ax.xaxis.set_major_locator(log if chart.logarithmic else whole)
                ax.xaxis.set_major_formatter("{x:,.0f}")
            ax.set(title=_clean(panel.title), xlabel=_clean(chart.x_label))
            ax.set_ylabel(_clean(chart.y_label))
            if chart.limits is not None:  # None would end the choice of limits by the values
                ax.set_ylim(*chart.limits)
        if len(handles) > 1:
            labels = [_clean(label) for label, _ in handles]
            below: Any = {"loc": "outside lower center", "ncols": 4}
            where = below if len(panels) > 1 else {"loc": "outside right upper"}
            canvas.legend(list(handles.values()), labels, **where)
        buffer = io.StringIO()
        canvas.savefig(buffer, format="svg", metadata={"Date": None})
    return buffer.getvalue().replace("'DejaVu Sans'", "'DejaVu Sans', Verdana, sans-serif")


def _keep_finite(series: Sequence[Series]) -> list[Series]:
    """Return the series with the points that an axis can have, in order; none without any."""
    kept = [
        replace(
            each, points=sorted((p for p in each.points if math.isfinite(p.y)), key=lambda p: p.x)
        )
        for each in series
    ]
    return [each for each in kept if each.points]


def _measure_whiskers(points: Sequence[Point]) -> list[list[float]]:
    """Return how far the ends of intervals are below and above the values; NaN draws none."""
    ends = [(p.y, math.nan if p.low is None else p.low, p.high) for p in points]
    below = [max(y - low, 0.0) for y, low, _ in ends]
    return [below, [math.nan if high is None else max(high - y, 0.0) for y, _, high in ends]]


def _clean(text: str) -> str:
    """Return a text in one line that XML can hold, cut where it is long."""
    shown = "".join(letter if letter.isprintable() else " " for letter in text)
    shown = " ".join(shown.split())
    return shown if len(shown) <= _LABEL else f"{shown[: _LABEL - 1]}…"
