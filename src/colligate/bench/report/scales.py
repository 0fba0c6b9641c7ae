"""From numbers to places on a page: scales, their ticks, and labels that keep clear of others."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_MOST = 1e12  # beyond it a figure is a fault, not a measurement


def drawable(value: float | None) -> bool:
    """Whether a number can stand in a chart: finite, and of a size that means something."""
    return value is not None and math.isfinite(value) and abs(value) <= _MOST


def label_of(value: float, step: float = 0.0) -> str:
    """A tick's label: as many places as its step needs, thousands as k."""
    if abs(value) >= 10_000 and step >= 1000:
        return f"{value / 1000:,.0f}k"
    places = 0 if step >= 1 or step == 0.0 else min(6, -math.floor(math.log10(step) + 1e-9))
    if abs(step * 10**places - round(step * 10**places)) > 1e-6:
        places += 1  # a step of 2.5
    label = f"{value:,.{places}f}"
    if not label.strip("-0.,"):
        label = label.lstrip("-")
    return label.replace("-", "\N{MINUS SIGN}")


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
