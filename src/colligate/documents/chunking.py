"""Chunking: cut a document into passages. A chunker is a callable that returns spans, in order.

All guarantee: a chunk has no blanks around it, and every character of the document that is not
blank is in a chunk. `parse_chunker` makes one by its name: "structural", "words:100",
"tokens:1000/250".
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from colligate.documents import sentences
from colligate.documents.document import Document
from colligate.documents.sentences import Block, iter_blocks, sentence_spans
from colligate.documents.span import Span
from colligate.documents.tokens import CJK, iter_token_spans
from colligate.documents.tree import Kind
from colligate.errors import UsageError

Chunker = Callable[[Document], list[Span]]
"""A function that cuts a document into chunks, in document order."""


@dataclass(frozen=True)
class Structural:
    """Chunks of up to `tokens` tokens that cross a heading only where they would say nothing.

    Whole blocks of one section are packed together; a block that is too long is cut at the
    ends of sentences (a table or code at lines), a sentence that is too long at blanks. What says
    nothing by itself stays with the text that follows it, or at the end with the text before it:
    a heading without text, lines of a title page, a page number. Tokens are those that
    `documents.tokens` estimates.
    """

    tokens: int = 200

    def __post_init__(self) -> None:
        _require_one("tokens of a chunk", self.tokens)

    @property
    def name(self) -> str:
        """The name that makes it; empty if none does."""
        return STRUCTURAL if self == Structural() else ""

    def __call__(self, document: Document) -> list[Span]:
        packer = _Packer(document, _Ruler(document.text), self.tokens)
        for block in iter_blocks(document, document.span(0, len(document))):
            if block.kind is Kind.SECTION and packer.says:
                packer.flush()
            packer.add(block)
        packer.close()
        return packer.chunks


_WORD = re.compile(rf"[{CJK}]|(?:(?![{CJK}])\S)+")


@dataclass(frozen=True)
class FixedWords:
    """Chunks of `words` words without overlap: the 100-word passages of DPR (psgs_w100).

    Words are separated by blanks; Chinese, Japanese and Korean characters, which no blanks
    divide, count one each.
    """

    words: int = 100

    def __post_init__(self) -> None:
        _require_one("words of a chunk", self.words)

    @property
    def name(self) -> str:
        """The name that makes it."""
        return f"words:{self.words}"

    def __call__(self, document: Document) -> list[Span]:
        spans = [match.span() for match in _WORD.finditer(document.text)]
        return _group(document, spans, self.words)


@dataclass(frozen=True)
class FixedTokens:
    """Windows of `tokens` tokens, each of which repeats the last `overlap` of the one before.

    Tokens are those that `documents.tokens` estimates, so that the windows depend on no model; a
    window ends and begins at a blank if one is near. The default is that of SPD-RAG.
    """

    tokens: int = 1000
    overlap: int = 250

    def __post_init__(self) -> None:
        _require_one("tokens of a chunk", self.tokens)
        if not 0 <= self.overlap < self.tokens:
            why = f"it must be less than the chunk's {self.tokens}, and not below 0"
            raise UsageError(f"an overlap of {self.overlap} tokens", why)

    @property
    def name(self) -> str:
        """The name that makes it."""
        return f"tokens:{self.tokens}/{self.overlap}"

    def __call__(self, document: Document) -> list[Span]:
        ruler = _Ruler(document.text)
        chunks: list[Span] = []
        start, cut, end = 0, 0, len(document.text.rstrip())
        while cut < end:
            cut = ruler.reach(start, end, self.tokens)
            span = document.trim(start, cut)
            if span and not (chunks and span.end <= chunks[-1].end):
                chunks.append(span)
            start = ruler.reach(start, cut, self.tokens - self.overlap)
        return chunks


STRUCTURAL = "structural"
"""The name of the default chunker."""

_FIXED = re.compile(r"words:(\d+)|tokens:(\d+)/(\d+)")


def parse_chunker(name: str) -> Structural | FixedWords | FixedTokens:
    """Return the chunker of a name: "structural", "words:N" or "tokens:N/OVERLAP".

    >>> parse_chunker("tokens:1000/250")
    FixedTokens(tokens=1000, overlap=250)
    """
    if name == STRUCTURAL:
        return Structural()
    if (fixed := _FIXED.fullmatch(name)) is None:
        known = "there are structural, words:N and tokens:N/OVERLAP"
        raise UsageError(f"no chunker {name!r}", known, "give words:100 or tokens:1000/250")
    words, tokens, overlap = fixed.groups()
    return FixedWords(int(words)) if words else FixedTokens(int(tokens), int(overlap))


@dataclass(frozen=True)
class SixSentences:
    """Chunks of `sentences` sentences without overlap, as in LongRefiner's baselines."""

    sentences: int = 6

    def __post_init__(self) -> None:
        _require_one("sentences of a chunk", self.sentences)

    def __call__(self, document: Document) -> list[Span]:
        spans = sentence_spans(document, document.span(0, len(document.text)))
        return _group(document, [(span.start, span.end) for span in spans], self.sentences)


