"""Pages as blocks of lines: liteparse's blocks, each with the printed lines it was made from.

liteparse decides what a block is and in which order blocks are read. Its text is marked up and
escaped unevenly, and it joins lines that a heading repair must tell apart. So each block is
rebuilt from the text items inside its box, and where both agree letter by letter the printed
lines are used; elsewhere the block keeps liteparse's text, without its marks, as one line.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median

from liteparse import LayoutBlock, ParsedPage, TextItem

_BOLD = re.compile(r"bold|black|heavy|semibold|demi(?!tasse)|cmbx|cmb\d|sfbx|ecbx|-bd\b", re.I)
_ITALIC = re.compile(r"ital|obli|cmti|cmsl|sfti|-it\b", re.I)
_MONO = re.compile(r"mono|courier|cmtt|cmsltt|typewriter|consol|menlo|lmtt|sftt|ectt|code", re.I)
_MARKS = re.compile(r"[\s*\\_`\-\u00ad\u2010\u2011]+")
_ESCAPE = re.compile(r"\\([\\`*_{}\[\]<>()#+\-.!|~])")
_EMPHASIS = re.compile(r"\*{1,3}")
_SPACES = re.compile(r"\s+")
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ufffe\uffff\ud800-\udfff]")


@dataclass(slots=True, eq=False)
class PdfLine:
    """One printed line. `page` counts from 0; y runs down the page; sizes are in points."""

    page: int
    text: str
    x: float
    y: float
    width: float
    height: float
    size: float
    bold: bool
    italic: bool
    mono: bool = False
    joined: bool = False  # the next line continues its last word


@dataclass(slots=True, eq=False)
class PdfBlock:
    """A block in reading order; tables and code have no lines.

    `kind` is liteparse's, or "chrome" for what is not part of the text (running headers).
    """

    kind: str
    lines: list[PdfLine]
    level: int = 0
    marker: str = ""
    ordered: bool = False
    rows: list[list[str]] = field(default_factory=list)
    verbatim: list[str] = field(default_factory=list)
    items: list[TextItem] = field(default_factory=list)  # of a table


@dataclass(slots=True, eq=False)
class PageLayout:
    """A page: its blocks, and all its printed rows from top to bottom, across blocks."""

    number: int  # counts from 1
    label: str | None
    width: float
    height: float
    blocks: list[PdfBlock] = field(default_factory=list)
    rows: list[PdfLine] = field(default_factory=list)
    cells: list[list[TextItem]] = field(default_factory=list)  # the items of each row


def build_layouts(pages: Iterable[ParsedPage]) -> list[PageLayout]:
    """liteparse's pages as blocks of lines."""
    parsed = list(pages)
    sizes = _sizes(parsed)
    return [_page(page, sizes) for page in parsed]


def clean_line(text: str) -> str:
    """One line of text: no control characters, no runs of blanks."""
    return _SPACES.sub(" ", _UNPRINTABLE.sub("", text)).strip()


def join_lines(lines: Sequence[PdfLine]) -> str:
    """Lines as running text, words broken over two lines made whole again."""
    parts: list[str] = []
    for i, line in enumerate(lines):
        last = i == len(lines) - 1
        if line.joined and not last:
            parts.append(line.text.removesuffix("-").removesuffix("\u00ad"))
        else:
            parts.append(line.text if last or line.text.endswith("-\u200b") else line.text + " ")
    return clean_line("".join(parts))


def _sizes(pages: Sequence[ParsedPage]) -> dict[tuple[str, float], float]:
    """The height of each font at each nominal size: nominal sizes alone are not to scale."""
    heights: dict[tuple[str, float], list[float]] = defaultdict(list)
    for page in pages:
        for item in page.text_items:
            heights[_font(item)].append(item.height)
    return {
        font: middle
        for font, all_heights in heights.items()
        if (middle := median(all_heights)) > 0
        and sum(abs(h - middle) < 0.15 * middle for h in all_heights) > 0.8 * len(all_heights)
    }


def _font(item: TextItem) -> tuple[str, float]:
    return item.font_name or "", round(item.font_size or 0.0, 1)


def _page(page: ParsedPage, sizes: dict[tuple[str, float], float]) -> PageLayout:
    items = sorted((i for i in page.text_items if i.text.strip()), key=lambda i: (i.y, i.x))
    upright = [i for i in items if abs(i.rotation) < 1]
    number = page.page_num - 1
    label = clean_line(page.page_label) if page.page_label else None
    found = PageLayout(page.page_num, label or None, page.width, page.height)
    for cells in _rows(upright):
        found.cells.append(cells)
        found.rows.append(_line(number, cells, sizes))
    tops = [item.y for item in items]
    used: set[int] = set()
    for block in page.blocks or ():
        inside = _inside(block, items, tops)
        used.update(map(id, inside))
        made = _block(number, block, inside, sizes)
        made.items = inside if block.kind == "table" else []
        found.blocks.append(made)
    for cells, row in zip(found.cells, found.rows, strict=True):
        if used.isdisjoint(map(id, cells)):
            _insert_chrome(found.blocks, row)
    return found


def _insert_chrome(blocks: list[PdfBlock], row: PdfLine) -> None:
    """Keep a row that liteparse left out of its blocks, where it stands on the page."""
    for i, block in enumerate(blocks):
        if block.lines and block.lines[0].y > row.y:
            blocks.insert(i, PdfBlock("chrome", [row]))
            return
    blocks.append(PdfBlock("chrome", [row]))


