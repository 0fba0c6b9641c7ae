"""Tables of a PDF: text that was taken for rows, and rows whose label and figures came apart."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby, pairwise

from colligate.documents.reading.pdf import layout
from colligate.documents.reading.pdf.layout import PageLayout, PdfBlock, PdfLine, keep_letters
from colligate.documents.reading.pdf.numbering import split_number

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
    if _is_sound(page, table):
        return [table]
    whole = [row for row in table.rows if any(row)]
    # The box may cover text that is not in the table.
    letters = list(accumulate(len(keep_letters(row.text)) for row in rows))
    total = sum(len(keep_letters("".join(row))) for row in whole)
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


def _group_paragraphs(lines: Sequence[PdfLine]) -> list[PdfBlock]:
    """Return lines as paragraphs, split where the space or the type changes."""
    blocks: list[PdfBlock] = []
    for line in lines:
        if blocks and layout.continues(blocks[-1].lines[-1], line):
            blocks[-1].lines.append(line)
        else:
            blocks.append(PdfBlock("paragraph", [line]))
    return blocks


# liteparse sometimes takes columns of a table for columns of text: all labels, then all figures.
# If a printed line has a label and then a figure, a block must have both side by side. Otherwise
# the lines around it become a table, printed as they stand on the page.


def restore_rows(pages: Sequence[PageLayout]) -> None:
    """Print the lines of torn tables as they stand, in place, names of groups among them."""
    for page in pages:
        for read_pair in (_read_pair, _read_figure) if len(page.rows) <= _MOST_ROWS else ():
            if not (torn := _find_torn(page, read_pair)):
                break
            blocks = _print_rows(page, torn)
            if _keeps_text(page, blocks):
                page.blocks[:] = blocks
                break


_MOST_ROWS = 1_000  # of a page: each is searched in the text of all
_SIGN = re.compile(r"[$€£¥(\-\u2013\u2014.\u2026]+")
_FIGURE = re.compile(r"[$€£¥(\-\u2013\u2014+~<>]*\d[\d,.]*[)%]*")
_SPACE = 0.9  # of the type size: a wider gap is between a label and its figure

_SHORT = 4  # words of a cell, if there are three on a line: columns of text have more


def _find_torn(page: PageLayout, read_pair: Callable[[Sequence[str]], str]) -> set[int]:
    """Return the rows whose label and first figure are not side by side in any block."""
    rows = ((n, _split_row(row)) for n, row in enumerate(page.rows) if len(row.items) > 1)
    pairs = {n: pair for n, cells in rows if len(cells) > 1 and (pair := read_pair(cells))}
    if not pairs:
        return set()
    texts = [keep_letters(text) for block in page.blocks for text in _list_texts(block)]
    torn = {n for n, pair in pairs.items() if not any(pair in text for text in texts)}
    sound = (page.find_rows(b.items) for b in page.blocks if torn and _is_sound(page, b))
    return torn.difference(*sound)


def _is_sound(page: PageLayout, table: PdfBlock) -> bool:
    """Report whether each printed row in a ruled table is in one of its rows."""
    if not table.is_ruled or len(page.rows) > _MOST_ROWS:
        return False
    rows = ["|".join(["", *map(keep_letters, row), ""]) for row in table.rows]
    for row in (page.rows[n] for n in page.find_rows(table.items)):
        # Cells of a row may go on over several printed ones, but each figure has one of its own.
        parts = filter(None, map(keep_letters, _split_row(row) or [row.text]))
        texts = [f"|{part}|" if part.isdecimal() else part for part in parts]
        if not any(all(text in cells for text in texts) for cells in rows):
            return False
    return True


def _read_figure(cells: Sequence[str]) -> str:
    """Return the letters of a row's label and first figure; "" if it is not such a row."""
    words = [word for cell in cells[1:] for word in cell.split()]
    figure = next((word for word in words if not _SIGN.fullmatch(word)), "")
    if sum(map(str.isalpha, cells[0])) < 3 or not _FIGURE.fullmatch(figure):
        return ""
    return keep_letters(cells[0] + figure)


