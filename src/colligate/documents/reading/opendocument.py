"""OpenDocument texts, which become HTML first."""

from __future__ import annotations

from collections.abc import Iterator

from lxml import etree  # type: ignore[import-untyped]

from colligate.documents.document import Document
from colligate.documents.reading.html import parse_html
from colligate.documents.reading.office import Archive, read_properties, to_html
from colligate.documents.reading.source import SourceFile, make_document

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
