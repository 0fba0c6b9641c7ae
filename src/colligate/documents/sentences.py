"""Sentences and paragraphs of a text in any language, Markdown or plain.

The boundaries of sentences come from sentencex (Wikimedia). A document needs more, which is added
here: the ends of Markdown blocks end sentences, a label ("Item 1A.", "§ 3.", "2.1.") stays with the
text after it, closing marks stay with the text before them, and every character that is not blank
belongs to a sentence.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import groupby, pairwise
from typing import NamedTuple

import sentencex

from colligate.documents.document import Document
from colligate.documents.span import Span
from colligate.documents.tokens import CJK
from colligate.documents.tree import Kind
from colligate.errors import UsageError


def split_sentences(text: str, language: str = "und") -> list[tuple[int, int]]:
    """Return the sentences of a text as half-open offsets, in order, without blanks around them.

    They never overlap and leave out no character that is not blank. A blank line, a heading
    line, a list item and a table row always end a sentence; a row is one sentence.
    `language` is an ISO 639-1 code and selects the language's abbreviations; the full stops of
    all scripts are known without it.
    """
    found: list[tuple[int, int]] = []
    for start, end, whole in _iter_runs(text):
        cuts = [] if whole else _find_cuts(text, start, end, language)
        found.extend(_join_pieces(text, [start, *cuts, end]))
    return found


def sentence_spans(document: Document, span: Span) -> list[Span]:
    """Return the sentences inside a span of a document; those at its ends are cut there."""
    found = split_sentences(document.slice(span), document.language)
    return [Span(document.id, span.start + start, span.start + end) for start, end in found]


SENTENCE_END = re.compile(r"[.!?…。！？؟।][\"'”’»)\]]*$")
"""The end of a sentence, in any script, at the end of a text."""

_LINE = re.compile(r"[^\r\n]*(?:\r\n?|\n|\Z)")
_UNDERLINE = re.compile(r"=+|[-:|][-:| \t]*")  # of a heading, or of a table's first row
_ALONE = re.compile(r"#{1,6}(?:\s|\Z)|```|~~~")
_ITEM = re.compile(r"(?:[-+*•‣▪◦●·]|\(\w{1,6}\))\s")


def widen_to_sentences(document: Document, span: Span, within: Span) -> Span:
    """Widen a span to the whole sentences that it touches, inside a passage."""
    touched = [each for each in sentence_spans(document, within) if each.overlaps(span)]
    if not touched:
        return span
    return Span(document.id, min(span.start, touched[0].start), max(span.end, touched[-1].end))


def _iter_runs(text: str) -> Iterator[tuple[int, int, bool]]:
    """Yield runs of lines that no sentence crosses, and whether a run is one sentence (a row)."""
    start = end = 0
    row = closed = False
    for match in _LINE.finditer(text):
        if not (line := match.group().strip().lstrip("> \t")):
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


_CLOSING = re.compile(r"[*_`~\"'”’»)\]」』）】》]+(?=\s|\Z)")
_MARKER = re.compile(r"(\W*)\((\w{1,6})\)(?=\s)")
_SURROGATE = re.compile(r"[\ud800-\udfff]")

# A raised figure after a short word is a power: 20 m². The first character is matched first: fast.
NOTE_MARK = re.compile(
    r"""[\[<^¹²³⁰-⁹†‡](?:
    (?:(?<=\S\[)|(?<=\S[ ]\[))(?:
        \^[^\]\s]{1,60}\](?!:)  # Markdown
        |\[?\d{1,3}\]?\]\([^()\s]{0,200}\#[^()\s]{0,200}\)  # a link to the note
        |\d{1,3}(?:[,;–-][ ]?\d{1,3}){0,9}\](?!\())
    |(?:(?<=[.,;:!?)"'”’»…].)|(?<=[^\W\d_]{4}.))
        (?:(?<=[^\[<^])[¹²³⁰-⁹†‡]{0,2}|(?<=<)sup>[^<>]{0,200}</sup>|(?<=\^)\d{1,3}\^)
    )""",
    re.VERBOSE,
)
"""A mark that points to a note or a source: the same words are quoted with or without it."""


def blank_notes(text: str) -> str:
    """Return a text of the same length with blanks in the place of its note marks."""
    return NOTE_MARK.sub(lambda mark: " " * len(mark[0]), text)


_LONGEST_BLOCK = 10_000  # characters that sentencex gets: on some it takes quadratic time


def _find_cuts(text: str, start: int, end: int, language: str) -> list[int]:
    """Return where new sentences begin inside a block of the text."""
    cuts: list[int] = []
    while start < end:
        stop = min(start + _LONGEST_BLOCK, end)
        found = [start + cut for cut in _find_cuts_of_piece(text[start:stop], language)]
        cuts.extend(found)
        # The last sentence of a piece goes on in the next one.
        start = found[-1] if found and stop < end else stop
    return cuts


def _find_cuts_of_piece(block: str, language: str) -> list[int]:
    # sentencex refuses halves of surrogate pairs, which replies of models may hold.
    masked = blank_notes(_SURROGATE.sub("\ufffd", block))
    if marker := _MARKER.match(masked):
        # sentencex splits a block that begins with "(b)" at such markers only.
        masked = f"{marker[1]}X{marker[2]}X{masked[marker.end() :]}"
    cuts = []
    for boundary in sentencex.get_sentence_boundaries(language, masked)[1:]:
        cut = boundary["start_index"]
        closing = _CLOSING.match(block, cut)
        cuts.append(closing.end() if closing else cut)
    return cuts


_LABEL = re.compile(
    r"""[\s>#|*+•_-]*
    (?:(?:item|section|sec|article|art|clause|chapter|part|annex|appendix|schedule|exhibit|rule
        |note|figure|fig|table|vol|no|nos|paragraph|para|§+)\.?\s*)?
    [(\[]?(?:\d+[A-Za-z]?(?:[.-]\d+[A-Za-z]?)*|[A-Za-z]|[ivxlcIVXLC]+)?[)\]]?
    [.):]*[*_\s]*""",
    re.VERBOSE | re.IGNORECASE,
)
_FIRST_WORD = re.compile(r"[^\W_]")
_LONGEST_LABEL = 40


def _join_pieces(text: str, cuts: list[int]) -> Iterator[tuple[int, int]]:
    """Yield the sentences between cuts: labels join the next one, bare marks the previous one."""
    pending: tuple[int, int] | None = None
    label = False  # the pending piece is a label of the next one
    for begin, stop in pairwise(cuts):
        piece = text[begin:stop]
        start = begin + len(piece) - len(piece.lstrip())
        end = begin + len(piece.rstrip())
        if start >= end:
            continue
        bare = _FIRST_WORD.search(piece) is None
        if pending is not None and not (label or bare):
            yield pending
            pending = None
        if bare:
            label = label or pending is None
        else:
            label = len(piece) <= _LONGEST_LABEL and _LABEL.fullmatch(piece) is not None
        pending = (pending[0] if pending else start, end)
    if pending is not None:
        yield pending


# Paragraphs of a useful length: LongRefiner's leaves, as spans of the text.
#
# A document's own blocks have any length, from a list item to a table of ten pages. Here short
# neighbours are joined and long blocks cut, so that each piece can be scored by itself.

# Chosen on questions over encyclopedia pages, annual reports and passages: docs/benchmarks.md.
LEAST_WORDS = 60
MOST_WORDS = 150


def split_paragraphs(
    document: Document, area: Span, *, least_words: int = LEAST_WORDS, most_words: int = MOST_WORDS
) -> list[Span]:
    """Return the text of `area` in paragraphs of `least_words` or more, in order.

    Neighbouring blocks are joined until they have that many words; the rest before a heading or
    at the end may be shorter. A block of more than `most_words` is first cut at its sentences, a
    table or code at its lines, a line that is still longer at blanks. So a paragraph has fewer
    words than `least_words` and `most_words` together. Words are those of `word_spans`.

    Paragraphs have no blanks around them, never overlap or cross a heading of `document.tree`,
    and leave out only headings and blanks.
    """
    if not 1 <= least_words <= most_words:
        what = f"paragraphs cannot have {least_words} to {most_words} words"
        raise UsageError(what, "least_words must be 1 or more, and at most most_words")
    found: list[Span] = []
    all_blocks = iter_blocks(document, area)
    for is_heading, run in groupby(all_blocks, key=lambda block: block.kind is Kind.SECTION):
        blocks = [] if is_heading else list(run)
        start: int | None = None  # of the paragraph that is being joined
        pieces = (piece for block in blocks for piece in _cut_block(document, block, most_words))
        for begin, end in pieces:
            start = begin if start is None else start
            # Pieces that no blank divides have fewer words together than apart.
            words = len(word_spans(document.text, start, end))
            if words >= least_words or end == blocks[-1].end:
                found.append(Span(document.id, start, end))
                start = None
    return found


# Thai and Khmer put no blanks between words, and an address or encoded bytes may have no end.
_WORD = re.compile(rf"[{CJK}]|(?:(?![{CJK}])\S){{1,20}}")


def word_spans(text: str, start: int = 0, end: int | None = None) -> list[tuple[int, int]]:
    """Return the words of a text, or of a range of it, as half-open offsets, in order.

    Words are separated by blanks; a Chinese, Japanese or Korean character is a word of its own,
    and of a run of more than 20 characters without a blank, each 20 begun are one.

    >>> word_spans("two 文書")
    [(0, 3), (4, 5), (5, 6)]
    """
    end = len(text) if end is None else end
    return [match.span() for match in _WORD.finditer(text, start, end)]


class Block(NamedTuple):
    """A heading (its kind is SECTION) or a block of a document, without blanks around it."""

    start: int
    end: int
    kind: Kind


def iter_blocks(document: Document, area: Span) -> Iterator[Block]:
    """Yield all text of an area in blocks, each up to the next, whatever the tree covers."""
    document.slice(area)  # it must be of this document
    if not len(area):
        return
    nodes = document.tree.nodes
    around = document.tree.node_at(area.start)
    first, last = (
        bisect_left(nodes, place, key=lambda node: node.span.start)
        for place in (area.start, area.end)
    )
    marks = [(area.start, Kind.PARAGRAPH)]
    for node in (around, *nodes[max(first, around.id + 1) : last]):
        if node.heading is not None:
            marks += [(node.heading.start, Kind.SECTION), (node.heading.end, Kind.PARAGRAPH)]
        elif node.kind not in (Kind.ROOT, Kind.SECTION):
            marks.append((node.span.start, node.kind))
    ends = [start for start, _ in marks[1:]] + [area.end]
    for (start, kind), end in zip(marks, ends, strict=True):
        if span := document.trim(max(start, area.start), min(end, area.end)):
            yield Block(span.start, span.end, kind)


_Offsets = tuple[int, int]
_Cutter = Callable[[str], Iterable[_Offsets]]


def _cut_block(document: Document, block: Block, most_words: int) -> Iterator[_Offsets]:
    """Yield a block whole if it is short enough, otherwise cut as finely as needed."""
    cutters: list[_Cutter] = [split_lines]
    if block.kind not in (Kind.TABLE, Kind.CODE):
        cutters[:0] = [_split_at_blank_lines, partial(split_sentences, language=document.language)]
    return _cut(document.text, block.start, block.end, cutters, most_words)


def _cut(
    text: str, start: int, end: int, cutters: Sequence[_Cutter], most_words: int
) -> Iterator[_Offsets]:
    words = word_spans(text, start, end)
    if len(words) > most_words and cutters:
        for begin, stop in cutters[0](text[start:end]):
            yield from _cut(text, start + begin, start + stop, cutters[1:], most_words)
        return
    for i in range(0, len(words), most_words):
        run = words[i : i + most_words]
        yield run[0][0], run[-1][1]


def _split_at_blank_lines(text: str) -> Iterator[_Offsets]:
    start = 0
    for match in re.finditer(r"\n\s*\n", text):
        yield start, match.start()
        start = match.end()
    yield start, len(text)


def split_lines(text: str) -> Iterator[tuple[int, int]]:
    """Yield the lines of a text that are not empty, as half-open offsets."""
    return (match.span() for match in re.finditer(r"[^\r\n]+", text))
