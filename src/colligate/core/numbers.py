"""How numbers are written: in digits of several notations, in words, with currencies.

Numbers are compared as digits with a decimal point: "1,250" and "1'250" become 1250, "3,5" becomes
3.5, "2½" becomes 2.5, "forty-five" becomes 45.
"""

from __future__ import annotations

import re
import unicodedata

FRACTIONS = "¼-¾⅐-⅞"
"""Fractions of one character, as a range for regular expressions."""

_START = r"(?:\.(?<![\w.].))?\d+"
NUMBER = rf"(?:{_START}(?:[.,]\d+|['’]\d{{3}}(?!\d))*(?:\s?[{FRACTIONS}])?|[{FRACTIONS}])"
"""A number in digits, with its separators."""

# In words

_COUNTED = """
zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen
sixteen seventeen eighteen nineteen
"""
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety hundred"
NUMBER_WORDS = {word: str(number) for number, word in enumerate(_COUNTED.split())} | {
    word: str(10 * number) for number, word in enumerate(_TENS.split(), 2)
}
_ONE = "|".join(_COUNTED.split()[1:10])
_TEN = "|".join(_TENS.split()[:-1])
_SEVERAL = re.compile(rf"\b({_TEN})[-\u2010\u2011 ]({_ONE})\b(?!-)|\b({_ONE}) hundred\b")


# From one to twelve in German, Spanish and French, without accents and without articles ("un").
_ELSEWHERE = {
    word: str(number)
    for first, words in (
        (1, "eins zwei drei vier funf sechs sieben acht neun zehn elf zwolf"),
        (2, "dos tres cuatro cinco seis siete ocho nueve diez once doce"),
        (2, "deux trois quatre cinq six sept huit neuf dix onze douze"),
    )
    for number, word in enumerate(words.split(), first)
}
# These are also other words ("very", "back", "new", a month, a name): numbers before a measure.
_ALSO_WORDS = frozenset("elf dos tres once doce sept neuf dix".split())
_MEASURE = re.compile(
    r"\s(?:tagen?|monaten?|wochen|jahren?|stunden|prozent|meses|anos|dias|semanas|horas|por ciento|"
    r"jours|mois|semaines|ans|annees|heures|pour cent|euros?)\b"
)


# "One of the largest", "no one", "the other one": no number is stated.
_NO_NUMBER = re.compile(
    r"\b(?:one of|no one|(?:this|that|other|another|which) one)\b(?![-\u2010\u2011])"
    r"|\bthe one (?=(?:in|at|that|who|with|from)\b)"
)


def write_number_words(text: str) -> str:
    """Write "forty-five" as "45" and "two hundred" as "200", in a text in lower case.

    "One of the largest" states no number and is left out.
    """
    return _NO_NUMBER.sub(" ", _SEVERAL.sub(_add_number_words, text))


def _add_number_words(found: re.Match[str]) -> str:
    if found[3]:
        return f"{NUMBER_WORDS[found[3]]}00"
    return str(int(NUMBER_WORDS[found[1]]) + int(NUMBER_WORDS[found[2]]))


def find_number_word(word: re.Match[str]) -> str | None:
    """Return a number word of a text in lower case in digits, None for any other word."""
    if word[0] in _ALSO_WORDS and not _MEASURE.match(word.string, word.end()):
        return None
    return NUMBER_WORDS.get(word[0]) or _ELSEWHERE.get(word[0])


# In digits

_FRACTION = re.compile(rf"(?:(\d)\s?)?([{FRACTIONS}])")


def write_fractions(text: str) -> str:
    """Write "2½" as "2.5" and "½" as "0.5"."""
    return _FRACTION.sub(_write_fraction, text)


def _write_fraction(found: re.Match[str]) -> str:
    return f"{found[1] or ' 0'}{f'{unicodedata.numeric(found[2]):g}'[1:]}"


