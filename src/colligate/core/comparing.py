"""What follows from a figure or a date that was found in each of several documents, and whether two
short answers contradict each other.

"Which company has the highest revenue?" and "Which of these leases end this year?" are answered by
comparing what the documents state, "What do they cost altogether?" by adding it: small models do
this badly. The words are English: in other languages nothing is compared.
"""

from __future__ import annotations

import re
from calendar import monthrange
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal

from colligate.core.computing import (
    DATE,
    MONEY,
    MONTHS,
    NAMED_MONTH,
    SCALES,
    UNCLEAR,
    UNCOMPARED,
    Number,
    find_larger,
    find_numbers,
    find_sign,
    read_date,
    read_value,
    wants_larger,
)
from colligate.core.meaning import Meaning, check_short_answer
from colligate.core.support import WHO, split_content_words


@dataclass(frozen=True, slots=True)
class CitedFigure:
    """A short answer, the text that it is cited to, and the unit of the table there, if any."""

    short: str
    cited: str
    unit: str = ""


_DAY = ("date", "")


@dataclass(frozen=True, slots=True)
class _Range:
    """A figure, whose ends are the same, or the days of a date, a month or a year."""

    kind: tuple[str, str]  # with the unit
    low: Decimal
    high: Decimal
    per: str = ""  # of "2,000 euros a month"


@dataclass(frozen=True, slots=True)
class _Limit:
    """What a question asks of a figure or a date: to be within bounds, in words for people.

    Days are counted from the year 1. The bounds are inside unless the limit is `strict`.
    """

    text: str
    low: Decimal | None = None
    high: Decimal | None = None
    kind: tuple[str, str] = _DAY
    strict: bool = False

    def holds(self, found: _Range) -> bool | None:
        """Return whether a figure is within the bounds; None if that is not sure."""
        if found.kind != self.kind:
            return None
        sides = []
        for bound, least, most in (
            (self.low, found.low, found.high),
            (None if self.high is None else -self.high, -found.high, -found.low),
        ):
            if bound is not None:
                inside = [
                    each > bound or (each == bound and not self.strict) for each in (least, most)
                ]
                if inside[0] != inside[1]:
                    return None
                sides.append(inside[0])
        return all(sides)


_SUPERLATIVES = (
    "most|least|fewest|first|last|latest|earliest|oldest|youngest|highest|lowest|largest|smallest|"
    "biggest|greatest|longest|shortest|tallest|cheapest|dearest|heaviest|lightest|deepest|widest"
)
_SUPERLATIVE = re.compile(rf"(?<!\bat )\b(?:{_SUPERLATIVES})\b(?: recent(?:ly)?\b)?", re.IGNORECASE)
_WHICH = re.compile(rf"\b(?:which|who)\b.*(?<!\bat )\b(?:{_SUPERLATIVES})\b", re.IGNORECASE)
_SECOND = re.compile(
    r"\b(?:two|three|four|five|ten|second|third|fourth|fifth|\d+(?:nd|rd|th)?)[ -]"
    rf"(?:{_SUPERLATIVES})\b|\b(?:first|last) (?:\d|two|three|four|five|ten\b)",
    re.IGNORECASE,
)


def _asks_extreme(question: str) -> bool:
    """Return whether a question asks which one has the largest, smallest, latest or earliest.

    >>> _asks_extreme("Which company has the highest revenue?")
    True
    """
    asked = _WHICH.search(_PERIOD.sub(" ", question)) and not _SECOND.search(question)
    return bool(asked) and not UNCOMPARED.search(question)


def find_extreme(question: str, found: Sequence[CitedFigure]) -> tuple[int, str] | None:
    """Return which of several cited figures or dates a question asks for, and what it is.

    That is the largest, smallest, latest or earliest one. None: the question asks for no such
    thing, or not all are one date, or one number of the same unit each, or two are equal.

    >>> halls = CitedFigure("1904", "It opened in 1904."), CitedFigure("1921", "Built in 1921.")
    >>> find_extreme("Which hall is the oldest?", halls)
    (0, 'earliest')
    """
    read = _read_alike(question, found)
    if not _asks_extreme(question) or len(read) < 2:
        return None
    kind, _ = read[0].kind
    said = _SUPERLATIVE.finditer(_PERIOD.sub(" ", question))
    rises = wants_larger(" ".join(each[0] for each in said), kind)
    if rises is None:
        return None
    best = max(read, key=lambda each: each.low) if rises else min(read, key=lambda each: each.high)
    others = [each for each in read if each is not best]
    if any(each.high >= best.low if rises else each.low <= best.high for each in others):
        return None
    names = ("earliest", "latest") if kind == "date" else ("smallest", "largest")
    return read.index(best), names[rises]


