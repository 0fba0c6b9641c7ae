"""Where the sentences of a text stand, in any language, Markdown or plain.

The boundaries come from sentencex (Wikimedia); what is added here is what a document needs:
the ends of Markdown blocks end sentences, a label ("Item 1A.", "§ 3.", "2.1.") stays with what
it labels, closing marks stay with what they close, and every character that is not blank
belongs to a sentence.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import sentencex

from colligate.documents.document import Document
from colligate.documents.span import Span
from colligate.documents.tokens import CJK
from colligate.documents.tree import Kind, Node
from colligate.errors import UsageError

_LINE = re.compile(r"[^\r\n]*(?:\r\n?|\n|\Z)")
_UNDERLINE = re.compile(r"=+|[-:|][-:| \t]*")  # of a heading, or of a table's first row
_ALONE = re.compile(r"#{1,6}(?:\s|\Z)|```|~~~")
_ITEM = re.compile(r"(?:[-+*•‣▪◦●·]|\(\w{1,6}\))\s")
_CLOSING = re.compile(r"[*_`~\"'”’»)\]」』）】》]+(?=\s|\Z)")
_LABEL = re.compile(
    r"""[\s>#|*+•_-]*
    (?:(?:item|section|sec|article|art|clause|chapter|part|annex|appendix|schedule|exhibit|rule
        |note|figure|fig|table|vol|no|nos|paragraph|para|§+)\.?\s*)?
    [(\[]?(?:\d+[A-Za-z]?(?:[.-]\d+[A-Za-z]?)*|[A-Za-z]|[ivxlcIVXLC]+)?[)\]]?
    [.):]*[*_\s]*""",
    re.VERBOSE | re.IGNORECASE,
)
_MARKER = re.compile(r"(\W*)\((\w{1,6})\)(?=\s)")
_FIRST_WORD = re.compile(r"[^\W_]")
_LONGEST_LABEL = 40
_SURROGATE = re.compile(r"[\ud800-\udfff]")


def split_sentences(text: str, language: str = "und") -> list[tuple[int, int]]:
    """The sentences of a text as half-open offsets, in order, without blanks around them.

    They never overlap and leave out no character that is not blank. A blank line, a heading
    line, a list item and a table row always end a sentence; a row is one sentence.
    `language` is an ISO 639-1 code; it brings the language's abbreviations, while the full
    stops of all scripts are known without it.
    """
    found: list[tuple[int, int]] = []
    for start, end, whole in _blocks(text):
        cuts = [] if whole else _cuts(text[start:end], language)
        found.extend(_joined(text, [start, *(start + cut for cut in cuts), end]))
    return found


def sentence_spans(document: Document, span: Span) -> list[Span]:
    """The sentences inside a span of a document; those it cuts through are cut there.

    Raises:
        SpanError: if the span is not of this document.
    """
    found = split_sentences(document.slice(span), document.language)
    return [Span(document.id, span.start + start, span.start + end) for start, end in found]


def _blocks(text: str) -> Iterator[tuple[int, int, bool]]:
    """Runs of lines that no sentence crosses, and whether the run is one sentence (a row)."""
    start = end = 0
    row = closed = False
    for match in _LINE.finditer(text):
        line = match.group().strip().lstrip("> \t")
        if not line:
            yield start, match.end(), row
            start = end = match.end()
            row = closed = False
            continue
        if end > start and _UNDERLINE.fullmatch(line):
            end, closed = match.end(), True
            continue
        alone = _ALONE.match(line) is not None
        if alone or closed or row or line[0] == "|" or _ITEM.match(line):
            yield start, end, row
            start = match.start()
        end, row, closed = match.end(), line[0] == "|", alone
    yield start, end, row


def _cuts(block: str, language: str) -> list[int]:
    """Where new sentences begin inside a block."""
    masked = _SURROGATE.sub("\ufffd", block)  # which sentencex does not take
    if marker := _MARKER.match(masked):
        # A block that begins with "(b)" is otherwise split at such markers alone.
        masked = f"{marker[1]}X{marker[2]}X{masked[marker.end() :]}"
    cuts = []
    for boundary in sentencex.get_sentence_boundaries(language, masked)[1:]:
        cut = boundary["start_index"]
        closing = _CLOSING.match(block, cut)
        cuts.append(closing.end() if closing else cut)
    return cuts


def _joined(text: str, cuts: list[int]) -> Iterator[tuple[int, int]]:
    """The sentences between cuts: labels join what follows, bare marks what went before."""
    held: tuple[int, int] | None = None
    label = False  # what is held waits for what it labels
    for begin, stop in pairwise(cuts):
        piece = text[begin:stop]
        start = begin + len(piece) - len(piece.lstrip())
        end = begin + len(piece.rstrip())
        if start >= end:
            continue
        bare = _FIRST_WORD.search(piece) is None
        if held is not None and not (label or bare):
            yield held
            held = None
        if bare:
            label = label or held is None
        else:
            label = len(piece) <= _LONGEST_LABEL and _LABEL.fullmatch(piece) is not None
        held = (held[0] if held else start, end)
    if held is not None:
        yield held


# Paragraphs of a useful length: LongRefiner's leaves, as spans of the text.
#
# A document's own blocks are of any length, from a list item to a table of ten pages. Here short
# neighbours are joined and long blocks cut, so that each piece can be weighed by itself.

# Chosen on questions over encyclopedia pages, annual reports and passages: docs/benchmarks.md.
LEAST_WORDS = 60
MOST_WORDS = 150

# Thai and Khmer put no blanks between words, and an address or encoded bytes may have no end.
_WORD = re.compile(rf"[{CJK}]|(?:(?![{CJK}])\S){{1,20}}")
_PARAGRAPH_LINE = re.compile(r"[^\r\n]+")
_BLANK_LINES = re.compile(r"\n\s*\n")

_Offsets = tuple[int, int]
_Cutter = Callable[[str], Iterable[_Offsets]]


def split_paragraphs(
    document: Document,
    area: Span,
    *,
    least_words: int = LEAST_WORDS,
    most_words: int = MOST_WORDS,
) -> list[Span]:
    """The text of `area` in paragraphs of `least_words` or more, in order.

    Neighbouring blocks are joined until they have that many words; what remains before a heading
    or at the end is shorter. A block of more than `most_words` is first cut at its sentences, a
    table or code at its lines, a line that is longer still at blanks. So a paragraph has fewer
    words than `least_words` and `most_words` together. Words are those of `word_spans`.

    Paragraphs have no blanks around them, never overlap or cross a heading of `document.tree`,
    and leave out no other character of the area but headings and blanks.

    Raises:
        SpanError: if `area` is not of this document.
        UsageError: unless `1 <= least_words <= most_words`.
    """
    if not 1 <= least_words <= most_words:
        raise UsageError(
            f"no paragraphs of {least_words} to {most_words} words",
            "the least must be 1 or more, and no more than the most",
        )
    text = document.slice(area)
    found: list[Span] = []
    for blocks in _between_headings(document, area):
        held: list[_Unit] = []
        words = 0
        for block in blocks:
            for unit in _units(text, block, document.language, most_words):
                held.append(unit)
                words += unit.words
                if words >= least_words:
                    found.append(_span(document, area, held))
                    held, words = [], 0
        if held:
            found.append(_span(document, area, held))
    return found


def split_at_headings(document: Document, area: Span) -> list[Span]:
    """The text of `area` between its headings, without blanks around each piece.

    Raises:
        SpanError: if `area` is not of this document.
    """
    text = document.slice(area)
    found = []
    for blocks in _between_headings(document, area):
        start = area.start + blocks[0].start
        piece = text[blocks[0].start : blocks[-1].end]
        if bare := piece.strip():
            start += len(piece) - len(piece.lstrip())
            found.append(Span(document.id, start, start + len(bare)))
    return found


def word_spans(text: str, start: int = 0, end: int | None = None) -> list[tuple[int, int]]:
    """Where the words of a text, or of a stretch of it, stand: half-open offsets, in order.

    A word is what stands between blanks; a Chinese, Japanese or Korean character is one by
    itself, and what no blank divides for more than 20 characters is one for each 20 begun.

    >>> word_spans("two 文書")
    [(0, 3), (4, 5), (5, 6)]
    """
    end = len(text) if end is None else end
    return [match.span() for match in _WORD.finditer(text, start, end)]


class _Block(NamedTuple):
    """A block of the area; offsets count from the area's start, and may take in blanks."""

    start: int
    end: int
    kind: Kind


