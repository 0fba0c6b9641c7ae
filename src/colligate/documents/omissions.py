"""Finding what a model wrote with its middle left out: "The treaty was ... in Ghent."

Such a piece says where a paragraph begins and where it ends. The text between is taken from the
document, so nothing a model left out or made up gets into it.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from colligate.documents.document import Document
from colligate.documents.locating import Normalised, locate, normalise

LONGEST = 12_000
"""The longest stretch, in characters, that a piece may stand for: about 2,000 tokens of English."""

TAG_NAMES = r"(?:abstract|section|sub-?section|br|skip)(?![\w-])"
"""The names of the tags of a skeleton, as a regular expression."""

_OMISSION = re.compile(r"(?:<skip\s*/?>|<\.{3,}>|\.{3,}|…)(?:\s*(?:<skip\s*/?>|\.{3,}|…))*", re.I)
_SKIP = re.compile(r"<skip\s*/?>", re.I)  # no text: the writer's `escape` sees to that
_TAG_LIKE = rf"(?=\s*(?:(?:/\s*)?{TAG_NAMES}|\.\.\.))"
_BARE = re.compile("<" + _TAG_LIKE, re.I)
_ESCAPED = re.compile(r"<\s" + _TAG_LIKE, re.I)
_NOT_BLANK = re.compile(r"\S+")

_REACH = 40_000  # how far from the place reached a piece that is not unique is sought
_TELLING = 12  # bytes: shorter words may stand anywhere (a Chinese character is three)
_MOST_MARKS = 8  # of a piece, beyond which only the first and the last are omissions
_MOST_FUZZY = 200  # searches for a likeness in one document
_WORDS = 4  # of each end that must be right where the whole of it is not


def escape(text: str) -> str:
    """A text with a blank put into whatever could be taken for a tag; `unescape` takes it out.

    >>> escape("one<br>two")
    'one< br>two'
    """
    return _BARE.sub("< ", text)


def unescape(text: str) -> str:
    """What `escape` was given."""
    return _ESCAPED.sub("<", text)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a piece stands, in characters of the document.

    `start` is None where only its end was found, `end` where only its beginning; `edge` is how
    far what was found reaches.
    """

    start: int | None
    end: int | None
    edge: int


