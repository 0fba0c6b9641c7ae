"""Tables as files: a spreadsheet, CSV, JSON or Markdown, each cell with its place.

Documents and models wrote the texts: nothing in them may become a formula, a link or HTML.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from colligate.errors import UsageError
from colligate.export import describe_place, escape_markdown, require_writable, write_file
from colligate.models.metering import UsageReport
from colligate.table.book import Cell, CellValue, Row, read_cell
from colligate.table.columns import Column, Layout


@dataclass(frozen=True)
class Table:
    """The rows of a table, and what filling them cost."""

    layout: Layout
    rows: tuple[Row, ...]
    usage: UsageReport = field(default_factory=UsageReport)
    warnings: tuple[str, ...] = ()
    model: str = ""

    @property
    def filled(self) -> tuple[int, int]:
        """How many cells have a value that holds, and how many there are."""
        cells = [cell for row in self.rows for cell in row.cells.values()]
        return sum(cell.is_filled for cell in cells), len(cells)

    def to_json(self) -> dict[str, Any]:
        """Return the object that `table --json` prints."""
        return {
            "columns": [asdict(each) for each in self.layout.columns],
            "row": self.layout.rows,
            "rows": [asdict(row) for row in self.rows],
            "usage": self.usage.to_json(),
            "warnings": list(self.warnings),
        }

    def export(self, path: str | Path) -> None:
        """Write the table to a file; the ending says the format: .xlsx, .csv, .json or .md.

        Raises:
            UsageError: no format has this ending, or the file cannot be written there.
        """
        write_file(Path(path), choose_table_format(Path(path))(self))


def choose_table_format(path: Path) -> Callable[[Table], bytes]:
    """Return what makes the bytes of a file, as its ending says, if it can be written.

    Raises:
        UsageError: no format has this ending, or the file cannot be written in its folder.
    """
    found = TABLE_FORMATS.get(path.suffix.lower())
    if found is None:
        hint = f"give a name that ends in {', '.join(TABLE_FORMATS)}"
        raise UsageError(f"no table is written as {path.name}", "no format has its ending", hint)
    require_writable(path)
    return found[1]


def read_table(given: Mapping[str, Any]) -> Table:
    """Return a table that `to_json` wrote, without what it cost."""
    layout = {"columns": given["columns"], "rows": given["row"]}
    rows = [
        Row(**{**row, "cells": {name: read_cell(cell) for name, cell in row["cells"].items()}})
        for row in given["rows"]
    ]
    return Table(TypeAdapter(Layout).validate_python(layout), tuple(rows))


def _show(cell: Cell) -> str:
    """Return the values of a cell as plain text."""
    plain = (each.written if each.value is None else _plain(each) for each in cell.values)
    return "; ".join(plain)


def _plain(each: CellValue) -> str:
    value = {True: "yes", False: "no"}.get(each.value) if isinstance(each.value, bool) else None
    return value or " ".join(filter(None, (str(each.value), each.unit)))


def _places(cell: Cell) -> list[str]:
    return [describe_place(v.citation, with_folder=True) for v in cell.values if v.citation]


# Spreadsheets

_LINK_LONGEST = 2000  # characters; Excel's most is 2,079


def _render_xlsx(table: Table) -> bytes:
    import xlsxwriter

    file = io.BytesIO()
    book = xlsxwriter.Workbook(file, {"in_memory": True})
    sheet = book.add_worksheet("Table")
    bold = book.add_format({"bold": True, "text_wrap": True, "valign": "top"})
    styles: dict[tuple[str, str], Any] = {}

    def style(number: str, fill: str = "") -> Any:
        if (number, fill) not in styles:
            given = {"num_format": number, "valign": "top", "text_wrap": True}
            colours = {"bg_color": fill} if fill else {}
            styles[number, fill] = book.add_format({**given, **colours})
        return styles[number, fill]

    heads = _heads(table)
    columns = table.layout.columns
    for at, head in enumerate([*heads, *(column.name for column in columns)]):
        sheet.write_string(0, at, head, bold)
    sheet.set_column(0, len(heads) + len(columns) - 1, 24)
    sheet.freeze_panes(1, len(heads))
    for line, row in enumerate(table.rows, 1):
        for at, text in enumerate(_names(table, row)):
            sheet.write_string(line, at, text, style(""))
        for at, column in enumerate(columns, len(heads)):
            _write_cell(sheet, (line, at), row.cells[column.name], style)
    last = len(table.rows)
    for line, (name, (function, total)) in enumerate(_TOTALS.items(), last + 1):
        cells = [(at, *_numbers(table, each)) for at, each in enumerate(columns, len(heads))]
        wanted = [each for each in cells if each[2] and (name != "Sum" or each[1] != _DAY)]
        for at, unit, numbers in wanted:
            letter, value = _letters(at), total(numbers)
            formula = f"={function}({letter}2:{letter}{last + 1})"
            # Of a formula without its value some programs show 0.
            sheet.write_formula(line, at, formula, style(_number_format(unit, value)), value)
        if wanted:
            sheet.write_string(line, 0, name, bold)
    book.close()
    return file.getvalue()


_DAY, _FIRST_DAY = "date", date(1899, 12, 30)  # the day 0 of spreadsheets
_TOTALS: Mapping[str, tuple[str, Callable[[list[float]], float]]] = {
    "Sum": ("SUM", sum),
    "Lowest": ("MIN", min),
    "Highest": ("MAX", max),
}
_DOUBT, _NONE = "#FFF2CC", "#EEEEEE"


def _write_cell(sheet: Any, at: tuple[int, int], cell: Cell, style: Callable[..., Any]) -> None:
    """Write a value as a number or a date where it is one, with its place as note and link."""
    only = cell.values[0] if len(cell.values) == 1 else None
    fill = _DOUBT if cell.doubt else "" if cell.values else _NONE
    first = next((each.citation for each in cell.values if each.citation), None)
    text = _show(cell) or str(cell.reason or "")
    if first and (link := _link(first)):
        sheet.write_url(*at, link, style("", fill), text[:255])
    day = _day(only)
    if day is not None:
        sheet.write_datetime(*at, day, style("yyyy-mm-dd", fill))
    elif only and isinstance(only.value, int | float) and not isinstance(only.value, bool):
        sheet.write_number(*at, only.value, style(_number_format(only.unit, only.value), fill))
    else:
        sheet.write_string(*at, text[:32_000], style("", fill))
    notes = [cell.doubt, "corrected by hand" if cell.corrected else ""]
    for each in cell.values:
        if each.citation:
            place = describe_place(each.citation, with_folder=True)
            notes += [f"“{each.written}”: {place}", str(each.citation["quote"])[:600]]
    if note := "\n".join(filter(None, notes)):
        sheet.write_comment(*at, note[:30_000], {"x_scale": 3, "y_scale": 2})


def _link(citation: Mapping[str, Any]) -> str:
    source, page = str(citation["source"]), citation["page"]
    if not source.startswith(("https://", "http://")):
        if not Path(source).is_absolute():
            return ""
        # XlsxWriter turns what begins with "file:" into a path of Windows.
        source = "FILE" + Path(source).as_uri().removeprefix("file")
    link = source + (f"#page={page}" if page else "")
    return link if len(link) <= _LINK_LONGEST else ""


def _day(value: CellValue | None) -> date | None:
    """Return the day of a value that is one."""
    try:
        return date.fromisoformat(value.value) if value and isinstance(value.value, str) else None
    except ValueError:
        return None


def _numbers(table: Table, column: Column) -> tuple[str, list[float]]:
    """Return the one unit of a column's numbers and these, dates as days; else no numbers."""
    found: list[tuple[str, float]] = []
    for cell in (row.cells[column.name] for row in table.rows):
        if not cell.is_filled or len(cell.values) > 1:  # several are written as text
            continue
        value, day = cell.values[0].value, _day(cell.values[0])
        if day:
            found.append((_DAY, (day - _FIRST_DAY).days))
        elif isinstance(value, int | float) and not isinstance(value, bool):
            found.append((cell.values[0].unit, value))
        else:
            return "", []
    units = {unit for unit, _ in found}
    return (units.pop(), [number for _, number in found]) if len(units) == 1 else ("", [])