def _read_pair(cells: Sequence[str]) -> str:
    """Return what `_read_figure` does, or the letters of the first of three short cells."""
    is_table = len(cells) > 2 and all(len(cell.split()) <= _SHORT for cell in cells)
    return _read_figure(cells) or (keep_letters(cells[0] + cells[1]) if is_table else "")


def _split_row(row: PdfLine) -> list[str]:
    wide = _SPACE * max(row.size, 1.0)
    starts = [n for n, gap in enumerate(row.gaps, 1) if gap > wide]
    cuts = pairwise([0, *starts, len(row.items)]) if starts else ()
    return [" ".join(item.text for item in row.items[a:b]) for a, b in cuts]


def _list_texts(block: PdfBlock) -> list[str]:
    lines = "".join(line.text for line in block.lines)
    return [*map("".join, block.rows), *block.verbatim, lines]


def _keeps_text(page: PageLayout, blocks: Sequence[PdfBlock]) -> bool:
    """Report whether blocks have each letter as often as the page's blocks or the page itself."""
    edge = layout.MARGIN * page.height
    running = [
        line.text
        for block in page.blocks
        if block.kind == "chrome"
        for line in block.lines
        if not edge < line.y < page.height - edge
    ]
    count = layout.count_letters
    printed = count(row.text for row in page.rows) - count(running)
    before, after = (
        count(text for b in some if b.kind != "chrome" for text in _list_texts(b))
        for some in (page.blocks, blocks)
    )
    return (before & printed) <= after <= (before | printed)


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
    headings -= region
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
            rows = [i for i in run if wide and wide[0] <= i <= wide[-1]]
            plain = [i for i in wide if i not in headings]
            for is_heading, group in groupby(rows, headings.__contains__):
                part = list(group)
                is_between = plain and plain[0] < part[0] and part[-1] < plain[-1]
                if not is_heading or (is_between and _names_group(page, part)):
                    found.update(part)
        run = []
    return found


def _names_group(page: PageLayout, part: Sequence[int]) -> bool:
    """Report whether lines that look like a heading are close to the rows around and like them."""
    rows = page.rows[part[0] - 1 : part[-1] + 2]
    size = 1.1 * max(rows[0].size, rows[-1].size)
    is_like = all(name.size < size and name.x < rows[-1].x + 2 for name in rows[1:-1])
    return is_like and all(_is_near(above, below) for above, below in pairwise(rows))


def _is_near(row: PdfLine, below: PdfLine) -> bool:
    return below.y - row.y - row.height <= 1.5 * max(row.height, below.height)


def _is_text(page: PageLayout, cells: Sequence[_Cell]) -> bool:
    """Report whether a printed row is running text, in one column or side by side."""
    if len(cells) == 1:
        return cells[0].right - cells[0].left > _LONG * page.width
    wide = (cell for cell in cells[1:] if cell.right - cell.left > 0.25 * page.width)
    return any(len(cell.text.split()) > 5 for cell in wide)


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
            begins = word.text[0] in "$€£¥(" or (gap > 0.3 and _FIGURE.fullmatch(word.text))
            figures = cells and begins and _is_figure(cells[-1])
            sign = cells and set(cells[-1].text) <= set("$€£¥(")
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
    cells = _align(list(map(_cut_cells, rows)))
    return PdfBlock("table", [], rows=cells, has_head=False, items=items)


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
    left = min((row[0].left for row in rows if row), default=0.0)
    found = []
    for row in rows:
        texts = [""] * (len(columns) + 1)
        for cell in row:
            reach = [min(cell.right, right) - max(cell.left, left) for left, right in columns]
            label = not columns or (cell is row[0] and cell.left < columns[0][0])
            if label and columns and row[1:]:  # a head may begin left of its column
                label = cell.left - left <= abs(columns[0][1] - cell.right)
            at = 0 if label else 1 + reach.index(max(reach))
            texts[at] = layout.clean_line(f"{texts[at]} {cell.text}")
        found.append(texts)
    first = 0 if any(texts[0] for texts in found) else 1
    return [texts[first : max(n for n, text in enumerate(texts, 1) if text)] for texts in found]


def _is_figure(cell: _Cell) -> bool:
    text = cell.text.replace(" ", "")
    return (_FIGURE.fullmatch(text) or _SIGN.fullmatch(text)) is not None