_STATED = re.compile(r"\w[^\w\s]*[.!?\u2026\u3002\uff01\uff1f\u061f\u06d4\u0964\u1362][^\w\s]*\Z")
_FEW_WORDS = 3  # "Not applicable." says something only under its heading
_MANY_WORDS = 25  # that say something without a sentence: a list of names
_WIDEST_GAP = 1_000  # characters of blanks that a chunk may hold


class _Packer:
    """Fills chunks up to a limit; a block that does not fit is cut finer."""

    def __init__(self, document: Document, ruler: _Ruler, limit: int) -> None:
        self.chunks: list[Span] = []
        self._document = document
        self._ruler = ruler
        self._limit = limit
        self._start: int | None = None  # of the chunk being filled
        self._end = 0
        self._words = 0  # outside headings
        self.says = False  # it holds a sentence, a row or many words

    def add(self, block: Block) -> None:
        """Append a block, whole if possible."""
        if self._take(block.start, block.end, block.kind):
            return
        for start, end in self._split(block):
            if not self._take(start, end, block.kind):
                self._fill(start, end, block.kind)

    def flush(self) -> None:
        """End the chunk being filled."""
        if self._start is not None and (span := self._document.trim(self._start, self._end)):
            self.chunks.append(span)
        self._start, self._words, self.says = None, 0, False

    def close(self) -> None:
        """End the last chunk; it joins the one before if it says nothing."""
        if self.chunks and self._start is not None and not self.says:
            before = self.chunks[-1].start
            near = self._start - self.chunks[-1].end <= _WIDEST_GAP
            if near and self._ruler.count(before, self._end) <= self._limit:
                self._start = before
                self.chunks.pop()
        self.flush()

    def _take(self, start: int, end: int, kind: Kind) -> bool:
        """Add a piece to this chunk or, whole, to a new one; report whether either was possible."""
        if start - self._end > _WIDEST_GAP:
            self.flush()
        first = start if self._start is None else self._start
        if self._ruler.count(first, end) > self._limit:
            # What says nothing is not separated from the text under it.
            if not self.says or self._ruler.count(start, end) > self._limit:
                return False
            self.flush()
        self._extend(start, end, kind)
        return True

    def _fill(self, start: int, end: int, kind: Kind) -> None:
        """Add a piece that fits in no chunk, word by word."""
        while start < end:
            first = start if self._start is None else self._start
            cut = self._ruler.reach(first, end, self._limit)
            if cut > start:
                self._extend(start, cut, kind)
                start = cut
            if start < end:
                self.flush()

    def _extend(self, start: int, end: int, kind: Kind) -> None:
        if self._start is None:
            self._start = start
        self._end = end
        if self.says or kind is Kind.SECTION:
            return
        text = self._document.text[start:end].rstrip()
        words = sum(1 for _ in _WORD.finditer(text))
        self._words += words
        stated = words >= _FEW_WORDS and _STATED.search(text, max(0, len(text) - _LONGEST_WORD))
        self.says = bool(stated or self._words >= _MANY_WORDS or kind in (Kind.TABLE, Kind.CODE))

    def _split(self, block: Block) -> Iterable[tuple[int, int]]:
        text = self._document.text[block.start : block.end]
        found: Iterable[tuple[int, int]]
        if block.kind in (Kind.TABLE, Kind.CODE):
            # Lazily: a table may have a million lines.
            found = ((a, b) for a, b in sentences.split_lines(text) if text[a:b].strip())
        else:
            found = sentences.split_sentences(text, self._document.language)
        return ((block.start + start, block.start + end) for start, end in found)


_LONGEST_WORD = 60  # how far back a cut looks for a blank


class _Ruler:
    """Measures ranges of a text in tokens."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._starts, self._ends = array("q"), array("q")
        for start, end in iter_token_spans(text):
            self._starts.append(start)
            self._ends.append(end)

    def count(self, start: int, end: int) -> int:
        """Count the tokens in a range, those cut at its ends included."""
        return max(0, bisect_left(self._starts, end) - bisect_right(self._ends, start))

    def reach(self, start: int, end: int, tokens: int) -> int:
        """Return where so many tokens from `start` end, at most `end`: one character at least."""
        following = bisect_right(self._ends, start) + tokens
        if following >= len(self._starts) or self._starts[following] >= end:
            return end
        cut = self._starts[following]
        for place in range(cut, max(start, cut - _LONGEST_WORD), -1):
            if self._text[place - 1].isspace():
                return place
        return cut


def _group(document: Document, units: Sequence[tuple[int, int]], size: int) -> list[Span]:
    """Group `size` units to a chunk, in order."""
    return [
        Span(document.id, units[i][0], units[min(i + size, len(units)) - 1][1])
        for i in range(0, len(units), size)
    ]


def _require_one(what: str, number: int) -> None:
    if number < 1:
        raise UsageError(f"{number} {what}", "there must be at least one")
