"""Locating: find the place in a document that a quote comes from.

A model that quotes changes blanks, dashes and quotation marks, leaves out Markdown marks, and
sometimes a word. A text that a model writes is evidence only after it is found here.
"""

from __future__ import annotations

import re
import unicodedata
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from itertools import islice

from rapidfuzz import fuzz

from colligate.documents.document import Document
from colligate.documents.sentences import blank_notes
from colligate.documents.span import Span

_SHORTEST_FUZZY, _LONGEST_FUZZY = 20, 10_000  # normalised characters
_EDGES = 8  # ends of words tried at each end of a match
_EDGE_REACH = 80  # characters that an end may move


class MatchKind(StrEnum):
    """How closely a quote matches the text."""

    EXACT = "exact"
    NORMALISED = "normalised"  # except for blanks, case, dashes, quotation marks, Markdown
    FUZZY = "fuzzy"  # except for a few letters


@dataclass(frozen=True, slots=True)
class Location:
    """The place of a quote; `score` is its likeness to the text there, 100 unless fuzzy."""

    span: Span
    how: MatchKind
    score: float


@dataclass(frozen=True, slots=True)
class NormalisedText:
    """A text without what a quotation may change, and the origin of each character."""

    text: str
    offsets: array[int]  # where each character begins in the original
    ends: dict[int, int]  # where those end there that stand for more than one

    def original(self, start: int, end: int) -> tuple[int, int]:
        """Return the range of the original that `text[start:end]`, not empty, stands for."""
        last = end - 1
        return self.offsets[start], self.ends.get(last, self.offsets[last] + 1)


_DASHES = "\\-\u2010-\u2015\u2043\u2212\ufe58\ufe63\uff0d"
_INVISIBLE = "\u00ad\u200b-\u200f\u2060\ufe0e\ufe0f\ufeff"
_MARKS = r"*_`~\\|#>\[\]⁅" + "＊＿｀～＼｜＃＞［］"
_QUOTES = "\"'´\u2018-\u201f\u2039\u203a«»\u300c-\u300f\uff02\uff07"
_GAP = re.compile(
    rf"(?:\]\([^()\s]{{0,500}}(?:\([^()\s]{{0,500}}\)[^()\s]{{0,500}})?\)"  # the address of a link
    r"|\[\[[^\[\]|\n]{1,200}\|"  # of a wiki link
    r"|</?[A-Za-z][^<>]{0,200}>"  # a tag
    rf"|[\s{_DASHES}{_INVISIBLE}{_MARKS}{_QUOTES}])+"
)
_DASH = re.compile(rf"[{_DASHES}]")
_SEEN = re.compile(rf"[^{_INVISIBLE}]")


@lru_cache(maxsize=8)  # several quotes are searched in one document, or one quote in several
def normalise(text: str) -> NormalisedText:
    """Return a text in the form in which quotes are compared.

    Case is folded, and compatible characters (ligatures, full-width forms) become plain ones
    (NFKC). Blanks, quotation marks, Markdown marks, link addresses, tags, invisible characters
    and dashes are removed, so that a word hyphenated at a line's end is whole. Numbers stay
    apart and keep their sign: a dash before a digit is kept, and a blank after a digit, a point
    or a comma.
    """
    pieces: list[str] = []
    offsets, ends = array("I"), dict[int, int]()
    place, last = 0, ""
    for gap in _GAP.finditer(text):
        start, end = gap.span()
        last = _append_plain(text, place, start, pieces, offsets, ends) or last
        place = end
        if not text[end : end + 1].isdecimal():
            continue
        if dash := _DASH.search(text, start, end):
            pieces.append("-")
            offsets.append(dash.start())
        elif (last.isdecimal() or last in (".", ",")) and _SEEN.search(text, start, end):
            pieces.append(" ")
            offsets.append(start)
            ends[len(offsets) - 1] = end
    _append_plain(text, place, len(text), pieces, offsets, ends)
    return NormalisedText("".join(pieces), offsets, ends)


def locate(
    quote: str, document: Document, *, within: Span | None = None, verbatim: bool = False
) -> Location | None:
    """Find a quote in a document, or only inside `within`; None if it is not there.

    It is searched exactly, then normalised (see `normalise`), then without note marks: the first
    occurrence wins, whole words before one inside words. Then by likeness: the most similar run of
    words, if it reaches 90 of 100 (the share of characters in common) and has all numbers of the
    quote, which must have 20 to 10,000 normalised characters. A `verbatim` quote is not searched by
    likeness, which takes most of the time. No match begins or ends inside a number: "5 million" is
    not in "15 million".
    """
    text, quote = document.text, quote.strip()
    area = document.span(0, len(document)) if within is None else within
    document.slice(area)
    if not quote:
        return None
    places = ((at, at + len(quote)) for at in _find_all(quote, text, area.start, area.end))
    if place := _choose(places, text):
        return Location(Span(area.document_id, *place), MatchKind.EXACT, 100.0)

    written = text[area.start : area.end]
    source, full = normalise(written), normalise(quote).text
    unmarked = blank_notes(written)  # only then: the quote of an index, "a[1]", is not in "a[2]"
    for searched in (source, normalise(unmarked)) if unmarked != written else (source,):
        for wanted in dict.fromkeys((full, full.strip("."))):
            hits = _find_all(wanted, searched.text, 0, len(searched.text)) if wanted else ()
            ranges = (searched.original(at, at + len(wanted)) for at in hits)
            if place := _choose(((area.start + a, area.start + b) for a, b in ranges), text):
                return Location(Span(area.document_id, *place), MatchKind.NORMALISED, 100.0)

    if verbatim or not _SHORTEST_FUZZY <= len(full) <= _LONGEST_FUZZY:
        return None
    if (likeliest := _find_similar(full, source, written)) is None:
        return None
    (start, end), score = likeliest
    span = Span(area.document_id, area.start + start, area.start + end)
    return Location(span, MatchKind.FUZZY, score)


