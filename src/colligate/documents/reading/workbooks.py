"""Workbooks: one section a sheet, its cells as their program shows them.

Only cells with text are kept, so a value in the last cell of a sheet costs nothing. Libraries hold
the whole range of a sheet in memory, or do not tell 12.5% from 0.125.
"""

from __future__ import annotations

import io
import posixpath
import re
from collections.abc import Iterator
from datetime import datetime
from functools import cache
from typing import Any

from lxml import etree  # type: ignore[import-untyped]

from colligate.documents.document import Document
from colligate.documents.reading.number_formats import KNOWN_FORMATS, show_number
from colligate.documents.reading.office import Archive, attr, read_properties
from colligate.documents.reading.source import SourceFile
from colligate.documents.reading.tables import WIDEST_GAP, Row, Sheets
from colligate.errors import CorruptFile, EncryptedFile

_MOST_NAMED = 5
_TRUE = ("1", "true")
_Place = tuple[int, int]
"""The number of a cell's row, from 1, and its column, from 0."""


class _Grid:
    """What a sheet has beside its cells: merged ones, whose text is repeated downwards, notes and
    links of cells, hidden rows and columns."""

    def __init__(self, allowed: int) -> None:
        self.merged: dict[int, list[tuple[int, int, int]]] = {}
        self.notes: dict[int, dict[int, str]] = {}
        self.links: dict[_Place, str] = {}
        self.hidden_columns: list[tuple[int, int]] = []
        self.hidden: dict[str, None] = {}  # those with text, in words
        self._allowed = allowed  # characters that may be repeated
        self._going: dict[int, tuple[int, str]] = {}  # by column: the last row, the text

    def add_note(self, place: _Place, text: str) -> None:
        """Add a note of a cell."""
        notes = self.notes.setdefault(place[0], {})
        notes[place[1]] = f"{notes.get(place[1], '')} [note: {' '.join(text.split())}]".lstrip()

    def place(self, number: int, cells: dict[int, str], *, is_hidden: bool = False) -> Row:
        """Return a row of the sheet: its cells in their columns, and what belongs to them."""
        if is_hidden and cells:
            self.hidden[f"row {number}"] = None
        for left, right in self.hidden_columns:
            self.hidden |= {f"column {_name(n)}": None for n in cells if left <= n <= right}
        for column, text in cells.items() if self.links else ():
            address = self.links.get((number, column), text)
            is_shown = address.removeprefix("mailto:") in text
            cells[column] = text if is_shown else f"{text} ({address})"
        for column, (last, text) in [*self._going.items()] if cells and self._going else ():
            if number > last or self._allowed < 0:
                del self._going[column]
            elif column not in cells:
                cells[column] = text
                self._allowed -= len(text) + 3  # and a bar
        for left, _, last in self.merged.get(number, ()):
            if last > number and left in cells:
                self._going[left] = (last, cells[left])
        for column, note in self.notes.pop(number, {}).items():
            cells[column] = f"{cells.get(column, '')} {note}".lstrip()
        row: list[str] = []
        for column in sorted(cells):
            if gap := column - len(row):
                row += [""] * (gap if gap <= WIDEST_GAP else 1)
            row.append(cells[column])
        return number, row


class _Workbook:
    """The sheets that were read so far, and which of them hide what."""

    def __init__(self, source: SourceFile) -> None:
        self._source = source
        self._sheets = Sheets()
        self._hidden: list[str] = []
        self._parts: list[str] = []

    def add(self, name: str, rows: Iterator[Row], grid: _Grid, *, is_hidden: bool = False) -> None:
        """Add a sheet; notes of rows without any other text come after it."""
        self._sheets.add(rows, " ".join(name.split()), grid.merged)
        self._sheets.text += [note for notes in grid.notes.values() for note in notes.values()]
        if is_hidden:
            self._hidden.append(name)
        if grid.hidden:
            more = ", ..." if len(grid.hidden) > _MOST_NAMED else ""
            self._parts.append(f"{', '.join([*grid.hidden][:_MOST_NAMED])}{more} of {name}")

    def add_text(self, lines: list[str]) -> None:
        """Add paragraphs after the last sheet."""
        self._sheets.text += filter(None, (" ".join(line.split()) for line in lines))

    def make_document(self, metadata: dict[str, str]) -> Document:
        """Return the document of all sheets, with warnings of what is hidden in the workbook."""
        if self._hidden:
            self._source.warn(f"hidden sheets are read: {', '.join(self._hidden)}")
        if self._parts:
            self._source.warn(f"hidden rows and columns are read: {'; '.join(self._parts)}")
        return self._sheets.make_document(self._source, metadata)


