"""The report's charts: numbers in, one SVG out, at the width asked for.

Every number may be missing, infinite or absurd: what cannot be drawn is left out. A chart
without any number says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from colligate.bench.report.scales import Scale, drawable, reach, spread
from colligate.bench.report.svg import COLOURS, FONT, Drawing, text_width

WIDE, NARROW = 700.0, 350.0
"""The widths a chart is drawn for: beside others on a desk, alone on a telephone."""

_LINE = FONT * 1.25
LEFT = 54.0
"""Room for the labels of an upright axis."""


@dataclass(frozen=True)
class Point:
    """A value at a place, with its interval where there is one; `title` is told on hover."""

    x: float
    y: float
    low: float | None = None
    high: float | None = None
    title: str = ""


@dataclass(frozen=True)
class Line:
    """A series; `style` numbers its colour and mark."""

    label: str
    points: tuple[Point, ...]
    style: int = 0


@dataclass(frozen=True)
class Axis:
    """What an axis shows: `whole` draws a tick at each place there is, `floor` and `ceiling` are
    the ends of what its numbers can be.
    """

    label: str
    floor: float | None = None
    ceiling: float | None = None
    logarithmic: bool = False
    whole: bool = False


def kept_points(points: Iterable[Point], *, positive: bool = False) -> list[Point]:
    """Those that can be drawn; only `positive` ones where the scale is logarithmic."""
    return [
        point
        for point in points
        if drawable(point.x) and drawable(point.y) and (point.x > 0 or not positive)
    ]


def values_of(points: Iterable[Point]) -> list[float]:
    """All that must fit an upright axis."""
    return [v for p in points for v in (p.y, p.low, p.high) if v is not None and drawable(v)]


def nothing(width: float, title: str) -> str:
    """What stands in the place of a chart without numbers."""
    drawing = Drawing(width, 80, title)
    drawing.text(width / 2, 45, "nothing to draw", "quiet", "middle")
    return str(drawing)


@dataclass(frozen=True)
class Frame:
    """The part of a drawing that has the numbers: its two scales, and the sides of its grid."""

    drawing: Drawing
    x: Scale
    y: Scale
    left: float
    right: float

    def grid(self, x: Axis, y: Axis, at: Sequence[float] = ()) -> None:
        """Ticks, their lines, and what the axes are called."""
        left, right, bottom = self.left, self.right, self.y.start
        for value, label in self.y.ticks():
            place = self.y(value)
            self.drawing.line(left, place, right, place, "grid")
            self.drawing.text(left - 8, place + FONT * 0.35, label, "tick", "end")
        self.drawing.line(left, bottom, right, bottom, "axis")
        ticks = [(v, f"{v:g}") for v in at] if x.whole else self.x.ticks(6)
        taken = -1e9
        for value, label in ticks:
            place, half = self.x(value), text_width(label) / 2
            self.drawing.line(place, bottom, place, bottom + 4, "axis")
            if place - half > taken:
                self.drawing.text(place, bottom + 18, label, "tick", "middle")
                taken = place + half + 6
        self.drawing.text((left + right) / 2, bottom + 37, x.label, "name", "middle")
        self.drawing.text(4, FONT + 2, y.label, "name")


def lines(
    series: Sequence[Line],
    x: Axis,
    y: Axis,
    *,
    title: str,
    width: float = WIDE,
    labels: bool = True,
) -> str:
    """Series over a common axis, with whiskers; labels stand at the ends of the lines."""
    kept = [(line, kept_points(sorted(line.points, key=_by_x))) for line in series]
    kept = [(line, points) for line, points in kept if points]
    if not kept:
        return nothing(width, title)
    everything = [point for _, points in kept for point in points]
    height = 360.0 if width > 500 else 290.0
    drawing = Drawing(width, height, title)
    named = [(line, points[-1]) for line, points in kept if line.label]
    widest = max((text_width(line.label) for line, _ in named), default=0.0)
    right = width - (min(widest + 42, width * 0.3) if labels and named else 14)
    at = sorted({point.x for point in everything})
    up = reach(values_of(everything), floor=y.floor, ceiling=y.ceiling)
    frame = Frame(
        drawing,
        Scale(at[0], at[-1], LEFT + 24, right - 24, x.logarithmic and at[0] > 0),
        Scale(*up, height - 46, 32),
        LEFT,
        right,
    )
    frame.grid(x, y, at)
    step = min(5.0, 40.0 / len(kept))
    if len(kept) > 4:
        drawing.group("many")
    for number, (line, points) in enumerate(kept):
        aside = (number - (len(kept) - 1) / 2) * step if x.whole and not x.logarithmic else 0.0
        _series(frame, line, points, aside)
    if len(kept) > 4:
        drawing.end()
    if labels and named:
        places = [frame.y(point.y) for _, point in named]
        moved = spread(places, _LINE, 32, height - 46)
        for (line, point), place, wanted in zip(named, moved, places, strict=True):
            end = min(frame.x(point.x) + 24, right)
            drawing.line(end, wanted, right + 8, place, "lead")
            drawing.mark(right + 17, place, line.style, "", size=3.6)
            drawing.text(right + 26, place + FONT * 0.35, line.label, "label")
    return str(drawing)


def _by_x(point: Point) -> float:
    return point.x if drawable(point.x) else 0.0


def _series(frame: Frame, line: Line, points: Sequence[Point], aside: float) -> None:
    drawing, style = frame.drawing, line.style
    drawing.group(f"series c{style % COLOURS}")
    at = [(frame.x(point.x) + aside, frame.y(point.y)) for point in points]
    drawing.path(at, "stroke")
    for point, (left, top) in zip(points, at, strict=True):
        whisker(frame, point, left)
        drawing.mark(left, top, style, point.title)
    drawing.end()


def whisker(frame: Frame, point: Point, left: float) -> None:
    """A point's interval, where it has one."""
    if point.low is None or point.high is None:
        return
    if drawable(point.low) and drawable(point.high):
        frame.drawing.line(left, frame.y(point.low), left, frame.y(point.high), "whisker")


