"""Where the sentences of a text stand, in any language, Markdown or plain.

The boundaries come from sentencex (Wikimedia); what is added here is what a document needs:
the ends of Markdown blocks end sentences, a label ("Item 1A.", "§ 3.", "2.1.") stays with what
it labels, closing marks stay with what they close, and every character that is not blank
belongs to a sentence.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

import sentencex

from colligate.documents.document import Document
from colligate.documents.span import Span

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
_WORD = re.compile(r"[^\W_]")
_LONGEST_LABEL = 40
_SURROGATE = re.compile(r"[\ud800-\udfff]")


def sentences(text: str, language: str = "und") -> list[tuple[int, int]]:
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
    found = sentences(document.slice(span), document.language)
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
        bare = _WORD.search(piece) is None
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