def _name(column: int) -> str:
    letters = ""
    while column >= 0:
        column, letter = divmod(column, 26)
        letters = chr(ord("A") + letter) + letters
        column -= 1
    return letters


def read_xlsx(source: SourceFile) -> Document:
    """Read a workbook; what is hidden, and formulas that were never computed, are a warning."""
    archive = Archive(source)
    if "xl/workbook.bin" in archive.names:
        raise source.error(CorruptFile, "it is a binary workbook", "save it as .xlsx")
    book = archive.require("xl/workbook.xml")
    related = archive.related("xl/workbook.xml")
    reader, workbook = _CellReader(archive, book), _Workbook(source)
    for listed in book.iterfind(".//{*}sheets/{*}sheet"):
        part = related.get(listed.xpath("string(@*[namespace-uri()])"), "")
        grid = _Grid(source.limits.text_bytes)
        boxes = _read_surroundings(archive, part, grid)
        rows = reader.iter_rows(archive.iterate(part, "row"), grid)
        is_hidden = listed.get("state", "visible") != "visible"
        workbook.add(listed.get("name", ""), rows, grid, is_hidden=is_hidden)
        workbook.add_text(boxes)
    if reader.blank:
        source.warn(f"formulas without a stored value are blank: {reader.blank:,}")
    return workbook.make_document(read_properties(archive.parse("docProps/core.xml")))


_ROWS = re.compile(rb"<(?:\w+:)?sheetData\b.*</(?:\w+:)?sheetData>", re.DOTALL)


def _read_surroundings(archive: Archive, part: str, grid: _Grid) -> list[str]:
    """Read what a sheet has around its rows; return the lines of its text boxes."""
    folder, _, file = part.rpartition("/")
    lines: list[str] = []
    addresses: dict[str, str] = {}
    for each in archive.parse(f"{folder}/_rels/{file}.rels"):
        kind, target = each.get("Type", "").rpartition("/")[2], each.get("Target", "")
        if kind == "hyperlink":
            addresses[each.get("Id", "")] = target
            continue
        root = archive.parse(posixpath.normpath(posixpath.join("/", folder, target)).lstrip("/"))
        if kind == "threadedComment":  # the others have only a copy of the first
            grid.notes.clear()
        if kind == "threadedComment" or (kind == "comments" and not grid.notes):
            for comment in root.iter("{*}comment", "{*}threadedComment"):
                text = comment.findtext("{*}text") if kind == "threadedComment" else ""
                grid.add_note(_read_range(comment.get("ref", ""))[0], text or _join_text(comment))
        elif kind == "drawing":
            lines += map(_join_text, root.iterfind(".//{*}txBody/{*}p"))
    parser = etree.XMLParser(resolve_entities=False, no_network=True, huge_tree=True, recover=True)
    frame = etree.fromstring(_ROWS.sub(b"", archive.read(part)) or b"<none/>", parser)
    for each in frame.iter() if frame is not None else ():
        name = str(each.tag).rpartition("}")[2]
        (row, column), (last, right) = _read_range(each.get("ref", ""))
        if name == "mergeCell":
            grid.merged.setdefault(row, []).append((column, right, last))
        elif name == "hyperlink":
            grid.links[row, column] = addresses.get(each.xpath("string(@*[namespace-uri()])"), "")
        elif name == "col" and each.get("hidden") in _TRUE:
            grid.hidden_columns.append((_int(each.get("min")) - 1, _int(each.get("max")) - 1))
    return lines


