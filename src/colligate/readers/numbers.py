"""The numbers and dates of a statement that its quotes do not hold by value.

A stated number is held if a number of a source rounds to it, in the same unit or in one that pint
converts to it; currencies are never converted. `quantities` reads the texts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from enum import StrEnum
from functools import cache, lru_cache, reduce
from operator import mul
from typing import Any

from colligate.documents.quantities import (
    DATE,
    DAY,
    DURATIONS,
    PERCENT,
    Amount,
    Quantities,
    Quantity,
    Unit,
    read_quantities,
)


class Operation(StrEnum):
    """What is computed from the numbers of a calculation, in their order."""

    SUM = "sum"
    DIFFERENCE = "difference"
    PRODUCT = "product"
    RATIO = "ratio"
    PERCENT_CHANGE = "percent_change"
    AVERAGE = "average"
    COUNT = "count"


@dataclass(frozen=True, slots=True)
class Calculation:
    """An operation that a statement names, over numbers that its quotes hold.

    `numbers` are the operands as written in the quotes; what is counted may be words.
    """

    operation: Operation
    numbers: tuple[str, ...]


def find_missing_values(
    statement: str,
    sources: Sequence[str],
    *,
    given: str = "",
    calculations: Sequence[Calculation] = (),
    language: str = "en",
) -> list[str]:
    """Return the numbers and dates of a statement, as written there, that no source holds by value.

    `sources` are quotes with their titles and headings, and for a row the head of its table, whose
    unit line ("in thousands") scales bare numbers. The numbers of `given`, the question, are not
    missing, nor is the result of a calculation whose operands the sources hold. `language`, of
    ISO 639, is that of the statement; the words of unknown languages are not read.

    >>> find_missing_values("It made about $122.6 million.", ["(in thousands)", "Revenue 122,641"])
    []
    >>> find_missing_values("It opened on 1 March 2024.", ["Opened: 2024-04-01"])
    ['1 March 2024']
    """
    if any(statement in source for source in sources):
        return []
    held = _Held()
    for source in sources:
        held.add(read_quantities(source, language))
    held.apply_unit_lines()
    results = [each for one in calculations for each in _compute(one, held, sources, language)]
    held.add(read_quantities(given, language))
    held.add_amounts(results)
    stated = sorted(read_quantities(statement, language).found, key=lambda each: each.start)
    missing = [each for each in stated if each.stated and not held.holds(each)]
    return list(dict.fromkeys(statement[each.start : each.end] for each in missing))


# Days from first to last.
_LONGEST_YEAR, _LONGEST_MONTH, _SHORTEST_MONTH = map(Decimal, (365, 30, 27))


class _Held:
    """The amounts and dates of sources."""

    def __init__(self) -> None:
        self.scales: set[Decimal] = set()
        self._units: set[str] = set()
        self._names: set[str] = set()
        self._years: set[int] = set()
        self._amounts: dict[Unit, set[Decimal]] = defaultdict(set)
        self._dates: dict[Unit, set[tuple[Decimal, Decimal]]] = defaultdict(set)  # first, last day

    def add(self, stated: Quantities) -> None:
        self.scales |= stated.scales
        self._units |= stated.units
        self._names |= {each.name for each in stated.found if each.name}
        self.add_amounts(reading for each in stated.found for reading in each.readings)

    def add_amounts(self, amounts: Iterable[Amount]) -> None:
        """Add amounts, and what they say in part: a date its day, a percentage a number."""
        for each in amounts:
            if each.unit in (DATE, DAY):
                first = each.value - each.step / 2
                self._dates[each.unit].add((first, first + each.step))
                day = date.fromordinal(int(first))
                if each.step <= _LONGEST_MONTH:
                    at = _any_year(day)
                    self._dates[DAY].add((at, at + min(each.step, _SHORTEST_MONTH)))
                elif each.step <= _LONGEST_YEAR:
                    self._years.add(day.year)
                continue
            self._amounts[each.unit].add(each.value)
            if each.unit == PERCENT:
                self._amounts[""].add(each.value / 100)
            elif not each.unit and each.value < 1:
                self._amounts[PERCENT].add(each.value * 100)

    def apply_unit_lines(self) -> None:
        """Read bare numbers as unit lines say, and a unit without a number as one of it."""
        for unit, values in self._amounts.items():
            if not unit or isinstance(unit, frozenset):
                values |= {value * scale for value in values for scale in self.scales}
        if PERCENT in self._units:
            self._amounts[PERCENT] |= self._amounts[""]
        for unit in self._units - {PERCENT}:
            self._amounts[unit].add(Decimal(1))

    def holds(self, stated: Quantity) -> bool:
        return stated.name in self._names or any(map(self.has, stated.readings))

    def has(self, amount: Amount) -> bool:
        """Return whether the sources have what rounds to an amount."""
        half = amount.step / 2
        if amount.unit in (DATE, DAY):
            return self._has_date(amount.unit, amount.value - half, amount.value + half)
        # Units that must be converted come last: pint takes long to import.
        for unit in sorted(self._amounts, key=lambda unit: bool(unit) + (unit != amount.unit)):
            if line := _convert(amount.unit, unit):
                ends = (line[0] + line[1] * (amount.value + side) for side in (-half, half))
                low, high = sorted(ends)
                slack = Decimal(0) if line == _SAME else Decimal("1e-9") * abs(high)
                if any(low - slack <= value <= high + slack for value in self._amounts[unit]):
                    return True
        return False

    def _has_date(self, unit: Unit, first: Decimal, last: Decimal) -> bool:
        """Return whether all days of a date of the sources are among these."""
        if any(first <= low and high <= last for low, high in self._dates[unit]):
            return True
        # "December 31, 2022 and 2021"; a row may have the day, and the head of its table the year.
        day = date.fromordinal(int(first))
        if unit == DAY or last - first > _LONGEST_MONTH or day.year not in self._years:
            return False
        at = _any_year(day)
        return self._has_date(DAY, at, at + last - first)


def _any_year(day: date) -> Decimal:
    """Return a day as that of any year, of a leap year in fact."""
    return Decimal(day.replace(year=4).toordinal())


_SAME = Decimal(0), Decimal(1)


@lru_cache(maxsize=4096)
def _convert(unit: Unit, other: Unit) -> tuple[Decimal, Decimal] | None:
    """Return what to add to and to multiply an amount by in another unit; None if the two cannot be
    compared. An amount without a unit may have any, but a percentage has its; so may one with a
    unit that pint does not know."""
    if unit == other:
        return _SAME
    if unit in (PERCENT, DATE, DAY) or other in (DATE, DAY):
        return None
    if not unit or not other:
        return _SAME
    if isinstance(unit, frozenset) or isinstance(other, frozenset):
        both = isinstance(unit, frozenset) and isinstance(other, frozenset) and unit & other
        return _SAME if both else None
    registry = _load_units()
    try:
        ours, theirs = (registry.parse_units(each.replace("-", " ")) for each in (unit, other))
    except Exception:  # pint raises many
        return _SAME
    if ours.dimensionality != theirs.dimensionality:
        return None
    none, one = (Decimal(str(registry.Quantity(n, ours).to(theirs).magnitude)) for n in (0, 1))
    return none, one - none


@cache
def _load_units() -> Any:
    """Return pint's units, with those that it knows by another name."""
    import pint

    registry: Any = pint.UnitRegistry()
    for each in DURATIONS.values():
        registry.define(each)
    return registry


