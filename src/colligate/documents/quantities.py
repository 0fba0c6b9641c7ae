"""The numbers, units and dates that a text states, with all their readings.

The words come from libraries: months, units, currencies and short scales from CLDR (babel), number
words from text2num. Here is the grammar of digits. What can be read in several ways
("01.03.2024", "1.850", "5 m") has several readings.
"""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from fractions import Fraction
from functools import cache, lru_cache, partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from babel import Locale

Unit = str | frozenset[str]
"""A unit that pint knows, one of those below, the codes of currencies, or "" for none."""
PERCENT, TIME = "percent", "time"
DATE, MONTH, YEAR, DAY = "date", "month of a year", "calendar year", "day of any year"
# Of pint, a quarter is a mass and a decade a ratio.
DURATIONS = {"quarter": "quarter_of_year = 3 * month", "decade": "decade_of_years = 10 * year"}


@dataclass(frozen=True, slots=True)
class Amount:
    """A number without its sign, a time or a date; `step` is the value of its last stated digit.

    A time is in minutes. Dates are the ordinal of a day, twelve times a year and the month, a year,
    and 32 times a month and the day, 0 for all of it.
    """

    value: Decimal
    step: Decimal = Decimal(0)
    unit: Unit = ""


@dataclass(slots=True)
class Quantity:
    """A number or a date at `start` to `end` of a text, with its readings.

    `name` is the token around it if that has letters too: the same token holds it. What is not
    `stated` ("one of", "millions of") is no claim; a `share` in words is compared with shares.
    """

    start: int
    end: int
    readings: list[Amount]
    name: str = ""
    stated: bool = True
    share: bool = False


@dataclass(slots=True)
class Quantities:
    """The quantities of a text, the names of its tokens of digits and letters, and the scales ("in
    thousands") and units ("a year") that stand without a number."""

    found: list[Quantity] = field(default_factory=list)
    names: set[str] = field(default_factory=set)
    scales: set[Decimal] = field(default_factory=set)
    units: set[str] = field(default_factory=set)


def read_quantities(text: str, language: str = "en") -> Quantities:
    """Return what a text states; the words are those of a language (ISO 639) and of English.

    >>> [str(each.value) for each in read_quantities("twelve of 1,250").found[1].readings]
    ['1250']
    """
    # What a short text states is kept: the quotes of an answer are read again for each statement.
    return _read_kept(text, language) if len(text) < 4_000 else _Scan(text, language).stated


@lru_cache(maxsize=256)
def _read_kept(text: str, language: str) -> Quantities:
    return _Scan(text, language).stated


# Words, from libraries

_Meaning = Decimal | Unit
_ONE = Decimal(1)
_MONEY = "".join(c for c in map(chr, range(0x20, 0x2100)) if unicodedata.category(c) == "Sc")
_SPACES = "\u00a0\u2009\u202f"  # that join digits
_TOKEN = re.compile(
    rf"(?:(?<![\w.])\.)?\d+(?:[.,'’{_SPACES}]\d+)*(?: ?[½-¾⅐-⅞])?|[½-¾⅐-⅞]"  # a number
    rf"|[A-Z]{{0,3}}[{_MONEY}]|[^\W\d_½-¾⅐-⅞]+|[^\w\s]|\n"
)
_NO_UNITS = {"length-point", "graphics-dot", "mass-stone"}  # "two points more", "21st"


@dataclass(frozen=True, slots=True)
class _Words:
    """The scales and units of a language by their tokens, the longest phrase by its first token,
    the dates, the sign of decimals, and whether blanks group digits."""

    phrases: dict[tuple[str, ...], list[_Meaning]]
    longest: dict[str, int]
    months: dict[str, int]
    date: re.Pattern[str]
    decimal: str
    spaced: bool


def _fold(token: str) -> str:
    return token if len(token) <= 2 else token.casefold()  # abbreviations: Mb is not MB


