"""The numbers, units and dates that a text states, with all their readings.

The words come from libraries: months, units, currencies and short scales from CLDR (babel), number
words from text2num. Here is the grammar of digits. What can be read in several ways
("01.03.2024", "1.850", "5 m") has several readings.
"""

from __future__ import annotations

import re
import unicodedata
from calendar import monthrange
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import date
from decimal import Decimal
from functools import lru_cache, partial
from itertools import islice

Unit = str | frozenset[str]
"""A unit that pint knows, one of those below, the codes of currencies, or "" for none."""
PERCENT = "percent"
DATE, DAY = "date", "day of any year"
# Of pint, a quarter is a mass and a decade a ratio.
DURATIONS = {"quarter": "quarter_of_year = 3 * month", "decade": "decade_of_years = 10 * year"}


@dataclass(frozen=True, slots=True)
class Amount:
    """A number without its sign, or a date; `step` is the value of its last stated digit.

    A date is the middle, counted in days, of all the days that it may be: `step` days, so that a
    year is held by any day of it. A day of any year is that of the leap year 4.
    """

    value: Decimal
    step: Decimal = Decimal(0)
    unit: Unit = ""


@dataclass(slots=True)
class Quantity:
    """A number or a date at `start` to `end` of a text, with its readings."""

    start: int
    end: int
    readings: list[Amount]
    name: str = ""  # of a version or a list, which has no readings: the same name holds it
    stated: bool = True  # "one of" and "millions of" are no claims


@dataclass(slots=True)
class Quantities:
    """The quantities of a text, and its scales ("in thousands") and units without a number."""

    found: list[Quantity] = field(default_factory=list)
    scales: set[Decimal] = field(default_factory=set)
    units: set[str] = field(default_factory=set)


_Meaning = Decimal | Unit
_MONEY = "".join(c for c in map(chr, range(0x20, 0x2100)) if unicodedata.category(c) == "Sc")
_PIECE = re.compile(rf"[A-Z]{{0,3}}[{_MONEY}]|[^\W\d_]+|[^\w\s]|\d+")
_NO_UNITS = {"length-point", "graphics-dot", "mass-stone"}  # "two points more", "21st"


@dataclass(frozen=True, slots=True)
class _Words:
    """The scales, units and currencies of a language by their pieces, its months and dates, and the
    sign of decimals."""

    phrases: dict[tuple[str, ...], list[_Meaning]]
    months: dict[str, int]
    date: re.Pattern[str]
    decimal: str
    spaced: bool

    def match(self, text: str, at: int) -> tuple[int, list[_Meaning]]:
        """Return the end and the meanings of the longest phrase at a place, a hyphen before it."""
        pieces: list[str] = []
        end, best = at, (at, list[_Meaning]())
        for piece in islice(_PIECE.finditer(text, at), 5):
            if text[end : piece.start()] not in ("", " ", "\u00a0", "\u202f"):
                break
            end = piece.end()
            if piece[0] == "-" and not pieces:
                continue
            pieces.append(_fold(piece[0]))
            if (found := self.phrases.get(tuple(pieces))) and not text[end : end + 1].isdigit():
                best = end, found
        return best


def _fold(piece: str) -> str:
    return piece if len(piece) <= 2 else piece.casefold()  # abbreviations: Mb is not MB


