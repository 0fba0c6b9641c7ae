"""What the charts are drawn with: numbers on a page, ticks, text that keeps clear of other text.

Colours are CSS classes, so that one drawing serves light and dark pages.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape

FONT = 12.5
"""Size of a chart's text, in units of its view box."""

COLOURS = 8
"""How many series have a colour of their own; twice as many have a mark of their own."""

_MOST = 1e12  # beyond it a figure is a fault, not a measurement


def drawable(value: float | None) -> bool:
    """Whether a number can stand in a chart: finite, and of a size that means something."""
    return value is not None and math.isfinite(value) and abs(value) <= _MOST


def text_width(text: str, size: float = FONT) -> float:
    """About how wide a text is; wide scripts count double."""
    return size * sum(
        1.05 if ord(letter) > 0x2E80 else 0.68 if letter.isupper() else 0.57 for letter in text
    )


def shortened(text: str, width: float, size: float = FONT) -> str:
    """A text cut to a width, with an ellipsis where something is missing."""
    if text_width(text, size) <= width:
        return text
    while text and text_width(text + "…", size) > width:
        text = text[:-1]
    return text.rstrip() + "…" if text else ""


def label_of(value: float, step: float = 0.0) -> str:
    """A tick's label: as many places as its step needs, thousands as k."""
    if abs(value) >= 10_000 and step >= 1000:
        return f"{value / 1000:,.0f}k"
    places = 0 if step >= 1 or step == 0.0 else min(6, -math.floor(math.log10(step) + 1e-9))
    label = f"{value:,.{places}f}"
    return label.replace("-", "\N{MINUS SIGN}") if float(value) else label.lstrip("-")


@dataclass(frozen=True)
class Scale:
    """From a range of numbers to a range of the page, straight or by logarithm."""

    low: float
    high: float
    start: float
    end: float
    logarithmic: bool = False

    def __call__(self, value: float) -> float:
        """The place of a number; one outside the range stands at its end."""
        low, high, at = self.low, self.high, min(max(value, self.low), self.high)
        if self.logarithmic:
            low, high, at = math.log10(low), math.log10(high), math.log10(at)
        share = (at - low) / (high - low) if high > low else 0.5
        return self.start + share * (self.end - self.start)

    def ticks(self, most: int = 5) -> list[tuple[float, str]]:
        """Round numbers in the range, with their labels."""
        if self.logarithmic:
            return self._powers(most)
        step = _step(self.high - self.low, most)
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        values = [number * step for number in range(first, min(last, first + 20) + 1)]
        return [(value, label_of(value, step)) for value in values]

    def _powers(self, most: int) -> list[tuple[float, str]]:
        low, high = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
        within: list[float] = []
        for multiples in ((1, 2, 5), (1,)):
            values = [m * 10.0**power for power in range(low, high + 1) for m in multiples]
            within = [value for value in values if self.low <= value <= self.high]
            if len(within) <= most + 1:
                break
        within = within[:: max(1, math.ceil(len(within) / (most + 1)))]
        return [(v, label_of(v, v if v < 1000 else 1000)) for v in within]


def _step(span: float, most: int) -> float:
    """The smallest of 1, 2, 2.5, 5 times a power of ten that gives at most so many ticks."""
    rough = max(span, 1e-300) / max(1, most)
    power: float = 10.0 ** math.floor(math.log10(rough))
    return next((m * power for m in (1, 2, 2.5, 5) if m * power >= rough * 0.999), 10 * power)


def reach(
    values: Iterable[float],
    *,
    floor: float | None = None,
    ceiling: float | None = None,
    most: int = 5,
) -> tuple[float, float]:
    """A range with some air around the numbers; what lies between `floor` and `ceiling` stays so.

    Without numbers it is 0 to 1.
    """
    known = [value for value in values if drawable(value)]
    if not known:
        return (0.0, 1.0)
    low, high = min(known), max(known)
    size = max(abs(low), abs(high))
    if high - low < max(size * 1e-3, 1e-4):  # as good as one number
        air = size / 10 if size > 1e-3 else 0.5
        low, high = low - air, high + air
    step = _step(high - low, most)
    wide_low, wide_high = math.floor(low / step) * step, math.ceil(high / step) * step
    if floor is not None and low >= floor:
        wide_low = max(wide_low, floor)
    if ceiling is not None and high <= ceiling:
        wide_high = min(wide_high, ceiling)
    return (wide_low, wide_high) if wide_high > wide_low else (low, high)


