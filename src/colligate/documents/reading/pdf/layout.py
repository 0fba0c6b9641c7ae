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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import pairwise
from statistics import median
from typing import Any, NamedTuple

from liteparse import LayoutBlock, LayoutCell, ParsedPage, TextItem

from colligate.documents.reading.pdf.numbering import roman_value, title_key
from colligate.documents.reading.pdf.rtl import is_rtl, order_words


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
    """A block in reading order; tables and code have no lines."""

    kind: str  # liteparse's, or "chrome" for running headers and the like, which are not text
    lines: list[PdfLine]
    level: int = 0
    marker: str = ""
    rows: list[list[str]] = field(default_factory=list)
    has_head: bool = True  # the first of the rows is the table's head
    is_ruled: bool = False  # the boxes of its cells touch, as where lines are drawn around them
    goes_on: PdfLine | None = None  # the line before it, whose sentence it continues
    verbatim: list[str] = field(default_factory=list)
    items: list[TextItem] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class PageLayout:
    """A page: its blocks, and all its printed rows from top to bottom, across blocks. Text drawn in
    another direction than most of the page is turned upright and put below it."""

    number: int  # counts from 1
    label: str | None
    width: float
    height: float
    blocks: list[PdfBlock] = field(default_factory=list)
    rows: list[PdfLine] = field(default_factory=list)
    views: list[tuple[float, float]] = field(default_factory=list)  # top and height, by direction
    comments: list[str] = field(default_factory=list)
    slanted: list[str] = field(default_factory=list)  # texts at another angle, which are not read
    _row_of: dict[int, int] = field(default_factory=dict)

    def find_rows(self, items: Iterable[TextItem]) -> set[int]:
        """Return the rows that hold one of these items."""
        if not self._row_of:
            self._row_of = {id(i): n for n, row in enumerate(self.rows) for i in row.items}
        return {self._row_of[key] for key in map(id, items) if key in self._row_of}


def build_layouts(
    pages: Sequence[ParsedPage], turned: Mapping[int, Sequence[ParsedPage]] | None = None
) -> list[PageLayout]:
    """Return liteparse's pages as blocks of lines; `turned` has some again, turned upright."""
    return [_build_page([page, *(turned or {}).get(page.page_num, ())]) for page in pages]


def find_turns(page: ParsedPage) -> set[int]:
    """Return the quarter turns (90, 180, 270 degrees) at which some of a page's text is drawn."""
    turned = (i for i in page.text_items if not _is_upright(i) and i.text.strip())
    return {_find_quarter(i) % 360 for i in turned if not _is_slanted(i)} - {0}


def _is_upright(item: TextItem) -> bool:
    return -1 < float(item.rotation) < 1


def _is_slanted(item: TextItem) -> bool:
    return not -2 <= float(item.rotation) - _find_quarter(item) <= 2


def _find_quarter(item: TextItem) -> int:
    return round(float(item.rotation) / 90) * 90


_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\ufffe\uffff\ud800-\udfff]")


def clean_line(text: str) -> str:
    """Return a text as one line without control characters or runs of blanks."""
    kept = text if text.isprintable() else _UNPRINTABLE.sub("", text)
    return " ".join(kept.split())


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


_Lines = Mapping[tuple[int, ...], PdfLine]  # printed across blocks, by the ids of their items


def _build_page(views: Sequence[ParsedPage]) -> PageLayout:
    """Return a page of views of it, each upright for a part of its text; the largest is first."""
    ordered = sorted(views, key=_count_upright, reverse=True) if len(views) > 1 else views
    label = clean_line(views[0].page_label or "")
    found = PageLayout(views[0].page_num, label or None, ordered[0].width, ordered[0].height)
    placed = set[str]()  # turned words, often heads of columns, that have their place in the first
    for view in ordered:
        _add_view(found, view, placed)
    return found


def _count_upright(view: ParsedPage) -> int:
    return sum(len(item.text.strip()) for item in view.text_items if _is_upright(item))