_PLACE = re.compile(r"([A-Z]{1,3})(\d{1,7})(?![A-Z0-9])")
_LOGICAL = {"0": "FALSE", "1": "TRUE"}


class _CellReader:
    """Reads the cells of a workbook's sheets; `blank` counts formulas without a value."""

    def __init__(self, archive: Archive, book: etree._Element) -> None:
        self.blank = 0
        self._strings = [_join_text(each) for each in archive.iterate("xl/sharedStrings.xml", "si")]
        styles = archive.parse("xl/styles.xml")
        forms = styles.iter("{*}numFmt")
        own = {each.get("numFmtId"): each.get("formatCode", "") for each in forms}
        used = styles.findall(".//{*}cellXfs/{*}xf")
        numbers = [each.get("numFmtId", "") for each in used]
        self._formats = [own.get(n) or KNOWN_FORMATS.get(_int(n), "") for n in numbers]
        fonts = enumerate(styles.iterfind(".//{*}fonts/{*}font"))
        struck = {str(n) for n, font in fonts if _is_struck(font)}
        self._struck = {str(n) for n, each in enumerate(used) if each.get("fontId") in struck}
        properties = book.find("{*}workbookPr")
        since_1904 = properties is not None and properties.get("date1904") in _TRUE
        self._day_zero = datetime(1904, 1, 1) if since_1904 else datetime(1899, 12, 30)

    def iter_rows(self, rows: Iterator[etree._Element], grid: _Grid) -> Iterator[Row]:
        """Yield the rows of a sheet with text. A cell that does not say where it is follows the
        last."""
        number = 0
        for row in rows:
            number = _int(row.get("r")) or number + 1
            cells: dict[int, str] = {}
            column = -1
            for cell in row.iterfind("{*}c"):
                place = _PLACE.match(cell.get("r", ""))
                column = _read_column(place[1]) if place else column + 1
                if text := " ".join(self._read(cell).split()):
                    is_struck = cell.get("s", "0") in self._struck and _STRUCK not in text
                    cells[column] = _strike(text) if is_struck else text
            if cells or number in grid.notes:
                yield grid.place(number, cells, is_hidden=row.get("hidden") in _TRUE)

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
        at = _int(cell.get("s"))
        form = self._formats[at] if at < len(self._formats) else ""
        if kind == "d":  # ISO 8601
            return value.replace("T", " ").removesuffix(" 00:00:00")
        return value if kind != "n" else show_number(value, form, self._day_zero)


def _int(value: str | None) -> int:
    return int(value) if value and value.isdecimal() and len(value) < 10 else 0


def _read_range(reference: str) -> tuple[_Place, _Place]:
    """Return the first and the last cell of a range such as A2:C9, or of one cell."""
    found = [(int(row), _read_column(column)) for column, row in _PLACE.findall(reference)]
    return (found[0], found[-1]) if found else ((0, 0), (0, 0))


@cache
def _read_column(letters: str) -> int:
    number = 0
    for letter in letters:
        number = 26 * number + ord(letter) - ord("A") + 1
    return number - 1


_CODED = re.compile("_x([0-9A-Fa-f]{4})_")  # a control character, such as _x000D_


def _join_text(element: etree._Element) -> str:
    """Return the runs of a text, without its reading aids (phonetic runs)."""
    text = "".join(
        _strike(each.text or "", "\0") if _is_struck(run.find("{*}rPr")) else each.text or ""
        for each in element.iter("{*}t")
        if not (run := each.getparent()).tag.endswith("rPh")
    )
    text = text.replace("\0\0", "").replace("\0", _STRUCK)  # struck runs are one
    return _CODED.sub(lambda code: chr(int(code[1], 16)), text) if "_x" in text else text


_STRUCK = "~~"


def _is_struck(font: etree._Element | None) -> bool:
    found = font.iterfind("{*}strike") if font is not None else ()
    return any(each.get("val", "1") in _TRUE for each in found)


def _strike(text: str, mark: str = _STRUCK) -> str:
    return text.replace(bare, f"{mark}{bare}{mark}", 1) if (bare := text.strip()) else text