def _number_format(unit: str, value: float) -> str:
    """Return the format of a number in a spreadsheet, with its unit."""
    if unit == _DAY:
        return "yyyy-mm-dd"
    quoted = unit.replace('"', "")
    digits = "#,##0" if float(value).is_integer() else "#,##0.00##"
    return digits + {"": "", "percent": '"%"'}.get(unit, f' "{quoted}"')


def _letters(at: int) -> str:
    """Return the letters of a column of a spreadsheet.

    >>> _letters(0), _letters(27)
    ('A', 'AB')
    """
    before, last = divmod(at, 26)
    return (_letters(before - 1) if before else "") + chr(ord("A") + last)


# Texts


def _heads(table: Table) -> list[str]:
    return ["Document", "File", *(["Row"] if table.layout.rows else [])]


def _names(table: Table, row: Row) -> list[str]:
    return [row.title, row.source, *([row.name] if table.layout.rows else [])]


def _render_csv(table: Table) -> bytes:
    """Return a line for each row; beside each column its words and its place."""
    file = io.StringIO()
    writer = csv.writer(file)
    columns = [column.name for column in table.layout.columns]
    beside = [[name, f"{name} (as written)", f"{name} (where)"] for name in columns]
    writer.writerow(map(_inert, [*_heads(table), *(head for heads in beside for head in heads)]))
    for row in table.rows:
        line = _names(table, row)
        for cell in (row.cells[name] for name in columns):
            line += [_show(cell), cell.text or str(cell.reason or ""), "; ".join(_places(cell))]
        writer.writerow(map(_inert, line))
    return file.getvalue().encode("utf-8-sig")