@lru_cache(maxsize=16)
def _load_words(language: str) -> _Words:
    """Return the words of a language and of English."""
    from babel import Locale, UnknownLocaleError
    from babel.numbers import format_decimal, get_currency_name
    from babel.units import format_unit

    locales = [Locale("en"), Locale("en", "GB")]
    with suppress(UnknownLocaleError, ValueError):
        locales.append(Locale.parse(language.replace("_", "-"), sep="-"))
    phrases: dict[tuple[str, ...], list[_Meaning]] = defaultdict(list)
    months: dict[str, int] = {}
    of = {"of"}
    codes = [str(code) for code in locales[0].currency_symbols if code != "XXX"]

    def add(text: str, meaning: _Meaning) -> None:
        pieces = tuple(map(_fold, _PIECE.findall(text.strip(". \u00a0\u202f"))))
        if pieces and meaning not in phrases[pieces]:
            phrases[pieces].append(meaning)

    for locale in locales:
        of.update(re.findall(r"'(\w+)'", locale.date_formats["long"].pattern))
        for width in ("wide", "abbreviated"):
            for number, month in locale.months["format"][width].items():
                word = month.strip(".")
                months |= dict.fromkeys([word, word.title(), word.upper()], number)
        for length in ("long", "short"):
            for patterns in locale.compact_decimal_formats[length].values():
                for size, pattern in patterns.items():
                    scale = Decimal(size).scaleb(1 - pattern.pattern.count("0"))
                    add(re.sub(r"[0¤'\s]", "", pattern.pattern), scale)
            for unit in set(locale.unit_display_names) - _NO_UNITS:
                name = unit.partition("-")[2].removesuffix("-person")
                for text in (format_unit(count, unit, length, locale=locale) for count in (1, 2)):
                    if text[0] in "12":
                        add(text[1:], DURATIONS.get(name, name).partition(" ")[0])
        # Of "US dollars" and "dollars américains" it is the end at which fewer words are different.
        names = [locale.currencies[code].split() for code in codes]
        at = min((0, -1), key=lambda at: len({words[at] for words in names}))
        money: dict[str, set[str]] = defaultdict(set)
        for code in codes:
            sign = locale.currency_symbols.get(code, code)
            words = {get_currency_name(code, count, locale).split()[at] for count in (1, 2)}
            for word in {code, *words, *({sign, sign[-1]} if sign[-1] in _MONEY else ())}:
                money[word].add(code)
        for word, known in money.items():
            add(word, frozenset(known))
    day = r"(?P<day{}>[0-3]?\d)(?!\d)[^\W\d_]{{0,2}}"
    gap = rf"(?:-|[^\S\n]{{1,2}}(?:(?:{'|'.join(sorted(of))})\s)?)"
    written = re.compile(
        rf"(?<![\w.,])(?:{day.format(1)}\.?{gap})?(?<!\w)"
        rf"(?P<month>{'|'.join(map(re.escape, sorted(months, key=len, reverse=True)))})(?!\w)\.?"
        rf"(?:{gap}{day.format(2)}(?![\w:]|[.,]\d))?(?:,?{gap}(?P<year>[12]\d{{3}})(?!\w|[.,]\d))?"
    )
    signs = format_decimal(12345.5, locale=locales[-1])
    group, decimal = signs[2], signs[-2]
    return _Words(dict(phrases), months, written, decimal, group.isspace())


_NUMERIC_DATE = re.compile(
    r"(?<![\w.,/-])(\d{1,4})([-./])(\d\d?)\2(\d{4}|\d\d)(?:T[\d:.]+Z?)?(?![\w/-]|[.,]\d)"
)


def _make_days(first: date, last: date, unit: str = DATE) -> Amount:
    step = last.toordinal() - first.toordinal()
    return Amount(Decimal(first.toordinal()) + Decimal(step) / 2, Decimal(step), unit)


def _make_years(first: int, last: int) -> Amount:
    return _make_days(date(max(1, first), 1, 1), date(max(1, last), 12, 31))


def _make_date(year: str | None, month: int, day: str | None) -> list[Amount]:
    """Return the dates that may be meant; none if the calendar lacks it."""
    found = []
    for century in (1900, 2000) if year and len(year) == 2 else (0,):
        with suppress(ValueError):
            known = date(century + int(year or 4), month, int(day or 1))
            last = known if day else known.replace(day=monthrange(known.year, month)[1])
            found.append(_make_days(known, last, DATE if year else DAY))
    return found


def _read_numeric_date(found: re.Match[str]) -> list[Amount]:
    first, _, second, third = found.groups()
    if len(first) == 4:
        return _make_date(first, int(second), third) if len(third) == 2 else []
    days = dict.fromkeys([(first, second), (second, first)])  # either may be the month
    return [each for day, month in days for each in _make_date(third, int(month), day)]


_LONGEST = 40  # digits of a number; a longer run is a name
_DIGITS = re.compile(r"(?:(?<![\w.])\.)?\d+(?:[.,'’\u00a0\u2009\u202f]\d+)*")
_GROUPED = re.compile(
    r"[1-9]\d{0,2}([.,'’\s])\d{3}(?:\1\d{3})*(?:(?!\1)[.,]\d+)?"
    r"|[1-9]\d?(?:,\d\d)+,\d{3}(?:\.\d+)?"  # 1,23,45,678
)
_YEAR = re.compile(r"1\d{3}|2[01]\d\d")
_CENTURY = re.compile(r"\b(\d\d)\d\d[-–/]\Z|(?<!\w)['’]\Z")  # of 1934-35, '67
_GLUED = re.compile(r"[^\W\d_]+")
_MONEY_BEFORE = re.compile(rf"([A-Z]{{0,3}}[{_MONEY}]|[A-Z]{{3}})[ \u00a0]?\Z")
_TO = re.compile(rf" ?(?:[-–]|[^\W\d_]{{1,3}}) ?[{_MONEY}]?{_DIGITS.pattern}")
_ALONE = re.compile(r"\b[^\W\d_]{3,}|%|(?<=[$€£])[^\W\d_]")
_ONE = Decimal(1)


