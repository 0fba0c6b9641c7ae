"""Tables of a PDF: text that was taken for rows, and rows whose label and figures came apart."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from colligate.documents.reading.pdf.layout import (
    MARGIN,
    PageLayout,
    PdfBlock,
    PdfLine,
    clean_line,
    continues,
    keep_letters,
)
from colligate.documents.reading.pdf.numbering import split_number

# Tables that include the text above or below them.
#
# liteparse sometimes takes the paragraphs next to a table for rows of it and cuts them into cells.
# Rows of a page that run across without a gap, and reach further than a cell, are text: at the
# beginning or end of a table they become paragraphs again.


def release_text(pages: Sequence[PageLayout]) -> None:
    """Turn text that was taken for rows of a table into paragraphs, in place."""
    for page in pages:
        if any(block.kind == "table" for block in page.blocks):
            page.blocks[:] = [piece for block in page.blocks for piece in _split_table(block, page)]


_REACH = 0.45  # of the page's width: text reaches further at least once


def _split_table(table: PdfBlock, page: PageLayout) -> list[PdfBlock]:
    if table.kind != "table":
        return [table]
    rows = [page.rows[n] for n in sorted(page.find_rows(table.items))]
    prose = list(map(_is_prose, rows))
    reach = _REACH * page.width
    if all(prose) and any(row.width > reach for row in rows):
        return _group_paragraphs(rows)
    whole = [row for row in table.rows if any(row)]
    # The box may cover text that is not in the table.
    letters = list(accumulate(_count_letters(row.text) for row in rows))
    total = sum(_count_letters(" ".join(row)) for row in whole)
    if total not in letters or all(prose) or not any(prose):
        return [table]
    end = letters.index(total) + 1
    rows, prose = rows[:end], prose[:end]
    first = prose.index(False) if False in prose else 0
    last = end - prose[::-1].index(False) if False in prose else end
    first = first if any(row.width > reach for row in rows[:first]) else 0
    last = last if any(row.width > reach for row in rows[last:]) else end
    if (first, last) == (0, end):
        return [table]
    above, below = map(_group_paragraphs, (rows[:first], rows[last:]))
    return [*above, _make_table(rows[first:last]), *below]


_CELL_GAP = 1.8  # of the type size: a wider gap is between cells


def _is_prose(row: PdfLine) -> bool:
    numbered = split_number(row.text)[0] is not None
    gaps = row.gaps[1:] if numbered else row.gaps  # the one after a number may be wide
    return all(gap < _CELL_GAP * max(row.size, 1.0) for gap in gaps)


_LETTER = re.compile(r"\w")


def _count_letters(text: str) -> int:
    return len(_LETTER.findall(text))


def _group_paragraphs(lines: Sequence[PdfLine]) -> list[PdfBlock]:
    """Return lines as paragraphs, split where the space or the type changes."""
    blocks: list[PdfBlock] = []
    for line in lines:
        if blocks and continues(blocks[-1].lines[-1], line):
            blocks[-1].lines.append(line)
        else:
            blocks.append(PdfBlock("paragraph", [line]))
    return blocks


# Rows whose label and figures came apart.
#
# liteparse sometimes takes columns of a table for columns of text: all labels, then all figures.
# If a printed line has a label and then a figure, a block must have both side by side. Otherwise
# the lines around it become a table, printed as they stand on the page.


def restore_rows(pages: Sequence[PageLayout]) -> None:
    """Print the lines of torn tables as they stand, in place; headings remain headings."""
    for page in pages:
        if len(page.rows) <= _MOST_ROWS and (torn := _find_torn(page)):
            blocks = _print_rows(page, torn)
            if _keeps_text(page, blocks):
                page.blocks[:] = blocks


_MOST_ROWS = 1_000  # of a page: each is searched in the text of all
_SIGN = re.compile(r"[$€£¥(\-\u2013\u2014.\u2026]+")
_CURRENCY = re.compile(r"[$€£¥(]+")
_FIGURE = re.compile(r"[$€£¥(\-\u2013\u2014+~<>]*\d[\d,.]*[)%]*")
_SPACE = 0.9  # of the type size: a wider gap is between a label and its figure


def _find_torn(page: PageLayout) -> set[int]:
    """Return the rows whose label and first figure are not side by side in any block."""
    pairs = {n: pair for n, row in enumerate(page.rows) if (pair := _read_pair(row))}
    texts = (
        [keep_letters(text) for block in page.blocks for text in _list_texts(block)]
        if pairs
        else []
    )
    return {n for n, pair in pairs.items() if not any(pair in text for text in texts)}


def _read_pair(row: PdfLine) -> str:
    """Return the letters of a row's label and first figure; "" if it is not such a row."""
    wide = _SPACE * max(row.size, 1.0)
    first = next((n for n, gap in enumerate(row.gaps, 1) if gap > wide), len(row.items))
    words = [word for item in row.items[first:] for word in item.text.split()]
    figure = next((word for word in words if not _SIGN.fullmatch(word)), "")
    label = "".join(item.text for item in row.items[:first])
    if sum(map(str.isalpha, label)) < 3 or not _FIGURE.fullmatch(figure):
        return ""
    return keep_letters(label + figure)


