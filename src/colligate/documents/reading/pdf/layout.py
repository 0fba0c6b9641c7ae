"""Pages as blocks of lines, with running headers and page numbers kept apart from text.

liteparse decides what a block is and in which order blocks are read. But its text is marked up and
escaped unevenly, and it joins lines that heading repair must tell apart. So each block is rebuilt
from the text items inside its box: where both agree letter by letter, the printed lines are used;
elsewhere the block keeps liteparse's text, without its marks, as one line.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from statistics import median
from typing import Any

from liteparse import LayoutBlock, ParsedPage, TextItem

from colligate.documents.reading.pdf.numbering import roman_value, title_key


@dataclass(slots=True, eq=False)
class PdfLine:
    """One printed line. `page` counts from 0; y runs down the page; sizes are in points."""

    page: int
    text: str
    x: float = 0.0
    y: float = 0.0
    width: float = 0.0
    height: float = 0.0
    size: float = 0.0
    bold: bool = False
    italic: bool = False
    mono: bool = False
    joined: bool = False  # the next line continues its last word
    items: Sequence[TextItem] = ()  # from left to right

    @property
    def gaps(self) -> list[float]:
        """The widths of the spaces between its items."""
        return [b.x - (a.x + a.width) for a, b in pairwise(self.items)]


@dataclass(slots=True, eq=False)
class PdfBlock:
    """A block in reading order; tables and code have no lines.

    `kind` is liteparse's, or "chrome" for running headers and the like, which are not text.
    """

    kind: str
    lines: list[PdfLine]
    level: int = 0
    marker: str = ""
    rows: list[list[str]] = field(default_factory=list)
    verbatim: list[str] = field(default_factory=list)
    items: list[TextItem] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class PageLayout:
    """A page: its blocks, and all its printed rows from top to bottom, across blocks."""

    number: int  # counts from 1
    label: str | None
    width: float
    height: float
    blocks: list[PdfBlock] = field(default_factory=list)
    rows: list[PdfLine] = field(default_factory=list)

    def find_rows(self, items: Iterable[TextItem]) -> set[int]:
        """Return the rows that hold one of these items."""
        inside = set(map(id, items))
        return {n for n, row in enumerate(self.rows) if not inside.isdisjoint(map(id, row.items))}


def build_layouts(pages: Sequence[ParsedPage]) -> list[PageLayout]:
    """Return liteparse's pages as blocks of lines."""
    return list(map(_build_page, pages))


_SPACES = re.compile(r"\s+")
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ufffe\uffff\ud800-\udfff]")


def clean_line(text: str) -> str:
    """Return a text as one line without control characters or runs of blanks."""
    return _SPACES.sub(" ", _UNPRINTABLE.sub("", text)).strip()


def dehyphenate_lines(lines: Sequence[PdfLine]) -> str:
    """Join lines to running text; words broken over two lines become whole again."""
    parts: list[str] = []
    for i, line in enumerate(lines):
        last = i == len(lines) - 1
        if line.joined and not last:
            parts.append(line.text.removesuffix("-").removesuffix("\u00ad"))
        else:
            parts.append(line.text if last or line.text.endswith("-\u200b") else line.text + " ")
    return clean_line("".join(parts))


def find_body_size(pages: Sequence[PageLayout]) -> float:
    """Return the type size of most of the text, in points."""
    sizes: Counter[float] = Counter()
    for page in pages:
        for block in page.blocks:
            if block.kind in ("paragraph", "list_item"):
                for line in block.lines:
                    sizes[line.size] += len(line.text)
    if not sizes:
        return median([row.size for page in pages for row in page.rows] or [10.0])
    return sizes.most_common(1)[0][0]


def _build_page(page: ParsedPage) -> PageLayout:
    items = sorted((i for i in page.text_items if i.text.strip()), key=lambda i: (i.y, i.x))
    upright = [i for i in items if abs(i.rotation) < 1]
    number = page.page_num - 1
    label = clean_line(page.page_label) if page.page_label else None
    found = PageLayout(page.page_num, label or None, page.width, page.height)
    found.rows = [_build_line(number, row) for row in _group_rows(upright)]
    tops = [item.y for item in items]
    used: list[TextItem] = []
    for block in page.blocks or ():
        inside = _find_inside(block, items, tops)
        used += inside
        found.blocks.append(_build_block(number, block, inside))
    in_blocks = found.find_rows(used)
    for n, row in enumerate(found.rows):
        if n not in in_blocks:
            _insert_chrome(found.blocks, row)
    return found