def log_reach(values: Iterable[float]) -> tuple[float, float]:
    """A range of positive numbers with some air around them, for a logarithmic scale."""
    known = [value for value in values if drawable(value) and value > 0]
    if not known:
        return (1.0, 10.0)
    low, high = max(min(known), 1e-9), max(*known, 1e-9)
    air = max(1.25, (high / low) ** 0.08)
    return (low / air, high * air)


def spread(places: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """The places moved as little as keeps them a gap apart and in the range, in their order.

    Where there is not enough room they come closer.
    """
    if not places:
        return []
    gap = min(gap, (high - low) / max(1, len(places) - 1)) if len(places) > 1 else gap
    order = sorted(range(len(places)), key=lambda number: (places[number], number))
    # Neighbours that would touch share a block around the mean of what they ask for.
    blocks: list[tuple[float, list[int]]] = []
    for number in order:
        blocks.append((places[number], [number]))
        while len(blocks) > 1 and _bottom(blocks[-2], gap) > _top(blocks[-1], gap):
            (first, above), (second, below) = blocks[-2:]
            share = (first * len(above) + second * len(below)) / (len(above) + len(below))
            blocks[-2:] = [(share, above + below)]
    moved = [0.0] * len(places)
    for centre, members in blocks:
        for rank, number in enumerate(members):
            moved[number] = centre + (rank - (len(members) - 1) / 2) * gap
    return _held(moved, order, gap, low, high)


def _top(block: tuple[float, list[int]], gap: float) -> float:
    return block[0] - len(block[1]) * gap / 2


def _bottom(block: tuple[float, list[int]], gap: float) -> float:
    return block[0] + len(block[1]) * gap / 2


def _held(
    moved: list[float], order: Sequence[int], gap: float, low: float, high: float
) -> list[float]:
    """What was pushed over an end is pushed back, and its neighbours with it."""
    at_most = high
    for number in reversed(order):
        moved[number] = min(moved[number], at_most)
        at_most = moved[number] - gap
    at_least = low
    for number in order:
        moved[number] = min(max(moved[number], at_least), high)
        at_least = moved[number] + gap
    return moved


@dataclass
class Drawing:
    """An SVG as it is drawn: elements in a view box of a width and a height.

    What would lie outside of the box is brought to its edge.
    """

    width: float
    height: float
    title: str
    about: str = ""
    parts: list[str] = field(default_factory=list)

    def line(self, x1: float, y1: float, x2: float, y2: float, style: str) -> None:
        """A straight line."""
        ends = f'x1="{self._x(x1)}" y1="{self._y(y1)}" x2="{self._x(x2)}" y2="{self._y(y2)}"'
        self.parts.append(f'<line {ends} class="{style}"/>')

    def path(self, points: Sequence[tuple[float, float]], style: str) -> None:
        """A line through points; fewer than two draw nothing."""
        if len(points) > 1:
            through = " ".join(f"{self._x(x)},{self._y(y)}" for x, y in points)
            self.parts.append(f'<polyline points="{through}" class="{style}"/>')

    def box(
        self, x: float, y: float, width: float, height: float, style: str, title: str = ""
    ) -> None:
        """A rectangle; its title shows where a pointer rests."""
        left, top = self._x(x), self._y(y)
        wide = _number(max(0.0, min(width, self.width - float(left))))
        high = _number(max(0.0, min(height, self.height - float(top))))
        place = f'x="{left}" y="{top}" width="{wide}" height="{high}"'
        self.parts.append(f'<rect {place} class="{style}">{_title(title)}</rect>')

    def text(self, x: float, y: float, text: str, style: str = "", anchor: str = "start") -> None:
        """A line of text that begins, ends ("end") or has its middle ("middle") at `x`.

        It is cut where the box ends.
        """
        x = min(max(x, 0.0), self.width)
        room = {"start": self.width - x, "end": x}.get(anchor, 2 * min(x, self.width - x))
        if not (said := shortened(_plain(text), room + 0.5)):
            return
        place = f'x="{_number(x)}" y="{self._y(y)}" text-anchor="{anchor}"'
        self.parts.append(f'<text {place} class="{style}">{escape(said)}</text>')

    def mark(
        self, x: float, y: float, style: int, title: str, extra: str = "", size: float = 4.2
    ) -> None:
        """A point of a series, each style with a shape of its own; its title is told on hover."""
        shape = _shape(style, float(self._x(x)), float(self._y(y)), size)
        classes = f"mark {style_class(style)} {extra}".strip()
        place = f'<g class="{classes}">'
        self.parts.append(f"{place}{_title(title)}{shape}</g>")

    def group(self, style: str) -> None:
        """Open a group; `end` closes it."""
        self.parts.append(f'<g class="{style}">')

    def end(self) -> None:
        """Close the last group."""
        self.parts.append("</g>")

    def __str__(self) -> str:
        box = f'viewBox="0 0 {_number(self.width)} {_number(self.height)}"'
        size = f'width="{_number(self.width)}" height="{_number(self.height)}"'
        name = f'role="img" aria-label="{escape(_plain(self.title))}"'
        head = f'<svg xmlns="http://www.w3.org/2000/svg" {box} {size} {name}>'
        about = f"<desc>{escape(_plain(self.about))}</desc>" if self.about else ""
        return f"{head}{about}{''.join(self.parts)}</svg>"

    def _x(self, x: float) -> str:
        return _number(min(max(x, 0.0), self.width))

    def _y(self, y: float) -> str:
        return _number(min(max(y, 0.0), self.height))


def style_class(style: int) -> str:
    """The classes of a style: its colour, and whether its mark is only an outline."""
    return f"c{style % COLOURS}{' open' if style // 4 % 2 else ''}"


def _shape(style: int, x: float, y: float, size: float) -> str:
    """A style's mark: four shapes filled, the same open, then four others."""
    kind = style % 4 + 4 * (style // COLOURS % 2)
    if kind == 0:
        return f'<circle cx="{_number(x)}" cy="{_number(y)}" r="{_number(size)}"/>'
    corners = ((x + across * size, y + down * size) for across, down in _CORNERS[kind])
    return f'<polygon points="{" ".join(f"{_number(a)},{_number(b)}" for a, b in corners)}"/>'


_CORNERS: Mapping[int, Sequence[tuple[float, float]]] = {
    1: [(-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)],  # a square
    2: [(0, -1.3), (1.3, 0), (0, 1.3), (-1.3, 0)],  # a diamond
    3: [(0, -1.2), (1.2, 0.96), (-1.2, 0.96)],  # a triangle
    4: [(0, 1.2), (1.2, -0.96), (-1.2, -0.96)],  # one that stands on its tip
    5: [  # a plus
        *((-0.4, -1.3), (0.4, -1.3), (0.4, -0.4), (1.3, -0.4), (1.3, 0.4), (0.4, 0.4)),
        *((0.4, 1.3), (-0.4, 1.3), (-0.4, 0.4), (-1.3, 0.4), (-1.3, -0.4), (-0.4, -0.4)),
    ],
    6: [(-1.1, -1.1), (1.1, -1.1), (-1.1, 1.1), (1.1, 1.1)],  # an hourglass
    7: [(0, -1.3), (1.24, -0.4), (0.76, 1.05), (-0.76, 1.05), (-1.24, -0.4)],  # a pentagon
}


def legend_mark(style: int) -> str:
    """The mark of a style alone, for a legend in the page."""
    shape = _shape(style, 7, 7, 4.2)
    head = '<svg viewBox="0 0 14 14" width="14" height="14" aria-hidden="true">'
    return f'{head}<g class="mark {style_class(style)}">{shape}</g></svg>'


def _title(title: str) -> str:
    return f"<title>{escape(_plain(title))}</title>" if title else ""


def _plain(text: str) -> str:
    """A text without the characters that XML cannot hold."""
    return "".join(
        letter
        for letter in text
        if (letter >= " " or letter in "\t\n")
        and not "\ud800" <= letter <= "\udfff"
        and letter not in "\ufffe\uffff"
    )


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0") if abs(value) >= 0.05 else "0"