_TOTAL = re.compile(
    r"\b(?:altogether|together|combined|in total|in all|the sum of)\b", re.IGNORECASE
)
_EACH = re.compile(r"\b(?:each|every)\b", re.IGNORECASE)


def _asks_total(question: str) -> bool:
    """Return whether a question asks for a sum.

    >>> _asks_total("What do these leases cost altogether?")
    True
    """
    return _TOTAL.search(question) is not None and _EACH.search(question) is None


def find_total(question: str, found: Sequence[CitedFigure]) -> str | None:
    """Return the sum of cited figures with their unit, if the question asks for one.

    None: it does not, or not all are one number of the same unit each.

    >>> rents = (CitedFigure(each, f"The rent is {each}.") for each in ("1,850 euros", "640 euros"))
    >>> find_total("What do these leases cost altogether?", list(rents))
    '2,490 euros'
    """
    read = _read_alike(question, found)
    if not _asks_total(question) or len(read) < 2 or read[0].kind in (_DAY, ("percent", "")):
        return None
    first, [asked] = found[0].cited, find_numbers(DATE.sub(" ", found[0].short))
    number = next(each for each in find_numbers(first) if each.key == asked.key)
    before = re.match(MONEY, number.text)
    behind = (number.kind or any(read[0].kind)) and not before
    word = re.match(r"\s*(?:[$€£¥]|[^\W\d]+)", first[number.end :]) if behind else None
    total = sum((each.low for each in read), Decimal(0)).normalize()
    per = f" per {read[0].per}" if read[0].per else ""
    return f"{before[0] if before else ''}{total:,f}{word[0] if word else ''}{per}"


def find_within(
    question: str, found: Sequence[CitedFigure], today: date
) -> tuple[list[int], str, list[int]] | None:
    """Return which cited figures or dates are within the limit of a question, that limit in words,
    and which of them are of another kind.

    None: the question names no limit, or more than one of that kind, or most cannot be compared.

    >>> ends = CitedFigure("31 May 2026", "It ends on 31 May 2026."), CitedFigure("2031", "2031")
    >>> find_within("Which of these leases end this year?", ends, date(2026, 11, 26))
    ([0], 'between 1 January 2026 and 31 December 2026', [])
    """
    read = [_read_figure(each, question) for each in found]
    kinds = Counter((each.kind, each.per) for each in read if each)
    if not kinds:
        return None
    (kind, per), count = kinds.most_common(1)[0]
    asked = _PER.search(question)
    if asked and per not in ("", _name_period(asked)):
        return None
    if count < len(read) and (count < 2 or 2 * count <= len(read)):
        return None
    limits = [
        each for each in _find_limits(question, today) if (each.kind == _DAY) == (kind == _DAY)
    ]
    if len(limits) != 1:
        return None
    held = {
        at: limits[0].holds(each)
        for at, each in enumerate(read)
        if each and (each.kind, each.per) == (kind, per)
    }
    if None in held.values():
        return None
    others = [at for at in range(len(read)) if at not in held]
    return [at for at, inside in held.items() if inside], limits[0].text, others


# Limits