@dataclass(slots=True)
class _Piece:
    """A piece of a text as text2num reads it, or a number; `value` is that of one in words."""

    start: int
    end: int
    word: str
    value: Decimal | None = None
    ordinal: bool = False

    @property
    def is_scale(self) -> bool:
        """Whether it is a word such as "million" alone."""
        return (self.value or 0) >= 100 and set(f"{self.value:f}") == {"0", "1"}

    def text(self) -> str:
        return self.word

    def nt_separated(self, previous: _Piece) -> bool:
        return False

    def not_a_number_part(self) -> bool:
        return self.word[0].isdecimal()


@lru_cache(maxsize=256)
def read_quantities(text: str, language: str = "en") -> Quantities:
    """Return what a text states; the words are those of a language (ISO 639) and of English.

    >>> [str(each.value) for each in read_quantities("twelve of 1,250").found[1].readings]
    ['1250']
    """
    words, stated = _load_words(language), Quantities()
    text = re.sub(r"\\(?=[^A-Za-z\s])|(?<!\\)\$(?=[^$]*\\)", " ", text)  # of LaTeX
    if words.spaced:  # blanks group digits
        text = re.sub(r"(?<=\d) (?=\d{3}(?!\d))", "\u202f", text)
    text = _take_dates(text, words, stated)
    left, reached = "", 0
    for number in _list_numbers(text, language):
        if number.start < reached:
            continue
        found = _read_number(text, number, words)
        stated.found.append(found)
        if not found.readings:  # a version or a list has numbers that others may state
            parts = [Amount(Decimal(n)) for n in re.findall(rf"\d{{1,{_LONGEST}}}", found.name)]
            stated.found.append(replace(found, readings=parts, stated=False))
        elif number.is_scale and number.value:
            stated.scales.add(number.value)  # "in thousands"
        left += f"{text[reached : found.start]}\n"
        reached = found.end
    left += text[reached:]
    for word in _ALONE.finditer(left):
        for each in words.match(left, word.start())[1]:
            if isinstance(each, Decimal):
                stated.scales.add(each)
            elif isinstance(each, str):
                stated.units.add(each)
    return stated


def _take_dates(text: str, words: _Words, stated: Quantities) -> str:
    """Add the dates of a text; return it with blanks in their places."""

    def read_written(found: re.Match[str]) -> list[Amount]:
        day, year = found["day1"] or found["day2"], found["year"]
        return _make_date(year, words.months[found["month"]], day) if day or year else []

    def take(read: Callable[[re.Match[str]], list[Amount]], found: re.Match[str]) -> str:
        if readings := read(found):
            stated.found.append(Quantity(*found.span(), readings))
        return " " * len(found[0]) if readings else found[0]

    text = _NUMERIC_DATE.sub(partial(take, _read_numeric_date), text)
    return words.date.sub(partial(take, read_written), text)


def _list_numbers(text: str, language: str) -> list[_Piece]:
    """Return the numbers of a text in their order."""
    from text_to_num import find_numbers

    found = [_Piece(*each.span(), each[0]) for each in _DIGITS.finditer(text)]
    pieces = [_Piece(*each.span(), each[0]) for each in _PIECE.finditer(text)]
    with suppress(ValueError):  # a language that text2num does not know
        for each in find_numbers(pieces, re.split("[-_]", language)[0], 0):
            start, end = pieces[each.start].start, pieces[each.end - 1].end
            if len(pieces[each.start].word) > 1:  # not the letter o
                value = Decimal(str(each.value)).normalize()
                found.append(_Piece(start, end, text[start:end], value, each.is_ordinal))
    return sorted(found, key=lambda each: each.start)