def _add_view(found: PageLayout, view: ParsedPage, placed: set[str]) -> None:
    top = sum(height for _, height in found.views)
    found.views.append((top, view.height))
    items = [item for item in view.text_items if item.text.strip()]
    if top:
        for box in (*items, *(block.bbox for block in view.blocks or () if block.bbox)):
            box.y += top
    items.sort(key=lambda i: (i.y, i.x))
    tops = [item.y for item in items]
    foreign = {id(item) for item in items if not _is_upright(item)}
    if top:
        foreign |= {id(item) for item in items if placed.issuperset(item.text.split())}
    upright = [item for item in items if id(item) not in foreign] if foreign else items
    rows = [_build_line(found.number - 1, row) for row in _group_rows(upright)]
    known = {tuple(map(id, row.items)): row for row in rows}
    used: list[TextItem] = []
    blocks: list[PdfBlock] = []
    tables: list[tuple[PdfBlock, LayoutBlock]] = []
    for block in view.blocks or ():
        inside = _find_inside(block, items, tops)
        mine = [item for item in inside if id(item) not in foreign] if foreign else inside
        if len(mine) < len(inside):
            if top or not mine:
                continue
            words = {word for item in inside if id(item) in foreign for word in item.text.split()}
            placed |= words & set(_list_words(block))
        built = _build_block(found.number - 1, block, mine, known)
        blocks.append(built)
        if built.kind == "table":
            tables.append((built, block))
        if built.lines or built.rows or built.verbatim:
            used += built.items
    found.rows += rows
    claims = Counter(map(id, used))
    for built, block in tables:
        for item in _find_unwritten(built):
            if claims[id(item)] == 1:
                _fill_cell(item, built, block)
    left_out = [item for item in upright if id(item) not in claims]
    beyond = "".join(map(_find_beyond, blocks)) if left_out else ""
    for left in _group_rows(left_out):
        row = _build_line(found.number - 1, left)
        letters = keep_letters(row.text)
        if letters and letters not in beyond:
            _insert_row(blocks, row)
    found.blocks += blocks
    if foreign and not top:
        slanted = {item.text.strip() for item in items if _is_slanted(item)}
        found.slanted = sorted(text for text in slanted if not placed.issuperset(text.split()))


def _list_words(block: LayoutBlock) -> list[str]:
    cells = [cell.text for row in (block.header or [], *(block.rows or [])) for cell in row]
    return " ".join([block.text or "", *(block.lines or ()), *cells]).split()


def _find_beyond(block: PdfBlock) -> str:
    """Return the letters of a block that has more of them than the items in its box."""
    printed, text = (
        keep_letters("".join(part.text for part in parts)) for parts in (block.items, block.lines)
    )
    return text if len(text) > len(printed) else ""


def keep_letters(text: str) -> str:
    """Return the letters and digits of a text."""
    return "".join(filter(str.isalnum, text))


def count_letters(texts: Iterable[str]) -> Counter[str]:
    """Count the letters and digits of texts."""
    return Counter(keep_letters("".join(texts)))


def _insert_row(blocks: list[PdfBlock], row: PdfLine) -> None:
    """Add a row that is in none of liteparse's blocks: to the one above, or as a paragraph."""
    tops = [min((part.y for part in (*b.lines[:1], *b.items)), default=0.0) for b in blocks]
    at = next((n for n, top in enumerate(tops) if top > row.y), len(blocks))
    above = blocks[at - 1].lines[-1:] if at else []
    if above and continues(above[0], row) and row.x < above[0].x + above[0].width:
        blocks[at - 1].lines.append(row)
    else:
        blocks.insert(at, PdfBlock("paragraph", [row]))


def continues(line: PdfLine, following: PdfLine) -> bool:
    """Report whether a line below another is close to it and looks like it."""
    is_close = following.y - (line.y + line.height) < 0.5 * line.height
    is_alike = line.bold == following.bold and abs(line.size - following.size) < 0.5
    return is_close and is_alike


def _group_rows(items: Sequence[TextItem]) -> list[list[TextItem]]:
    """Group items (sorted by y) by printed line, each from left to right."""
    rows: list[list[TextItem]] = []
    for item in items:
        middle = item.y + item.height / 2
        for row in rows[-1:-4:-1]:
            first = max(row, key=lambda i: i.height)
            is_around = item.y <= first.y + first.height / 2 <= item.y + item.height
            if is_around or first.y <= middle <= first.y + first.height:
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


class _Face(NamedTuple):
    bold: bool
    italic: bool
    mono: bool


@lru_cache(1024)
def _find_face(font: str | None) -> _Face:
    """Return what a font's name says of it."""
    return _Face(*(bool(kind.search(font or "")) for kind in (_BOLD, _ITALIC, _MONO)))


