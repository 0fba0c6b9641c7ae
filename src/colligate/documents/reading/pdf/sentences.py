"""Sentences that go on over the end of a page."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise, takewhile

from colligate.documents.reading.pdf.layout import PageLayout, PdfBlock, find_body_size
from colligate.documents.sentences import SENTENCE_END

_SMALLER = 0.9  # of most of the page's type size: a footnote


def join_sentences(pages: Sequence[PageLayout]) -> None:
    """Mark the first paragraphs of pages that go on with the text before; footnotes go above it.

    They begin with a lower-case letter, and that text has no end of a sentence. Of 154 such
    paragraphs in 17 filings all go on; those that begin otherwise after a full line often follow
    a table, so they stay apart.
    """
    for page, following in pairwise(pages):
        here, there = _list_texts(page), _list_texts(following)
        notes = _list_notes(page, here)
        texts = here[: len(here) - len(notes)]
        if texts and there and _goes_on(texts[-1], there[0]):
            there[0].goes_on = texts[-1].lines[-1]
            page.blocks = [block for block in page.blocks if block not in notes]
            at = page.blocks.index(texts[-1])
            page.blocks[at:at] = notes


def _list_texts(page: PageLayout) -> list[PdfBlock]:
    return [block for block in page.blocks if block.kind != "chrome"]


def _list_notes(page: PageLayout, texts: Sequence[PdfBlock]) -> list[PdfBlock]:
    """Return the paragraphs at a page's end that are in smaller type than most of it."""
    body = find_body_size([page])
    notes = takewhile(lambda b: 0 < _find_size(b) < _SMALLER * body, reversed(texts))
    return list(notes)[::-1]


def _find_size(block: PdfBlock) -> float:
    return max((line.size for line in block.lines), default=0.0)


def _goes_on(before: PdfBlock, after: PdfBlock) -> bool:
    return (
        before.kind in ("paragraph", "list_item")
        and after.kind == "paragraph"
        and bool(before.lines and after.lines)
        and after.lines[0].text[:1].islower()
        and not SENTENCE_END.search(before.lines[-1].text)
        and abs(_find_size(before) - _find_size(after)) < 1
    )