class _Unit(NamedTuple):
    """What is not cut further, without blanks around it."""

    start: int
    end: int
    words: int


def _span(document: Document, area: Span, held: Sequence[_Unit]) -> Span:
    return Span(document.id, area.start + held[0].start, area.start + held[-1].end)


def _between_headings(document: Document, area: Span) -> Iterator[list[_Block]]:
    """The blocks of an area, each running to where the next begins, parted at headings."""
    if not len(area):
        return
    blocks: list[_Block] = []
    marks = list(_marks(document, area))
    ends = [start for start, _ in marks[1:]] + [len(area)]
    for (start, kind), end in zip(marks, ends, strict=True):
        if end <= start:
            continue
        if kind is Kind.SECTION:
            if blocks:
                yield blocks
            blocks = []
        else:
            blocks.append(_Block(start, end, kind))
    if blocks:
        yield blocks


def _marks(document: Document, area: Span) -> Iterator[tuple[int, Kind]]:
    """Where headings (SECTION) and blocks of an area begin, whatever the tree covers."""
    yield 0, Kind.PARAGRAPH
    nodes = document.tree.nodes
    around = document.tree.node_at(area.start)
    first = max(bisect_left(nodes, area.start, key=_start), around.id + 1)
    last = bisect_left(nodes, area.end, key=_start)
    for node in (around, *nodes[first:last]):
        if node.heading is not None:
            for place, kind in (
                (node.heading.start, Kind.SECTION),
                (node.heading.end, Kind.PARAGRAPH),
            ):
                yield min(max(place - area.start, 0), len(area)), kind
        elif node.kind not in (Kind.ROOT, Kind.SECTION):
            yield max(node.span.start - area.start, 0), node.kind