@lru_cache(maxsize=16)
def _load_words(language: str) -> _Words:
    """Return the words of a language and of English, from CLDR."""
    from babel import Locale, UnknownLocaleError
    from babel.numbers import format_decimal
    from babel.units import format_unit

    locales = [Locale("en"), Locale("en", "GB")]
    with suppress(UnknownLocaleError, ValueError):
        locales.append(Locale.parse(language.replace("_", "-"), sep="-"))
    phrases: dict[tuple[str, ...], list[_Meaning]] = defaultdict(list)
    months: dict[str, int] = {}
    of = {"of"}
    in_use = [str(code) for code in locales[0].currency_symbols if code != "XXX"]

    def add(text: str, meaning: _Meaning) -> None:
        tokens = tuple(map(_fold, _TOKEN.findall(text.strip(f". {_SPACES}"))))
        if tokens and meaning not in phrases[tokens]:
            phrases[tokens].append(meaning)

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
                for count in (1, 2):
                    text = format_unit(count, unit, length, locale=locale)
                    if text.startswith(str(count)):
                        add(text[1:], DURATIONS.get(name, name).partition(" ")[0])
        for word, codes in _name_money(locale, in_use).items():
            add(word, frozenset(codes))
    longest: dict[str, int] = {}
    for phrase in phrases:
        longest[phrase[0]] = max(len(phrase), longest.get(phrase[0], 0))
    day = r"(?P<day{}>[0-3]?\d)(?!\d)[^\W\d_]{{0,2}}"
    gap = rf"(?:-|[^\S\n]{{1,2}}(?:(?:{'|'.join(sorted(of))})\s)?)"
    written = re.compile(
        rf"(?<![\w.,])(?:{day.format(1)}\.?{gap})?(?<!\w)"
        rf"(?P<month>{'|'.join(map(re.escape, sorted(months, key=len, reverse=True)))})(?!\w)\.?"
        rf"(?:{gap}{day.format(2)}(?![\w:]|[.,]\d))?(?:,?{gap}(?P<year>[12]\d{{3}})(?!\w|[.,]\d))?"
    )
    signs = format_decimal(12345.5, locale=locales[-1])
    return _Words(dict(phrases), longest, months, written, signs[-2], signs[2] in _SPACES)


def _name_money(locale: Locale, codes: Sequence[str]) -> dict[str, set[str]]:
    """Return the words and signs of currencies with their codes.

    Of "US dollars" and "dollars américains" it is the end at which fewer words are different.
    """
    from babel.numbers import get_currency_name

    names = [locale.currencies[code].split() for code in codes]
    at = min((0, -1), key=lambda at: len({words[at] for words in names}))
    found = defaultdict(set, {code: {code} for code in codes})
    for code in codes:
        sign = locale.currency_symbols.get(code, code)
        words = {get_currency_name(code, count, locale).split()[at] for count in (1, 2)}
        for word in words | ({sign, sign[-1]} if sign[-1] in _MONEY else set()):
            found[word].add(code)
    return found


@cache
def _load_signs() -> dict[str, Fraction]:
    """Return the values of ½, ⅓ and so on."""
    signs = map(chr, (*range(0xBC, 0xBF), *range(0x2150, 0x215F)))
    return {sign: Fraction(unicodedata.numeric(sign)).limit_denominator(10) for sign in signs}


@cache
def _load_fractions() -> dict[str, int]:
    """Return the denominators by their English words, from the names of ½, ⅓ and so on."""
    found = {}
    for sign, value in _load_signs().items():
        word = unicodedata.name(sign).split()[-1].casefold().rstrip("s")
        found[word] = found[f"{word}s"] = value.denominator
    return found


# Tokens


@dataclass(slots=True)
class _Token:
    """A token, which text2num reads. A number has a kind (digits, word, ordinal, scale, share) and
    values; a version or a list has digits and no value."""

    start: int
    end: int
    word: str
    values: list[Decimal] = field(default_factory=list)
    kind: str = ""
    below: int = 0  # the denominator of a share
    in_phrase: bool = False

    def text(self) -> str:
        return self.word

    def nt_separated(self, previous: _Token) -> bool:
        return False

    def not_a_number_part(self) -> bool:
        return self.in_phrase


def _match(tokens: Sequence[_Token], at: int, words: _Words) -> tuple[int, list[_Meaning]]:
    """Return the length of the longest phrase that begins at a token, and its meanings."""
    length = words.longest.get(_fold(tokens[at].word))
    phrase = tuple(_fold(each.word) for each in tokens[at : at + length]) if length else ()
    while phrase and phrase not in words.phrases:
        phrase = phrase[:-1]
    return len(phrase), words.phrases.get(phrase, [])


