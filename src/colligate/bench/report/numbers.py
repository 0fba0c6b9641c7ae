"""Numbers as a person reads them."""

from __future__ import annotations

import math

NONE = "\N{EN DASH}"
MINUS = "\N{MINUS SIGN}"


def said(value: float | None, places: int | None = None) -> str:
    """A number as a person reads it: about three figures, a true minus, thousands apart."""
    if value is None or not math.isfinite(value):
        return NONE
    if places is None:
        size = abs(value)
        places = 0 if size >= 1000 else 1 if size >= 10 else 2 if size >= 0.1 or not size else 4
    text = f"{value:,.{places}f}"
    if not text.strip("-0.,"):
        text = text.lstrip("-")
    return text.replace("-", MINUS)


def places_of(scale: float) -> int | None:
    """Percentages have one place, as papers print them; other numbers as many as they need."""
    return 1 if scale == 100 else None


def several(count: int, what: str) -> str:
    """A count of things in words."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"