def _list_texts(block: PdfBlock) -> list[str]:
    lines = "".join(line.text for line in block.lines)
    return [*map("".join, block.rows), *block.verbatim, lines]


def _keeps_text(page: PageLayout, blocks: Sequence[PdfBlock]) -> bool:
    """Report whether blocks have each letter as often as the page's blocks or the page itself."""
    edge = MARGIN * page.height
    running = [
        line.text
        for block in page.blocks
        if block.kind == "chrome"
        for line in block.lines
        if not edge < line.y < page.height - edge
    ]
    printed = _count(row.text for row in page.rows) - _count(running)
    before, after = (
        _count(text for b in some if b.kind != "chrome" for text in _list_texts(b))
        for some in (page.blocks, blocks)
    )
    return (before & printed) <= after <= (before | printed)


def _count(texts: Iterable[str]) -> Counter[str]:
    return Counter(keep_letters("".join(texts)))


def _print_rows(page: PageLayout, torn: set[int]) -> list[PdfBlock]:
    """Return the page's blocks with the lines around torn rows as tables."""
    pieces: list[tuple[PdfBlock, PdfLine | None]] = []
    for block in page.blocks:
        pieces.extend((block, line) for line in block.lines)
        if not block.lines:
            pieces.append((block, None))
    covered = [_find_rows(page, block, line) for block, line in pieces]
    kinds: dict[int, set[str]] = defaultdict(set)  # of the blocks that each row is in
    for (block, _), rows in zip(pieces, covered, strict=True):
        for n in rows:
            kinds[n].add("torn table" if block.kind == "table" and rows & torn else block.kind)
    headings = {n for n, found in kinds.items() if "heading" in found}
    whole = {n for n, found in kinds.items() if "table" in found or found == {"chrome"}}
    others = whole - torn  # rows of other tables, and running headers
    region = _find_region(page, torn, headings, others)
    found = set(region)
    size = 0
    while size < len(found):  # a piece goes as a whole
        size = len(found)
        found.update(n for rows in covered if rows & found for n in rows - headings - others)
    made = _make_blocks(page, sorted(found), region, headings | others)
    blocks: list[PdfBlock] = []
    last = None  # the block whose lines are the last of `blocks`
    for (block, line), rows in zip(pieces, covered, strict=True):
        if rows & found:
            last = None
            blocks.extend(new for new, numbers in made if rows & numbers)
            made = [(new, numbers) for new, numbers in made if not rows & numbers]
        elif line is None:
            blocks.append(block)
        elif last is block:
            blocks[-1].lines.append(line)
        else:
            blocks.append(PdfBlock(block.kind, [line], block.level, block.marker))
            last = block
    return [*blocks, *(new for new, _ in made)]


def _find_rows(page: PageLayout, block: PdfBlock, line: PdfLine | None) -> set[int]:
    """Return the printed rows that a line, or a block without lines, is in."""
    if line is None:
        return page.find_rows(block.items)
    middle = line.y + line.height / 2
    return {
        n
        for n, row in enumerate(page.rows)
        if row.x < line.x + line.width
        and line.x < row.x + row.width
        and (
            row.y <= middle <= row.y + row.height
            or line.y <= row.y + row.height / 2 <= line.y + line.height
        )
    }


_LONG = 0.6  # of the page's width: a row of one cell that is wider is text


def _find_region(
    page: PageLayout, torn: set[int], headings: set[int], others: set[int]
) -> set[int]:
    """Return the rows around torn ones, up to text or another table."""
    found: set[int] = set()
    cut = list(map(_cut_cells, page.rows))
    beside = sum(len(row[0].text.split()) > 3 and _is_text(page, row) for row in cut if row[1:])
    if beside > len(torn):  # columns of text, not a table
        return found
    run: list[int] = []
    for n, cells in enumerate([*cut, []]):
        if cells and n not in others and (n in torn or not _is_text(page, cells)):
            run.append(n)
            continue
        if not torn.isdisjoint(run):
            wide = [i for i in run if len(cut[i]) > 1]
            found.update(i for i in run if wide and wide[0] <= i <= wide[-1])
        run = []
    return found - headings


