"""Sheets: their tables and the text around these; separated values; the tree of such a text.

A sheet has no markup that tells a table's head from a title above it, or the next table from a row
of this one. Where the cells stand and what they are (words, a number, a date) tells it mostly; what
is in doubt stays a row. A parser of Markdown takes minutes, and gigabytes, for a million rows, so
none sees them.
"""

from __future__ import annotations

import csv
import io
import re
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain, groupby, islice, pairwise, zip_longest
from typing import Any

from colligate.documents.document import Document
from colligate.documents.markdown import OutlineBuilder
from colligate.documents.reading.source import SourceFile, make_document
from colligate.documents.tree import Basis, Kind, Structure, Tree

WIDEST_GAP = 1_000  # blank rows or columns that are kept: more are a stray value's
_SEEN = 100  # rows of a block that tell what it is
_WIDEST_SEEN = 200  # columns that tell it
_DEEPEST_HEAD = 3  # rows
Row = tuple[int, list[str]]
"""The number of a row in its sheet, from 1, and its cells."""
Merged = Mapping[int, Sequence[tuple[int, int, int]]]
"""Merged cells by the number of their first row: their first and last column, their last row."""


@dataclass(slots=True)
class Sheets:
    """The text of sheets: titles, tables and notes in their order."""

    text: list[str] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)  # of each table: where its head is, or would be

    def add(self, rows: Iterable[Row], name: str = "", merged: Merged | None = None) -> None:
        """Add a sheet by its rows with text."""
        sheet = _Sheet(merged or {})
        block: list[Row] = []
        last = 0
        for row in rows:
            if row[0] != last + 1:  # after blank rows
                sheet.begin(block)
                block, sheet.has_begun = [], False
            last = row[0]
            if sheet.has_begun:
                sheet.add(row)
            else:
                block.append(row)
                if len(block) == _SEEN:
                    sheet.begin(block)
                    block, sheet.has_begun = [], True
        sheet.begin(block)
        sheet.finish()
        if sheet.parts and name:
            self.text.append(f"## {name}")
        for part in sheet.parts:
            self.rows += [part.first] if isinstance(part, _Table) else []
            self.text.append(part if isinstance(part, str) else part.write())

    def make_document(self, source: SourceFile, metadata: Mapping[str, str]) -> Document:
        """Return the document of these sheets; its title is the file's name if it states none."""
        facts = {**metadata, "table_rows": " ".join(map(str, self.rows))}
        if set(self.rows) <= {1}:
            del facts["table_rows"]
        text, title = "\n\n".join(self.text) + "\n", facts.get("title") or source.stem
        return make_document(source, text, tree=table_tree, title=title, metadata=facts)


@dataclass(slots=True)
class _Table:
    """A table of some columns of a sheet; `first` is the number of its head's row."""

    columns: slice
    first: int
    head: list[str]
    kinds: list[str]  # of the cells of each column
    left: int  # the first column with text
    lines: list[str] = field(default_factory=list)
    width: int = 0

    def add(self, row: Row) -> None:
        """Add a row, after as many blank ones as there are before it."""
        cells = row[1][self.columns]
        if any(cells):
            if self.columns.stop:  # another table is beside it
                cells = cells[: _width(cells)]
            self.lines += ["|  |"] * (row[0] - self.first - 1 - len(self.lines))
            self.lines.append(_write_row(cells))
            self.width = max(self.width, len(cells))

    def write(self) -> str:
        """Return it in Markdown: only its head is as wide as the widest row."""
        width = max(self.width, len(self.head))
        head = _write_row(self.head + [""] * (width - len(self.head)))
        return "\n".join([head, "|" + " --- |" * width, *self.lines])


def _write_row(cells: Iterable[str]) -> str:
    return "| " + " | ".join([cell.replace("|", "\\|") for cell in cells]) + " |"


_NO_MARK = re.compile(r"^(?=[#|])", re.MULTILINE)  # text that would be a heading or a table