def _start(node: Node) -> int:
    return node.span.start


def _units(text: str, block: _Block, language: str, most_words: int) -> Iterator[_Unit]:
    """A block whole where it is short enough, else cut as finely as it must be."""
    cutters: tuple[_Cutter, ...] = (_lines,)
    if block.kind not in (Kind.TABLE, Kind.CODE):
        cutters = (_by_blank_lines, lambda piece: split_sentences(piece, language), _lines)
    yield from _cut(text, block.start, block.end, cutters, most_words)


def _cut(
    text: str, start: int, end: int, cutters: Sequence[_Cutter], most_words: int
) -> Iterator[_Unit]:
    words = word_spans(text, start, end)
    if len(words) > most_words and cutters:
        for begin, stop in cutters[0](text[start:end]):
            yield from _cut(text, start + begin, start + stop, cutters[1:], most_words)
        return
    for i in range(0, len(words), most_words):
        run = words[i : i + most_words]
        yield _Unit(run[0][0], run[-1][1], len(run))


def _by_blank_lines(text: str) -> Iterator[_Offsets]:
    start = 0
    for match in _BLANK_LINES.finditer(text):
        yield start, match.start()
        start = match.end()
    yield start, len(text)


def _lines(text: str) -> Iterator[_Offsets]:
    return (match.span() for match in _PARAGRAPH_LINE.finditer(text))
