"""OpenDocument: texts, which become HTML first, and workbooks, with one section a sheet."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat

from lxml import etree  # type: ignore[import-untyped]

from colligate.documents.document import Document
from colligate.documents.markdown import format_table
from colligate.documents.reading.html import parse_html
from colligate.documents.reading.office import (
    WIDEST_GAP,
    Archive,
    limit_gap,
    place_cells,
    read_properties,
    to_html,
)
from colligate.documents.reading.source import SourceFile, make_document
from colligate.documents.reading.tables import table_tree

# Texts

_ODT = {"p": "p", "list": "ul", "list-item": "li", "list-header": "li", "a": "a"}
_ODT |= {"table": "table", "table-row": "tr", "table-cell": "td", "covered-table-cell": "td"}
_ODT |= {"line-break": "br", "section": "div", "text-box": "div", "text": "div", "sup": "sup"}
_ODT |= {f"h{level}": f"h{level}" for level in range(1, 7)}
_ODT_DROPPED = "tracked-changes annotation annotation-end hidden-text hidden-paragraph forms desc"
_ODT_DROPPED += " note sequence-decls variable-decls user-field-decls title"
_DEEPEST_HEADING = 6


def read_odt(source: SourceFile) -> Document:
    """Read an OpenDocument text: headings, lists, tables, and its notes at its end."""
    archive = Archive(source)
    body = archive.require("content.xml").find(".//{*}body/{*}text")
    written = ""
    if body is not None:
        notes = list(_mark_notes(body))
        _spell_out(body, archive)
        written = to_html(body, _ODT, _ODT_DROPPED.split())
        written += "".join(to_html(note, _ODT, _ODT_DROPPED.split()) for note in notes)
    metadata = read_properties(archive.parse("meta.xml"))
    text, _ = parse_html(source, written)
    return make_document(source, text, metadata=metadata)


def _mark_notes(body: etree._Element) -> Iterator[etree._Element]:
    """Yield the texts of footnotes and endnotes; their numbers stay in the text."""
    for note in body.findall(".//{*}note"):
        number = f"[{note.findtext('{*}note-citation') or '*'}]"
        note.addprevious(mark := etree.Element("sup"))
        mark.text, mark.tail, note.tail = number, note.tail, ""
        if (content := note.find("{*}note-body")) is not None:
            first = content[0] if len(content) else content
            first.text = f"{number} {first.text or ''}"
            yield content


_SPACES = {"s": " ", "tab": "\t"}


def _spell_out(body: etree._Element, archive: Archive) -> None:
    """Write blanks, levels of headings and formulas, which are elements of their own, as text."""
    for element in body.iter("{*}s", "{*}tab"):
        element.text = _SPACES[etree.QName(element).localname]
    for line in body.iterfind(".//{*}list-item/{*}p[1]"):
        line.tag = "span"  # else each item is a paragraph apart
    for heading in body.iter("{*}h"):
        level = heading.xpath("string(@*[local-name()='outline-level'])")
        heading.tag = f"h{min(int(level) if level.isdigit() else 1, _DEEPEST_HEADING)}"
    for shown in body.iter("{*}object"):
        place = shown.xpath("string(@*[local-name()='href'])").removeprefix("./")
        formula = archive.parse(f"{place}/content.xml")
        if etree.QName(formula).localname == "math":
            shown.text = formula.xpath("string(.//*[local-name()='annotation'])")


# Workbooks


def read_ods(source: SourceFile) -> Document:
    """Read an OpenDocument workbook: its cells as they are shown."""
    archive = Archive(source)
    text = ""
    for each in archive.require("content.xml").iterfind(".//{*}body/{*}spreadsheet/{*}table"):
        name = " ".join(each.xpath("string(@*[local-name()='name'])").split())
        table = format_table(_iter_rows(each), rule=" --- ")
        text += f"## {name}\n\n{table}\n\n" if table else ""
    metadata = read_properties(archive.parse("meta.xml"))
    return make_document(source, text, tree=table_tree, metadata=metadata)


_REPEATED = "string(@*[local-name()='number-{}-repeated'])"


def _iter_rows(table: etree._Element) -> Iterator[list[str]]:
    """Yield the rows of a sheet with text, blank ones between them."""
    blank: int | None = None  # rows since the last with text
    for row in table.iter("{*}table-row"):
        cells: dict[int, str] = {}
        column = 0
        for cell in row.iterchildren("{*}table-cell", "{*}covered-table-cell"):
            count = _count(cell, "columns")
            text = " ".join("\n".join("".join(p.itertext()) for p in cell.iterfind("{*}p")).split())
            if text:
                cells.update(dict.fromkeys(range(column, column + min(count, WIDEST_GAP)), text))
            column += count
        count = _count(row, "rows")
        if cells:
            yield from repeat([""], limit_gap(blank) if blank is not None else 0)
            shown = min(count, WIDEST_GAP)
            yield from repeat(place_cells(cells), shown)
            blank = count - shown
        elif blank is not None:
            blank += count


def _count(element: etree._Element, what: str) -> int:
    stated = element.xpath(_REPEATED.format(what))
    return int(stated) if stated.isdigit() else 1