def _tokenize(text: str, words: _Words, language: str) -> list[_Token]:
    """Return the tokens of a text, those of a number in words as one; two more end the text."""
    from text_to_num import find_numbers

    tokens = [_Token(each.start(), each.end(), each[0]) for each in _TOKEN.finditer(text)]
    tokens += [_Token(len(text), len(text), "\n") for _ in range(2)]
    for at in range(len(tokens)):
        length, _ = _match(tokens, at, words)
        for each in tokens[at : at + length] if length > 1 else ():
            each.in_phrase = True  # "pour cent" is not 100
    spoken = {}
    with suppress(ValueError):  # a language that text2num does not know
        for each in find_numbers(tokens, re.split("[-_]", language)[0], 0):
            if len(tokens[each.start].word) > 1:  # not the letter o
                spoken[each.start] = each
    merged: list[_Token] = []
    at = 0
    while at < len(tokens) - 2:
        token, end = tokens[at], at + 1
        token.below = _load_fractions().get(token.word.casefold(), 0)
        count = _pop_count(merged, token) if token.below else None
        if token.word[-1].isdecimal() or token.word[-1] in _load_signs():
            token.kind, token.values = "digits", _read_digits(token.word, words.decimal)
        elif count or (token.below and at not in spoken):  # "two thirds", "half a billion"
            after = at + 1
            while after < at + 4 and (_is_dash(tokens[after]) or _is_short(tokens[after])):
                after += 1
            measured = _match(tokens, after, words)[0] > 0 or after in spoken
            if count or measured or token.below != 4:  # a quarter alone may be one of a year
                token.kind, token.values = "share", [(count or _ONE) / token.below]
                end = after if measured else end
        elif at in spoken:
            end, value = spoken[at].end, Decimal(str(spoken[at].value)).normalize()
            token.kind = "ordinal" if spoken[at].is_ordinal else "word"
            scales = [m for m in _match(tokens, end - 1, words)[1] if isinstance(m, Decimal)]
            if end > at + 1 and scales:
                end, value = end - 1, value / scales[0]  # "five" of "five million"
            elif token.kind == "word" and value >= 100 and set(format(value, "f")) == {"0", "1"}:
                token.kind = "scale"
            token.values, token.end = [value], tokens[end - 1].end
        merged.append(token)
        at = end
    return [*merged, *tokens[-2:]]


def _pop_count(merged: list[_Token], token: _Token) -> Decimal | None:
    """Remove and return how many of a fraction there are: "two thirds", "two and a half"."""
    added = [each.word.casefold() for each in merged[-2:]] == ["and", "a"]
    at = -3 if added else -2 if merged and _is_dash(merged[-1]) else -1
    before = merged[at] if len(merged) >= -at else token
    if before.kind not in ("digits", "word") or not before.values:
        return None
    count = before.values[0]
    if added:
        count = count * token.below + 1
    elif not 0 < count <= token.below or not (token.word.endswith("s") or count == 1):
        return None
    token.start = before.start
    del merged[at:]
    return count


def _is_short(token: _Token) -> bool:
    return len(token.word) <= 2 and token.word.isalpha()


def _is_dash(token: _Token) -> bool:
    return unicodedata.category(token.word[0]) == "Pd"


# Digits

_LONGEST = 40  # digits of a number; a longer run is a name
_YEARS = range(1000, 2200)
_GROUPED = re.compile(
    r"[1-9]\d{0,2}([.,'’\s])\d{3}(?:\1\d{3})*(?:(?!\1)[.,]\d+)?"
    r"|[1-9]\d?(?:,\d\d)+,\d{3}(?:\.\d+)?"  # 1,23,45,678
)
_LATEX = re.compile(r"\\[A-Za-z]+|\\(?=[^A-Za-z\s])|(?<!\\)\$|[{}~]")
_NUMERIC_DATE = re.compile(
    r"(?<![\w.,/-])(\d{1,4})([-./])(\d\d?)\2(\d{4}|\d\d)(?:T[\d:.]+Z?)?(?![\w/-]|[.,]\d)"
)
_CLOCK = re.compile(
    r"(?<![\w:.,])(\d\d?)(?:[:.](\d\d))?\s?([ap])(?:m\b|\.\s?m\.)|(?<![\w:.,])(\d\d?):(\d\d)(?![\w:])",
    re.IGNORECASE,
)
_SHORT_YEAR = re.compile(r"(?<=(?<!\d)\d{4}[-–/])\d\d(?![\w/-])|(?<=(?<!\w)['’])\d\d(?!\w)")
_SPACED = re.compile(r"(?<![\d.,])\d{1,3}(?: \d{3})+(?!\d)")
_CHUNK = re.compile(r"[^\W_]+(?:[-‐‑–.,'’/+][^\W_]+)*")