_FEWEST_SPACED = 6  # letters of a text with a space after each


def _close_up(item: TextItem) -> str:
    """Return an item's text; words whose letters are spaced out become whole, by the wider gaps."""
    text: str = item.text.strip()
    if len(text) < 2 * _FEWEST_SPACED - 1 or set(text[1:12:2]) != {" "}:
        return text
    words = item.words
    letters = [keep_letters(word.text) for word in words]
    if len(words) < _FEWEST_SPACED or any(len(letter) > 1 for letter in letters):
        return text
    gaps = [b.x - (a.x + a.width) for a, b in pairwise(words)]
    wide, count = 1.6 * median(gaps), sum(map(str.isalpha, letters))
    if count < len(words) and (max(gaps) <= wide or 2 * count <= len(words)):
        return text  # figures, or "A 1 B 2": a row
    rest = zip(words[1:], gaps, strict=True)
    return text[0] + "".join((" " if gap > wide else "") + w.text for w, gap in rest)


def _build_line(page: int, row: Sequence[TextItem]) -> PdfLine:
    parts = [_close_up(row[0])]
    for before, item in pairwise(row):
        gap = item.x - (before.x + before.width)
        blank = before.text.endswith(" ") or item.text.startswith(" ")
        spaced = blank or gap > 0.12 * max(item.height, 1.0)
        parts.append((" " if spaced else "") + _close_up(item))
    # How many letters each has; of one alone it is enough whether it has some.
    count = sum if len(row) > 1 else any
    letters = [int(count(map(str.isalnum, i.text))) for i in row]
    total = sum(letters) or 1
    faces = [_find_face(i.font_name) for i in row]
    bold = sum(n for n, face in zip(letters, faces, strict=True) if face.bold)
    italic = sum(n for n, face in zip(letters, faces, strict=True) if face.italic)
    main = row[letters.index(max(letters))]
    top = min(i.y for i in row)
    return PdfLine(
        page=page,
        text=clean_line(order_words(row) if is_rtl(parts[0]) else "".join(parts)),
        x=row[0].x,
        y=top,
        width=max(i.x + i.width for i in row) - row[0].x,
        height=max(i.y + i.height for i in row) - top,
        size=round(main.height, 1),
        bold=bold > 0.6 * total,
        italic=italic > 0.6 * total,
        mono=_find_face(main.font_name).mono,
        items=row,
    )


def _build_block(
    page: int, block: LayoutBlock, items: Sequence[TextItem], known: _Lines
) -> PdfBlock:
    found = PdfBlock(block.kind, [], block.level or 0, clean_line(block.marker or ""))
    if block.kind == "table":
        found.rows = [[_strip_marks(cell.text) for cell in row] for row in _list_rows(block)]
        found.has_head = bool(block.header)
        found.is_ruled = _is_ruled(block)
        found.items = list(items)
    elif block.lines is not None:
        found.verbatim = [_UNPRINTABLE.sub("", line) for line in block.lines]
        found.items = list(items)
    elif block.text:
        found.lines = _build_lines(page, block, items, known)
        found.items = list(items)
    return found


def _list_rows(table: LayoutBlock) -> list[list[LayoutCell]]:
    return [row for row in (table.header or [], *(table.rows or [])) if row]


def _is_ruled(table: LayoutBlock) -> bool:
    rows = [[cell.bbox for cell in row] for row in _list_rows(table)]
    return (
        all(box for row in rows for box in row)
        and all(abs(a.x + a.width - b.x) < 1 for row in rows for a, b in pairwise(row))
        and all(abs(a[0].y + a[0].height - b[0].y) < 1 for a, b in pairwise(rows))
    )


def _find_unwritten(table: PdfBlock) -> Iterator[TextItem]:
    """Yield the items in a table's box that are in none of its cells, as are figures that liteparse
    takes for page numbers."""
    cells = [cell for row in table.rows for cell in row]
    if _count_marks(cells) < _count_marks(item.text for item in table.items):
        written = Counter(word for cell in cells for word in cell.split())
        for item in table.items:
            words = item.text.split()
            if any(written[word] < count for word, count in Counter(words).items()):
                yield item
            written.subtract(words)


def _count_marks(texts: Iterable[str]) -> int:
    return sum(len(text) - text.count(" ") for text in texts)