def _insert_chrome(blocks: list[PdfBlock], row: PdfLine) -> None:
    """Keep a row that is in none of liteparse's blocks, at its place on the page."""
    for i, block in enumerate(blocks):
        if block.lines and block.lines[0].y > row.y:
            blocks.insert(i, PdfBlock("chrome", [row]))
            return
    blocks.append(PdfBlock("chrome", [row]))


def _group_rows(items: Sequence[TextItem]) -> list[list[TextItem]]:
    """Group items (sorted by y) by printed line, each from left to right."""
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


_BOLD = re.compile(r"bold|black|heavy|semibold|demi(?!tasse)|cmbx|cmb\d|sfbx|ecbx|-bd\b", re.I)
_ITALIC = re.compile(r"ital|obli|cmti|cmsl|sfti|-it\b", re.I)
_MONO = re.compile(r"mono|courier|cmtt|cmsltt|typewriter|consol|menlo|lmtt|sftt|ectt|code", re.I)


def _build_line(page: int, row: Sequence[TextItem]) -> PdfLine:
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
        size=round(main.height, 1),
        bold=bold > 0.6 * total,
        italic=italic > 0.6 * total,
        mono=bool(_MONO.search(main.font_name or "")),
        items=row,
    )


def _build_block(page: int, block: LayoutBlock, items: Sequence[TextItem]) -> PdfBlock:
    marker = clean_line(block.marker or "")
    found = PdfBlock(block.kind, [], block.level or 0, marker, items=list(items))
    if block.kind == "table":
        rows = [block.header or [], *(block.rows or [])]
        found.rows = [[_strip_marks(cell.text) for cell in row] for row in rows if row]
    elif block.lines is not None:
        found.verbatim = [_UNPRINTABLE.sub("", line) for line in block.lines]
    elif block.text:
        found.lines = _build_lines(page, block, items)
    return found


_ESCAPE = re.compile(r"\\([\\`*_{}\[\]<>()#+\-.!|~])")
_EMPHASIS = re.compile(r"\*{1,3}")


def _strip_marks(text: str) -> str:
    """Return liteparse's inline Markdown without its marks."""
    return clean_line(_ESCAPE.sub(r"\1", _EMPHASIS.sub("", text)) if "*" in text else text)


def _find_inside(
    block: LayoutBlock, items: Sequence[TextItem], tops: Sequence[float]
) -> list[TextItem]:
    box = block.bbox
    if box is None:
        return []
    first = bisect_left(tops, box.y - 2)
    last = bisect_left(tops, box.y + box.height)
    right = box.x + box.width + 1
    margin = 4 if block.kind == "table" else 1  # a table may have rows that begin before its box
    return [
        item
        for item in items[first:last]
        if item.y + item.height / 2 <= box.y + box.height + 1
        and box.x - margin <= item.x
        and item.x + item.width / 2 <= right
    ]


def _build_lines(page: int, block: LayoutBlock, items: Sequence[TextItem]) -> list[PdfLine]:
    text = block.text or ""
    lines = _select_agreeing(
        [_build_line(page, row) for row in _group_rows(items)], text, block.marker
    )
    if lines:
        _mark_joined(lines, text)
        return lines
    if items:
        return [replace(_build_line(page, items), text=_strip_marks(text))]
    box = block.bbox
    place = (box.x, box.y, box.width, box.height) if box else ()
    return [PdfLine(page, _strip_marks(text), *place)]


_MARKS = re.compile(r"[\s*\\_`\-\u00ad\u2010\u2011]+")


def _select_agreeing(lines: Sequence[PdfLine], text: str, marker: str | None) -> list[PdfLine]:
    """Return the lines that make up a block's text letter by letter; none if they leave a gap."""
    expected = _MARKS.sub("", (marker or "") + text)
    if marker and lines and not expected.startswith(_MARKS.sub("", lines[0].text)[:20]):
        expected = _MARKS.sub("", text)
    at, kept = 0, []
    for line in lines:
        printed = _MARKS.sub("", line.text)
        if printed and expected.startswith(printed, at):
            kept.append(line)
            at += len(printed)
    return kept if at == len(expected) else []


