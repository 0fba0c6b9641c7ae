"""The value of a cell as a number, an amount of money or a date, beside the text as written."""

from __future__ import annotations

import unicodedata
from datetime import date
from decimal import Decimal

from colligate.documents.quantities import DATE, Amount, Quantity, Unit, read_quantities
from colligate.table.columns import Column

Plain = str | int | float | bool | None
_MONTH, _YEAR = 31, 366  # days


def normalise(written: str, column: Column, language: str) -> tuple[Plain, str]:
    """Return the value of a text as written, and its unit; None if it has no sure one.

    A date is in ISO 8601, as exact as it was written. The unit is a code of a currency, or its sign
    where that stands for several, "percent", or a unit's name. What can be read in two ways
    ("01.03.2024") has no value.

    >>> normalise("EUR 48,000 (forty-eight thousand)", Column("rent", "money"), "en")
    (48000, 'EUR')
    >>> normalise("1,250", Column("rent", "money"), "en")
    (1250, '')
    >>> normalise("the third anniversary", Column("ends on", "date"), "en")
    (None, '')
    """
    if column.type in ("text", "choice", "yes/no"):
        return written, ""
    found = [each for each in read_quantities(written, language).found if each.readings]
    if not column.type:
        whole = len(found) == 1 and not _rest(written, found[0])
        if not whole:
            return written, ""
        is_date = any(each.unit == DATE for each in found[0].readings)
    else:
        is_date = column.type == "date"
    found.sort(key=lambda each: not any(reading.unit for reading in each.readings))
    for each in found:  # "thirty (30) days" is a number of days
        readings = [r for r in each.readings if (r.unit == DATE) == is_date]
        if column.type == "money":  # a statement prints its sign at some rows only
            readings = [r for r in readings if isinstance(r.unit, frozenset) or not r.unit]
        values = {(_to_date(r) if is_date else _to_number(r.value)) for r in readings}
        if values:
            unit = "" if is_date else _name(readings[0].unit, written)
            return (values.pop(), unit) if len(values) == 1 else (None, "")
    return None, ""


def _rest(written: str, quantity: Quantity) -> str:
    """Return the letters and digits of a text that are outside a quantity."""
    outside = written[: quantity.start] + written[quantity.end :]
    return "".join(filter(str.isalnum, outside))


def _to_date(amount: Amount) -> str:
    first = date.fromordinal(int(amount.value - amount.step / 2)).isoformat()
    return first if amount.step < 1 else first[:7] if amount.step < _MONTH else first[:4]


def _to_number(value: Decimal) -> int | float:
    return int(value) if value == value.to_integral_value() else float(value)


def _name(unit: Unit, written: str) -> str:
    """Return the name of a unit; of money its code, or its sign if that is of several."""
    if isinstance(unit, str):
        return unit
    signs = [sign for sign in written if unicodedata.category(sign) == "Sc"]
    return next(iter(unit)) if len(unit) == 1 or not signs else signs[0]
