"""Words of a PDF that are printed in two parts: over two lines, or with a large first letter."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path

from colligate.documents.reading.pdf.layout import PageLayout, PdfLine, clean_line


def dehyphenate_lines(lines: Sequence[PdfLine]) -> str:
    """Join lines to running text; words broken over two lines become whole again."""
    parts: list[str] = []
    for line, following in pairwise([*lines, PdfLine(0, "")]):
        hyphened = line.text[-1:] in HYPHENS and line.text[-2:-1].isalnum()
        if line.joined:
            parts.append(line.text[:-1])
        elif hyphened and following.text[:1].isalnum():
            parts.append(line.text)
        else:
            parts.append(line.text + " ")
    return clean_line("".join(parts))


HYPHENS = ("-", "\u2010")
_TAIL = re.compile(r"[^\W\d_]{2,}(?=.$)")
_HEAD = re.compile(r"[^\W\d_]+")


def mark_broken_words(pages: Sequence[PageLayout]) -> None:
    """Mark the lines whose last word goes on in the next line, by a hyphen that is not its own.

    Of "capabili-ties" the document or the language has the whole word, or no such word as the
    first half. In a doubtful word ("non-refundable", "price-determining") the hyphen stays. Of the
    words of English texts broken so .97 become whole, of true hyphens .94 stay.
    """
    pairs = [
        (line, tail.group(), head.group())
        for page in pages
        for block in page.blocks
        for line, following in pairwise(filter(None, [block.goes_on, *block.lines]))
        if line.text[-1:] in HYPHENS
        and (tail := _TAIL.search(line.text))
        and (head := _HEAD.match(following.text))
    ]
    if not pairs:
        return
    printed = {word for page in pages for row in page.rows for word in row.text.lower().split()}
    for line, first, second in pairs:
        if not (second[0].isupper() or _has_word(printed, f"{first}-{second}".lower())):
            whole = _is_known(printed, (first + second).lower())
            line.joined = whole or not _is_known(printed, first.lower())


def join_initials(pages: Sequence[PageLayout]) -> None:
    """Put a first letter that is as high as several lines into the line right of it. It is a word
    of its own if it is one elsewhere, as "A" is, and what the two make is none."""
    found = {
        id(block): (page, block, other.lines[0])
        for page in pages
        for pair in pairwise(page.blocks)
        for block, other in (pair, pair[::-1])
        if len(block.lines) == 1 and other.lines and _begins(block.lines[0], other.lines[0])
    }
    lowest = min((block.lines[0].height for _, block, _ in found.values()), default=0.0)
    rows = (row for page in pages for row in page.rows if row.height < lowest)
    printed = {word for row in rows for word in row.text.lower().split()} if found else set()
    for page, block, line in found.values():
        letter, head = block.lines[0].text, _HEAD.match(line.text)
        whole = (letter + head[0] if head else "").lower()
        is_word = letter.lower() in printed and not _is_known(printed, whole)
        line.text = letter + " " * is_word + line.text
        page.blocks.remove(block)


def _begins(initial: PdfLine, line: PdfLine) -> bool:
    """Report whether a line is the first of those right of a letter that is much higher."""
    return (
        len(initial.text) == 1
        and initial.text.isupper()
        and line.text[:1].islower()
        and 2 * line.height < initial.height
        and 0 <= line.y - initial.y < initial.height / 2
        and abs(line.x - initial.x - initial.width) < line.height
    )


def _is_known(printed: set[str], word: str) -> bool:
    return word in _load_words() or _has_word(printed, word)


def _has_word(printed: set[str], word: str) -> bool:
    return any(word + mark in printed for mark in ("", ",", ".", ";", ":"))


@cache
def _load_words() -> frozenset[str]:
    """Return common words: the vocabulary of the model that ranks passages."""
    file = Path(__file__).parents[3] / "models" / "minilm" / "tokenizer.json"
    vocabulary = json.loads(file.read_bytes())["model"]["vocab"]
    return frozenset(word for word in vocabulary if len(word) > 2)  # else any syllable