def _is_text(page: PageLayout, cells: Sequence[_Cell]) -> bool:
    """Report whether a printed row is running text, in one column or side by side."""
    if len(cells) == 1:
        return cells[0].right - cells[0].left > _LONG * page.width
    return any(
        len(cell.text.split()) > 5 and cell.right - cell.left > 0.25 * page.width
        for cell in cells[1:]
    )


@dataclass(slots=True)
class _Cell:
    text: str
    left: float
    right: float


def _cut_cells(row: PdfLine) -> list[_Cell]:
    """Return a row's words, those without a gap between them together."""
    cells: list[_Cell] = []
    for item in row.items:
        for word in item.words:
            gap = (word.x - cells[-1].right) / max(row.size, 1.0) if cells else 0.0
            figures = (
                cells
                and _is_figure(cells[-1])
                and (word.text[0] in "$€£¥(" or (gap > 0.3 and _FIGURE.fullmatch(word.text)))
            )
            sign = cells and _CURRENCY.fullmatch(cells[-1].text)
            if cells and (sign or (gap < _SPACE and not figures)):
                cells[-1].text += (" " if abs(gap) > 0.1 else "") + word.text
                cells[-1].left = word.x if sign else cells[-1].left
                cells[-1].right = max(cells[-1].right, word.x + word.width)
            else:
                cells.append(_Cell(word.text, word.x, word.x + word.width))
    return cells


def _make_blocks(
    page: PageLayout, numbers: Sequence[int], region: set[int], fixed: set[int]
) -> list[tuple[PdfBlock, set[int]]]:
    """Return printed rows as tables, and as paragraphs outside `region`, each with its rows."""
    groups: list[list[int]] = []
    for n in numbers:
        before = groups[-1][-1] if groups else n
        row, last = page.rows[n], page.rows[before]
        if (
            not groups
            or (n in region) != (before in region)
            or row.y - last.y - last.height > 2.5 * max(last.height, row.height)
            or not fixed.isdisjoint(range(before, n))
        ):
            groups.append([])
        groups[-1].append(n)
    made: list[tuple[PdfBlock, set[int]]] = []
    for group in groups:
        if group[0] in region:
            made.append((_make_table([page.rows[n] for n in group]), set(group)))
        else:
            found = _group_paragraphs([page.rows[n] for n in group])
            made.extend((block, set(group)) for block in found)
    return made


def _make_table(rows: Sequence[PdfLine]) -> PdfBlock:
    """Return printed rows as a table."""
    items = [item for row in rows for item in row.items]
    return PdfBlock("table", [], rows=_align(list(map(_cut_cells, rows))), items=items)


def _align(rows: Sequence[Sequence[_Cell]]) -> list[list[str]]:
    """Return rows of cells as rows of texts: a label, and one for each column of figures."""
    columns: list[list[float]] = []  # left and right
    figures = [cell for row in rows for cell in row if _is_figure(cell)]
    for cell in sorted(figures, key=lambda cell: cell.left):
        if columns and cell.left < columns[-1][1]:
            columns[-1][1] = max(columns[-1][1], cell.right)
        else:
            columns.append([cell.left, cell.right])
    for cell in (cell for row in rows for cell in row[1:]):
        if all(cell.right <= left or right <= cell.left for left, right in columns):
            columns.append([cell.left, cell.right])
    columns.sort()
    found = []
    for row in rows:
        texts = [""] * (len(columns) + 1)
        for cell in row:
            reach = [min(cell.right, right) - max(cell.left, left) for left, right in columns]
            label = not columns or (cell is row[0] and cell.left < columns[0][0])
            at = 0 if label else 1 + reach.index(max(reach))
            texts[at] = clean_line(f"{texts[at]} {cell.text}")
        found.append(texts)
    first = 0 if any(texts[0] for texts in found) else 1
    return [texts[first : max(n for n, text in enumerate(texts, 1) if text)] for texts in found]


def _is_figure(cell: _Cell) -> bool:
    text = cell.text.replace(" ", "")
    return (_FIGURE.fullmatch(text) or _SIGN.fullmatch(text)) is not None
