"""The numbers that programs write before items and clauses: 3, iv, (b)."""

from __future__ import annotations

import re

_ROMAN = {1000: "m", 900: "cm", 500: "d", 400: "cd", 100: "c", 90: "xc", 50: "l", 40: "xl"}
_ROMAN |= {10: "x", 9: "ix", 5: "v", 4: "iv", 1: "i"}
_DIGITS, _PLACES = "零一二三四五六七八九", ("", "十", "百", "千")
_LARGEST = 3_999  # that is written in Roman numerals or in letters


def format_number(number: int, form: str) -> str:
    """Return a number in a form of HTML or OpenDocument ("1", "a", "A", "i", "I", "一").

    >>> [format_number(*each) for each in ((28, "a"), (2, "A"), (14, "i"), (4, "I"), (7, "1"))]
    ['bb', 'B', 'xiv', 'IV', '7']
    >>> [format_number(number, "一") for number in (8, 10, 36, 105, 1020)]
    ['八', '十', '三十六', '一百零五', '一千零二十']
    """
    if not 0 < number <= _LARGEST or form not in ("a", "A", "i", "I", "一"):
        return str(number)
    if form == "一":
        written = "".join(
            _DIGITS[int(digit)] + (_PLACES[place] if digit != "0" else "")
            for place, digit in zip(range(3, -1, -1), f"{number:04}", strict=True)
        )
        written = re.sub("零+", "零", written).strip("零")
        return written.removeprefix("一") if 9 < number < 20 else written
    if form in "aA":
        written = chr(ord("a") + (number - 1) % 26) * ((number - 1) // 26 + 1)
    else:
        written = ""
        for value, letters in _ROMAN.items():
            written += letters * (number // value)
            number %= value
    return written.upper() if form.isupper() else written