def _read_digits(token: str, decimal: str) -> list[Decimal]:
    """Return what digits with separators may stand for; nothing for a version or a list."""
    if part := _load_signs().get(token[-1]):  # 2½
        whole = _read_digits(token[:-1].strip(), decimal) if token[1:] else [Decimal(0)]
        return [each + Decimal(part.numerator) / part.denominator for each in whole]
    written = []
    if len(token) <= _LONGEST and (grouped := _GROUPED.fullmatch(token)):
        sign = grouped[1] or ","
        written.append(token.replace(sign, "").replace(",", "."))
        written += token.split(sign) if sign.isspace() else []  # perhaps a row of a table
    if len(token) <= _LONGEST and re.fullmatch(r"\d+|\d*[.,]\d+", token):
        written += [token.replace(",", ".")] if not written or decimal in token else []
    return [Decimal(each) for each in written]


def _measure(value: Decimal, scale: Decimal, unit: Unit, token: _Token) -> Amount:
    """Return a scaled number with the value of its last digit that counts.

    Zeros at the end of a large number may be rounded, but its first two digits count.
    """
    if token.kind == "share":
        return Amount(value * scale, scale / (2 * token.below), unit)
    digits = format(value, "f")
    decimals = len(digits.partition(".")[2])
    zeros = len(digits) - len(digits.rstrip("0"))
    large = zeros and not decimals and (scale > 1 or (value >= 1000 and not _read_year(token)))
    last = min(zeros, len(digits) - 2) if large else -decimals
    return Amount(value * scale, scale.scaleb(last), unit)


def _read_year(token: _Token) -> Decimal | None:
    year = len(token.word) == 4 and token.word.isdecimal() and int(token.word) in _YEARS
    return token.values[0] if year else None


def _share(share: Decimal, below: int) -> list[Amount]:
    """Return a share in words as a percentage and as a number; "half" is what is near to it."""
    step = _ONE / (2 * below)
    return [Amount(100 * share, 100 * step, PERCENT), Amount(share, step)]


def _make_date(year: str | None, month: int, day: str | None) -> list[Amount]:
    """Return the dates that may be meant; none if the calendar lacks it."""
    found = []
    for century in (1900, 2000) if year and len(year) == 2 else (0,):
        with suppress(ValueError):
            known = date(century + int(year or 2000), month, int(day or 1))
            if year and day:
                found.append(Amount(Decimal(known.toordinal()), unit=DATE))
            elif year:
                found.append(Amount(Decimal(12 * known.year + month), unit=MONTH))
            else:
                found.append(Amount(Decimal(32 * month + known.day), unit=DAY))
    return found


def _read_numeric_date(found: re.Match[str]) -> list[Amount]:
    first, _, second, third = found.groups()
    if len(first) == 4:
        return _make_date(first, int(second), third) if len(third) == 2 else []
    days = dict.fromkeys([(first, second), (second, first)])  # either may be the month
    return [each for day, month in days for each in _make_date(third, int(month), day)]


def _read_short_year(found: re.Match[str]) -> list[Amount]:
    """Return the years that two digits stand for: 1934-35, '67."""
    before, year = found.string[max(0, found.start() - 5) : found.start() - 1], int(found[0])
    centuries = [int(before[:2])] if before.isdecimal() else [18, 19, 20]
    years = [Amount(Decimal(100 * each + year), unit=YEAR) for each in centuries]
    return [*years, Amount(Decimal(year))]


def _read_clock(found: re.Match[str]) -> list[Amount]:
    hour, minute = int(found[1] or found[4]), int(found[2] or found[5] or 0)
    if hour > (12 if found[3] else 24) or minute > 59:
        return []
    if found[3]:
        hour = hour % 12 + (12 if found[3] in "pP" else 0)
    return [Amount(Decimal(60 * hour + minute), unit=TIME)]


# Reading a text