def _rows(items: Sequence[TextItem]) -> list[list[TextItem]]:
    """Items (sorted by y) that stand on one line, each row from left to right."""
    rows: list[list[TextItem]] = []
    for item in items:
        middle = item.y + item.height / 2
        for row in rows[-1:-4:-1]:
            first = max(row, key=lambda i: i.height)
            if first.y <= middle <= first.y + first.height or (
                item.y <= first.y + first.height / 2 <= item.y + item.height
            ):
                row.append(item)
                break
        else:
            rows.append([item])
    for row in rows:
        row.sort(key=lambda i: i.x)
    return rows


def _line(page: int, row: Sequence[TextItem], sizes: dict[tuple[str, float], float]) -> PdfLine:
    parts = [row[0].text.strip()]
    for before, item in pairwise(row):
        gap = item.x - (before.x + before.width)
        spaced = (
            gap > 0.12 * max(item.height, 1.0)
            or before.text.endswith(" ")
            or item.text.startswith(" ")
        )
        parts.append((" " if spaced else "") + item.text.strip())
    letters = [sum(map(str.isalnum, i.text)) for i in row]
    total = sum(letters) or 1
    names = [i.font_name or "" for i in row]
    bold = sum(n for n, name in zip(letters, names, strict=True) if _BOLD.search(name))
    italic = sum(n for n, name in zip(letters, names, strict=True) if _ITALIC.search(name))
    main = row[letters.index(max(letters))]
    top = min(i.y for i in row)
    return PdfLine(
        page=page,
        text=clean_line("".join(parts)),
        x=row[0].x,
        y=top,
        width=max(i.x + i.width for i in row) - row[0].x,
        height=max(i.y + i.height for i in row) - top,
        size=round(sizes.get(_font(main), main.height), 1),
        bold=bold > 0.6 * total,
        italic=italic > 0.6 * total,
        mono=bool(_MONO.search(main.font_name or "")),
    )


def _block(
    page: int,
    block: LayoutBlock,
    items: Sequence[TextItem],
    sizes: dict[tuple[str, float], float],
) -> PdfBlock:
    found = PdfBlock(
        block.kind,
        [],
        level=block.level or 0,
        marker=clean_line(block.marker or ""),
        ordered=bool(block.ordered),
    )
    if block.kind == "table":
        rows = [block.header or [], *(block.rows or [])]
        found.rows = [[_strip_marks(cell.text) for cell in row] for row in rows if row]
    elif block.lines is not None:
        found.verbatim = [_UNPRINTABLE.sub("", line) for line in block.lines]
    elif block.text:
        found.lines = _lines(page, block, items, sizes)
    return found


def _strip_marks(text: str) -> str:
    """liteparse's inline Markdown without its marks."""
    return clean_line(_ESCAPE.sub(r"\1", _EMPHASIS.sub("", text)) if "*" in text else text)


def _inside(block: LayoutBlock, items: Sequence[TextItem], tops: Sequence[float]) -> list[TextItem]:
    box = block.bbox
    if box is None:
        return []
    first = bisect_left(tops, box.y - 2)
    last = bisect_left(tops, box.y + box.height)
    right = box.x + box.width + 1
    return [
        item
        for item in items[first:last]
        if item.y + item.height / 2 <= box.y + box.height + 1
        and box.x - 1 <= item.x
        and item.x + item.width / 2 <= right
    ]


def _lines(
    page: int,
    block: LayoutBlock,
    items: Sequence[TextItem],
    sizes: dict[tuple[str, float], float],
) -> list[PdfLine]:
    text = block.text or ""
    lines = _agreeing([_line(page, row, sizes) for row in _rows(items)], text, block.marker)
    if lines:
        _join_words(lines, text)
        return lines
    box = block.bbox
    return [
        PdfLine(
            page=page,
            text=_strip_marks(text),
            x=box.x if box else 0.0,
            y=box.y if box else 0.0,
            width=box.width if box else 0.0,
            height=box.height if box else 0.0,
            size=round(sizes.get(_font(items[0]), items[0].height), 1) if items else 0.0,
            bold=bool(items) and all(_BOLD.search(i.font_name or "") for i in items),
            italic=bool(items) and all(_ITALIC.search(i.font_name or "") for i in items),
        )
    ]


def _agreeing(lines: Sequence[PdfLine], text: str, marker: str | None) -> list[PdfLine]:
    """The lines that make up a block's text letter by letter; none if they leave a gap."""
    expected = _MARKS.sub("", (marker or "") + text)
    bare = _MARKS.sub("", text)
    if marker and not expected.startswith(_MARKS.sub("", lines[0].text)[:20] if lines else ""):
        expected = bare
    at, kept = 0, []
    for line in lines:
        printed = _MARKS.sub("", line.text)
        if printed and expected.startswith(printed, at):
            kept.append(line)
            at += len(printed)
    return kept if at == len(expected) else []


def _join_words(lines: Sequence[PdfLine], text: str) -> None:
    """Mark the lines whose last word liteparse found to go on in the next line."""
    at = 0
    for line, following in pairwise(lines):
        if not line.text.endswith(("-", "\u00ad")):
            continue
        tail = line.text.rsplit(maxsplit=1)[-1][:-1]
        head = following.text.split(maxsplit=1)[0]
        if tail and (place := text.find(tail + head, at)) >= 0:
            line.joined = True
            at = place