def read_xls(source: SourceFile) -> Document:
    """Read a workbook of Excel 97 to 2003."""
    import xlrd

    try:
        book = xlrd.open_workbook(
            file_contents=source.data, formatting_info=True, ragged_rows=True, logfile=io.StringIO()
        )
    except Exception as error:  # xlrd lets whatever damaged records raise through
        if "encrypt" in str(error):
            raise source.error(EncryptedFile, "it is encrypted", "remove its password") from error
        why = f"it is damaged ({error})"[:200]
        raise source.error(CorruptFile, why, "save it again") from error
    workbook = _Workbook(source)
    for sheet in book.sheets():
        grid = _Grid(source.limits.text_bytes)
        for top, bottom, left, right in sheet.merged_cells:
            grid.merged.setdefault(top + 1, []).append((left, right - 1, bottom))
        for (row, column), note in sheet.cell_note_map.items():
            grid.add_note((row + 1, column), note.text)
        for (row, column), link in sheet.hyperlink_map.items():
            grid.links[row + 1, column] = link.url_or_path if link.type == "url" else ""
        hidden = [column for column, info in sheet.colinfo_map.items() if info.hidden]
        grid.hidden_columns = [(column, column) for column in hidden]
        rows = _iter_xls_rows(book, sheet, grid)
        workbook.add(sheet.name, rows, grid, is_hidden=bool(sheet.visibility))
    return workbook.make_document({})


def _iter_xls_rows(book: Any, sheet: Any, grid: _Grid) -> Iterator[Row]:
    from xlrd import error_text_from_code

    day_zero = datetime(1904, 1, 1) if book.datemode else datetime(1899, 12, 30)
    for number in range(sheet.nrows):
        cells: dict[int, str] = {}
        for column, cell in enumerate(sheet.row(number)):
            text = str(cell.value)
            if cell.ctype in (2, 3):  # numbers and dates
                form = book.format_map[book.xf_list[cell.xf_index].format_key].format_str
                text = show_number(text, form, day_zero)
            elif cell.ctype == 4:
                text = _LOGICAL.get(text, text)
            elif cell.ctype == 5:
                text = error_text_from_code.get(cell.value, text)
            if text := " ".join(text.split()):
                cells[column] = text
        if cells or number + 1 in grid.notes:
            info = sheet.rowinfo_map.get(number)
            yield grid.place(number + 1, cells, is_hidden=bool(info and info.hidden))


def read_ods(source: SourceFile) -> Document:
    """Read an OpenDocument workbook: its cells as they are shown."""
    archive = Archive(source)
    workbook, content = _Workbook(source), archive.require("content.xml")
    hidden = {
        attr(style, "name")
        for style in content.iterfind("{*}automatic-styles/{*}style")
        for shown in style.iterfind("{*}table-properties")
        if attr(shown, "display") == "false"
    }
    for each in content.iterfind(".//{*}body/{*}spreadsheet/{*}table"):
        grid = _Grid(source.limits.text_bytes)
        is_hidden = attr(each, "style-name") in hidden
        workbook.add(attr(each, "name"), _iter_ods(each, grid), grid, is_hidden=is_hidden)
    return workbook.make_document(read_properties(archive.parse("meta.xml")))


_HIDDEN = ("collapse", "filter")
_VALUES = ("time-value", "boolean-value", "string-value", "value")