_POINT_THOUSANDS = re.compile(r"[1-9]\d{0,2}(?:(?:\.\d{3})+,\d+|(?:\.\d{3}){2,})")
_COMMA_THOUSANDS = re.compile(r"(?<!^0),(?=\d{3}(?!\d)|\d\d,)")  # 1,250 and 1,23,456, not 0,125


def write_number(digits: str) -> str:
    """Return a number in digits without separators of thousands, with a decimal point.

    >>> [write_number(each) for each in ("1,234.5", "3,5", ".5", "1'250", "1.850,50", "2½")]
    ['1234.5', '3.5', '0.5', '1250', '1850.50', '2.5']
    """
    if digits.isdecimal():
        return digits
    digits = write_fractions(digits)
    digits = re.sub(r"['’\s]", "", digits)
    if _POINT_THOUSANDS.fullmatch(digits):
        return digits.replace(".", "").replace(",", ".")
    digits = _COMMA_THOUSANDS.sub("", digits).replace(",", ".")
    return f"0{digits}" if digits.startswith(".") else digits


# "1.850" is 1850 or 1.85, but for what is stated in decimals in any language.
MAY_BE_THOUSANDS = re.compile(
    r"(?<![\d.,:/])[1-9]\d{0,2}\.\d{3}(?!\d|[.,:/]\d)"
    r"(?!\s?(?:%|per\s?cent|pro[zc]ent|por cien|pour cent|thousand|[mb]illi|trilli|times\b"
    r"|[ckmµ]?[glmsvw]\b))",
    re.IGNORECASE,
)
_ENGLISH = re.compile(
    r"\b(?:the|and|is|was|were|are|of|with|from|its?|has|have)\b|\b0\.\d", re.IGNORECASE
)
# "Was" is German and Dutch, too, and "is" is Dutch.
_NOT_ENGLISH = re.compile(r"\b(?:de[rn]?|die|das|een|het)\b", re.IGNORECASE)


def has_decimal_points(text: str) -> bool:
    """Return whether a text is in English, or has a number below one: 1.234 is between 1 and 2.

    >>> has_decimal_points("The ratio was 1.234."), has_decimal_points("Es waren 1.234.")
    (True, False)
    """
    return bool(_ENGLISH.search(text)) and not _NOT_ENGLISH.search(text)


CURRENCY_CODES = (
    "AED|ARS|AUD|BRL|CAD|CHF|CLP|CNY|CZK|DKK|EUR|GBP|HKD|HUF|ILS|JPY|KRW|MXN|NOK|NZD|PLN|RUB|RMB|"
    "SAR|SEK|SGD|THB|TWD|USD|ZAR"
)
_SEPARATED = re.compile(r"[.\d]\d*(?:[.,'’]\d+)+|\.\d+")
_CURRENCY_BEFORE = re.compile(rf"(?:[$€£¥]|\b(?:{CURRENCY_CODES}))\s?$", re.IGNORECASE)
_AMOUNT_BEHIND = re.compile(
    r"\s?(?:[%$€£¥]|per\s?cent|prozent|por ciento|pour cent|thousand|[mb]illi|trilli|dollar|euro|"
    rf"pound|fran|(?:{CURRENCY_CODES})\b)",
    re.IGNORECASE,
)


def find_other_readings(text: str) -> dict[str, str]:
    """Return the numbers of a text that may be written otherwise, each with that: 1.850 is also
    1850 where the point may stand for thousands, $4.50 also 4.5. Of a section or a version the
    zeros count."""
    found: dict[str, str] = {}
    decimal: bool | None = None
    for match in _SEPARATED.finditer(text):
        number = write_number(match[0])
        before = text[max(0, match.start() - 5) : match.start()]
        if MAY_BE_THOUSANDS.match(text, match.start()):
            decimal = has_decimal_points(text) if decimal is None else decimal
            if not decimal and not before.rstrip().endswith(("$", "£")):
                found[number] = number.replace(".", "")
        elif (number.endswith("0") and number.count(".") == 1) and (
            _CURRENCY_BEFORE.search(before) or _AMOUNT_BEHIND.match(text, match.end())
        ):
            found[number] = number.rstrip("0").rstrip(".")
    return found