# liteparse says whether it knows the head of a table. If not, the head may stand above it as text,
# or on the page before, or the first row is the head, or there is none.


def find_heads(pages: Sequence[PageLayout]) -> None:
    """Give tables their heads, in place; a table that has none gets an empty one."""
    last: tuple[PageLayout, PdfBlock] | None = None
    for page in pages:
        is_top = True  # nothing but running headers stands above the table
        for table in [block for block in page.blocks if block.kind == "table" and block.rows]:
            _join_cells(page, table)
            is_clear = table.has_head or _judge_first(table.rows) is False
            is_larger = not is_clear and _take_rows_above(page, table)
            above = page.blocks[: page.blocks.index(table)]
            is_top = is_top and all(block.kind in ("chrome", "rule") for block in above)
            if last and not (is_top if last[0] is not page else _follows(page, last[1], table)):
                last = None
            judged = False if is_clear else _judge_first(table.rows)
            table.has_head = judged is False or (judged is None and is_larger)
            if not table.has_head:
                table.has_head = bool(last and _copy_head(page, table, last))
            if not table.has_head:
                if judged or all(row and row[0].endswith(":") for row in table.rows):
                    table.rows.insert(0, [""])
                else:
                    table.has_head = True
            is_top, last = False, (page, table) if table.has_head else last


def _follows(page: PageLayout, table: PdfBlock, following: PdfBlock) -> bool:
    """Report whether no heading stands between two tables of a page."""
    between = page.blocks[page.blocks.index(table) : page.blocks.index(following)]
    return all(block.kind != "heading" for block in between)


_WORD_GAP = 0.4  # of the type size: a narrower gap is between words


def _join_cells(page: PageLayout, table: PdfBlock) -> None:
    """Undo the cutting of lines without gaps, as titles and names of groups, into cells."""
    lines = {
        keep_letters(row.text): row
        for row in (page.rows[n] for n in page.find_rows(table.items))
        if all(gap < _WORD_GAP * row.size for gap in row.gaps)
    }
    for n, row in enumerate(table.rows if lines else ()):
        line = lines.get(keep_letters("".join(row)))
        if line and sum(map(bool, row)) > 1 and not any(map(_is_value, row[1:])):
            table.rows[n] = [line.text]
    titles = next((n for n, row in enumerate(table.rows) if len(row) > 1), 0)
    if titles and all(keep_letters(row[0]) in lines for row in table.rows[:titles]):
        found = [lines[keep_letters(row[0])] for row in table.rows[:titles]]
        del table.rows[:titles]
        table.has_head = False
        at = page.blocks.index(table)
        page.blocks[at:at] = _group_paragraphs(found)


_DATE = re.compile(r"(19|20)\d\d|\d{1,2}([./-])\d{1,2}\2\d{2}")


def _judge_first(rows: Sequence[Sequence[str]]) -> bool | None:
    """Report whether the first row has values where the others do; None if that is unclear."""
    votes = []
    for n, cell in enumerate(rows[0]):
        below = [row[n] for row in rows[1:] if len(row) > n and row[n]]
        if cell and 2 * sum(map(_is_value, below)) > len(below):
            votes.append(_is_value(cell))
    if not votes or not rows[0][0]:
        return False if votes else None
    return votes[0] if len(set(votes)) == 1 else None


def _is_value(text: str) -> bool:
    letters, digits = sum(map(str.isalpha, text)), sum(map(str.isdigit, text))
    return bool(text) and (digits > letters or not letters) and not _DATE.search(text)


_Column = tuple[float, float]  # left and right


def _find_columns(page: PageLayout, table: PdfBlock) -> list[_Column]:
    """Return the columns of the rows that have a cell in each; [] if they are not clear."""
    width = max(map(len, table.rows))
    cells = [_cut_cells(page.rows[n]) for n in page.find_rows(table.items)]
    full = [row for row in cells if len(row) == width]
    columns = [
        (min(cell.left for cell in column), max(cell.right for cell in column))
        for column in zip(*full, strict=True)
    ]
    return columns if all(a[1] <= b[0] for a, b in pairwise(columns)) else []