def _iter_ods(table: etree._Element, grid: _Grid) -> Iterator[Row]:
    """Yield the rows of a sheet with text."""
    column = 0
    for each in table.iter("{*}table-column"):
        count = _int(attr(each, "number-columns-repeated")) or 1
        if attr(each, "visibility") in _HIDDEN:
            grid.hidden_columns.append((column, column + count - 1))
        column += count
    number = 1
    for row in table.iter("{*}table-row"):
        cells: dict[int, str] = {}
        column = 0
        for cell in row.iterchildren("{*}table-cell", "{*}covered-table-cell"):
            count = _int(attr(cell, "number-columns-repeated")) or 1
            if text := _read_open_cell(cell):
                cells.update(dict.fromkeys(range(column, column + min(count, WIDEST_GAP)), text))
            for note in cell.iterfind("{*}annotation"):
                grid.add_note((number, column), " ".join(_read_lines(note)))
            down, right = (_int(attr(cell, f"number-{way}-spanned")) for way in ("rows", "columns"))
            if max(down, right) > 1:
                merged = (column, column + max(right, 1) - 1, number + max(down, 1) - 1)
                grid.merged.setdefault(number, []).append(merged)
            column += count
        count = _int(attr(row, "number-rows-repeated")) or 1
        if cells or number in grid.notes:
            _, shown = grid.place(number, cells, is_hidden=attr(row, "visibility") in _HIDDEN)
            for repeated in range(min(count, WIDEST_GAP)):
                yield number + repeated, shown
        number += count


def _read_open_cell(cell: etree._Element) -> str:
    """Return what a cell shows, a date in ISO 8601; its value if it shows nothing."""
    if day := attr(cell, "date-value"):
        return day.replace("T", " ").removesuffix(" 00:00:00")
    shown = " ".join(" ".join(_read_lines(cell)).split())
    return shown or next(filter(None, (attr(cell, each) for each in _VALUES)), "")


def _read_lines(cell: etree._Element) -> Iterator[str]:
    """Yield the paragraphs of a cell or a note, with the addresses of its links."""
    for line in cell.iterfind("{*}p"):
        links = (attr(link, "href") for link in line.iter("{*}a"))
        text = "".join(line.itertext())
        yield " ".join([text, *(f"({each})" for each in links if each and each not in text)])


_NAMED = {"Percent": "0.00%", "Fixed": "0.00", "Scientific": "0.00E+00", "Standard": "#,##0.00"}
_NAMED |= {"Currency": "#,##0.00", "Euro Currency": "#,##0.00"}


def read_xml_workbook(source: SourceFile) -> Document:
    """Read a workbook in the XML of Excel 2003."""
    parser = etree.XMLParser(resolve_entities=False, no_network=True, huge_tree=True, recover=True)
    book = etree.fromstring(source.text.partition("?>")[2].encode(), parser)
    if book is None:
        raise source.error(CorruptFile, "its XML is damaged", "save it again")
    forms = {
        attr(style, "ID"): attr(form, "Format")
        for style in book.iter("{*}Style")
        for form in style.iterfind("{*}NumberFormat")
    }
    workbook = _Workbook(source)
    for each in book.iterfind("{*}Worksheet"):
        grid = _Grid(source.limits.text_bytes)
        workbook.add(attr(each, "Name"), _iter_xml_rows(each, grid, forms), grid)
    return workbook.make_document({})


def _iter_xml_rows(sheet: etree._Element, grid: _Grid, forms: dict[str, str]) -> Iterator[Row]:
    number = 0
    for row in sheet.iter("{*}Row"):
        number = _int(attr(row, "Index")) or number + 1
        cells: dict[int, str] = {}
        column = -1
        for cell in row.iterfind("{*}Cell"):
            column = (_int(attr(cell, "Index")) or column + 2) - 1
            data, note = cell.find("{*}Data"), cell.find("{*}Comment")
            text = " ".join("".join(data.itertext()).split()) if data is not None else ""
            form = forms.get(attr(cell, "StyleID"), "")
            if text and attr(data, "Type") == "Number":
                text = show_number(text, _NAMED.get(form, form), datetime(1899, 12, 30))
            elif text and attr(data, "Type") == "DateTime":
                text = text.partition(".")[0].replace("T", " ").removesuffix(" 00:00:00")
            if text:
                cells[column] = text
            if note is not None:
                grid.add_note((number, column), " ".join(note.itertext()))
            right, down = (_int(attr(cell, f"Merge{way}")) for way in ("Across", "Down"))
            if right or down:
                grid.merged.setdefault(number, []).append((column, column + right, number + down))
            column += right
        if cells or number in grid.notes:
            yield grid.place(number, cells, is_hidden=attr(row, "Hidden") in _TRUE)
