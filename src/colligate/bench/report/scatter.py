"""The chart of cost and quality."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from colligate.bench.report.charts import (
    LEFT,
    WIDE,
    Axis,
    Frame,
    Point,
    kept_points,
    nothing,
    values_of,
    whisker,
)
from colligate.bench.report.scales import Scale, log_reach, reach
from colligate.bench.report.svg import COLOURS, FONT, Drawing, shortened, text_width


@dataclass(frozen=True)
class Dot:
    """A strategy in the plane of cost and quality; `best` where none is better at its cost."""

    label: str
    point: Point
    style: int = 0
    best: bool = False


def scattered(dots: Sequence[Dot], x: Axis, y: Axis, *, title: str, width: float = WIDE) -> str:
    """Each strategy at its cost and quality, and the front of those that none beats on both."""
    shown = [dot for dot in dots if kept_points([dot.point], positive=x.logarithmic)]
    if not shown:
        return nothing(width, title)
    height = 380.0 if width > 500 else 330.0
    drawing = Drawing(width, height, title)
    across = [dot.point.x for dot in shown]
    low, high = log_reach(across) if x.logarithmic else reach(across, floor=x.floor)
    up = reach(values_of(d.point for d in shown), floor=y.floor, ceiling=y.ceiling)
    frame = Frame(
        drawing,
        Scale(low, high, LEFT, width - 18, x.logarithmic),
        Scale(*up, height - 46, 32),
        LEFT,
        width - 18,
    )
    frame.grid(x, y)
    front = sorted((dot.point for dot in shown if dot.best), key=lambda p: (p.x, p.y))
    steps = [(frame.x(point.x), frame.y(point.y)) for point in front]
    corners: list[tuple[float, float]] = []
    for left, top in steps:
        if corners:
            corners.append((left, corners[-1][1]))
        corners.append((left, top))
    if corners:
        drawing.path([*corners, (width - 18, corners[-1][1])], "front")
    places = [(frame.x(d.point.x), frame.y(d.point.y)) for d in shown]
    beside = _labels([dot.label for dot in shown], places, width, height - 46)
    for dot, (left, top), (at, base, text) in zip(shown, places, beside, strict=True):
        drawing.group(f"series c{dot.style % COLOURS}{' best' if dot.best else ''}")
        whisker(frame, dot.point, left)
        drawing.mark(left, top, dot.style, dot.point.title, size=6.0 if dot.best else 4.5)
        drawing.text(at, base, text, "label strong" if dot.best else "label")
        drawing.end()
    return str(drawing)


def _labels(
    texts: Sequence[str], places: Sequence[tuple[float, float]], width: float, bottom: float
) -> list[tuple[float, float, str]]:
    """Where each label stands: right of its mark, or where it meets no other label or mark."""
    taken = [(left - 6, top - 6, left + 6, top + 6) for left, top in places]
    found: list[tuple[float, float, str]] = []
    for text, (left, top) in zip(texts, places, strict=True):
        said = shortened(text, width * 0.4)
        wide = text_width(said)
        tries = [
            (left + 11, top + 4),
            (left - 11 - wide, top + 4),
            (left - wide / 2, top - 12),
            (left - wide / 2, top + 21),
            (left + 9, top - 11),
            (left + 9, top + 19),
            (left - 9 - wide, top - 11),
            (left - 9 - wide, top + 19),
        ]
        inside = [(a, b) for a, b in tries if a >= 2 and a + wide <= width - 2 and b <= bottom - 2]
        boxes = [(a, b, (a, b - FONT * 0.8, a + wide, b + FONT * 0.25)) for a, b in inside]
        free = [(a, b, box) for a, b, box in boxes if not any(_meet(box, o) for o in taken)]
        at = (free or boxes or [(2.0, top, (2.0, top, 2.0, top))])[0]
        taken.append(at[2])
        found.append((at[0], at[1], said))
    return found


_Box = tuple[float, float, float, float]


def _meet(one: _Box, other: _Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