class _Scan:
    """Reads one text from left to right; `stated` is what was found."""

    def __init__(self, text: str, language: str) -> None:
        self.stated = Quantities()
        self._words = _load_words(language)
        if "\\" in text:
            text = _LATEX.sub(lambda found: " " * len(found[0]), text)
        if self._words.spaced:
            text = _SPACED.sub(lambda found: found[0].replace(" ", _SPACES[-1]), text)
        self._chunks = dict(self._name_chunks(text))
        self._tokens = _tokenize(self._take_dates(text), self._words, language)
        self._waiting: list[tuple[Quantity, _Token, Unit]] = []  # "3 to 15 percent"
        self._reached = 0
        at = 0
        while at < len(self._tokens) - 2:
            at = self._add(at) if self._tokens[at].kind else self._skip(at)

    def _name_chunks(self, text: str) -> Iterator[tuple[int, tuple[int, int, str]]]:
        """Keep the names of tokens with digits and letters, and of neighbours: "COVID 19"; yield by
        the places of digits where such a token is, and its name."""
        last, last_end = "", -2
        for chunk in _CHUNK.finditer(text):
            name = "".join(filter(str.isalnum, unicodedata.normalize("NFKC", chunk[0]).casefold()))
            both = last + name if chunk.start() - last_end <= 1 else name
            names = {each for each in (name, both) if any(map(str.isdecimal, each))}
            names = {each for each in names if not each.isdecimal()}
            self.stated.names |= names
            for digits in re.finditer(r"\d+", chunk[0]) if name in names else ():
                yield chunk.start() + digits.start(), (*chunk.span(), name)
            last, last_end = name, chunk.end()

    def _take_dates(self, text: str) -> str:
        """Add the dates and times of a text; return it with blanks in their places."""

        def read_written(found: re.Match[str]) -> list[Amount]:
            day, year = found["day1"] or found["day2"], found["year"]
            return _make_date(year, self._words.months[found["month"]], day) if day or year else []

        def take(read: Callable[[re.Match[str]], list[Amount]], found: re.Match[str]) -> str:
            if readings := read(found):
                self.stated.found.append(Quantity(*found.span(), readings))
            return " " * len(found[0]) if readings else found[0]

        text = _NUMERIC_DATE.sub(partial(take, _read_numeric_date), text)
        text = _CLOCK.sub(partial(take, _read_clock), text)
        text = self._words.date.sub(partial(take, read_written), text)
        return _SHORT_YEAR.sub(partial(take, _read_short_year), text)

    def _skip(self, at: int) -> int:
        """Keep the scale or unit of a word without a number; return the next token."""
        length, meanings = _match(self._tokens, at, self._words)
        long = len(self._tokens[at].word) > 2
        for each in meanings:
            if isinstance(each, Decimal) and (long or self._tokens[at - 1].word[-1] in _MONEY):
                self.stated.scales.add(each)
            elif isinstance(each, str) and (long or each == PERCENT):
                self.stated.units.add(each)
        return at + (length or 1)

    def _add(self, at: int) -> int:
        """Add the number of a token, with what stands around it; return the next token."""
        token = self._tokens[at]
        if token.kind == "scale" or token.word == "000":
            self.stated.scales.add(token.values[0] or Decimal(1000))  # "in thousands"
        end, ordinal, readings = self._read_ending(at)
        start, money = self._look_back(at)
        follows = [(end, _ONE, "")] if ordinal else self._follow(end, money)
        end = min(each[0] for each in follows)
        plain = all(each[1:] == (_ONE, "") for each in follows)
        bare = plain and not money
        if token.below and bare:  # "half", and "a third", which may be the third
            readings += _share(_ONE / token.below if ordinal else token.values[0], token.below)
        elif bare and (year := _read_year(token)):
            readings.append(Amount(year, unit=YEAR))
        quantity = Quantity(start, self._tokens[end - 1].end, readings)
        # "One of them", "the two", "first of all", "thousands of people" state no number.
        vague = token.kind in ("word", "ordinal") and bare and token.values[0] <= 2 - ordinal
        quantity.stated = not vague and token.kind != "scale"
        quantity.share = token.kind == "share" and bare
        if token.start in self._chunks:
            first, last, quantity.name = self._chunks[token.start]
            if first < token.start:
                quantity.start, quantity.end = first, last
        self.stated.found.append(quantity)
        if not token.values:
            self._add_parts(quantity, token)
        if at - bool(money) - self._reached > 1:
            self._waiting.clear()
        self._waiting.append((quantity, token, money))
        for each, its, paid in self._waiting[-1:] if plain else self._waiting:
            each.readings += [
                _measure(value, scale, unit or paid, its)
                for value in its.values
                for _, scale, unit in follows
            ]
        if not plain:
            self._waiting.clear()
        self._reached = end
        return end

    def _read_ending(self, at: int) -> tuple[int, bool, list[Amount]]:
        """Return the token behind a number, whether it is an ordinal ("21st", "3G") and, of a
        decade or a century, the years."""
        token, end = self._tokens[at], at + 1
        letters = self._tokens[end]
        ordinal = token.kind == "ordinal"
        years = []
        glued = letters.word.isalpha() and letters.start == token.end and not letters.kind
        if token.kind == "digits" and glued and not _match(self._tokens, end, self._words)[0]:
            ordinal, end = bool(token.values), end + 1
            year = _read_year(token)
            if year and year % 10 == 0:
                span = Decimal(9 if year % 100 else 99)
                years.append(Amount(year + span / 2, span, YEAR))
        word = self._after_hyphen(end)
        length, meanings = _match(self._tokens, word, self._words)
        if ordinal and "century" in meanings:
            years.append(Amount(100 * token.values[0] - Decimal("50.5"), Decimal(99), YEAR))
            end = word + length
        return end, ordinal, years

    def _add_parts(self, quantity: Quantity, token: _Token) -> None:
        """Add the numbers of a version or a list; it is itself held by the same token alone."""
        quantity.name = quantity.name or token.word
        self.stated.names.add(token.word)
        for part in re.findall(rf"\d{{1,{_LONGEST}}}", token.word):
            amount = Amount(Decimal(part))
            self.stated.found.append(Quantity(token.start, token.end, [amount], stated=False))

    def _after_hyphen(self, at: int) -> int:
        """Return the token behind a hyphen that joins words: "500-million-dollar", not "10-K"."""
        if at + 1 >= len(self._tokens) or not _is_dash(self._tokens[at]):
            return at
        before, dash, word = self._tokens[at - 1 : at + 2]
        joined = before.end == dash.start and dash.end == word.start and len(word.word) > 1
        return at + 1 if joined else at

    def _look_back(self, at: int) -> tuple[int, Unit]:
        """Return where a number begins with its currency, and that."""
        token, before = self._tokens[at], self._tokens[at - 1]
        if at and token.start - before.end <= 1:
            meanings = _match(self._tokens, at - 1, self._words)[1]
            codes = [each for each in meanings if isinstance(each, frozenset)]
            if before.word[-1] in _MONEY or (codes and before.word.isupper()):
                return before.start, codes[0] if codes else frozenset({before.word})
        return token.start, ""

    def _follow(self, at: int, money: Unit) -> list[tuple[int, Decimal, Unit]]:
        """Return the scales and units that may follow a number, each with the token after it."""
        word = self._after_hyphen(at)
        length, meanings = _match(self._tokens, word, self._words)
        scales = [each for each in meanings if isinstance(each, Decimal)]
        if self._tokens[word].kind == "scale":
            length, scales = 1, self._tokens[word].values
        found = [(*each, scale) for scale in scales for each in self._units(word + length)]
        if not scales or len(self._tokens[word].word) <= 2:  # "5 m" may be metres, or 5 of M.
            glued = self._tokens[word].start == self._tokens[word - 1].end
            units = self._units(at)
            found += [(*each, _ONE) for each in units if each[1] or not scales or not glued]
        kept = [
            (end, scale, unit)
            for end, unit, scale in found
            if not money or unit in ("", PERCENT, money)
        ]
        return kept or [(at, _ONE, "")]

    def _units(self, at: int) -> list[tuple[int, Unit]]:
        """Return the units that may begin at a token; none is one of them if they are doubtful."""
        word = self._after_hyphen(at)
        token = self._tokens[word]
        length, meanings = _match(self._tokens, word, self._words)
        units = [(word + length, each) for each in meanings if not isinstance(each, Decimal)]
        if not units and token.word[-1] in _MONEY:
            return [(word + 1, frozenset({token.word}))]
        doubtful = _is_short(token) and token.start > self._tokens[word - 1].end
        if not units or (doubtful and self._tokens[word + 1].word.isalnum()):  # "5 in all"
            units.append((at, ""))
        return units
