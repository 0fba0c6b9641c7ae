"""Workbooks (XLSX): one section a sheet, with its table.

Only cells with text are kept, so a value in the last cell of a sheet costs nothing. Libraries hold
the whole range of a sheet in memory, or do not tell 12.5% from 0.125.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import cache

from lxml import etree  # type: ignore[import-untyped]

from colligate.documents.document import Document
from colligate.documents.markdown import format_table
from colligate.documents.reading.office import CORE, Archive, read_properties
from colligate.documents.reading.source import SourceFile, make_document
from colligate.documents.reading.tables import table_tree

_Rows = Iterator[tuple[int, dict[int, str]]]
"""Rows in order, each with its number from 0 and its cells by column; those without text are left
out."""
_WIDEST_GAP = 1_000  # blank rows or columns that are kept: more are a stray value's


def _write_sheet(name: str, rows: _Rows) -> str:
    """Return a sheet as its name and its table; the number of a row stays true."""
    table = format_table(_fill(rows), rule=" --- ")
    return f"## {' '.join(name.split())}\n\n{table}\n\n" if table else ""


def _fill(rows: _Rows) -> Iterator[list[str]]:
    last: int | None = None
    for number, cells in rows:
        gap = number - last - 1 if last is not None else 0
        yield from ([""] for _ in range(gap if gap <= _WIDEST_GAP else 1))
        row: list[str] = []
        for column in sorted(cells):
            gap = column - len(row)
            row += [""] * (gap if gap <= _WIDEST_GAP else 1)
            row.append(" ".join(cells[column].split()))
        yield row
        last = number


# XLSX


def read_xlsx(source: SourceFile) -> Document:
    """Read a workbook; hidden sheets, and formulas that were never computed, are a warning."""
    archive = Archive(source)
    book = archive.require("xl/workbook.xml")
    related = archive.related("xl/workbook.xml")
    reader = _CellReader(archive, book)
    text, hidden = "", []
    for listed in book.iterfind(".//{*}sheets/{*}sheet"):
        name = listed.get("name", "")
        part = related.get(listed.xpath("string(@*[namespace-uri()])"), "")
        text += _write_sheet(name, reader.iter_rows(archive.iterate(part, "row")))
        if listed.get("state", "visible") != "visible":
            hidden.append(name)
    if reader.blank:
        source.warn(f"formulas without a stored value are blank: {reader.blank:,}")
    if hidden:
        source.warn(f"hidden sheets are read: {', '.join(hidden)}")
    metadata = read_properties(archive.parse(CORE))
    return make_document(source, text, tree=table_tree, metadata=metadata)


_PLACE = re.compile(r"([A-Z]{1,3})(\d{1,7})\Z")
_LOGICAL = {"0": "FALSE", "1": "TRUE"}
# Formats by number that every program knows; others are spelled out in the file.
_PERCENT = {9: "0%", 10: "0.00%"}
_DATES = dict.fromkeys((14, 15, 16, 17, *range(27, 32), *range(50, 59)), "yyyy-mm-dd")
_TIMES = dict.fromkeys((18, 19, 20, 21, *range(32, 36), 45, 46, 47), "h:mm:ss")
_KNOWN = {**_PERCENT, **_DATES, **_TIMES, 22: "yyyy-mm-dd h:mm", 36: "yyyy-mm-dd"}
_LITERAL = re.compile(r'"[^"]*"|\\.|_.|\*.|\[(?![hms]+\])[^\]]*\]|(?i:general|am/pm|a/p)')


class _CellReader:
    """Reads the cells of a workbook's sheets; `blank` counts formulas without a value."""

    def __init__(self, archive: Archive, book: etree._Element) -> None:
        self.blank = 0
        self._strings = [_join_text(each) for each in archive.iterate("xl/sharedStrings.xml", "si")]
        styles = archive.parse("xl/styles.xml")
        own = {
            each.get("numFmtId"): each.get("formatCode", "") for each in styles.iter("{*}numFmt")
        }
        used = [each.get("numFmtId", "") for each in styles.iterfind(".//{*}cellXfs/{*}xf")]
        self._formats = [own.get(n) or _KNOWN.get(int(n) if n.isdigit() else 0, "") for n in used]
        properties = book.find("{*}workbookPr")
        since_1904 = properties is not None and properties.get("date1904") in ("1", "true")
        self._day_zero = datetime(1904, 1, 1) if since_1904 else datetime(1899, 12, 30)

    def iter_rows(self, rows: Iterator[etree._Element]) -> _Rows:
        """Yield the rows of a sheet; a cell that does not say where it is follows the last."""
        number = -1
        for row in rows:
            stated = row.get("r", "")
            number = int(stated) - 1 if stated.isdigit() else number + 1
            cells: dict[int, str] = {}
            column = -1
            for cell in row.iterfind("{*}c"):
                place = _PLACE.match(cell.get("r", ""))
                column = _read_column(place[1]) if place else column + 1
                if text := self._read(cell):
                    cells[column] = text
            if cells:
                yield number, cells

    def _read(self, cell: etree._Element) -> str:
        kind, value = cell.get("t", "n"), cell.findtext("{*}v") or ""
        if not value and kind != "str" and cell.find("{*}f") is not None:
            self.blank += 1
        if kind == "inlineStr":
            return _join_text(cell)
        if kind == "s":
            at = int(value) if value.isdigit() else len(self._strings)
            return self._strings[at] if at < len(self._strings) else ""
        if kind == "b":
            return _LOGICAL.get(value, value)
        style = cell.get("s", "")
        at = int(style) if style.isdigit() else 0
        form = self._formats[at] if at < len(self._formats) else ""
        return value if kind != "n" else self._show(value, form)

    def _show(self, value: str, form: str) -> str:
        """Return a number as its format means it: a percentage, a date, a time or a number."""
        try:
            number = float(value)
        except ValueError:
            return value
        what = _classify(form)
        if what == "percent":
            return f"{100 * number:.10g}%"
        try:
            shown = self._day_zero + timedelta(seconds=round(number * 86_400)) if what else None
        except OverflowError:  # no day that a calendar has
            shown = None
        if shown is None:
            return f"{number:.15g}"
        if what == "time" and 0 <= number < 1:
            return f"{shown:%H:%M:%S}"
        return f"{shown:%Y-%m-%d}" if number.is_integer() else f"{shown:%Y-%m-%d %H:%M:%S}"


@cache
def _classify(form: str) -> str:
    """Return whether a format writes all numbers as "percent", "date" or "time"; else "".

    A quoted "%" is only text, and so are the letters of a colour.
    """
    sections = [each for each in _LITERAL.sub("", form).split(";") if re.search(r"\w|[#?]", each)]
    if sections and all("%" in each for each in sections):
        return "percent"
    first = sections[0].lower() if sections else ""
    if re.search("[yd]", first):
        return "date"
    return "time" if re.search("[hms]", first) else ""


def _read_column(letters: str) -> int:
    number = 0
    for letter in letters:
        number = 26 * number + ord(letter) - ord("A") + 1
    return number - 1


def _join_text(element: etree._Element) -> str:
    """Return the runs of a text, without its reading aids (phonetic runs)."""
    return "".join(
        each.text or ""
        for each in element.iter("{*}t")
        if etree.QName(each.getparent()).localname != "rPh"
    )
