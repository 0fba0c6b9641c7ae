"""Numbers of a workbook's cells, as their formats show them."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from functools import lru_cache
from typing import NamedTuple

# Formats by number that every program knows; others are spelled out in the file.
_BRACKETS = {37: "#,##0;(#,##0)", 38: "#,##0;(#,##0)", 39: "#,##0.00;(#,##0.00)"}
_NUMBERS = {1: "0", 2: "0.00", 3: "#,##0", 4: "#,##0.00", 9: "0%", 10: "0.00%", 11: "0.00E+00"}
_DATES = dict.fromkeys((14, 15, 16, 17, *range(27, 32), 36, *range(50, 59)), "yyyy-mm-dd")
_TIMES = dict.fromkeys((18, 19, 20, 21, *range(32, 36), 45, 47), "h:mm:ss")
KNOWN_FORMATS = {
    **_NUMBERS, **_BRACKETS, **_DATES, **_TIMES,
    22: "yyyy-mm-dd h:mm", 40: _BRACKETS[39], 46: "[h]:mm:ss", 48: "##0.0E+0",
}  # fmt: skip


class _Section(NamedTuple):
    """A part of a format: its code, in which each of its words is one character."""

    code: str
    words: dict[str, str]
    is_time: bool = False
    digits: re.Match[str] | None = None


_TOKEN = re.compile(
    r'"(?P<quoted>[^"]*)"|\\(?P<escaped>.)|(?P<blank>_.)|(?P<dropped>\*.|am/pm|a/p)'
    r"|\[(?P<bracket>[^\]]*)\]|(?P<general>general)|.",
    re.IGNORECASE | re.DOTALL,
)
_WORD, _GENERAL = 0xE000, "\uf8ff"  # of the characters that no format has


@lru_cache(1024)
def _split(form: str) -> list[_Section]:
    """Return the sections of a format; none if it has conditions of its own."""
    sections = [_Section("", {})]
    for token in _TOKEN.finditer(form):
        code, words, *_ = sections[-1]
        bracket = token["bracket"] or ""
        if bracket[:1] in ("<", ">", "="):
            return []
        word = token["quoted"] or token["escaped"] or (" " if token["blank"] else "")
        if bracket.startswith("$"):  # a currency, and its language
            word = bracket[1:].partition("-")[0]
        if word:
            mark = chr(_WORD + len(words))
            words[mark] = word
            sections[-1] = _Section(code + mark, words)
        elif token[0] == ";":
            sections.append(_Section("", {}))
        elif set(bracket.lower()) in ({"h"}, {"m"}, {"s"}) or not token.lastgroup:
            sections[-1] = _Section(code + token[0], words)
        elif token["general"]:
            sections[-1] = _Section(code + _GENERAL, words)
    return [
        _Section(code, words, not set("ymdhs").isdisjoint(code.lower()), _find_digits(code))
        for code, words, _, _ in sections
    ]


_DIGITS = re.compile(r"(?P<whole>[0#?](?:[^.E%;]*[0#?])?)?(?P<scale>,*)(?:\.(?P<part>[0#?]*))?"
                     r"(?P<more>,*)(?P<power>E[+-]?[0#?]+)?")  # fmt: skip


def _find_digits(code: str) -> re.Match[str] | None:
    found = (each for each in _DIGITS.finditer(code) if each["whole"] or each["part"])
    return None if "/" in code else next(found, None)  # a fraction has none


_LONGEST = 255  # characters of a format, as Excel has it
_KEPT = 4  # decimals that a format would round away: 12.5%, not 13%


def show_number(value: str, form: str, day_zero: datetime) -> str:
    """Return a number as its format shows it; a date in ISO 8601."""
    try:
        number = float(value)
    except ValueError:
        return value
    if form in ("", "General") or len(form) > _LONGEST:
        return f"{number:.15g}"
    sections = _split(form)
    at = 1 if number < 0 and len(sections) > 1 else 2 * (number == 0 and len(sections) > 2)
    code, words, is_time, digits = sections[at] if sections else _Section("", {})
    general = f"{number:.15g}"
    if is_time:
        return _show_time(number, code, day_zero) or general
    if "/" in code:
        return general
    if digits is not None:
        sign = "-" if number < 0 and at == 0 else ""
        shown = _show_digits(abs(number), digits, 100 ** code.count("%"), words)
        code = f"{sign}{code[: digits.start()].lstrip()}{shown}{code[digits.end() :]}"
    shown = "".join([words.get(each, each) for each in code])
    return " ".join(shown.replace(_GENERAL, general).replace("@", general).split()) or general


def _show_digits(number: float, code: re.Match[str], times: int, words: dict[str, str]) -> str:
    whole, part = code["whole"] or "", code["part"] or ""
    if code["power"]:
        return f"{number:.{len(part)}E}"
    number = number * times / 1000 ** len(code["scale"] + code["more"])
    exact = len(f"{number:.15g}".partition(".")[2].partition("e")[0])
    places = exact if len(part) < exact <= len(part) + _KEPT else len(part)
    digits, _, decimals = f"{number:.{places}f}".partition(".")
    least = part.count("0")
    decimals = decimals[:least] + decimals[least:].rstrip("0")
    digits = "" if digits == "0" and "0" not in whole else digits.zfill(whole.count("0"))
    if not set(whole) <= set("0#?,"):  # such as 000-00-000
        digits = _fill(digits, whole, words)
    elif "," in whole:
        digits = f"{int(digits or 0):,}" if digits[:1] != "0" else digits
    return digits + ("." + decimals if decimals else "")


def _fill(digits: str, whole: str, words: dict[str, str]) -> str:
    """Put digits in their places between words, from the right."""
    shown, left = "", list(digits)
    for each in reversed(whole):
        if each not in "0#?":
            shown = words.get(each, each) + shown if left else shown
        elif left:
            shown = left.pop() + shown
    return "".join(left) + shown


def _show_time(number: float, code: str, day_zero: datetime) -> str:
    """Return a duration, a time or a date; "" if it is none that a calendar has."""
    try:
        seconds = round(abs(number) * 86_400)
        shown = day_zero + timedelta(days=number // 1, seconds=round(number % 1 * 86_400))
    except (OverflowError, ValueError):
        seconds, shown = 0, None
    if "[" in code:
        minutes = f"{seconds // 60 % 60:02}" if "[h" in code.lower() else f"{seconds // 60}"
        hours = f"{seconds // 3600}:" if "[h" in code.lower() else ""
        clock = f"{seconds}" if "[s" in code.lower() else f"{hours}{minutes}:{seconds % 60:02}"
        return "-" * (number < 0) + clock
    if shown is None:
        return ""
    if 0 <= number < 1 and set("yd").isdisjoint(code.lower()):
        return f"{shown:%H:%M:%S}"
    return f"{shown:%Y-%m-%d}" if number.is_integer() else f"{shown:%Y-%m-%d %H:%M:%S}"
