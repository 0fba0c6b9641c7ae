"""Figures and dates of several documents: read by value, compared and added exactly.

A model says what is compared and writes the values in one form: plain numbers of one unit, or
dates as in ISO 8601. Each must be in its document's words by value.
"""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal, InvalidOperation

from colligate.readers.numbers import find_missing_values
from colligate.strategies.per_document.prompts import Combination

_DATE = re.compile(r"(\d{4})(?:-(\d{1,2})(?:-(\d{1,2}))?)?")


@dataclass(frozen=True, slots=True)
class Value:
    """A number, whose ends are the same, or the first and last day of a date, a month or a year.

    Days are counted from the year 1. `text` is how it is shown.
    """

    text: str
    low: Decimal
    high: Decimal


@dataclass(frozen=True)
class Computed:
    """What follows from the values of documents, which are named by their places in a list.

    `result` is a value with its unit, or the limits; `chosen` are the documents that it is about,
    all that were `compared` for a sum. A date of which only a part is within limits is not.
    """

    result: str
    chosen: tuple[int, ...]
    compared: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Source:
    """What a document answers, with its quotes and the heads of their tables."""

    texts: tuple[str, ...] = ()
    language: str = "en"


def compute(asked: Combination, sources: Sequence[Source]) -> Computed | None:
    """Return what follows from the values that documents state; None if nothing is computed."""
    adds = asked.operation in ("sum", "average")
    limits = asked.least.strip(), asked.most.strip()
    limited = asked.operation in ("within", "count") and any(limits)
    if not (adds or limited or asked.operation in ("highest", "lowest")):
        return None
    texts = {
        each.document - 1: each.value for each in asked.figures if 0 < each.document <= len(sources)
    }
    written = [*texts.values(), *filter(None, limits if limited else ())]
    unit = asked.unit.strip()
    dates = not adds and not unit and all(map(_DATE.fullmatch, written))
    values = {
        at: value
        for at, text in sorted(texts.items())
        if (value := read_value(text, dates=dates))
        and is_stated(f"{value.text} {unit}", sources[at])
    }
    if not values:
        return None
    compared = tuple(values)
    if adds:
        total = sum((value.low for value in values.values()), Decimal(0))
        total = total / len(values) if asked.operation == "average" else total
        return Computed(f"{_write(total)} {unit}".rstrip(), compared, compared)
    if not limited:
        chosen = find_extreme(values, highest=asked.operation == "highest")
        return Computed(f"{values[chosen[0]].text} {unit}".rstrip(), tuple(chosen), compared)
    bounds = [read_value(text, dates=dates) if text else None for text in limits]
    if any(text and bound is None for text, bound in zip(limits, bounds, strict=True)):
        return None
    least, most = bounds
    held = {at: is_within(v, least, most, strict=asked.strict) for at, v in values.items()}
    sure = {at: inside for at, inside in held.items() if inside is not None}
    sign = " < " if asked.strict else " ≤ "
    return Computed(
        sign.join([*([least.text] if least else []), unit or "…", *([most.text] if most else [])]),
        tuple(at for at, inside in sure.items() if inside),
        tuple(sure),
    )


def read_value(text: str, *, dates: bool = False) -> Value | None:
    """Return a plain number, or a date in ISO 8601 that may lack its day and month."""
    text = text.strip()
    if not dates:
        try:
            number = Decimal(text.replace(",", ""))
        except InvalidOperation:
            return None
        return Value(_write(number), number, number) if number.is_finite() else None
    match = _DATE.fullmatch(text)
    if match is None:
        return None
    year, month, day = (int(part) if part else 0 for part in match.groups())
    try:
        first = date(year, month or 1, day or 1)
    except ValueError:
        return None
    last_month = month or 12
    last = first if day else date(year, last_month, monthrange(year, last_month)[1])
    written = "-".join(f"{int(part):02}" for part in match.groups() if part)
    return Value(written, Decimal(first.toordinal()), Decimal(last.toordinal()))


def is_stated(text: str, source: Source) -> bool:
    """Return whether a document says a value; of a month without a day it must say the year."""
    if re.fullmatch(r"\d{4}-\d{1,2}", text.strip()):
        text = text.strip()[:4]
    return not find_missing_values(text, source.texts, language=source.language)


def find_extreme(values: Mapping[int, Value], *, highest: bool) -> list[int]:
    """Return which documents have the highest or the lowest value; more than one if equal."""
    if highest:
        best = max(value.low for value in values.values())
        return [at for at, value in values.items() if value.high >= best]
    best = min(value.high for value in values.values())
    return [at for at, value in values.items() if value.low <= best]


def is_within(
    value: Value, least: Value | None, most: Value | None, *, strict: bool = False
) -> bool | None:
    """Return whether a value is within limits; None if only a part of it is.

    With `strict` the limits are outside, a year or a month with all of its days.
    """
    sides = []
    if least is not None:
        edge = least.high if strict else least.low
        sides.append(_is_beyond(value.low, value.high, edge, strict))
    if most is not None:
        edge = most.low if strict else most.high
        sides.append(_is_beyond(-value.high, -value.low, -edge, strict))
    return False if False in sides else None if None in sides else True


def _is_beyond(low: Decimal, high: Decimal, edge: Decimal, strict: bool) -> bool | None:
    ends = [end > edge or (end == edge and not strict) for end in (low, high)]
    return ends[0] if ends[0] == ends[1] else None


def _write(number: Decimal) -> str:
    return f"{number:,f}".rstrip("0").rstrip(".") if number % 1 else f"{number:,.0f}"