def _fill_cell(item: TextItem, table: PdfBlock, block: LayoutBlock) -> None:
    """Put an item into the empty cell where it is, if its row has others."""
    x, y = item.x + item.width / 2, item.y + item.height / 2
    for texts, row in zip(table.rows, _list_rows(block), strict=True):
        for m, cell in enumerate(row):
            box = cell.bbox
            if box and 0 <= x - box.x <= box.width and 0 <= y - box.y <= box.height:
                texts[m] = texts[m] or (clean_line(item.text) if any(texts) else "")


_ESCAPE = re.compile(r"\\([\\`*_{}\[\]<>()#+\-.!|~])")


def _strip_marks(text: str) -> str:
    """Return liteparse's inline Markdown without its marks."""
    return clean_line(_ESCAPE.sub(r"\1", text.replace("*", "")) if "*" in text else text)


def _find_inside(
    block: LayoutBlock, items: Sequence[TextItem], tops: Sequence[float]
) -> list[TextItem]:
    if (box := block.bbox) is None:
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


def _build_lines(
    page: int, block: LayoutBlock, items: Sequence[TextItem], known: _Lines
) -> list[PdfLine]:
    text = block.text or ""
    rows = [
        replace(line) if (line := known.get(tuple(map(id, row)))) else _build_line(page, row)
        for row in _group_rows(items)
    ]
    if is_rtl(text) and count_letters([text]) == count_letters(row.text for row in rows):
        return rows
    if lines := _select_agreeing(rows, text, block.marker):
        return lines
    if items:
        return [replace(_build_line(page, items), text=_strip_marks(text))]
    box = block.bbox
    place = (box.x, box.y, box.width, box.height) if box else ()
    return [PdfLine(page, _strip_marks(text), *place)]


_MARKS = re.compile(r"[\s*\\_`^\-\u00ad\u2010\u2011]+")


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
        is_running = any(len(seen[key]) >= (_REPEATS if key[0] else 2) for key in keys)
        if is_running and not _is_head(pages[i].rows, row):
            bands[i].append((row.y - 1, row.y + row.height + 1))
    for i, here in bands.items():
        blocks = pages[i].blocks
        blocks[:] = [piece for block in blocks for piece in _split_off(block, here)]


def _is_head(rows: Sequence[PdfLine], row: PdfLine) -> bool:
    """Report whether the two rows below begin or end words where this one does, as in a table."""
    at = rows.index(row)
    return len(rows) > at + 2 and all(
        below.y < row.y + (3 + 2 * n) * row.height
        and sum(
            abs(item.x - word.x) < 2 or abs(item.x + item.width - word.x - word.width) < 2
            for item in row.items
            for word in [word for each in below.items for word in each.words]
        )
        > 1
        for n, below in enumerate(rows[at + 1 : at + 3])
    )


_Key = tuple[str, int, int | None]  # words, size, and how much more the number is than the page
_NUMBER = re.compile(r"\d{1,5}|[ivxlc]{1,8}|[IVXLC]{1,8}")


def _running_keys(row: PdfLine, page: int, large: float) -> Iterator[_Key]:
    """Yield what a row may have in common with those of other pages."""
    words, size = row.text.strip("-\u2013\u2014|[]() ").split(), round(row.size)
    if key := title_key(row.text):
        yield key, size, None
    for at, word in enumerate(words):
        number, rest = word.strip("-\u2013\u2014|[]().,"), words[:at] + words[at + 1 :]
        if _NUMBER.fullmatch(number) and (row.size <= large or not rest):
            value = int(number) if number.isdigit() else roman_value(number)
            if value:
                yield title_key(" ".join(rest)), size, value - page


_EDGE_ROWS = 3
MARGIN = 0.14  # of the page's height, at the top and at the bottom


def _find_edge_rows(page: PageLayout) -> list[PdfLine]:
    found: list[PdfLine] = []
    views = page.views or [(0.0, page.height)]
    for top, height in views:
        low, high = top + MARGIN * height, top + (1 - MARGIN) * height
        here = [row for row in page.rows if len(views) == 1 or 0 <= row.y - top < height]
        above = [row for row in here[:_EDGE_ROWS] if row.y < low]
        below = here[len(above) :][-_EDGE_ROWS:]
        found += above + [row for row in below if row.y + row.height > high]
    return found


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