def positions(
    line: Line,
    marked: float | None,
    x: Axis,
    y: Axis,
    *,
    title: str,
    reach_of: Sequence[Point] = (),
) -> str:
    """One series by position in a small panel, the marked position told apart from the others.

    `reach_of` are the points of all panels, so that they share their scales.
    """
    points = kept_points(sorted(line.points, key=_by_x))
    everything = kept_points(reach_of) or points
    if not points or not everything:
        return nothing(NARROW, title)
    drawing = Drawing(NARROW, 220, title)
    across = [point.x for point in [*everything, *points]]
    up = reach(values_of([*everything, *points]), floor=y.floor, ceiling=y.ceiling, most=4)
    frame = Frame(
        drawing,
        Scale(min(across), max(across), LEFT + 8, NARROW - 20),
        Scale(*up, 174, 32),
        LEFT,
        NARROW - 12,
    )
    frame.grid(x, y, _thinned(sorted(set(across))))
    if marked is not None and drawable(marked):
        drawing.line(frame.x(marked), 28, frame.x(marked), 174, "marked")
    drawing.group(f"series c{line.style % COLOURS}")
    drawing.path([(frame.x(p.x), frame.y(p.y)) for p in points], "stroke")
    for point in points:
        whisker(frame, point, frame.x(point.x))
        gold = point.x == marked
        drawing.mark(
            frame.x(point.x),
            frame.y(point.y),
            0,
            point.title,
            "gold" if gold else "",
            size=5.5 if gold else 2.6,
        )
    drawing.end()
    return str(drawing)


def _thinned(values: Sequence[float], most: int = 10) -> list[float]:
    return list(values[:: max(1, -(-len(values) // most))])
