"""Numbers that a sentence computes from what it cites are computed again here, or not accepted.

An answer may state a number that no document holds: how many places it cites, or the sum, the
difference, the ratio or the change of cited numbers. It is accepted only if the sentence's own
words name such an operation, and the operation on cited numbers of one kind gives the number to
the digits that are stated. Which of two cited numbers or dates is larger or later is compared in
the same way. The words are English: in other languages nothing is computed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date
from decimal import Decimal, DivisionByZero, InvalidOperation
from itertools import permutations
from typing import Literal

from colligate.core.numbers import (
    CURRENCY_CODES,
    MAY_BE_THOUSANDS,
    NUMBER,
    NUMBER_WORDS,
    has_decimal_points,
    write_number,
)
from colligate.core.support import is_number, split_content_words
from colligate.documents.sentences import split_sentences

Operation = Literal["count", "sum", "difference", "ratio", "change", "share"]


@dataclass(frozen=True, slots=True)
class Computed:
    """A number of a sentence at `start` to `end`, and how it follows from cited numbers.

    `operands` are the numbers as they stand in the sources; a count has none.
    """

    start: int
    end: int
    operation: Operation
    operands: tuple[str, ...]


def recompute(sentence: str, sources: Sequence[str], missing: Sequence[str]) -> list[Computed]:
    """Return how each missing number of a sentence follows from its sources; empty if one does not.

    `sources` are the cited places, one text each; `missing` are the numbers that none of them
    holds, as `split_content_words` writes them.

    >>> sources = ["It opened in 1904.", "It was founded in 1921."]
    >>> recompute("It opened 17 years earlier.", sources, ["17"])[0].operation
    'difference'
    """
    stated = [number for number in find_numbers(sentence) if number.key in missing]
    if {number.key for number in stated} != set(missing):
        return []
    found = []
    for number in stated:
        computed = _explain(number, sentence, sources)
        if computed is None:
            return []
        found.append(computed)
    return found


def remove_computed(sentence: str, computed: Sequence[Computed]) -> str:
    """Return a sentence without its computed numbers, and without the words that name operations.

    What is left must be supported by the sources themselves.
    """
    for each in sorted(computed, key=lambda each: -each.start):
        sentence = f"{sentence[: each.start]} {sentence[each.end :]}"
    return _NAMING.sub(" ", sentence)


# Numbers


@dataclass(frozen=True, slots=True)
class Number:
    """A number in a text, with its scale; `step` is the value of its last stated digit.

    `key` is how `split_content_words` writes it. `kind` says what may be compared: two numbers of
    different kinds have no sum and no difference. Of money it is the currency, and `UNCLEAR` if the
    value depends on the country: "1.850". `said_of` is the year of what a source says, if it is
    known.
    """

    start: int
    end: int
    text: str
    key: str
    value: Decimal
    step: Decimal
    kind: str
    said_of: int | None = None

    @property
    def is_year(self) -> bool:
        """Whether it is a year of the calendar, and not so many years."""
        return self.kind == "year" and not re.search(r"[\s-]years?$", self.text, re.IGNORECASE)


UNCLEAR = "unclear"
SCALES = {"thousand": 3, "million": 6, "billion": 9, "trillion": 12}
# Of money alone: "5m" may be metres, "10k" a race.
_MONEY_SCALES = {"k": 3, "m": 6, "mm": 6, "b": 9, "tn": 12}
_SHORT_SCALES = {"mn": 6, "mio": 6, "bn": 9, "mrd": 9}
_ALL_SCALES = SCALES | _SHORT_SCALES | _MONEY_SCALES
MONEY = rf"(?-i:\b[A-Z]{{1,3}})?[$€£¥]\s?|(?-i:\b(?:{CURRENCY_CODES}))\s?(?=[\d.])"
_WORDS = {word: int(digits) for word, digits in NUMBER_WORDS.items() if word != "hundred"}
# "Forty-five" before "forty", "two hundred" before "two": the longer one is looked for first.
_WORDS = {
    f"{ten}-{one}": high + low
    for ten, high in _WORDS.items()
    for one, low in _WORDS.items()
    if high >= 20 and 1 <= low <= 9
} | _WORDS
_WORDS = {f"{one} hundred": 100 * low for one, low in _WORDS.items() if 1 <= low <= 9} | _WORDS
_WRITTEN = re.compile(
    rf"(?P<money>{MONEY})?(?P<digits>{NUMBER}|\b(?:{'|'.join(_WORDS)})\b)"
    rf"(?:[\s-]?(?P<scale>{'|'.join(SCALES)})\b"
    rf"|\s?(?P<short>{'|'.join([*_SHORT_SCALES, *_MONEY_SCALES])})\b\.?(?![-–]))?"
    r"(?P<percent>\s?(?:%|percent\b|per cent\b))?"
    r"(?:\s?(?P<behind>[$€£¥])(?!\s?\d)|[\s-]+(?P<noun>[a-z]+))?",
    re.IGNORECASE,
)
_CLAUSE_END = re.compile(r"[.,;:!?](?=\s|$)")
_HOW_MANY = re.compile(r"\bhow many ((?:[a-z-]+ ){0,2}[a-z-]+)", re.IGNORECASE)
_YEARS = range(1000, 2101)
_MOST = 60  # numbers of one source: a table has many, and each pair may fit by chance


def find_numbers(text: str, said_in: str = "") -> list[Number]:
    """Return the numbers of a text, in digits, in words up to ninety-nine or in whole hundreds.

    `said_in` is a longer text, which shows better whether a point may stand for thousands.
    """
    found = []
    for match in _WRITTEN.finditer(text):
        digits = match["digits"].lower()
        plain = str(_WORDS[digits]) if digits in _WORDS else write_number(digits)
        if plain.count(".") > 1:  # a date, a version
            continue
        noun = (match["noun"] or "").lower().removesuffix("s")
        money = match["money"] or match["behind"] or (noun if noun in _CURRENCIES else "")
        short = (match["short"] or "").lower()
        scaled = "short" if short in _SHORT_SCALES or (short and money) else "scale"
        scale = Decimal(10) ** _ALL_SCALES.get((match[scaled] or "").lower(), 0)
        value = Decimal(plain)
        decimals = len(plain.partition(".")[2])
        if match["percent"]:
            kind = "percent"
        elif scale == 1 and _is_unclear(match, said_in or text, bool(money) or noun in _WHOLE):
            kind = UNCLEAR
        elif money:
            kind = _SIGNS.get(money.strip().lower(), money.strip().lower())
        elif short:
            kind = short
        elif noun not in _MEASURES and digits.isdigit() and scale == 1 and int(value) in _YEARS:
            kind = "year"
        else:
            kind = noun if noun in _UNITS else ""
        end = match.end("percent") if match["percent"] else match.end(scaled)
        end = end if end > 0 else match.end("digits")
        step = scale / Decimal(10) ** decimals
        found.append(Number(match.start(), end, match[0], plain, value * scale, step, kind))
    return found


def _is_unclear(match: re.Match[str], text: str, whole: bool) -> bool:
    """Return whether the value of a number in digits depends on the country: 1.850 or 3,50.

    Three decimals of money or of people are not plain in English, either.
    """
    thousands = re.fullmatch(r"\d{1,3}(?:,\d{2,3})*,\d{3}(?:\.\d+)?", match["digits"])
    comma = "," in match["digits"] and not thousands
    three = MAY_BE_THOUSANDS.match(match.string, match.start("digits"))
    return comma or (three is not None and (whole or not has_decimal_points(text)))


_CURRENCIES = frozenset([*CURRENCY_CODES.lower().split("|"), "dollar", "euro", "pound"])
# A pound is a weight, too.
_SIGNS = {"us$": "$", "usd": "$", "dollar": "$", "eur": "€", "euro": "€", "gbp": "£"}
_WHOLE = frozenset("people person employee share".split())
_UNITS = _CURRENCIES | frozenset(
    "year month week day hour minute second meter metre kilometer kilometre km mile foot inch kg "
    "kilogram ton tonne percent point".split()
).union(_WHOLE)
# "1850 euros" is an amount, "in 1990 people left" is not.
_MEASURES = _UNITS - _WHOLE - {"point"}

# Operations, by the words that name them

_NAMES: dict[Operation, str] = {
    "sum": r"total\w*|sum|together|combined|altogether|overall|in all|both",
    "difference": r"differ\w*|more|less|fewer|later|earlier|older|younger|longer|shorter|higher|"
    r"lower|larger|smaller|bigger|taller|greater|cheaper|dearer|heavier|lighter|increas\w*|"
    r"decreas\w*|rose|risen|fell|fallen|grew|grown|dropped|declined|apart|between|after|before|"
    r"exceed\w*|gap|ahead|behind",
    "ratio": r"times|ratio|twice|double\w*|triple\w*|half",
    "change": r"increas\w*|decreas\w*|rose|risen|fell|fallen|grew|grown|growth|dropped|declined|"
    r"more|less|higher|lower|larger|smaller",
    "share": r"of|share|proportion|represent\w*|account\w*",
}
_PATTERNS = {
    operation: re.compile(rf"\b(?:{words})\b", re.IGNORECASE) for operation, words in _NAMES.items()
}
_DIRECTION = re.compile(
    r"\b(?:(?P<rises>increas\w*|rose|risen|grew|grown|growth)|"
    r"(?P<falls>decreas\w*|fell|fallen|dropped|declined)|"
    r"(?P<more>more|higher|larger)|less|lower|smaller)\b",
    re.IGNORECASE,
)
_CLAUSE = re.compile(r"[,;:](?=\s)|\b(?:and|but|while|whereas|after|before)\b", re.IGNORECASE)
_NAMING = re.compile(
    rf"\b(?:{'|'.join(words for name, words in _NAMES.items() if name != 'share')}|"
    r"years?|months?|days?|percent(?:age)?|per cent|points?)\b",
    re.IGNORECASE,
)

Compute = Callable[..., Decimal]
_COMPUTE: dict[Operation, Compute] = {
    "sum": lambda *numbers: sum(numbers, Decimal(0)),
    "difference": lambda a, b: a - b,
    "ratio": lambda a, b: a / b,
    "change": lambda a, b: abs(a - b) / b * 100,
    "share": lambda a, b: a / b * 100,
}


def _explain(number: Number, sentence: str, sources: Sequence[str]) -> Computed | None:
    """Return the operation on cited numbers that gives a number of the sentence."""
    if _is_count(number, sentence, len(sources)):
        return Computed(number.start, number.end, "count", ())
    named = [name for name, pattern in _PATTERNS.items() if pattern.search(sentence)]
    if number.kind == "percent":
        named = [name for name in named if name in ("change", "share", "difference", "sum")]
    else:
        named = [name for name in named if name not in ("change", "share")]
    if "difference" in named and (found := _explain_dates(number, sources)):
        return found
    cited = [each for source in sources for each in _find_cited(source)[:_MOST]]
    for operation in named:
        for operands in _choose(cited, operation, number):
            with_digits = tuple(each.text for each in operands)
            if _gives(number, _COMPUTE[operation], operands) and (
                operation not in ("difference", "change")
                or _has_direction(number, sentence, operation, operands)
            ):
                return Computed(number.start, number.end, operation, with_digits)
    return None


def _find_cited(source: str) -> list[Number]:
    """Return the clear numbers of a source, with the year of their sentence if it has only one."""
    found = []
    for start, end in split_sentences(source):
        said = source[start:end]
        years = {int(each.value) for each in find_numbers(said) if each.is_year}
        year = years.pop() if len(years) == 1 else None
        # The year of a whole date is not a number by itself: 30 years may be 29 years and a day.
        numbers = find_numbers(DATE.sub(" ", said), source)
        found += [replace(each, said_of=year) for each in numbers if each.kind != UNCLEAR]
    return found


def _has_direction(
    number: Number, sentence: str, operation: Operation, operands: tuple[Number, ...]
) -> bool:
    """Return whether two numbers rise or fall as the clause of their difference or change says.

    The word nearest to the number counts, the noun "growth" only if it is alone. What is "more" or
    "less" is compared at one time; what rises begins with the earlier number. A change is one of
    the number that it begins with.
    """
    cuts = [(0, 0), *(cut.span() for cut in _CLAUSE.finditer(sentence)), (len(sentence),) * 2]
    start = max(end for _, end in cuts if end <= number.start)
    end = min(start for start, _ in cuts if start >= number.end)
    words = [*_DIRECTION.finditer(sentence, start, end)] or [*_DIRECTION.finditer(sentence)]
    words = [word for word in words if word[0].lower() != "growth"] or words
    if not words or operands[0].kind == "year":
        return True
    word = min(words, key=lambda each: max(number.start - each.end(), each.start() - number.end))
    rises = bool(word["rises"] or word["more"])
    first, last = operands if operation == "difference" and not rises else operands[::-1]
    over_time = word["rises"] or word["falls"]
    years = first.said_of, last.said_of
    backwards = over_time and years[0] and years[1] and years[0] > years[1]
    return (last.value > first.value) == rises and not backwards


def _is_count(number: Number, sentence: str, places: int) -> bool:
    """Return whether a number may be the number of cited places: it has no unit."""
    follows = sentence[number.end :].lstrip(" -").lower()
    unit = re.match(r"[a-z]+", follows)
    has_unit = number.kind != "" or (unit is not None and unit[0].removesuffix("s") in _UNITS)
    return places > 1 and number.value == places and not has_unit


def _choose(
    cited: Sequence[Number], operation: Operation, number: Number
) -> Iterator[tuple[Number, ...]]:
    """Yield the cited numbers that an operation may join into a number of this kind: pairs, and all
    of one kind for a sum."""
    if operation == "sum":
        kinds = dict.fromkeys(each.kind for each in cited if number.kind in (each.kind, ""))
        for kind in kinds:
            numbers = tuple(each for each in cited if each.kind == kind)
            if kind != "year" and len(numbers) > 2:
                yield numbers
    for a, b in permutations(cited, 2):
        alike = a.kind == b.kind
        if operation == "difference" and a.kind == "year":
            fits = alike and number.kind in ("year", "")
        elif operation in ("sum", "difference"):
            fits = alike and a.kind != "year" and number.kind in (a.kind, "")
        else:
            fits = alike and a.kind != "year"
        if fits:
            yield a, b


def _gives(number: Number, compute: Compute, operands: tuple[Number, ...]) -> bool:
    """Return whether an operation gives a number, rounded to its stated digits."""
    try:
        result = compute(*(each.value for each in operands))
    except (DivisionByZero, InvalidOperation, ZeroDivisionError):
        return False
    return abs(result - number.value) * 2 <= number.step and result != 0


# Dates

MONTHS = (
    *("january", "february", "march", "april", "may", "june"),
    *("july", "august", "september", "october", "november", "december"),
)
NAMED_MONTH = "|".join(MONTHS)
DATE = re.compile(
    rf"(?P<d1>\d{{1,2}})\s+(?P<m1>{NAMED_MONTH})\s+(?P<y1>\d{{4}})|"
    rf"(?P<m2>{NAMED_MONTH})\s+(?P<d2>\d{{1,2}}),?\s+(?P<y2>\d{{4}})|"
    r"(?P<y3>\d{4})-(?P<m3>\d{2})-(?P<d3>\d{2})",
    re.IGNORECASE,
)


def _explain_dates(number: Number, sources: Sequence[str]) -> Computed | None:
    """Return the two cited dates that are so many days or whole years apart."""
    if number.kind not in ("day", "year", ""):
        return None
    dates = [
        (match[0], day)
        for source in sources
        for match in DATE.finditer(source)
        if (day := read_date(match))
    ]
    for (first, a), (second, b) in permutations(dates, 2):
        if a > b:
            years = a.year - b.year - ((a.month, a.day) < (b.month, b.day))
            apart = (a - b).days if number.kind == "day" else years
            if apart == number.value:
                return Computed(number.start, number.end, "difference", (first, second))
    return None


def complete_date(short: str, sentence: str) -> str:
    """Return a part of a date as a sentence has it in full, if it is a part of one date alone.

    >>> complete_date("1942", "The law was passed on June 22, 1942.")
    'June 22, 1942'
    """

    def spell(text: str) -> str:
        return " ".join(["", *re.findall(r"\w+", text.casefold()), ""])

    part = spell(short)
    whole = {date[0] for date in DATE.finditer(sentence) if part.strip() and part in spell(date[0])}
    return whole.pop() if len(whole) == 1 else short


_ASKS_DATE = re.compile(
    r"\b(?:what|which) (?:year|date|century|decade)\b|"
    r"\bwhat (?:is|was|are|were) the (?:\w+ )?dates?\b",
    re.IGNORECASE,
)
_TIME = re.compile(rf"\d|\b(?:{NAMED_MONTH}|centur(?:y|ies)|decades?)\b", re.IGNORECASE)


def lacks_date(question: str, text: str) -> bool:
    """Return whether a question asks for a year or a date by this word, and a text has neither.

    >>> lacks_date("What is the date of birth of Otto Lind?", "Otto Lind was a miller.")
    True
    """
    return _ASKS_DATE.search(question) is not None and _TIME.search(text) is None


_NO_NUMBER = re.compile(
    r"\W*(?:where|who(?:m|se)?)\b(?!.*\band (?:wh(?:at|en|ich)|how)\b)", re.IGNORECASE
)


def is_number_for_name(question: str, short: str) -> bool:
    """Return whether a question asks for a place or a person alone, and is answered by a number.

    >>> is_number_for_name("Where did the French and Indian War begin?", "1756")
    True
    >>> is_number_for_name("Where does the lease say so?", "§ 12")
    False
    """
    words = split_content_words(short)
    number = bool(words) and "§" not in short and all(map(is_number, words))
    return number and _NO_NUMBER.match(question) is not None


def read_value(text: str, said_in: str = "") -> tuple[str, tuple[Decimal, ...]] | None:
    """Return the kind and the value of the date or number of a short answer to a longer text.

    A date is its year, month and day, or the year alone; a number is itself. None: there is none
    of them, or more than one.

    >>> read_value("born on 6 January 1975") == ("date", (1975, 1, 6))
    True
    """
    days = [day for match in DATE.finditer(text) if (day := read_date(match))]
    numbers = find_numbers(DATE.sub(" ", text), said_in or text)
    if len(days) + len(numbers) != 1:
        return None
    if days:
        return "date", (Decimal(days[0].year), Decimal(days[0].month), Decimal(days[0].day))
    [number] = numbers
    sign = find_sign(text, number)
    if number.is_year and not text.lstrip().startswith(("-", "−")):
        return "date", (number.value,)
    return (number.kind, (sign * number.value,)) if sign and number.kind != UNCLEAR else None


def find_sign(text: str, number: Number) -> int:
    """Return 1 or -1 with the sign of a number of a text, 0 if a dash or a bracket may be none.

    A minus begins a text; brackets hold all of it. In a row of a table both are signs.
    """
    before, behind = text[: number.start].rstrip("$€£¥ "), text[number.end :].strip()
    if not before.endswith(("(", "-", "−")):
        return 1
    alone = before.strip() == "(" and behind == ")"
    minus = re.match(r"\s*[-−]\S", text) and len(before.strip()) == 1
    return -1 if alone or minus or "|" in text else 0


def find_count(short: str, question: str, sentence: str) -> str:
    """Return the number that a sentence has of what "how many" asks for, where an answer is a
    number of something else.

    >>> said = "Seven applications were received; three candidates will be invited."
    >>> find_count("Three", "How many applications were received?", said)
    'Seven'
    >>> find_count("seven", "How many seats has it?", "Others have ten seats, this one only seven.")
    'seven'
    """
    asked = _HOW_MANY.search(question)
    things = split_content_words(asked[1])[:1] if asked else []
    said = {number.key for number in find_numbers(short)}
    counted: list[Number] = []
    for number in find_numbers(sentence):
        end = _CLAUSE_END.search(sentence, number.start)
        of = split_content_words(sentence[number.start : end.start() if end else None])[1:2]
        if of == things:
            counted.append(number)
        elif number.key in said and not of and counted and number.value not in _YEARS:
            return short  # "... of ten episodes each, the last one of only seven."
    if not things or len(said) != 1 or len(counted) != 1 or counted[0].key in said:
        return short
    return sentence[counted[0].start : counted[0].end]


def find_larger(first: str, second: str) -> tuple[str, int] | None:
    """Return of what kind two short answers are, and which is larger or later: 0 or 1.

    None: they are no two dates or numbers of one kind, or equal as far as they say.
    """
    # Two numbers such as "1.850" compare alike, be they thousands or decimals.
    if MAY_BE_THOUSANDS.search(first) and MAY_BE_THOUSANDS.search(second):
        first, second = (MAY_BE_THOUSANDS.sub(r"\g<0>0", each) for each in (first, second))
    a, b = read_value(first), read_value(second)
    if a is None or b is None or a[0] != b[0]:
        return None
    known = min(len(a[1]), len(b[1]))
    if a[1][:known] == b[1][:known]:
        return None
    return a[0], int(b[1][:known] > a[1][:known])


LATER = re.compile(
    r"\b(later|latest|last|younger|youngest|(more|most) recent(ly)?)\b", re.IGNORECASE
)
EARLIER = re.compile(r"\b(first|earlier|earliest|older|oldest)\b", re.IGNORECASE)
MORE = re.compile(
    r"\b(more|most|larger|largest|higher|highest|bigger|biggest|greater|greatest|longer|longest|"
    r"taller|tallest|older|oldest|heavier|heaviest|deeper|deepest|wider|widest|dearer|dearest)\b",
    re.IGNORECASE,
)
LESS = re.compile(
    r"\b(less|least|fewer|fewest|smaller|smallest|lower|lowest|shorter|shortest|younger|youngest|"
    r"cheaper|cheapest|lighter|lightest|shallower|shallowest|narrower|narrowest)\b",
    re.IGNORECASE,
)
_THAN = re.compile(r"\b(than|before|after)\b", re.IGNORECASE)
# A higher rank is a smaller number, and what is negated is not compared.
UNCOMPARED = re.compile(r"\b(rank\w*|place[ds]?|position|no|not|never|nor)\b|n't\b", re.IGNORECASE)


def wants_larger(text: str, kind: str) -> bool | None:
    """Return whether a text names the larger or later of two, or the smaller; None: neither."""
    up, down = (LATER, EARLIER) if kind == "date" else (MORE, LESS)
    larger = bool(up.search(text))
    return None if larger == bool(down.search(text)) else larger


def check_comparison(sentence: str, first: tuple[str, str], second: tuple[str, str]) -> bool | None:
    """Return whether two cited numbers or dates compare as a sentence says.

    Each source is its text, and that with its headings, which say what it is about. None: the
    sentence does not compare two things, or the sources have not one number of a kind each.

    >>> zoo, mill = ("The zoo opened in 1921.",) * 2, ("The mill opened in 1904.",) * 2
    >>> check_comparison("The mill opened later than the zoo.", zoo, mill)
    False
    """
    parts = _THAN.split(sentence)
    larger = find_larger(first[0], second[0])
    if len(parts) != 3 or larger is None or UNCOMPARED.search(sentence):
        return None
    ours, theirs = (set(split_content_words(part)) for part in (parts[0], parts[2]))
    kind, place = larger
    rises = wants_larger(parts[0], kind)
    if parts[1].lower() != "than":
        rises = parts[1].lower() == "after" if kind == "date" else None
    sides = []
    for _, about in (first, second):
        words = set(split_content_words(about))
        sides.append(len(words & (ours - theirs)) - len(words & (theirs - ours)))
    if rises is None or sides[0] == sides[1]:
        return None
    return (place == int(sides[1] > sides[0])) == rises


def read_date(match: re.Match[str]) -> date | None:
    """Return the day of a match of `DATE`; None if the calendar lacks it."""
    year = match["y1"] or match["y2"] or match["y3"]
    month = match["m1"] or match["m2"] or match["m3"]
    day = match["d1"] or match["d2"] or match["d3"]
    number = int(month) if month.isdigit() else MONTHS.index(month.lower()) + 1
    try:
        return date(int(year), number, int(day))
    except ValueError:
        return None