_ASKS = re.compile(r"\b(?:which|who|how many|list)\b", re.IGNORECASE)
_BOUNDS = (  # words, whether the bound is the least, and whether it is itself outside
    ("at least", True, False),
    ("at most|up to", False, False),
    (r"(?:more|greater|larger|higher|longer|bigger) than|over|above|exceed(?:s|ing)?", True, True),
    (r"(?:less|fewer|lower|smaller|shorter) than|under|below", False, True),
)
_LIMITS = [
    (re.compile(rf"\b(?:{words})\s+", re.IGNORECASE), least, strict)
    for words, least, strict in _BOUNDS
]
_WHEN = rf"(?:{DATE.pattern}|(?:(?P<month>{NAMED_MONTH}),?\s+)?(?P<year>(?:1\d|20|21)\d\d)\b)"
_DATED = re.compile(
    rf"\b(?P<word>before|until|by|after|since|from|in|during|on)\s+(?:the\s+(?P<end>end)\s+of\s+)?{_WHEN}",
    re.IGNORECASE,
)
_DURING = re.compile(rf"\b(?:from|in|during|on)\s+(?:the\s+end\s+of\s+)?{_WHEN}", re.IGNORECASE)
_RELATIVE = re.compile(
    r"\b(?P<which>this|next|last) (?P<unit>year|quarter|month)\b"
    r"|\b(?P<way>next|coming|last|past) (?P<count>\d+|[a-z]+) (?P<units>day|week|month|year)s\b"
    r"|\b(?:within|in) (?P<soon>\d+|[a-z]+) (?P<of>day|week|month|year)s\b",
    re.IGNORECASE,
)
# "Last year" is a time and no superlative.
_PERIOD = re.compile(
    rf"{_RELATIVE.pattern}|\b(?:first|last) (?:day|week|quarter|half|decade|century)\b",
    re.IGNORECASE,
)
# "From 2019 to 2021", "in 2019 or 2020": the date before it is not the whole limit.
_GOES_ON = re.compile(
    rf"\s*(?:[-–—/,]|\b(?:to|or|and|through|till)\b)\s*(?:\d|(?:{NAMED_MONTH})\b)", re.IGNORECASE
)
_MONTHS_OF = {"month": 1, "quarter": 3, "year": 12}


def asks_to_compare(question: str) -> bool:
    """Return whether the answer follows from comparing or adding a figure of each document.

    That a year is named does not show it.

    >>> asks_to_compare("Which leases end before 2027?")
    True
    >>> asks_to_compare("Which club won the cup in 2019?")
    False
    """
    return may_compare(_DURING.sub(" ", question))


def may_compare(question: str) -> bool:
    """Return whether it may follow from that: a period, too, can be a limit ("repaid in 2026")."""
    limits = _find_limits(question, date.today())
    return _asks_extreme(question) or _asks_total(question) or bool(limits)


def _find_limits(question: str, today: date) -> list[_Limit]:
    """Return the limits of figures and of dates that a question names."""
    if not _ASKS.search(question) or UNCOMPARED.search(question):
        return []
    if any(_GOES_ON.match(question, match.end()) for match in _DATED.finditer(question)):
        return []
    found = [_read_relative(match, today) for match in _RELATIVE.finditer(question)]
    found += [_read_dated(match) for match in _DATED.finditer(question)]
    for pattern, least, strict in _LIMITS:
        for match in pattern.finditer(question):
            said = next(iter(find_numbers(question[match.end() :], question)), None)
            if said is None or said.start or not re.search(r"\d", said.text):
                continue
            if read := _read_amount(said.text, said):
                low, high = (read.low, None) if least else (None, read.low)
                found.append(_Limit(f"{match[0]}{said.text}", low, high, read.kind, strict))
    return [each for each in found if each is not None]


