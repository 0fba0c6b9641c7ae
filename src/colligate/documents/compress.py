"""Compressed passages: the reader sees only parts of them.

What a compressor keeps are stretches of the passage, so that a quote of what was shown can be
located in the document.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, replace

from colligate.documents import Document, Passage, Span, flat_tree
from colligate.documents.locating import NUMBER, Location, locate
from colligate.documents.sentences import widen_to_sentences

_MOSTLY = 0.5  # of a quote's characters, or a word's
_WORD = re.compile(r"\w(?:[\w.,'’]*\w)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class CompressedPassage(Passage):
    """A passage whose `text` is only a part of it.

    `span` is the whole passage; `kept` are the stretches that are shown, in order, with text
    dropped between any two. In `text` they are joined by a line break or a blank if the dropped
    text has one, otherwise by nothing, so that kept parts of a word stay together.
    """

    kept: tuple[Span, ...]

    def back(self, start: int, end: int) -> Span:
        """Return the document's span of `text[start:end]`, with what was dropped in between.

        Raises:
            ValueError: the text has no such characters, or the range is empty.
        """
        if not 0 <= start < end <= len(self.text):
            raise ValueError(f"no characters {start}-{end} in a text of {len(self.text)}")
        return Span(self.document_id, self._origin(start).start, self._origin(end - 1).end)

    @property
    def share(self) -> float:
        """How much of the passage is shown, by characters."""
        return self.shown(self.span)

    def shown(self, span: Span) -> float:
        """How much of a stretch of the document is shown, by characters."""
        common = (span.intersection(kept) for kept in self.kept)
        return sum(len(each) for each in common if each is not None) / max(1, len(span))

    def _origin(self, at: int) -> Span:
        """Return what one character of the text stands for: itself, or what was dropped there."""
        place, last = 0, self.span.start
        for kept in self.kept:
            # A kept stretch never begins with a blank, so this blank joins two.
            if self.text[place].isspace():
                if at == place:
                    return Span(self.document_id, last, kept.start)
                place += 1
            if at < place + len(kept):
                first = kept.start + at - place
                return Span(self.document_id, first, first + 1)
            place += len(kept)
            last = kept.end
        raise AssertionError("the text is longer than what was kept")


def locate_quote(
    quote: str, document: Document, passage: Passage, *, longest: int, verbatim: bool = False
) -> Location | None:
    """Locate a quote in a passage, as `locating.locate` does.

    In a compressed passage it is looked for in what was shown, with what was dropped in between: at
    most `longest` characters, and the quote's numbers must be the document's, not made by dropping
    digits. Otherwise it is looked for in the whole passage, of whose place most must have been
    shown.
    """
    if not isinstance(passage, CompressedPassage):
        return locate(quote, document, within=passage.span, verbatim=verbatim)
    shown = Document("", "", passage.text, flat_tree("", len(passage.text)))
    found = locate(quote, shown, verbatim=verbatim)
    if found and len(found.span):
        span = passage.back(found.span.start, found.span.end)
        around = widen_to_sentences(document, span, passage.span)
        seen = set(NUMBER.findall(visible_text(around, document, passage)))
        if len(span) <= longest and seen.issuperset(NUMBER.findall(quote)):
            return replace(found, span=span)
    location = locate(quote, document, within=passage.span, verbatim=verbatim)
    return location if location and passage.shown(location.span) > _MOSTLY else None


def visible_text(span: Span, document: Document, passage: Passage) -> str:
    """Return what a reader saw of a stretch of a passage: all of it, unless it is compressed.

    Of a compressed passage these are the words that were mostly shown, and the numbers that were
    shown completely: neither "800" of 10800 nor 10800. Everything else is blank.
    """
    text = document.slice(span)
    if not isinstance(passage, CompressedPassage):
        return text
    shown = bytearray(len(text))
    for kept in passage.kept:
        if common := kept.intersection(span):
            shown[common.start - span.start : common.end - span.start] = b"\x01" * len(common)
    for word in _WORD.finditer(text):
        start, end = word.span()
        share = sum(shown[start:end]) / (end - start)
        whole = share == 1 or (share > _MOSTLY and not any(map(str.isdigit, word.group())))
        shown[start:end] = bytes([whole]) * (end - start)
    return "".join(a if there else " " for a, there in zip(text, shown, strict=True))


def compress(passage: Passage, kept: Iterable[tuple[int, int]]) -> CompressedPassage:
    """Return the passage with only these half-open stretches of its text, which may overlap and be
    in any order; those with only blanks between them become one."""
    text = passage.text
    stretches: list[tuple[int, int]] = []
    for start, end in sorted(_bare(text, kept)):
        if stretches and not text[stretches[-1][1] : start].strip():
            stretches[-1] = (stretches[-1][0], max(stretches[-1][1], end))
        else:
            stretches.append((start, end))
    shown, last = "", 0
    for start, end in stretches:
        if shown:
            dropped = text[last:start]
            shown += "\n" if "\n" in dropped else " " * any(map(str.isspace, dropped))
        shown += text[start:end]
        last = end
    at, name = passage.span.start, passage.document_id
    spans = tuple(Span(name, at + start, at + end) for start, end in stretches)
    whole = {each.name: getattr(passage, each.name) for each in fields(Passage)}
    return CompressedPassage(**{**whole, "text": shown}, kept=spans)


def _bare(text: str, stretches: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    for start, end in stretches:
        piece = text[start:end]
        if bare := piece.strip():
            start += len(piece) - len(piece.lstrip())
            yield start, start + len(bare)