def _read_number(text: str, number: _Piece, words: _Words) -> Quantity:
    """Return a number with the currency, the scale and the unit around it.

    Small number words alone ("one of them", "the two") and scales ("thousands of people") state no
    number; an ordinal may be a share ("a third").
    """
    end, written = number.end, number.word
    spoken = number.value is not None
    values = _read_digits(written, words.decimal) if number.value is None else [number.value]
    start, money = _look_back(text, number.start, words)
    readings, ordinal = [], number.ordinal
    glued = None if spoken else _GLUED.match(text, end)
    if glued and words.match(text, end)[0] < glued.end():  # "21st", "3G", "1950s"
        end, ordinal = glued.end(), True
        if glued[0] == "s" and _YEAR.fullmatch(written):
            year = int(written)
            readings.append(_make_years(year, year + (9 if year % 100 else 99)))
    last, meanings = words.match(text, end)
    if ordinal and values and "century" in meanings and values[0] < 100:
        readings.append(_make_years(100 * int(values[0]) - 100, 100 * int(values[0]) - 1))
        end = last
    follows = [(end, _ONE, "")] if ordinal else _follow(text, end, words, money)
    end = min(last for last, _, _ in follows)
    bare = all(each[1:] == (_ONE, "") for each in follows)
    if bare and not money and _YEAR.fullmatch(written):
        readings.append(_make_years(int(written), int(written)))
    elif bare and (before := _CENTURY.search(text, max(0, start - 5), start)):
        centuries = [int(before[1])] if before[1] else [18, 19, 20]
        years = [100 * each + int(values[0]) for each in centuries if values and values[0] < 100]
        readings += [_make_years(year, year) for year in years]
    if bare and (more := _TO.match(text, end)):  # "3 to 15 percent"
        follows += _follow(text, more.end(), words, money)
    readings += [
        Amount(each * scale, _last_digit(each, scale, written), unit or money)
        for each in values
        for _, scale, unit in follows
    ]
    if number.ordinal and values[0] > 2:
        share = _ONE / values[0]
        readings += [Amount(100 * share, 50 * share, PERCENT), Amount(share, share / 2)]
    least = 1 if number.ordinal else 2
    vague = spoken and (number.is_scale or (bare and values[0] <= least))
    return Quantity(start, end, readings, "" if values else written, stated=not vague)


def _read_digits(token: str, decimal: str) -> list[Decimal]:
    """Return what digits with separators may stand for; nothing for a version or a list."""
    written = []
    if len(token) <= _LONGEST and (grouped := _GROUPED.fullmatch(token)):
        written.append(token.replace(grouped[1] or ",", "").replace(",", "."))
    if len(token) <= _LONGEST and re.fullmatch(r"\d+|\d*[.,]\d+", token):
        written += [token.replace(",", ".")] if not written or decimal in token else []
    return [Decimal(each) for each in written]


def _last_digit(value: Decimal, scale: Decimal, written: str) -> Decimal:
    """Return the value of the last digit that counts: zeros that end a large number may not."""
    digits = format(value, "f")
    decimals = len(digits.partition(".")[2])
    zeros = len(digits) - len(digits.rstrip("0"))
    year = _YEAR.fullmatch(written)
    large = zeros and not decimals and (scale > 1 or (value >= 1000 and not year))
    least = 2 if written[-1].isdecimal() else 1  # digits that count
    return scale.scaleb(min(zeros, len(digits) - least) if large else -decimals)


def _look_back(text: str, at: int, words: _Words) -> tuple[int, Unit]:
    """Return where a number begins with its currency, and that."""
    if sign := _MONEY_BEFORE.search(text, max(0, at - 5), at):
        meanings = words.phrases.get((_fold(sign[1]),), [])
        codes = [each for each in meanings if isinstance(each, frozenset)]
        if codes or sign[1][-1] in _MONEY:
            return sign.start(), codes[0] if codes else frozenset({sign[1]})
    return at, ""


def _follow(text: str, at: int, words: _Words, money: Unit) -> list[tuple[int, Decimal, Unit]]:
    """Return the scales and units that may follow a number, each with its end."""
    found: list[tuple[int, Decimal, Unit]] = []
    end, meanings = words.match(text, at)
    for each in sorted(meanings, key=lambda each: not isinstance(each, Decimal)):
        if not isinstance(each, Decimal):
            found.append((end, _ONE, each))
            continue
        last, units = words.match(text, end)
        known = [(last, each, unit) for unit in units if not isinstance(unit, Decimal)]
        found += known if known and not _is_doubtful(text, end, last) else [*known, (end, each, "")]
    found = [each for each in found if not money or each[2] in ("", PERCENT, money)]
    return found if found and not _is_doubtful(text, at, end) else [*found, (at, _ONE, "")]


def _is_doubtful(text: str, start: int, end: int) -> bool:
    """Return whether a short unit may be a word: "5 in all"."""
    return end - start <= 3 and text[start] == " " and text[end : end + 2].strip().isalnum()
