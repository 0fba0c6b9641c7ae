"""Repair of tables that include the text above or below them.

liteparse sometimes takes the paragraphs next to a table for rows of it and cuts them into
cells. Rows of a page that run across without a gap, and reach further than a cell, are text:
at the beginning or end of a table they become paragraphs again.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import accumulate, pairwise

from liteparse import TextItem

from colligate.documents.reading.pdf.layout import PageLayout, PdfBlock, PdfLine
from colligate.documents.reading.pdf.numbering import split_number


def release_text(pages: Sequence[PageLayout]) -> None:
    """Turn text that was taken for rows of a table into paragraphs, in place."""
    for page in pages:
        if any(block.kind == "table" for block in page.blocks):
            page.blocks[:] = [piece for block in page.blocks for piece in _split_table(block, page)]


_REACH = 0.45  # of the page's width: text reaches further at least once


def _split_table(table: PdfBlock, page: PageLayout) -> list[PdfBlock]:
    if table.kind != "table":
        return [table]
    inside = set(map(id, table.items))
    rows: list[PdfLine] = []
    prose: list[bool] = []
    for row, items in zip(page.rows, page.cells, strict=True):
        if not inside.isdisjoint(map(id, items)):
            rows.append(row)
            prose.append(_is_prose(row, items))
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
    table.rows[:] = _select_rows(whole, rows, first, last)
    return [*_group_paragraphs(rows[:first]), table, *_group_paragraphs(rows[last:])]


def _select_rows(
    table: Sequence[list[str]], rows: Sequence[PdfLine], first: int, last: int
) -> list[list[str]]:
    """Return the table's rows for the printed rows from `first` to `last` only.

    A row shared with text outside is replaced by its printed rows.
    """
    ends = list(accumulate((_count_letters(row.text) for row in rows), initial=0))
    low, high = ends[first], ends[last]
    found: list[list[str]] = []
    at, done = 0, first
    for row in table:
        at, begin = at + _count_letters(" ".join(row)), at
        if begin >= low and at <= high:
            while done < last and ends[done] < begin:
                found.append([rows[done].text])
                done += 1
            found.append(row)
            while done < last and ends[done + 1] <= at:
                done += 1
    found.extend([row.text] for row in rows[done:last])
    return found


_GAP = 1.8  # of the type size: a wider gap is between cells


def _is_prose(row: PdfLine, items: Sequence[TextItem]) -> bool:
    gaps = [b.x - (a.x + a.width) for a, b in pairwise(items)]
    if split_number(row.text)[0] is not None:
        gaps = gaps[1:]  # the one after a number may be wide
    return all(gap < _GAP * max(row.size, 1.0) for gap in gaps)


_WORD = re.compile(r"\w")


def _count_letters(text: str) -> int:
    return len(_WORD.findall(text))


def _group_paragraphs(lines: Sequence[PdfLine]) -> list[PdfBlock]:
    """Return lines as paragraphs, split where the space or the type changes."""
    blocks: list[PdfBlock] = []
    for line in lines:
        last = blocks[-1].lines[-1] if blocks else None
        if (
            last is not None
            and line.y - (last.y + last.height) < 0.5 * last.height
            and line.bold == last.bold
            and abs(line.size - last.size) < 0.5
        ):
            blocks[-1].lines.append(line)
        else:
            blocks.append(PdfBlock("paragraph", [line]))
    return blocks