def _find_all(wanted: str, text: str, start: int, end: int) -> Iterator[int]:
    at = text.find(wanted, start, end)
    while at >= 0:
        yield at
        at = text.find(wanted, at + 1, end)


_MOST_OCCURRENCES = 10_000  # of a quote that is found only inside words


def _choose(places: Iterable[tuple[int, int]], text: str) -> tuple[int, int] | None:
    """Return the first place of whole words, otherwise the first that does not cut a number."""
    inside_words = None
    for start, end in islice(places, _MOST_OCCURRENCES):
        if _cuts_number(text, start) or _cuts_number(text, end):
            continue
        if not (_cuts_word(text, start) or _cuts_word(text, end)):
            return start, end
        inside_words = inside_words or (start, end)
    return inside_words


_LEAST = 90.0  # of 100
_LEAST_ROUGH = 80.0  # in the first search, whose ends are rough
_MOST_RANGES = 8  # searched for a match whose numbers are right


def _find_similar(
    wanted: str, source: NormalisedText, text: str
) -> tuple[tuple[int, int], float] | None:
    """Return the range of `text` most like the quote, with all its numbers, and its score."""
    numbers = _count_numbers(wanted)
    ranges = [(0, len(source.text))]
    for _ in range(_MOST_RANGES):
        if not ranges:
            break
        low, high = ranges.pop(0)
        part = source.text[low:high]
        found = fuzz.partial_ratio_alignment(wanted, part, score_cutoff=_LEAST_ROUGH)
        if found is None or found.dest_start == found.dest_end:
            continue
        start, end = low + found.dest_start, low + found.dest_end
        refined = _move_to_words(wanted, source, text, start, end)
        if refined is not None and refined[2] >= _LEAST:
            match = source.text[refined[0] : refined[1]]
            if numbers <= _count_numbers(match):
                return source.original(refined[0], refined[1]), refined[2]
        # Similar text is here, as in a form or a table: search on both sides.
        ranges += [(low, start), (end, high)]
    return None


def _move_to_words(
    wanted: str, source: NormalisedText, text: str, start: int, end: int
) -> tuple[int, int, float] | None:
    """Return the most similar range of whole words with its ends near these, and its score."""
    size = len(source.text)
    starts, ends = _list_near(start, 0, size - 1), _list_near(end, 1, size)
    starts = [i for i in starts if _is_edge(text, source.original(i, i + 1)[0])]
    ends = [i for i in ends if _is_edge(text, source.original(i - 1, i)[1])]
    if not starts or not ends:
        return None
    for _ in range(2):  # each end depends on the other
        start = max(starts[:_EDGES], key=lambda i: fuzz.ratio(wanted, source.text[i:end]))
        end = max(ends[:_EDGES], key=lambda i: fuzz.ratio(wanted, source.text[start:i]))
    return (start, end, fuzz.ratio(wanted, source.text[start:end])) if start < end else None


def _list_near(place: int, lowest: int, highest: int) -> list[int]:
    """Return the places around one, the nearest first."""
    around = range(max(lowest, place - _EDGE_REACH), min(highest, place + _EDGE_REACH) + 1)
    return sorted(around, key=lambda other: abs(other - place))


def _is_edge(text: str, place: int) -> bool:
    return not (_cuts_word(text, place) or _cuts_number(text, place))


# These scripts put no blanks between words.
_UNSPACED = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\uabff\uf900-\ufaff]")


def _cuts_word(text: str, place: int) -> bool:
    if not 0 < place < len(text):
        return False
    left, right = text[place - 1], text[place]
    if not (left.isalnum() and right.isalnum()):
        return False
    return not (_UNSPACED.match(left) or _UNSPACED.match(right))


def _cuts_number(text: str, place: int) -> bool:
    """Report whether a place is inside a number, its decimals included."""
    left, right = text[max(0, place - 2) : place], text[place : place + 2]
    if not (left and right):
        return False
    if left[-1].isdecimal():
        return right[0].isdecimal() or (right[0] in ".," and right[1:].isdecimal())
    return left[-1] in ".," and left[:-1].isdecimal() and right[0].isdecimal()


NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
_THOUSANDS = re.compile(r",(?=\d{3}(?:\D|\Z))")


def _count_numbers(text: str) -> Counter[str]:
    """Return the numbers of a normalised text, thousands joined."""
    return Counter(_THOUSANDS.sub("", number) for number in NUMBER.findall(text))


def _append_plain(
    text: str, start: int, end: int, pieces: list[str], offsets: array[int], ends: dict[int, int]
) -> str:
    """Append the text between two gaps; return its last character."""
    if start == end:
        return ""
    piece = text[start:end]
    folded = piece.casefold()
    if len(folded) == len(piece) and unicodedata.is_normalized("NFKC", piece):
        pieces.append(folded)
        offsets.extend(range(start, end))
        return folded[-1]
    for first, stop in _split_clusters(text, start, end):
        folded = unicodedata.normalize("NFKC", text[first:stop]).casefold()
        for _ in folded:
            offsets.append(first)
            if stop > first + 1:
                ends[len(offsets) - 1] = stop
        pieces.append(folded)
    return pieces[-1][-1:]


def _split_clusters(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield characters, each with the marks that may be composed with it."""
    first = start
    for place in range(start + 1, end):
        character = text[place]
        mark = unicodedata.category(character)[0] == "M" or character in "\uff9e\uff9f"
        if not (mark or "\u1160" <= character <= "\u11ff"):
            yield first, place
            first = place
    yield first, end