def _mark_joined(lines: Sequence[PdfLine], text: str) -> None:
    """Mark the lines whose last word continues in the next line, as liteparse found."""
    at = 0
    for line, following in pairwise(lines):
        if not line.text.endswith(("-", "\u00ad")):
            continue
        tail = line.text.rsplit(maxsplit=1)[-1][:-1]
        head = following.text.split(maxsplit=1)[0]
        if tail and (place := text.find(tail + head, at)) >= 0:
            line.joined = True
            at = place


# Running headers and footers.


_REPEATS = 3  # pages
_TITLE_SIZE = 1.2  # times the body's: running headers are rarely as large


def set_aside_running_lines(pages: Sequence[PageLayout]) -> None:
    """Turn the lines of running headers and footers into "chrome" blocks, which are not text.

    A row at the edge of its page is one if its text is on several pages in the same size, or its
    text without a number that rises with the pages; two page numbers alone are enough. In large
    type "Exercise 3" on page 3 is a title. The last row of a page that ends early, as pages of a
    printed web page do, is one if its number rises.
    """
    large = _TITLE_SIZE * find_body_size(pages)
    edges = [
        (i, row, list(_running_keys(row, i, large)))
        for i, page in enumerate(pages)
        for row in _find_edge_rows(page)
    ]
    for i, page in enumerate(pages):
        if page.rows and page.rows[-1] not in _find_edge_rows(page):
            keys = [key for key in _running_keys(page.rows[-1], i, large) if key[2] is not None]
            edges.append((i, page.rows[-1], keys))
    seen: dict[_Key, set[int]] = defaultdict(set)
    for i, _, keys in edges:
        for key in keys:
            seen[key].add(i)
    bands: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for i, row, keys in edges:
        if any(len(seen[key]) >= (_REPEATS if key[0] else 2) for key in keys):
            bands[i].append((row.y - 1, row.y + row.height + 1))
    for i, here in bands.items():
        blocks = pages[i].blocks
        blocks[:] = [piece for block in blocks for piece in _split_off(block, here)]


_Key = tuple[str, int, int | None]  # words, size, and how much more the number is than the page
_NUMBER = re.compile(r"\d{1,5}|[ivxlc]{1,8}|[IVXLC]{1,8}")


def _running_keys(row: PdfLine, page: int, large: float) -> Iterator[_Key]:
    """Yield what a row may have in common with those of other pages."""
    words, size = row.text.strip("-\u2013\u2014|[]() ").split(), round(row.size)
    if key := title_key(row.text):
        yield key, size, None
    for rest, end in ((words[:-1], words[-1:]), (words[1:], words[:1])):
        number = "".join(end).strip("-\u2013\u2014|[]().,")
        if _NUMBER.fullmatch(number) and (row.size <= large or not rest):
            value = int(number) if number.isdigit() else roman_value(number)
            if value:
                yield title_key(" ".join(rest)), size, value - page


_EDGE_ROWS = 3
MARGIN = 0.14  # of the page's height, at the top and at the bottom


def _find_edge_rows(page: PageLayout) -> list[PdfLine]:
    top = [row for row in page.rows[:_EDGE_ROWS] if row.y < MARGIN * page.height]
    rest = page.rows[len(top) :]
    floor = (1 - MARGIN) * page.height
    return top + [row for row in rest[-_EDGE_ROWS:] if row.y + row.height > floor]


def _split_off(block: PdfBlock, bands: Sequence[tuple[float, float]]) -> list[PdfBlock]:
    """Split a block: its lines in the bands become chrome blocks."""
    if block.kind == "chrome":
        return [block]
    running = [
        line
        for line in block.lines
        if any(low <= line.y + min(line.height, 12) / 2 <= high for low, high in bands)
    ]
    if not running:
        return [block]
    block.lines = [line for line in block.lines if line not in running]
    chrome = [PdfBlock("chrome", [line]) for line in running]
    return [*chrome, block] if block.lines else chrome


_Chain = tuple[tuple[int, int], Any]
"""A pair, and the chain that it continues, None at the first."""


def select_rising(pairs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return a longest selection of pairs in which both members rise strictly."""
    ends: list[int] = []  # the smallest last value of a chain of each length
    chains: list[_Chain] = []
    for pair in sorted(pairs, key=lambda pair: (pair[0], -pair[1])):
        at = bisect_left(ends, pair[1])
        ends[at : at + 1] = [pair[1]]
        chains[at : at + 1] = [(pair, chains[at - 1] if at else None)]
    found: list[tuple[int, int]] = []
    chain = chains[-1] if chains else None
    while chain is not None:
        pair, chain = chain
        found.append(pair)
    return found[::-1]
