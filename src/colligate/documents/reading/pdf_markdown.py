"""Blocks of a PDF as Markdown that says no more than the page does.

A paragraph is one line, and whatever would make it a heading, list, quote, fence or table by
accident is escaped, so the only headings of the text are the ones that were meant.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from colligate.documents.document import Page
from colligate.documents.reading.pdf_layout import Block, PageLayout, clean, join

_ACCIDENT = re.compile(
    r"#{1,6}(?=\s|$)|>|[-+*](?=\s|$)|`{3,}|~{3,}|<(?=[!?/A-Za-z])|\||={2,}|-{2,}"
)
_NUMBER = re.compile(r"(\d{1,9})([.)])(?=\s|$)")
_RULE = re.compile(r"([-*_])(?:\s*\1){2,}\s*$")
_FENCE = re.compile(r"`{3,}")
_TRAILING_HASHES = re.compile(r"(?<=\s)(#+)$")
_BULLETS = "•◦▪▫■□●○‣⁃∙·*–—-+"


def markdown(pages: Sequence[PageLayout]) -> tuple[str, tuple[Page, ...]]:
    """The text of all pages, pages apart by a blank line, and the range of each.

    The ranges tile the text: a page runs to where the next one begins, and a page without
    text is empty. A label is kept where it is not the page's number.
    """
    parts: list[str] = []
    starts: list[int] = []
    length = 0
    pending: list[int] = []
    for page in pages:
        text = _page(page.blocks)
        starts.append(length)
        if not text:
            pending.append(len(starts) - 1)
            continue
        if parts:
            parts.append("\n\n")
            length += 2
        for i in [*pending, len(starts) - 1]:
            starts[i] = length
        pending.clear()
        parts.append(text)
        length += len(text)
    for i in pending:
        starts[i] = length
    ends = [*starts[1:], length]
    ranges = tuple(
        Page(page.number, start, end, page.label if page.label != str(page.number) else None)
        for page, start, end in zip(pages, starts, ends, strict=True)
    )
    return "".join(parts), ranges


def escaped(text: str) -> str:
    """One line of text that Markdown reads as a plain paragraph.

    >>> escaped("# include <stdio.h>")
    '\\\\# include <stdio.h>'
    >>> escaped("2. Methods")
    '2\\\\. Methods'
    """
    if _RULE.match(text) or _ACCIDENT.match(text):
        return "\\" + text
    return _NUMBER.sub(r"\1\\\2", text, count=1) if _NUMBER.match(text) else text


def _page(blocks: Iterable[Block]) -> str:
    parts: list[str] = []
    depth = -1  # of the list item before, -1 outside lists
    for block in blocks:
        text, after = _block(block, depth)
        if not text:
            continue
        if parts:
            parts.append("\n" if after >= 0 and depth >= 0 else "\n\n")
        parts.append(text)
        depth = after
    return "".join(parts)


def _block(block: Block, depth: int) -> tuple[str, int]:
    """A block's Markdown, and how deep a list item it is (-1: none)."""
    if block.kind == "chrome":
        return "", depth
    if block.kind == "heading":
        title = _TRAILING_HASHES.sub(r"\\\1", join(block.lines))
        return (f"{'#' * block.level} {title}" if title else ""), -1
    if block.kind == "list_item":
        depth = min(block.level, depth + 1)
        item = _item(block)
        return ("    " * depth + item if item else ""), depth
    if block.kind == "table":
        return _table(block.rows), -1
    if block.verbatim:
        return _code(block.verbatim), -1
    return escaped(join(block.lines)), -1


def _item(block: Block) -> str:
    text = join(block.lines)
    if block.marker and text.startswith(block.marker):
        text = text[len(block.marker) :].lstrip()
    marker = block.marker if _NUMBER.fullmatch(block.marker) else "-"
    if marker == "-" and block.marker and block.marker not in _BULLETS:
        text = f"{block.marker} {text}"  # "(a)", "iv." and the like say something
    return f"{marker} {escaped(text)}" if text else ""


def _table(rows: Sequence[Sequence[str]]) -> str:
    width = max((len(row) for row in rows), default=0)
    if not width:
        return ""
    lines = [
        "| "
        + " | ".join([*(cell.replace("|", "\\|") for cell in row), *[""] * (width - len(row))])
        + " |"
        for row in rows
    ]
    return "\n".join([lines[0], "|" + "---|" * width, *lines[1:]])


def _code(lines: Sequence[str]) -> str:
    text = "\n".join(line.rstrip() for line in lines).strip("\n")
    if not clean(text):
        return ""
    longest = max((len(run) for run in _FENCE.findall(text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}\n{text}\n{fence}"