def _place(cells: Iterable[_Cell], columns: Sequence[_Column]) -> list[int | None] | None:
    """Return the column that each cell is in, None for a new one; None if one is in two."""
    found: list[int | None] = []
    for cell in cells:
        hits = [
            n for n, (left, right) in enumerate(columns) if cell.left < right and left < cell.right
        ]
        if len(hits) > 1 or (hits and hits[0] in found):
            return None
        found.append(hits[0] if hits else None)
    return found


def _take_rows_above(page: PageLayout, table: PdfBlock) -> bool:
    """Move rows that stand as text above a table into it: a head, rows at the top of a page."""
    columns = _find_columns(page, table)
    every, taken, groups = columns, list[int](), list[int]()
    if not columns:
        return False
    for n in range(min(page.find_rows(table.items)) - 1, -1, -1):
        row, below = page.rows[n], page.rows[n + 1]
        cells = _cut_cells(row)
        places = _place(cells, every)
        if not _is_near(row, below):
            break
        if places and len(places) - places.count(None) > 1:
            new = [(c.left, c.right) for c, at in zip(cells, places, strict=True) if at is None]
            every = sorted([*every, *new])
            taken, groups = [n, *groups, *taken], []
        elif len(cells) == 1 and len(groups) < _MOST_GROUPS:
            groups.insert(0, n)
        else:
            break
    rows = [_align_row(page.rows[n], every) for n in taken]
    if not taken or None in rows or not _remove_rows(page, taken):
        return False
    own = list(map(every.index, columns))
    table.rows = [*filter(None, rows), *(_spread(row, own, len(every)) for row in table.rows)]
    table.items = [item for n in taken for item in page.rows[n].items] + table.items
    return True


def _align_row(row: PdfLine, columns: Sequence[_Column]) -> list[str] | None:
    cells = _cut_cells(row)
    places = _place(cells, columns)
    if len(cells) == 1:
        return _name_group(row, columns)
    if not places or None in places:
        return None
    return _spread([cell.text for cell in cells], [n or 0 for n in places], len(columns))


_MOST_GROUPS = 2  # names of groups between a head and the first row


def _name_group(row: PdfLine, columns: Sequence[_Column]) -> list[str] | None:
    """Return a row that names a group, in the column where it begins; None if it does not."""
    at = [n for n, (left, _) in enumerate(columns) if abs(row.x - left) < 2]
    beyond = columns[at[0] + 1 :] if at else []
    if not at or (beyond and row.x + row.width > beyond[-1][0]):
        return None
    return [*[""] * at[0], row.text]


def _copy_head(page: PageLayout, table: PdfBlock, last: tuple[PageLayout, PdfBlock]) -> bool:
    """Give a table that continues the last one the head of that one; report whether it does."""
    before = _find_columns(*last)
    places = _place([_Cell("", *column) for column in _find_columns(page, table)], before)
    if not places or None in places or len(places) < 2:
        return False
    first = min(page.find_rows(table.items))
    rows = [_spread(row, [n or 0 for n in places], len(before)) for row in table.rows]
    if first and (name := _name_group(page.rows[first - 1], before)) and len(name) == 1:
        rows = [name, *rows] if _remove_rows(page, [first - 1]) else rows
    table.rows = [list(last[1].rows[0]), *rows]
    return True


def _spread(row: Sequence[str], places: Sequence[int], width: int) -> list[str]:
    """Return the cells of a row at other places."""
    found = [""] * width
    for n, text in zip(places, row, strict=False):
        found[n] = text
    return found


def _remove_rows(page: PageLayout, numbers: Sequence[int]) -> bool:
    """Remove printed rows from the page's text; report whether all of it was there as such."""
    items = {id(item) for n in numbers for item in page.rows[n].items}
    found = [
        (block, line)
        for block in page.blocks
        if block.kind in ("paragraph", "list_item")
        for line in block.lines
        if line.items and items.issuperset(map(id, line.items))
    ]
    written = keep_letters("".join(line.text for _, line in found))
    if written != keep_letters("".join(page.rows[n].text for n in numbers)):
        return False
    for block, line in found:
        block.lines.remove(line)
    page.blocks[:] = [b for b in page.blocks if b.lines or b.rows or b.verbatim]
    return True
