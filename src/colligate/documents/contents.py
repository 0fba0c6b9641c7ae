"""Tables of contents in a document's own text, found by the headings that they list."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator
from itertools import islice

from colligate.documents.document import Document
from colligate.documents.span import Span
from colligate.documents.tokens import CJK

# "1.2" is one word, and the address of a link is one.
_WORD = re.compile(rf"\d+(?:\.\d+)+|[{CJK}]|(?:(?![{CJK}])\w)+|\]\([^)\s]*\)")
_NUMBER = re.compile(r"\]\(|(?<![\w,])(?<!\d\.)\d{1,5}(?!\.?\d|[\w,%])")
_LONGEST = 30  # words of a title that are compared
_LEAST_ENTRIES = 3
_SHARE = 0.6  # of the words that must be entries
_FEW_WORDS = 3  # beside them


class Contents:
    """The titles of a document's sections, to tell text that only lists them."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._headings = [node.heading for node in document.tree.sections if node.heading]
        self._places: dict[tuple[str, ...], list[int]] = defaultdict(list)
        self._lengths: dict[str, set[int]] = defaultdict(set)  # of titles, by their first word
        for node in document.tree.sections:
            words = tuple(_WORD.findall(node.title.casefold())[:_LONGEST])
            if node.heading and words:
                self._places[words].append(node.heading.start)
                self._lengths[words[0]].add(len(words))

    def cut_off(self, span: Span) -> Iterator[Span]:
        """Yield a passage, or what it has before and after a table of contents.

        A table of contents is text between two headings that is little but titles of sections in
        their order, with a page number or a link each. A few words beside it ("Part II", "Page")
        are left out too, but not where the document begins.
        """
        numbers = _NUMBER.finditer(self._document.text, span.start, span.end)
        few = len(list(islice(numbers, _LEAST_ENTRIES))) < _LEAST_ENTRIES
        if few or len(self._headings) < _LEAST_ENTRIES:
            yield span
            return
        start = span.start
        for begin, end in self._between_headings(span):
            matches = _WORD.finditer(self._document.text, begin, end)
            words = [(match[0].casefold(), match.start()) for match in matches]
            if entries := self._list_entries(words):
                (first, _), (_, last) = entries[0], entries[-1]
                yield from self._keep(start, words[first][1])
                start = (*words, ("", end))[last][1]
        yield from [span] if start == span.start else self._keep(start, span.end)

    def _keep(self, start: int, end: int) -> Iterator[Span]:
        """Yield the text of a range if it has more than a few words."""
        few = _FEW_WORDS if self._document.text[:start].strip() else 1
        piece = self._document.trim(start, end)
        if piece and len(_WORD.findall(self._document.slice(piece))) > few:
            yield piece

    def _between_headings(self, span: Span) -> Iterator[tuple[int, int]]:
        first, last = (
            bisect_left(self._headings, place, key=lambda heading: heading.start)
            for place in (span.start, span.end)
        )
        inside = self._headings[first:last]
        starts = [span.start, *(heading.end for heading in inside)]
        return zip(starts, [*(heading.start for heading in inside), span.end], strict=True)

    def _list_entries(self, placed: list[tuple[str, int]]) -> list[tuple[int, int]]:
        """Return the entries that a table of contents has, as ranges of its words; none if these
        words are none."""
        entries: list[tuple[int, int]] = []
        words, text = [word for word, _ in placed], self._document.text
        at, place, page, titled, count = 0, -1, 0, 0, len(words)
        while at < len(words):
            length, place = self._find(words[at : at + _LONGEST], place)
            if not length and words[at][0].isdigit():  # the number of an entry
                count -= 1
            titled += length
            at += length or 1
            number, following = (*words[at : at + 2], "", "")[:2]
            figures = following.isdecimal() and "\n" not in text[placed[at][1] : placed[at + 1][1]]
            if not length or figures:
                continue
            if number[:1] == "]" or (number.isdecimal() and int(number[:9]) >= page):
                page = page if number[:1] == "]" else int(number[:9])
                entries.append((at - length, at + 1))
                titled, at = titled + 1, at + 1
        listed = len(entries) >= _LEAST_ENTRIES and titled >= _SHARE * count
        return entries if listed else []

    def _find(self, words: list[str], after: int) -> tuple[int, int]:
        """Return the length of the longest title that begins here, of a section after a place,
        and its place."""
        for length in sorted(self._lengths.get(words[0], ()), reverse=True):
            places = self._places.get(tuple(words[:length]), [])
            at = bisect_right(places, after)
            if at < len(places):
                return length, places[at]
        return 0, after