class PieceFinder:
    """A document in which pieces are sought, outside its headings."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._fuzzy_left = _MOST_FUZZY

    @cached_property
    def text(self) -> str:
        """The document's text with blanks for its headings, so that offsets stay."""
        text, kept, place = self._document.text, [], 0
        for node in self._document.tree.sections:
            if node.heading is not None:
                kept += [text[place : node.heading.start], "\n" * len(node.heading)]
                place = node.heading.end
        return "".join([*kept, text[place:]])

    def exactly(self, piece: str, low: int, high: int) -> tuple[int, int] | None:
        """The first stretch in `[low, high)` that a piece stands for word by word.

        It is what the piece says as a whole, or what begins with what stands before an omission
        mark and ends, not too far on, with what follows it: the text itself may hold such marks.
        """
        best: tuple[int, int] | None = None
        for head, tail in _readings(piece):
            found = self._pair(self._plain, head, tail, low, high)
            if found is not None and (best is None or found[0] < best[0]):
                best = found
        return best

    def only_place(self, piece: str) -> int | None:
        """Where a piece begins if its first words stand in the document once and no more."""
        head, _ = _ends(piece)
        if not _telling(head):
            return None
        at = self._plain.text.find(head)
        if at < 0 or self._plain.text.find(head, at + 1) >= 0:
            return None
        return self._plain.offsets[at]

    def find(self, piece: str, low: int, high: int) -> Place | None:
        """Where a piece stands in `[low, high)`, as exactly as it can be told.

        It is sought word by word, then without what quotations change (`locating.normalise`),
        then by its first and last four words; at last each end by itself, or the whole where
        nothing is left out, by its likeness.
        """
        head, tail = _ends(piece)
        high = min(high, low + (_REACH if _telling(head + tail) else LONGEST))
        few, last = _first_words(head), _last_words(tail)
        found = self.exactly(piece, low, high)
        for view, first, final in (
            (self._normal, normalise(_whole(piece)).text, None),
            (self._normal, normalise(head).text, normalise(tail).text),
            (self._normal, normalise(few).text, normalise(last).text),
        ):
            if found is None and first and final != "":
                found = self._pair(view, first, final, low, high)
        if found is not None:
            return Place(*found, found[1])
        if not _OMISSION.search(piece):
            found = self._like(head, low, high)
            return None if found is None else Place(*found, found[1])
        first_end = self._end(head, few, low, high)
        reached = low if first_end is None else first_end[1]
        last_end = self._end(tail, last, reached, min(high, reached + LONGEST))
        if first_end is None and last_end is None:
            return None
        start, end = first_end and first_end[0], last_end and last_end[1]
        return Place(start, end, reached if end is None else end)

    def _end(self, part: str, few: str, low: int, high: int) -> tuple[int, int] | None:
        """Where one end of a piece stands, known by itself."""
        for view, sought in (
            (self._plain, part),
            (self._normal, normalise(part).text),
            (self._normal, normalise(few).text),
        ):
            if _telling(sought) and (found := self._pair(view, sought, None, low, high)):
                return found
        return self._like(part, low, high)

    def _like(self, part: str, low: int, high: int) -> tuple[int, int] | None:
        """What is like a part of the text, near `low`."""
        high = min(high, low + LONGEST)
        if low >= high or not self._fuzzy_left or not _telling(part):
            return None
        self._fuzzy_left -= 1
        like = locate(part, self._document, within=self._document.span(low, high))
        if like is None or self.text[like.span.start].isspace():  # a heading
            return None
        return like.span.start, like.span.end

    def _pair(
        self, view: Normalised, head: str, tail: str | None, low: int, high: int
    ) -> tuple[int, int] | None:
        """The first stretch of a view from `head` to the first `tail` after it."""
        first, stop = bisect_left(view.offsets, low), bisect_left(view.offsets, high)
        while (start := view.text.find(head, first, stop)) >= 0:
            end = start + len(head)
            if tail is None:
                return view.original(start, end)
            last = view.text.find(tail, end, stop)
            if last < 0:
                return None
            if last - start <= LONGEST:
                return view.original(start, last + len(tail))
            first = max(start + 1, last - LONGEST)  # nothing before is near enough to this end
        return None

    @cached_property
    def _plain(self) -> Normalised:
        """The text with one blank for each run of them."""
        words: list[str] = []
        offsets = array("I")
        for word in _NOT_BLANK.finditer(self.text):
            if words:
                offsets.append(word.start() - 1)
            words.append(word.group())
            offsets.extend(range(*word.span()))
        return Normalised(" ".join(words), offsets, {})

    @cached_property
    def _normal(self) -> Normalised:
        return normalise(self.text)


def _readings(piece: str) -> Iterator[tuple[str, str | None]]:
    """What a piece may mean: itself, or a beginning and an end."""
    if whole := _whole(piece):
        yield whole, None
    marks = [mark.span() for mark in _OMISSION.finditer(piece)]
    if len(marks) > _MOST_MARKS:
        marks = [(marks[0][0], marks[-1][1])]
    for start, end in marks:
        head, tail = _one_line(piece[:start]), _one_line(piece[end:])
        if head and tail:
            yield head, tail


def _ends(piece: str) -> tuple[str, str]:
    """What stands before the first omission and after the last; all and nothing without any."""
    marks = [mark.span() for mark in _OMISSION.finditer(piece)]
    if not marks:
        return _one_line(piece), ""
    return _one_line(piece[: marks[0][0]]), _one_line(piece[marks[-1][1] :])


def _whole(piece: str) -> str:
    """A piece as text in which nothing is left out, if it can be that."""
    return "" if _SKIP.search(piece) else _one_line(piece)


def _one_line(text: str) -> str:
    return " ".join(unescape(text).split())


def _telling(part: str) -> bool:
    return len(part.encode("utf-8", "surrogatepass")) >= _TELLING


def _first_words(text: str) -> str:
    return " ".join(text.split()[:_WORDS])


def _last_words(text: str) -> str:
    return " ".join(text.split()[-_WORDS:])
