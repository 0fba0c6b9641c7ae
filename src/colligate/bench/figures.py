"""Drawing by matplotlib: numbers in, one SVG out.

matplotlib comes with the extra `bench`; without it every function returns "" in place of a drawing.
The same numbers always give the same text.
"""

from __future__ import annotations

import io
import math
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from html import escape
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from colligate.bench.significance import Difference

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


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
    points: tuple[Point, ...]
    style: int = 0


@dataclass(frozen=True)
class Panel:
    """A small chart among others of one figure; the place `marked` is highlighted."""

    title: str
    series: tuple[Series, ...]
    marked: float | None = None


def can_draw() -> bool:
    """Tell whether matplotlib is installed."""
    return find_spec("matplotlib") is not None


def draw_lines(
    panels: Sequence[Panel],
    *,
    title: str,
    x_label: str,
    y_label: str,
    limits: tuple[float, float | None] | None = None,
    logarithmic: bool = False,
    ticks_at_points: bool = False,
) -> str:
    """Draw the lines of each panel over common axes; "" where there is no point to draw.

    `limits` are those of the vertical axis, `logarithmic` is about the horizontal one.
    """
    panels = [kept for panel in panels if (kept := _drop_absurd(panel)).series]
    with _make_canvas(len(panels), 3.9 if len(panels) == 1 else 2.2) as canvas:
        if canvas is None:
            return ""
        axes = canvas.axes
        for ax, panel in zip(axes, panels, strict=True):
            ax.set_title(_clean(panel.title))
            if panel.marked is not None:
                ax.axvspan(panel.marked - 0.4, panel.marked + 0.4, color=_MARKED, linewidth=0)
            _plot(ax, panel.series, shift=ticks_at_points and not logarithmic)
            ax.set_xlabel(_clean(x_label))
            ax.set_ylabel(_clean(y_label))
        every = [point for panel in panels for each in panel.series for point in each.points]
        for ax in axes:
            if logarithmic:
                ax.set_xscale("log")
            if ticks_at_points:
                at = sorted({point.x for point in every})
                at = at[:: max(1, -(-len(at) // 10))]
                ax.set_xticks(at, [f"{place:g}" for place in at])
                ax.set_xticks([], minor=True)
            if limits is not None:
                ax.set_ylim(*limits)
            elif len(panels) > 1:
                ends = [
                    v for p in every for v in (p.y, p.low, p.high) if v is not None and _can_plot(v)
                ]
                margin = 0.06 * (max(ends) - min(ends) or 1)
                ax.set_ylim(min(ends) - margin, max(ends) + margin)
        named = {(each.label, each.style): each for panel in panels for each in panel.series}
        if len(named) > 1:
            _add_legend(canvas, named.values(), below=len(panels) > 1)
        return _save(canvas, title)


def _drop_absurd(panel: Panel) -> Panel:
    """Return the panel without points that cannot be drawn, and series without any left."""
    marked = panel.marked if panel.marked is not None and _can_plot(panel.marked) else None
    series = []
    for each in panel.series:
        if points := [point for point in each.points if _can_plot(point.x, point.y)]:
            series.append(replace(each, points=tuple(points)))
    return replace(panel, series=tuple(series), marked=marked)


def _can_plot(*values: float) -> bool:
    """Tell whether an axis can have ticks for the values: not NaN, infinite, near it or near 0."""
    return all(value == 0 or 1e-100 < abs(value) < 1e100 for value in values)


def _plot(ax: Axes, series: Sequence[Series], *, shift: bool) -> None:
    """Plot lines with whiskers; with `shift` the whiskers of one place are beside each other."""
    places = [point.x for each in series for point in each.points]
    step = min(0.012 * (max(places) - min(places)), 0.7 / len(series)) if shift else 0.0
    for number, each in enumerate(series):
        aside = (number - (len(series) - 1) / 2) * step
        points = sorted(each.points, key=lambda point: point.x)
        x = [point.x + aside for point in points]
        ax.plot(
            x, [p.y for p in points], linewidth=1.6, clip_on=False, **_choose_marker(each.style)
        )
        _add_whiskers(ax, points, aside, COLOURS[each.style % len(COLOURS)])


def _add_whiskers(ax: Axes, points: Sequence[Point], aside: float, colour: str) -> None:
    for point in points:
        low, high = point.low, point.high
        if low is not None and high is not None and _can_plot(low, high):
            ax.vlines(point.x + aside, low, high, colors=colour, linewidth=1.1, alpha=0.4)


def _choose_marker(style: int) -> dict[str, Any]:
    """Return a colour and a marker; from the ninth on markers are open, then shifted by one."""
    colour = COLOURS[style % len(COLOURS)]
    is_open = style // len(COLOURS) % 2
    shape = _MARKERS[(style + style // (2 * len(COLOURS))) % len(_MARKERS)]
    face = "white" if is_open else colour
    return {"color": colour, "marker": shape, "markersize": 5, "markerfacecolor": face}


def _add_legend(canvas: Figure, series: Iterable[Series], *, below: bool) -> None:
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], label=_clean(each.label), linestyle="none", **_choose_marker(each.style))
        for each in series
    ]
    if below:
        canvas.legend(handles=handles, loc="outside lower center", ncols=4)
    else:
        canvas.legend(handles=handles, loc="outside right upper")


def draw_groups(
    series: Sequence[Series],
    groups: Sequence[str],
    *,
    title: str,
    y_label: str,
    limits: tuple[float, float] | None,
) -> str:
    """Draw a group of bars for each of `groups`, which the places of points count from 0."""
    series = _drop_absurd(Panel("", tuple(series))).series
    with _make_canvas(1 if series else 0, 3.9) as canvas:
        if canvas is None:
            return ""
        [ax] = canvas.axes
        width = 0.8 / len(series)
        for number, each in enumerate(series):
            aside = (number - (len(series) - 1) / 2) * width
            look = _choose_marker(each.style)
            ax.bar(
                [point.x + aside for point in each.points],
                [point.y for point in each.points],
                0.9 * width,
                label=_clean(each.label),
                color=look["markerfacecolor"],
                edgecolor=look["color"],
            )
            _add_whiskers(ax, each.points, aside, _INK)
        ax.set_xticks(range(len(groups)), [_clean(group) for group in groups])
        ax.grid(visible=False, axis="x")
        if limits is not None:
            ax.set_ylim(*limits)
        ax.set_ylabel(_clean(y_label))
        canvas.legend(loc="outside right upper")
        return _save(canvas, title)


def draw_front(
    dots: Sequence[Series],
    best: Sequence[bool],
    *,
    title: str,
    y_label: str,
    limits: tuple[float, float] | None,
) -> str:
    """Draw each strategy at its tokens and quality, with the front of those that none beats."""
    with _make_canvas(1, 4.2) as canvas:
        if canvas is None:
            return ""
        [ax] = canvas.axes
        front = sorted(
            (dot.points[0].x, dot.points[0].y) for dot, on in zip(dots, best, strict=True) if on
        )
        x, y = zip(*front, strict=True)
        ax.step(x, y, where="post", color=_SOFT, linewidth=1.1, linestyle="--")
        for dot, on in zip(dots, best, strict=True):
            [point] = dot.points
            _add_whiskers(ax, dot.points, 0.0, COLOURS[dot.style % len(COLOURS)])
            look = {**_choose_marker(dot.style), "markersize": 9 if on else 6}
            ax.plot([point.x], [point.y], linestyle="none", clip_on=False, **look)
        spread = [dot.points[0].x for dot in dots]
        if min(spread) > 0 and max(spread) > 4 * min(spread):
            from matplotlib.ticker import LogLocator

            ax.set_xscale("log")
            ax.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            ax.set_xticks([], minor=True)
        else:
            ax.set_xlim(left=0)
        ax.xaxis.set_major_formatter("{x:,.0f}")
        if limits is not None:
            ax.set_ylim(*limits)
        ax.set_xlabel("tokens a question, in and out")
        ax.set_ylabel(_clean(y_label))
        _add_legend(canvas, dots, below=False)
        return _save(canvas, title)


def draw_bars(
    bars: Sequence[tuple[str, Sequence[int]]], colours: Mapping[str, str], *, title: str
) -> str:
    """Draw a bar for each label, divided by its counts, one a colour; the page has the legend."""
    with _make_canvas(1 if colours else 0, 0.7 + 0.3 * len(bars)) as canvas:
        if canvas is None:
            return ""
        [ax] = canvas.axes
        for at, row in enumerate(row for _, row in bars):
            start, total = 0.0, sum(row) or 1
            for colour, count in zip(colours.values(), row, strict=True):
                share = count / total
                ax.barh(at, share, left=start, height=0.72, color=colour)
                if share > 0.04:
                    ax.text(start + share / 2, at, f"{count:,}", ha="center", va="center")
                start += share
            ax.text(1.01, at, f"{sum(row):,}", va="center", color=_SOFT)
        ax.set_yticks(range(len(bars)), [_clean(label) for label, _ in bars])
        ax.tick_params(axis="y", length=0, labelcolor=_INK)
        ax.set_xlim(0, 1)
        ax.xaxis.set_visible(False)
        ax.grid(visible=False)
        ax.spines[:].set_visible(False)
        ax.set_ylim(len(bars) - 0.5, -0.5)
        return _save(canvas, title)


@dataclass(frozen=True)
class Interval:
    """A difference in a row of its own; it is filled where its interval does not reach zero."""

    label: str
    difference: Difference


@dataclass(frozen=True)
class IntervalPanel:
    """Rows over a common axis from zero."""

    title: str
    x_label: str
    rows: tuple[Interval, ...]


def draw_intervals(panels: Sequence[IntervalPanel], *, title: str) -> str:
    """Draw values with their intervals from zero, a panel for each of several axes."""
    rows = max((len(panel.rows) for panel in panels), default=0)
    with _make_canvas(len(panels), 0.9 + 0.2 * rows) as canvas:
        if canvas is None:
            return ""
        for ax, panel in zip(canvas.axes, panels, strict=True):
            ax.axvline(0, color=_INK, linewidth=1)
            for at, difference in enumerate(row.difference for row in panel.rows):
                mean, low, high = difference.mean, difference.low, difference.high
                if not _can_plot(mean, low, high):
                    continue
                ax.hlines(at, low, high, color=COLOURS[0], linewidth=1.6, alpha=0.7)
                face = COLOURS[0] if difference.stars else "white"
                ax.plot([mean], [at], "o", color=COLOURS[0], markerfacecolor=face)
                place: Any = {"xytext": (4, 0), "textcoords": "offset points", "va": "center"}
                ax.annotate(difference.stars, (high, at), **place)
            ax.set_yticks(range(len(panel.rows)), [_clean(row.label) for row in panel.rows])
            ax.tick_params(axis="y", length=0, labelcolor=_INK)
            ax.set_ylim(len(panel.rows) - 0.4, -0.6)
            ax.grid(visible=False, axis="y")
            ax.set_title(_clean(panel.title))
            ax.set_xlabel(_clean(panel.x_label))
        return _save(canvas, title)


# The look of all figures

COLOURS = ("#1b5ea6", "#bf430f", "#0f756c", "#87409c", "#8c5f00", "#b0265b", "#566270", "#4c6a05")
_MARKERS = "osD^vPXp"
_INK, _SOFT, _RULE, _MARKED = "#1d1c1a", "#5c5a54", "#e3e0d8", "#fbe9a9"
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
    "axes.edgecolor": _SOFT,
    "axes.labelcolor": _SOFT,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": _RULE,
    "xtick.color": _SOFT,
    "ytick.color": _SOFT,
    "text.color": _INK,
    "legend.frameon": False,
}


@contextmanager
def _make_canvas(panels: int, height: float) -> Iterator[Figure | None]:
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
        every = canvas.subplots(rows, columns, squeeze=False).flatten()
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
