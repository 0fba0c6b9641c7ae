"""The numbers of headings: "2.1", "A.3", "IV.", "Part II", "Item 1A.", "Chapter 3".

Numbers give a heading its rank and tell neighbours apart ("2.1 Results", "3.1 Results"). They are
ignored when two titles are compared, since outlines often leave them out.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass

from colligate.documents.reading.numbers import format_number

_RANKS = {
    0: "part book volume titre teil partie parte tome libro buch",
    1: "chapter item appendix annex schedule kapitel anhang anlage chapitre annexe capitulo"
    " capítulo capitolo apéndice apendice apêndice appendice allegato hoofdstuk bijlage",
    2: "section article abschnitt artikel sección seção sezione artículo artigo articolo"
    " paragraph note",
}
_KEYWORDS = {word: rank for rank, words in _RANKS.items() for word in words.split()}
_ROMAN = r"[IVXLC]+|[ivxlc]+"
_KEYWORD = re.compile(
    rf"(?P<word>{'|'.join(sorted(_KEYWORDS, key=len, reverse=True))})\s+"
    rf"(?P<number>\d{{1,3}}[A-Z]?(?:\.\d{{1,3}}){{0,4}}|{_ROMAN}|[A-Z])"
    r"(?=$|[\s.:,)\u2013\u2014-])\s*[.:)\u2013\u2014-]*\s*",
    re.I,
)
_DECIMAL = re.compile(
    r"(?:§+\s*)?(?P<number>\d{1,3}(?:\.\d{1,3}){0,5}|[A-Z](?:\.\d{1,3}){1,5})"
    r"(?P<stop>[.:)]?)(?:\s+|$)"
)
_OUTLINE_MARK = re.compile(rf"(?:(?P<roman>{_ROMAN})|(?P<letter>[A-Z]))(?P<stop>[.)])(?:\s+|$)")
_BRACKETED = re.compile(r"\((?P<number>[a-z]|\d{1,2}|[ivx]+)\)\s+|(?P<small>[a-z])\)\s+")
_CJK = re.compile(
    r"第\s*(?P<number>[0-9一二三四五六七八九十百]+)\s*(?P<word>[部編篇章節节条條])\s*"
)
_CJK_RANK = {"部": 0, "編": 0, "篇": 0, "章": 1, "節": 2, "节": 2, "条": 2, "條": 2}


def split_number(text: str) -> tuple[HeadingNumber | None, str]:
    """Return a heading's number, None if it has none, and the rest of it.

    >>> split_number("2.1 Results")[0].parts
    ('2', '1')
    >>> split_number("ITEM 1A. RISK FACTORS")[1]
    'RISK FACTORS'
    """
    if match := _KEYWORD.match(text):
        word = match["word"].lower()
        parts = tuple(match["number"].upper().split("."))
        return HeadingNumber(word, parts, _KEYWORDS[word] + len(parts) - 1), text[match.end() :]
    if match := _DECIMAL.match(text):
        parts = tuple(match["number"].split("."))
        return HeadingNumber("decimal", parts, len(parts)), text[match.end() :]
    if match := _OUTLINE_MARK.match(text):
        value = match["roman"] or match["letter"]
        # "C." and "D." follow "B." more often than "XCIX."
        roman = len(value) > 1 or value in "IVX"
        scheme = ("roman" if roman else "letter") + match["stop"]
        return HeadingNumber(scheme, (value.upper(),), None), text[match.end() :]
    if match := _BRACKETED.match(text):
        value = match["number"] or match["small"]
        scheme = "(digit)" if value.isdigit() else "(letter)"
        return HeadingNumber(scheme, (value.upper(),), None), text[match.end() :]
    if match := _CJK.match(text):
        number = HeadingNumber(match["word"], (match["number"],), _CJK_RANK[match["word"]])
        return number, text[match.end() :]
    return None, text


@dataclass(frozen=True, slots=True)
class HeadingNumber:
    """The number of a heading."""

    scheme: str  # "decimal", "item", "roman", ...
    parts: tuple[str, ...]
    rank: int | None  # its depth, if the scheme implies one

    def may_be(self, other: HeadingNumber) -> bool:
        """Report whether both may be the number of one heading, whatever their scheme."""
        return self.parts[-1] == other.parts[-1] and len(self.parts) == len(other.parts)

    @property
    def last(self) -> int | None:
        """The last component as a whole number, letters counted from 1."""
        part = self.parts[-1]
        if digits := re.match(r"\d+", part):
            return int(digits.group())
        if roman := roman_value(part):
            return roman
        return ord(part.upper()) - ord("A") + 1 if len(part) == 1 and part.isascii() else None


_ROMAN_VALUES = {format_number(n, "I"): n for n in range(1, 400)}


def roman_value(text: str) -> int | None:
    """Return the value of a Roman numeral below 400, None for anything else.

    >>> roman_value("xiv")
    14
    """
    return _ROMAN_VALUES.get(text.upper())


_NOT_WORD = re.compile(r"[^\w]+|_")


def title_key(text: str) -> str:
    """Return a title for comparison: letters and digits, case folded, single blanks between."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    return _NOT_WORD.sub(" ", folded).strip()


@dataclass(frozen=True, slots=True)
class ListedHeading:
    """The facts that decide a listed heading's level: its number, indent (points) and weight."""

    number: HeadingNumber | None
    indent: float = 0.0
    strong: bool = False
    matter: bool = False  # preface, references and the like: as high as a chapter


def assign_levels(entries: Iterable[ListedHeading]) -> list[int]:
    """Return the level of each of a list of headings in order, 1 the highest.

    A stack holds the open headings: a heading closes all of its own kind or deeper and goes under
    the rest. Ranks decide between numbers that have one; a scheme met before closes back to its
    last use; unnumbered headings go by indent, then by weight.
    """
    stack: list[ListedHeading] = []
    found = []
    for entry in entries:
        same = next((i for i, open_ in enumerate(stack) if _same_kind(open_, entry)), None)
        if same is not None:
            del stack[same:]
        else:
            while stack and not _is_above(stack[-1], entry):
                stack.pop()
        stack.append(entry)
        found.append(len(stack))
    return found


def _same_kind(a: ListedHeading, b: ListedHeading) -> bool:
    if a.number is None or b.number is None:
        plain = a.number is b.number and a.strong == b.strong and a.matter == b.matter
        return plain and (a.matter or abs(a.indent - b.indent) < 3)
    if a.number.rank is not None and b.number.rank is not None:
        return a.number.rank == b.number.rank
    return a.number.scheme == b.number.scheme


def _is_above(a: ListedHeading, b: ListedHeading) -> bool:
    """Report whether `b` may go under `a`."""
    if b.matter:
        return a.number is not None and a.number.rank == 0
    if a.matter:
        return b.number is None and b.indent > a.indent + 3
    if a.number and b.number:
        if a.number.rank is None or b.number.rank is None:
            return True  # a scheme not open yet goes deeper
        return a.number.rank < b.number.rank
    if a.number and a.number.rank == 0:
        return True
    if a.indent < b.indent - 3:
        return True
    return abs(a.indent - b.indent) <= 3 and a.strong and not b.strong