def _read_relative(match: re.Match[str], today: date) -> _Limit | None:
    if unit := (match["unit"] or "").lower():
        size = _MONTHS_OF[unit]
        start = today.replace(day=1, month=(today.month - 1) // size * size + 1)
        step = {"this": 0, "next": size, "last": -size}[match["which"].lower()]
        start = _add_months(start, step)
        return _between(start, _add_months(start, size) - timedelta(1))
    count = (match["count"] or match["soon"]).lower()
    numbers = find_numbers(count)
    if not numbers or numbers[0].value > 1000:
        return None
    size = int(numbers[0].value)
    size *= -1 if (match["way"] or "").lower() in ("last", "past") else 1
    units = (match["units"] or match["of"]).lower()
    if units in ("month", "year"):
        end = _add_months(today, size * _MONTHS_OF[units])
    else:
        end = today + timedelta(size * (7 if units == "week" else 1))
    return _between(*sorted((today, end)))


def _read_dated(match: re.Match[str]) -> _Limit | None:
    if match["year"]:
        year = int(match["year"])
        month = MONTHS.index(match["month"].lower()) + 1 if match["month"] else 0
        start = date(year, month or 1, 1)
        end = _add_months(start, 1 if month else 12) - timedelta(1)
    elif day := read_date(match):
        start = end = day
    else:
        return None
    start = end if match["end"] else start
    word = match["word"].lower()
    if word in ("before", "until", "by"):
        last = start - timedelta(1) if word == "before" else end
        return _Limit(f"on or before {say_day(last)}", high=_count(last))
    if word in ("after", "since", "from"):
        first = end + timedelta(1) if word == "after" else start
        return _Limit(f"on or after {say_day(first)}", low=_count(first))
    return _between(start, end)


def _between(start: date, end: date) -> _Limit:
    first, last = say_day(start), say_day(end)
    words = f"on {first}" if start == end else f"between {first} and {last}"
    return _Limit(words, _count(start), _count(end))


def _count(day: date) -> Decimal:
    return Decimal(day.toordinal())


def _add_months(day: date, months: int) -> date:
    year, month = divmod(day.year * 12 + day.month - 1 + months, 12)
    return date(year, month + 1, min(day.day, monthrange(year, month + 1)[1]))


# Figures

_SHARE = re.compile(r"\bshares?\b|\bEPS\b")
_SCALE = re.compile(rf"\b({'|'.join(SCALES)})s?\b", re.IGNORECASE)
_PER = re.compile(
    r"\b(?:a|per|each|every)\s+(hour|day|week|month|quarter|year|annum)\b"
    r"|\b(?:(hour|dai|week|month|quarter|year)ly|(annual)(?:ly)?)\b(?!\s+report)",
    re.IGNORECASE,
)
_NEAR = 40  # characters around a figure that may say of which period it is


def _name_period(match: re.Match[str]) -> str:
    name = (match[1] or match[2] or match[3]).lower()
    return {"dai": "day", "annum": "year", "annual": "year"}.get(name, name)


def _read_alike(question: str, found: Sequence[CitedFigure]) -> list[_Range]:
    """Return cited figures or dates that can be compared with each other; none if they cannot."""
    read = [each for each in (_read_figure(each, question) for each in found) if each]
    alike = len({(each.kind, each.per) for each in read}) == 1
    return read if alike and len(read) == len(found) else []


def _read_figure(figure: CitedFigure, question: str) -> _Range | None:
    """Return a cited figure or date; None if it is not clear.

    What its document writes counts, not the short answer. A figure is not clear if the text has
    others of its kind, or if it has no unit and stands in no table.
    """
    value = read_value(figure.short, figure.cited)
    if value is None:
        return None
    if value[0] == "date":
        year, *rest = map(int, value[1])
        start = date(year, *(rest or (1, 1)))
        return _Range(_DAY, _count(start), _count(start if rest else date(year, 12, 31)))
    [asked], numbers = find_numbers(DATE.sub(" ", figure.short)), find_numbers(figure.cited)
    own = [each for each in numbers if each.key == asked.key]
    if not own:
        return None
    # "In thousands, except per share data" holds for no share.
    excepted = "except" in figure.unit and _SHARE.search(f"{question} {figure.cited}")
    read = _read_amount(figure.cited, own[0], "" if excepted else figure.unit)
    others = [_read_amount(figure.cited, each) for each in numbers if each.key != own[0].key]
    if read is None or any(each and each.kind == read.kind for each in others):
        return None
    if any(each.kind == UNCLEAR for each in numbers):
        return None
    bare = not own[0].kind and not read.kind[1] and not figure.unit
    return None if bare and "|" not in figure.cited else read


def _read_amount(text: str, number: Number, unit: str = "") -> _Range | None:
    """Return a number of a text in the unit of its table; None for a year, and if it is not clear.

    In a row of a table parentheses make a figure negative.
    """
    sign = find_sign(text, number)
    scales = {each.casefold() for each in _SCALE.findall(unit)}
    if number.is_year or number.kind == UNCLEAR or len(scales) > 1 or not sign:
        return None
    size = number.value * sign
    if number.kind != "percent" and number.value == Decimal(number.key):
        for scale in scales:
            size *= Decimal(10) ** SCALES[scale]
    after = re.match(r"\s*([^\W\d]+)", text[number.end :])
    noun = after[1].casefold().removesuffix("s") if after and split_content_words(after[1]) else ""
    kind = number.kind.removeprefix("$"), "" if number.kind else noun
    per = _PER.search(text[max(0, number.start - _NEAR) : number.end + _NEAR])
    return _Range(kind, size, size, _name_period(per) if per else "")


# Two short answers


def contradict(one: str, other: str, question: str) -> bool:
    """Return whether two short answers to a question cannot both be right.

    They are yes and no, two dates or two numbers of a kind, or one says the opposite of the other,
    or they are other persons. One place may lie in another, and a thing may have two names: these
    say nothing.

    >>> contradict("180 days", "within 270 days", "How long may a tenant appeal?")
    True
    >>> contradict("in 1921", "on 3 May 1921", "When was it opened?")
    False
    """
    if {one, other} == {"Yes", "No"}:
        return True
    if _differ(one, other) and not (_may_be(one, other) or _may_be(other, one)):
        return True
    if Meaning.CONTRADICTS in (
        check_short_answer(one, question, other),
        check_short_answer(other, question, one),
    ):
        return True
    names = [_list_names(one), _list_names(other)]
    # The landlord may be one who has a name too.
    alike = (names[0] <= _ROLES) == (names[1] <= _ROLES)
    return bool(WHO.search(question)) and all(names) and alike and names[0].isdisjoint(names[1])


_ROLES = frozenset(
    split_content_words(
        "landlord tenant lessor lessee owner buyer seller purchaser vendor supplier customer "
        "client contractor lender borrower licensor licensee employer employee company board "
        "director manager president chairman"
    )
)
# Units that convert: 1.5 m and 150 cm.
_UNITS = frozenset(
    split_content_words(
        "mm cm m km centimetre centimeter metre meter inch foot feet mile mg g kg gram kilogram "
        "ton tonne second minute hour day week month year"
    )
)


def _differ(one: str, other: str) -> bool:
    """Return whether two short answers have other numbers or dates, of one kind as far as known."""
    values = [value for value in (read_value(one), read_value(other)) if value is not None]
    kinds = {kind for kind, _ in values}
    if len(values) < 2 or "date" in kinds:
        return find_larger(one, other) is not None
    # Of "180" and "270 days" one leaves the unit to the question; "1.5 m" and "150 cm" both say it.
    units = [_UNITS.intersection(split_content_words(each)) for each in (one, other)]
    converted = all(units) and units[0].isdisjoint(units[1])
    money = all(re.search(MONEY, each) for each in (one, other))
    alike = len(kinds) == 1 or "" in kinds or money
    return alike and not converted and values[0][1] != values[1][1]


# What stands before a number that is not exact.
_INEXACT = re.compile(
    r"(?<!\w)(?:"
    r"(?P<most>(?:no|not) more than|at most|up to|less than|fewer than|under|below|before)"
    r"|(?P<least>(?:no|not) (?:less|fewer) than|at least|more than|over|above|after)"
    r"|about|around|approximately|approx|roughly|nearly|almost|circa|ca|c\.|some|an estimated|~|≈)"
    r"\W*(?:the\W+)?$",
    re.I,
)
_DECADE = re.compile(r"\b\d{3}0['’]?s\b")
_SHARE_OFF = Decimal("0.05")  # the share by which a number may be off that is "about" so much
_YEARS_OFF = 5


def _may_be(inexact: str, other: str) -> bool:
    """Return whether a number or date that is not exact may be another one.

    >>> _may_be("more than 300", "312"), _may_be("312", "more than 300")
    (True, False)
    """
    read, said = read_value(inexact), read_value(other)
    if read is None or said is None:
        return False
    (kind, own), (_, its) = read, said
    number = find_numbers(inexact)[0]
    if _DECADE.search(inexact):
        return own[0] <= its[0] < own[0] + (10 if own[0] % 100 else 100)
    how = _INEXACT.search(inexact[: number.start])
    if how is None:
        return False
    if how.lastgroup:
        also = _INEXACT.search(other[: find_numbers(other)[0].start])
        if also and also.lastgroup == how.lastgroup:  # two rules: at least 30 days, at least 60
            return False
        return its >= own if how.lastgroup == "least" else its <= own
    near = _YEARS_OFF if kind == "date" else max(_SHARE_OFF * own[0], number.step / 2)
    return abs(its[0] - own[0]) <= near


def _list_names(short: str) -> set[str]:
    """Return the words of a short answer if all of them are names."""
    words = [word for word in short.split() if split_content_words(word)]
    return set(split_content_words(short)) if all(word[0].isupper() for word in words) else set()
