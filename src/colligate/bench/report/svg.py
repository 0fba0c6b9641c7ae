"""What the charts are drawn with: lines, marks and texts inside a view box.

Colours are CSS classes, so that one drawing serves light and dark pages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape

FONT = 12.5
"""Size of a chart's text, in units of its view box."""

COLOURS = 8
"""How many series have a colour of their own; twice as many have a mark of their own."""


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


@dataclass
class Drawing:
    """An SVG as it is drawn: elements in a view box of a width and a height.

    What would lie outside of the box is brought to its edge.
    """

    width: float
    height: float
    title: str
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
        return f"{head}{''.join(self.parts)}</svg>"

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
