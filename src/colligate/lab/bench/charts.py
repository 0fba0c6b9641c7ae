"""Charts drawn by matplotlib, each as an SVG element.

matplotlib comes with the extra `bench`; without it every chart is "". The same numbers always give
the same drawing.
"""

from __future__ import annotations

import io
import math
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from html import escape
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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
    """The title and axes of lines; `limits` are of the vertical axis, the other may be a log.

    With `groups` the other axis has these names, which the places of points count from 0.
    """

    title: str
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
    "figure.facecolor": "none",
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
    """Draw the lines of each panel over a common vertical axis; "" where there is no point.

    With a `front`, which is drawn as steps, or with groups the points of a series are not joined.
    """
    panels = [replace(panel, series=_keep_finite(panel.series)) for panel in panels]
    panels = [panel for panel in panels if panel.series]
    with _make_canvas(len(panels), 3.9 if len(panels) == 1 else 2.2) as canvas:
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
        return _save(canvas, chart.title, handles)


def _keep_finite(series: Sequence[Series]) -> list[Series]:
    """Return the series with the points that an axis can have, in order; none without any."""
    kept = [
        replace(each, points=sorted((p for p in each.points if math.isfinite(p.y)), key=_place))
        for each in series
    ]
    return [each for each in kept if each.points]


def _place(point: Point) -> float:
    return point.x


def _measure_whiskers(points: Sequence[Point]) -> list[list[float]]:
    """Return how far the ends of intervals are below and above the values; NaN draws none."""
    ends = [(p.y, math.nan if p.low is None else p.low, p.high) for p in points]
    below = [max(y - low, 0.0) for y, low, _ in ends]
    return [below, [math.nan if high is None else max(high - y, 0.0) for y, _, high in ends]]


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
        every = canvas.subplots(rows, columns, squeeze=False, sharey=True).flatten()
        for unused in every[panels:]:
            unused.remove()
        yield canvas


def _save(canvas: Figure, title: str, handles: Mapping[tuple[str, int], Any]) -> str:
    """Return the SVG element with its title and legend, without dates and the program's name."""
    if len(handles) > 1:
        labels = [_clean(label) for label, _ in handles]
        below: Any = {"loc": "outside lower center", "ncols": 4}
        where = below if len(canvas.axes) > 1 else {"loc": "outside right upper"}
        canvas.legend(list(handles.values()), labels, **where)
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