def _inert(text: str) -> str:
    """Return a text that no spreadsheet takes for a formula."""
    active = text[:1] in ("=", "+", "-", "@", "\t", "\r")
    return f"'{text}" if active else text


def _render_json(table: Table) -> bytes:
    return json.dumps(table.to_json(), ensure_ascii=False, indent=1).encode(errors="replace")


def _render_markdown(table: Table) -> bytes:
    return "\n".join(_write_markdown(table)).encode(errors="replace")


def _write_markdown(table: Table) -> Iterator[str]:
    heads = [*_heads(table), *(column.name for column in table.layout.columns)]
    yield _line(heads)
    yield _line(["---"] * len(heads))
    places: list[str] = []
    for row in table.rows:
        line = [escape_markdown(each) for each in _names(table, row)]
        for column in table.layout.columns:
            cell = row.cells[column.name]
            marks = ""
            for place in _places(cell):
                places.append(place)
                marks += f"[{len(places)}]"
            shown = escape_markdown(_show(cell) or str(cell.reason or ""))
            doubt = f" ({escape_markdown(cell.doubt)})" if cell.values and cell.doubt else ""
            line.append(f"{shown}{doubt} {marks}".strip())
        yield _line(line)
    yield ""
    for number, place in enumerate(places, 1):
        yield f"[{number}] {escape_markdown(place)}  "


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(' '.join(each.split()) for each in cells)} |"


_WORKBOOK = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
TABLE_FORMATS: Mapping[str, tuple[str, Callable[[Table], bytes]]] = {
    ".xlsx": (_WORKBOOK, _render_xlsx),
    ".csv": ("text/csv", _render_csv),
    ".json": ("application/json", _render_json),
    ".md": ("text/markdown", _render_markdown),
}
"""The media type of each ending, and what makes the bytes of such a file."""
