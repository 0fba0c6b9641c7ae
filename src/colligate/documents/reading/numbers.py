"""The numbers that programs write before items and clauses: 3, iv, (b)."""

from __future__ import annotations

_ROMAN = {1000: "m", 900: "cm", 500: "d", 400: "cd", 100: "c", 90: "xc", 50: "l", 40: "xl"}
_ROMAN |= {10: "x", 9: "ix", 5: "v", 4: "iv", 1: "i"}
_LARGEST = 3_999  # that is written in Roman numerals or in letters


def format_number(number: int, form: str) -> str:
    """Return a number in a form of HTML or OpenDocument ("1", "a", "A", "i", "I").

    >>> [format_number(*each) for each in ((28, "a"), (2, "A"), (14, "i"), (4, "I"), (7, "1"))]
    ['bb', 'B', 'xiv', 'IV', '7']
    """
    if not 0 < number <= _LARGEST or form not in ("a", "A", "i", "I"):
        return str(number)
    if form in "aA":
        written = chr(ord("a") + (number - 1) % 26) * ((number - 1) // 26 + 1)
    else:
        written = ""
        for value, letters in _ROMAN.items():
            written += letters * (number // value)
            number %= value
    return written.upper() if form.isupper() else written