def _compute(
    calculation: Calculation, held: _Held, sources: Sequence[str], language: str
) -> list[Amount]:
    """Return the results of an operation on numbers of the sources; none if one is not theirs."""
    operation, written = calculation.operation, calculation.numbers
    if operation is Operation.COUNT:
        texts = [source.casefold() for source in sources]
        there = (any(each.casefold() in text for text in texts) for each in written)
        return [Amount(Decimal(len(written)))] if all(there) else []
    operands = []
    for each in written:
        found = [r for q in read_quantities(each, language).found[:1] for r in q.readings]
        operands += [reading for reading in found if held.has(reading)][-1:]  # a year as a number
    unit = operands[0].unit if operands else ""
    lines = [(each.value, _convert(each.unit, unit)) for each in operands]
    values = [line[0] + line[1] * value for value, line in lines if line]
    if len(values) < max(2, len(written)):
        return []
    total = sum(values, Decimal(0))
    scales = {Decimal(1), *held.scales} if not unit or isinstance(unit, frozenset) else {Decimal(1)}
    try:
        match operation:
            case Operation.PRODUCT:
                return [Amount(reduce(mul, values))]
            case Operation.RATIO:
                ratio = values[0] / values[1]
                return [Amount(ratio), Amount(100 * ratio, unit=PERCENT)]
            case Operation.PERCENT_CHANGE:
                return [Amount(abs(values[1] - values[0]) / values[0] * 100, unit=PERCENT)]
            case Operation.DIFFERENCE:
                total = abs(2 * values[0] - total)
            case Operation.AVERAGE:
                total /= len(values)
    except ArithmeticError:  # a division by zero
        return []
    return [Amount(total * scale, unit="day" if unit == DATE else unit) for scale in scales]