class _Sheet:
    """The parts of a sheet so far. Loose rows are titles, notes, or rows of the open table."""

    def __init__(self, merged: Merged) -> None:
        self.parts: list[str | _Table] = []
        self.has_begun = False  # the block of rows that is being read
        self._merged = merged
        self._open: list[_Table] = []
        self._loose: list[Row] = []

    def add(self, row: Row) -> None:
        """Add a row of a block that has begun."""
        if self._open and not self._loose:
            for table in self._open:
                table.add(row)
        elif _count(row[1]) > 1 and self._loose and _count(self._loose[-1][1]) > 1:
            self.begin([self._loose.pop(), row])
        else:
            self._loose.append(row)

    def begin(self, block: list[Row]) -> None:
        """Add the first rows after a blank one: to the open table, or as tables of their own."""
        wide = sum(_count(cells) > 1 for _, cells in block)
        if wide and len(self._open) == 1 and self._continues(block):
            for row in (*self._loose, *block):
                self._open[0].add(row)
            self._loose = []
        elif wide < 2:
            self._loose += block
        else:
            before = self._loose[-1] if self._loose else (-WIDEST_GAP, [])
            is_near = block[0][0] - before[0] <= WIDEST_GAP
            if is_near and _count(before[1]) > 1 and not self._find_head(block)[1]:
                block = [self._loose.pop(), *block]  # a head that stands apart
            self._write_loose()
            self._open = []
            for columns in _find_ranges([cells for _, cells in block]):
                self._open_table([row for row in block if any(row[1][columns])], columns)

    def finish(self) -> None:
        """Write what is loose: as text, or as a table if there is nothing else."""
        if any(isinstance(part, _Table) for part in self.parts):
            self._write_loose()
        run: list[Row] = []
        for row in (*self._loose, (0, [])):
            if run and not 0 <= row[0] - run[-1][0] <= WIDEST_GAP:
                self._open_table(run, slice(None))
                run = []
            run.append(row)

    def _continues(self, block: list[Row]) -> bool:
        """Report whether rows after a blank one belong to the open table: they look like its rows,
        and the first not like another head."""
        table = self._open[0]
        if block[0][0] - table.first - len(table.lines) > WIDEST_GAP:
            return False
        top, _, kinds = self._find_head(block)
        row = block[top][1]
        width, most = _width(row), max(table.width, len(table.head))
        if _left(row) < table.left or width > most:
            return False
        if (is_head := _is_head(row, kinds)) is None:
            is_head = _is_head(row, table.kinds)
        return width == most and not top if is_head is None else not is_head

    def _open_table(self, rows: list[Row], columns: slice) -> None:
        top, heads, kinds = self._find_head(rows[:_SEEN], columns)
        self._write_text(rows[:top], columns)
        below = top + heads
        first = rows[below - 1][0] if heads else rows[top][0] - 1
        head = self._join_head(rows[top:below], columns)
        left = min(_left(cells) for _, cells in rows[top:])
        self._open.append(_Table(columns, first, head, kinds, left))
        self.parts.append(self._open[-1])
        for row in rows[below:]:
            self._open[-1].add(row)

    def _find_head(
        self, rows: list[Row], columns: slice = slice(None)
    ) -> tuple[int, int, list[str]]:
        """Return where a table begins, how many rows its head has, and the kinds of its cells."""
        cells = [row[1][columns] for row in rows]
        wide = [n for n, each in enumerate(cells) if _count(each) > 1] or range(len(rows))
        widths = Counter(_width(cells[n]) for n in wide)
        width = max(widths, key=lambda each: (widths[each], each))
        top = next(n for n in wide if max(width - 1, width / 2 + 0.1) <= _width(cells[n]))
        while top + 2 < len(rows):  # a few cells at the left and comments above a head are titles
            row, below = cells[top], cells[top + 1]
            is_above = _width(below) >= width and _is_head(below, _kinds(cells[top + 2 :]))
            is_sparse = _count(row) == _width(row) < width or 2 * _count(row) <= width
            label = _left(below)  # no column has two labels
            is_title = is_sparse and row[label : label + 1] not in ([], [""], [below[label]])
            if not (is_above and (is_title or row[0].startswith("# "))):
                break
            top += 1
        kinds = _kinds(cells[top + 1 :])
        labels = [each.endswith(":") for each in cells[top] if each]
        if _is_head(cells[top], kinds) is False or (labels[0] and not all(labels)):
            return top, 0, kinds  # data, or "Name:" before a name
        heads = 1
        while heads < min(_DEEPEST_HEAD, len(rows) - top - 1):
            number, above = rows[top + heads - 1][0], cells[top + heads - 1]
            merged = self._merged.get(number, ())
            deep = any(last > number for _, _, last in merged)
            gaps = "" in above[:width] or _width(above) < width
            broad = any(right > left for left, right, _ in merged)
            below, kinds = cells[top + heads], _kinds(cells[top + heads + 1 :])
            is_head = _count(below) >= width - 1 and _is_head(below, kinds) is True
            if not deep and not (gaps and (broad or is_head)):
                break
            heads += 1
        return top, heads, _kinds(cells[top + heads :])

    def _join_head(self, rows: list[Row], columns: slice) -> list[str]:
        """Return the cells of a head, each with what stands in the rows above it."""
        shown = []
        width = max((len(cells) for _, cells in rows), default=1)
        for number, cells in rows:
            full = cells + [""] * (width - len(cells))
            merged = self._merged.get(number, ())
            for left, right, _ in merged:
                for column in range(left + 1, min(right + 1, width)):
                    full[column] = full[column] or full[left]
            if not merged and number != rows[-1][0]:  # over the columns to the next
                for column in range(2, width):
                    full[column] = full[column] or full[column - 1]
            shown.append(full[columns])
        head = [" ".join(dict.fromkeys(filter(None, each))) for each in zip(*shown, strict=True)]
        return head[: _width(head)] if columns.stop else head or [""]

    def _write_loose(self) -> None:
        self._write_text(self._loose, slice(None))
        self._loose = []

    def _write_text(self, rows: Iterable[Row], columns: slice) -> None:
        """Add rows as text, with a line for each and a paragraph for those without blank ones."""
        for _, run in groupby(enumerate(rows), lambda each: each[1][0] - each[0]):
            lines = (" ".join(filter(None, cells[columns])) for _, (_, cells) in run)
            self.parts.append(_NO_MARK.sub(r"\\", "\n".join(lines)))


