"""Charts of rows: counts of kinds as stacked bars, differences from zero with intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from colligate.bench.report.charts import NARROW, WIDE, nothing
from colligate.bench.report.scales import Scale, drawable, reach
from colligate.bench.report.svg import Drawing, shortened, text_width


@dataclass(frozen=True)
class Bar:
    """A row of a stacked bar: how many of each kind, and what is said at its end."""

    label: str
    counts: tuple[int, ...]
    said: str = ""


@dataclass(frozen=True)
class Difference:
    """How far a row is from the reference, with its interval and stars.

    One that is `sure` has a filled mark.
    """

    label: str
    value: float
    low: float
    high: float
    stars: str = ""
    title: str = ""
    sure: bool = False


def stacked(bars: Sequence[Bar], kinds: Sequence[str], *, title: str, width: float = WIDE) -> str:
    """Bars of equal length, each divided as its counts are; the class of a part is its kind's."""
    shown = [bar for bar in bars if sum(bar.counts) > 0 and min(bar.counts) >= 0]
    if not shown:
        return nothing(width, title)
    narrow = width <= 500
    row = 50.0 if narrow else 34.0
    drawing = Drawing(width, row * len(shown) + 6, title)
    left = 2.0 if narrow else 4 + min(max(text_width(bar.label) for bar in shown) + 12, 200)
    end = max(text_width(bar.said) for bar in shown) + 12
    room = width - left - (0 if narrow else end) - 2
    for number, bar in enumerate(shown):
        top = number * row + 4 + (18 if narrow else 0)
        if narrow:
            drawing.text(left, top - 5, shortened(bar.label, width - end - 8), "label")
            drawing.text(width - 2, top - 5, bar.said, "tick", "end")
        else:
            label = shortened(bar.label, left - 12)
            drawing.text(left - 10, top + 17, label, "label", "end")
            drawing.text(width - 2, top + 17, bar.said, "tick", "end")
        at, total = left, sum(bar.counts)
        for kind, count in zip(kinds, bar.counts, strict=True):
            wide = room * (count / total)
            if not count:
                continue
            told = f"{bar.label}: {count:,} {kind}, {100 * count / total:.1f} %"
            drawing.box(at, top, max(wide - 1.5, 0.75), 24, f"part k-{kind}", told)
            if text_width(f"{count:,}") + 8 < wide:
                drawing.text(at + wide / 2 - 0.75, top + 16.5, f"{count:,}", "in", "middle")
            at += wide
    return str(drawing)


def differences(
    rows: Sequence[Difference], *, title: str, width: float = NARROW, unit: str = ""
) -> str:
    """How far each row is from the reference, which is zero."""
    shown = [r for r in rows if all(drawable(v) for v in (r.value, r.low, r.high))]
    if not shown:
        return nothing(width, title)
    low, high = reach([0.0, *(v for r in shown for v in (r.value, r.low, r.high))], most=4)
    room = min(max(text_width(row.label) for row in shown) + 14, width * 0.4)
    stars = 30.0
    drawing = Drawing(width, 26.0 * len(shown) + 40, title)
    scale = Scale(low, high, room + 12, width - stars - 4)
    bottom = drawing.height - 30
    for value, label in scale.ticks(4):
        drawing.line(scale(value), 4, scale(value), bottom, "grid")
        drawing.text(scale(value), bottom + 15, label, "tick", "middle")
    drawing.line(scale(0.0), 2, scale(0.0), bottom, "zero")
    drawing.text((room + 12 + width - stars) / 2, bottom + 29, unit, "tick", "middle")
    for number, row in enumerate(shown):
        middle = 26.0 * number + 17
        drawing.group("difference sure" if row.sure else "difference")
        drawing.text(room, middle + 4, shortened(row.label, room - 4), "label", "end")
        drawing.line(scale(row.low), middle, scale(row.high), middle, "whisker")
        drawing.mark(scale(row.value), middle, 0, row.title, size=4.6)
        drawing.text(width - stars + 2, middle + 5, row.stars, "stars")
        drawing.end()
    return str(drawing)