def _count(cells: Iterable[str]) -> int:
    return sum(map(bool, cells))


def _width(cells: Sequence[str]) -> int:
    """Return the number of cells up to the last with text."""
    return next((n for n in range(len(cells), 0, -1) if cells[n - 1]), 0)


def _left(cells: Sequence[str]) -> int:
    return next((n for n, cell in enumerate(cells) if cell), 0)


_DATE = re.compile(r"\d{1,4}[-./]\d\d?[-./]\d{1,4}(?:[T ][\d:.]+)?|\d\d?:\d\d(?::\d\d)?")
_YEAR = re.compile(r"(?:19|20)\d\d")


def _kind(cell: str) -> str:
    """Return the kind of a cell: date, year, number, words; "" if it is blank or a dash."""
    if _YEAR.fullmatch(cell):
        return "year"
    if _DATE.fullmatch(cell):
        return "date"
    if any(map(str.isalpha, cell)):
        return "words"
    return "number" if any(map(str.isdigit, cell)) else ""


def _kinds(rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the kind of most cells of each column."""
    columns = zip_longest(*(row[:_WIDEST_SEEN] for row in rows), fillvalue="")
    counts = (Counter(filter(None, map(_kind, column))) for column in columns)
    return [count.most_common(1)[0][0] if count else "" for count in counts]


def _is_head(row: Sequence[str], kinds: Sequence[str]) -> bool | None:
    """Report whether a row names columns with these kinds of cells: by other cells than theirs, or
    figures in even steps (36, 37, 38). None if words are all there is."""
    compared = [
        (cell, _kind(cell) == kind)
        for cell, kind in zip(row, kinds, strict=False)
        if kind not in ("", "words") and _kind(cell)
    ]
    if not compared:
        return None
    alike = [cell for cell, same in compared if same]
    if 2 * len(alike) < len(compared):
        return True
    numbers = map(int, alike) if all(map(str.isdecimal, alike)) else ()
    steps = {b - a for a, b in pairwise(numbers)}
    return len(alike) > 2 and len(steps) == 1 and steps != {0}


def _find_ranges(rows: list[list[str]]) -> list[slice]:
    """Return the columns of each table of these rows: several stand side by side if they have blank
    columns between them, and titles or heads of their own, or another number of rows."""
    used = sorted({n for row in rows if _count(row) > 1 for n, cell in enumerate(row) if cell})
    starts = [b for a, b in zip([-2, *used], used, strict=False) if b > a + 1]
    ranges = [slice(a, b) for a, b in pairwise([*starts, None])]
    tables = [[row[each] for row in rows if any(row[each])] for each in ranges]
    firsts = [[cell for cell in table[0] if cell] for table in tables]
    own = all(len(each) == 1 for each in firsts) or all(each == firsts[0] for each in firsts)
    apart = len(set(map(len, tables))) > 1 and all(
        _is_head(table[0], _kinds(table[1:])) and all(row[0] for row in table) for table in tables
    )
    is_split = all(max(map(_count, table)) > 1 and len(table) > 1 for table in tables)
    return ranges if len(ranges) > 1 and is_split and (own or apart) else [slice(None)]


_SAMPLE = 20_000  # characters
_FEWEST_WORDS = 4


def find_prose(text: str) -> str:
    """Return what of the text of sheets tells its language: titles, heads and cells of some words.
    The rest is names and codes, and a list of names is in no language."""
    lines = text[:_SAMPLE].split("\n")
    kept: list[str] = []
    for line, below in pairwise([*lines, ""]):
        if line.startswith("|") and not below.startswith("| --- |"):
            kept += [cell for cell in line.split("|") if len(cell.split()) >= _FEWEST_WORDS]
        else:
            kept.append(line)
    return "\n".join(kept)


_TABS = "text/tab-separated-values"
_SEPARATORS = "\t;|,"  # a comma is the likeliest inside of cells
_SAMPLED = 50  # rows that tell which separator a file has
_BLANKS = re.compile(r"(?<=\S) {2,}(?=\S)")  # between columns that are aligned by them
_STATED = re.compile(r'"?sep=(.)"?\n')  # as Excel reads it


def read_separated(source: SourceFile) -> Document:
    """Read comma-separated or tab-separated values as the tables of a sheet."""
    csv.field_size_limit(max(csv.field_size_limit(), source.limits.text_bytes))
    text, separator = source.text, "\t"
    if stated := _STATED.match(text):
        text, separator = text[stated.end() :], stated[1]
    elif source.format.media_type != _TABS:
        separator = max(_SEPARATORS, key=lambda each: _rate(text, each))
        aligned = _BLANKS.sub("\t", text) if _rate(text, separator) == (0, 0) else ""
        if aligned and _rate(aligned, "\t") > (1, 0):
            text, separator = aligned, "\t"
    sheets = Sheets()
    sheets.add(_iter_rows(text, separator))
    return sheets.make_document(source, {})


def _rate(text: str, separator: str) -> tuple[int, int]:
    """Return how many of the first rows a separator cuts into the same number of cells, first if
    it leaves quoted ones whole."""
    found = []
    for strict in (True, False):
        rows = _read_rows(text, separator, strict=strict)
        widths: Counter[int] = Counter()
        with suppress(csv.Error):
            widths.update(map(len, islice(rows, _SAMPLED)))
        found.append(max((count for width, count in widths.items() if width > 1), default=0))
    return found[0], found[1]


def _read_rows(text: str, separator: str, **options: Any) -> Iterator[list[str]]:
    return csv.reader(io.StringIO(text, newline=""), delimiter=separator, **options)


# How cells are quoted: as is usual, after blanks, with backslashes, not at all.
_QUOTING: list[dict[str, Any]] = [{}, {"skipinitialspace": True}]
_QUOTING += [{"escapechar": "\\"}, {"quoting": csv.QUOTE_NONE}]


def _find_quoting(text: str, separator: str) -> dict[str, Any]:
    """Return how cells are quoted, as options of the parser: as most rows get the same length. Rows
    may leave out cells, so what is no fault of the usual way is no sign of most others."""
    if '"' not in text:
        return {}
    ways = _QUOTING
    with suppress(csv.Error):
        deque(_read_rows(text, separator, strict=True), maxlen=0)
        ways = _QUOTING[:2]

    def count_even(way: dict[str, Any]) -> int:
        widths = Counter(len(row) for row in _read_rows(text, separator, **way) if row)
        return 2 * max((widths[each] for each in widths if each > 1), default=0) - widths.total()

    return max(ways, key=count_even)


def _is_head_short(rows: Iterator[list[str]]) -> bool:
    """Report whether the first row is a head that does not name the first column, as R writes it:
    each of the others is one cell longer."""
    head = next(rows, [])
    seen = list(islice(rows, _SEEN))
    kinds = _kinds(seen)
    return (
        all(len(row) == len(head) + 1 for row in chain(seen, rows) if row)
        and all([*head, *kinds[-1:]])
        and _is_head(["", *head], kinds) is True
        and _is_head(seen[0], kinds) is False
    )


def _iter_rows(text: str, separator: str) -> Iterator[Row]:
    """Yield the rows with text."""
    quoting = _find_quoting(text, separator)
    is_short = _is_head_short(_read_rows(text, separator, **quoting))
    for number, row in enumerate(_read_rows(text, separator, **quoting), start=1):
        cells = [" ".join(cell.split()) for cell in row]
        if number == 1 and is_short:
            cells.insert(0, "")
        if any(cells):
            yield number, cells


_BLOCK = re.compile(
    r"^(?:\#\#[ ](?P<heading>.*)|(?P<table>\|.*(?:\n\|.*)*+)|\S.*(?:\n(?!\#\#[ ]|\|)\S.*)*+)",
    re.MULTILINE | re.VERBOSE,
)
_ESCAPED = re.compile(r"\\(\W)")


def table_tree(text: str, document_id: str) -> Tree:
    """Return the tree of tables, each under the heading (`##`) of its sheet, if it has one."""
    builder = OutlineBuilder(text, document_id, levels=())
    basis = Basis.NONE
    for block in _BLOCK.finditer(text):
        if block["heading"] is not None:
            title = " ".join(_ESCAPED.sub(r"\1", block["heading"]).split())
            builder.add_heading(block.start(), block.end(), 2, title)
            basis = Basis.MARKUP
        else:
            kind = Kind.PARAGRAPH if block["table"] is None else Kind.TABLE
            builder.add_block(kind, block.start())
    return builder.build(Structure(1.0, basis))
