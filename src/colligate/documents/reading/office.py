"""Presentations, and the archives that they are, as other formats.

In PPTX the elements of text are given the names that HTML has for them.
"""

from __future__ import annotations

import io
import posixpath
import re
import struct
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace

from lxml import etree  # type: ignore[import-untyped]

from colligate.documents.document import Document, Page
from colligate.documents.reading.elements import label_comment
from colligate.documents.reading.html import parse_html
from colligate.documents.reading.source import SourceFile, make_document
from colligate.errors import CorruptFile, EncryptedFile, TooLarge

DAMAGED = "open and save it again"
_MEMBER_ERRORS = (
    *(KeyError, ValueError, EOFError, OSError, RuntimeError),
    *(zipfile.BadZipFile, zlib.error),
)
_ALLOWED = 1 << 20  # bytes that an archive of any size may unpack to
_PIECE = 1 << 16


class Archive:
    """The members of a zip-based file that is within the limits; one that is damaged is empty."""

    def __init__(self, source: SourceFile) -> None:
        self.source = source
        try:
            self._zip = zipfile.ZipFile(io.BytesIO(source.data))
        except (zipfile.BadZipFile, ValueError, OSError, EOFError, struct.error) as error:
            why = f"its zip archive is damaged ({error})"
            raise source.error(CorruptFile, why, "fetch it again") from error
        self.names = tuple(self._zip.namelist())
        self._check_members()
        if self.parse("META-INF/manifest.xml").find(".//{*}encryption-data") is not None:
            raise source.error(EncryptedFile, "it is encrypted", "remove its password")

    def _check_members(self) -> None:
        """Refuse very many members, and what unpacks to too much: it is unpacked in small pieces
        and counted, as the sizes that an archive declares may be wrong."""
        data, limits = self.source.data, self.source.limits
        if len(self.names) > limits.members:
            why = f"it packs {len(self.names):,} members and the limit is {limits.members:,}"
            raise self.source.error(TooLarge, why, "split it")
        left = most = min(limits.unpacked_bytes, max(_ALLOWED, limits.ratio * len(data)))
        for member in self._zip.infolist():
            if member.flag_bits & 0x1:
                raise self.source.error(EncryptedFile, "it is encrypted", "remove its password")
            if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                why = f"its members are packed by method {member.compress_type}"
                raise self.source.error(CorruptFile, why, DAMAGED)
            with suppress(*_MEMBER_ERRORS), self._zip.open(member) as packed:
                while left >= 0 and (piece := packed.read(_PIECE)):
                    left -= len(piece)
            if left < 0:
                why = f"its {len(data):,} bytes unpack to more than {most:,}"
                raise self.source.error(TooLarge, why, "unpack it yourself and give the parts")

    def read(self, name: str) -> bytes:
        """Return the bytes of a member; none if it is missing or damaged."""
        try:
            return self._zip.read(name)
        except _MEMBER_ERRORS:
            return b""

    def parse(self, name: str) -> etree._Element:
        """Return the root of a member; an empty element if it is missing or damaged."""
        parser = etree.XMLParser(resolve_entities=False, no_network=True, huge_tree=True)
        try:
            return etree.fromstring(self.read(name), parser)
        except etree.XMLSyntaxError:
            return etree.Element("missing")

    def iterate(self, name: str, tag: str) -> Iterator[etree._Element]:
        """Yield the elements of a large member by their tag; each is emptied at the next."""
        data = io.BytesIO(self.read(name))
        found = etree.iterparse(data, tag=f"{{*}}{tag}", resolve_entities=False, huge_tree=True)
        with suppress(etree.XMLSyntaxError):  # what comes before the damage is read
            for _, element in found:
                yield element
                element.clear()
                while element.getprevious() is not None:
                    del element.getparent()[0]

    def require(self, name: str) -> etree._Element:
        """Return the root of a member without which there is nothing to read."""
        root = self.parse(name)
        if root.tag == "missing":
            why = f"its {name} is missing or damaged"
            raise self.source.error(CorruptFile, why, DAMAGED)
        return root

    def related(self, name: str) -> dict[str, str]:
        """Return the members that a part of an Office file names, by their ids in it."""
        folder, _, file = name.rpartition("/")
        listed = self.parse(f"{folder}/_rels/{file}.rels")
        targets = {each.get("Id", ""): each.get("Target", "") for each in listed}
        return {
            key: posixpath.normpath(posixpath.join("/", folder, target)).lstrip("/")
            for key, target in targets.items()
        }


def attr(element: etree._Element | None, name: str = "val") -> str:
    """Return an attribute of whatever namespace; empty if there is none."""
    found = element.items() if element is not None else ()
    return next((value for key, value in found if key.rpartition("}")[2] == name), "")


_PROPERTIES = {"title": "title", "creator": "authors", "initial-creator": "authors"}
_PROPERTIES |= {"subject": "subject", "language": "language", "created": "created_at"}
_PROPERTIES |= {"creation-date": "created_at", "date": "modified_at", "modified": "modified_at"}
_NO_TITLES = {"powerpoint presentation", "document", "untitled"}  # what programs fill in


def read_properties(root: etree._Element) -> dict[str, str]:
    """Return the title, the authors and the dates that the properties of a file state."""
    found: dict[str, str] = {}
    for element in root.iter(etree.Element):
        name = _PROPERTIES.get(etree.QName(element).localname)
        value = " ".join((element.text or "").split())
        if name and value and not (name == "title" and value.lower() in _NO_TITLES):
            found.setdefault(name, value)
    return found


CORE = "docProps/core.xml"
_NOT_READ = {"ppt/embeddings/": "ppt/charts/", "word/embeddings/": "word/charts/"}


def warn_of_parts(source: SourceFile, members: Iterable[str]) -> None:
    """Warn of the parts of a file that are not read."""
    names = tuple(members)
    for folder, charts in _NOT_READ.items():  # a chart embeds the sheet of its figures
        embedded = sum(name.startswith(folder) for name in names)
        if embedded > sum(name.startswith(f"{charts}chart") for name in names):
            source.warn("embedded files are not read")


def iter_graphics(
    archive: Archive, name: str, root: etree._Element, space: str = ""
) -> Iterator[tuple[etree._Element, etree._Element]]:
    """Yield the figures of charts and the texts of diagrams with the element that shows them: a
    table, and paragraphs, by the names that Office has for them."""
    related = archive.related(name)
    for shown in list(root.iter("{*}chart", "{*}relIds")):
        at = shown.xpath("string(@*[local-name()='id' or local-name()='dm'])")
        part = archive.parse(related.get(at, ""))
        table = etree.Element(f"{space}tbl")
        for row in _read_chart(part):
            line = etree.SubElement(table, f"{space}tr")
            for text in row:
                _add_paragraph(etree.SubElement(line, f"{space}tc"), text, space)
        for point in part.iter("{*}pt"):
            if text := _text_of(point):
                _add_paragraph(table, text, space)
        if not len(table):
            archive.source.warn("a chart or a diagram is not read")
        for block in [table] if table.find("{*}tr") is not None else list(table):
            yield shown, block


def _add_paragraph(parent: etree._Element, text: str, space: str) -> None:
    run = etree.SubElement(etree.SubElement(parent, f"{space}p"), f"{space}r")
    etree.SubElement(run, f"{space}t").text = text


def _text_of(element: etree._Element) -> str:
    return " ".join("".join(each.text or "" for each in element.iter("{*}t")).split())


def _read_chart(chart: etree._Element) -> list[list[str]]:
    """Return the figures of a chart as they are stored beside it: a column for each series."""
    head = [_text_of(each) for each in chart.iterfind("{*}chart/{*}title")][:1] or [""]
    rows: dict[int, dict[int, str]] = {}
    for series in chart.iter("{*}ser"):
        last = len(head)
        head.append(" ".join(each.text or "" for each in series.iterfind("{*}tx//{*}v")))
        for kind, column in (("cat", 0), ("xVal", 0), ("val", last), ("yVal", last)):
            for point in series.iterfind(f"{{*}}{kind}//{{*}}pt"):
                value = point.findtext("{*}v") or ""
                if column and "%" in (point.getparent().findtext("{*}formatCode") or ""):
                    with suppress(ValueError):
                        value = f"{100 * float(value):.10g}%"
                rows.setdefault(int(point.get("idx") or 0), {})[column] = value
    shown = [[rows[at].get(column, "") for column in range(len(head))] for at in sorted(rows)]
    return [head, *shown] if shown else []


_Names = Mapping[str, str]


def to_html(root: etree._Element, names: _Names, dropped: Iterable[str]) -> str:
    """Return an element as HTML: `names` has the new names; what is neither there nor dropped
    keeps its text alone."""
    etree.strip_elements(root, *(f"{{*}}{name}" for name in dropped), with_tail=False)
    for element in root.iter(etree.Element):
        element.tag = names.get(etree.QName(element).localname, "span")
        for name in set(element.keys()) - {"colspan", "rowspan", "href", "value"}:
            del element.attrib[name]
    etree.cleanup_namespaces(root)
    written: str = etree.tostring(root, method="html", encoding="unicode", with_tail=False)
    return written


# PPTX: one section and one page for each slide, in the order they are shown.

_SLIDE = {"sp": "div", "p": "p", "br": "br", "tbl": "table", "tr": "tr", "tc": "td"}
_SLIDE |= {"h2": "h2", "ul": "ul", "ol": "ol", "li": "li", "struck": "s"}
_SLIDE |= {"graphicFrame": "div", "pic": "div"}
_NOT_SHOWN = ("fld", "extLst", "Fallback", "tblPr", "tblGrid", "style", "txPr", "oleObj")
_TITLES = ("title", "ctrTitle")
_SLIDE_PART = re.compile(r"ppt/slides/slide(\d+)\.xml\Z")


def read_pptx(source: SourceFile) -> Document:
    """Read the slides of a presentation with their notes; those taken out of it come last."""
    archive = Archive(source)
    warn_of_parts(source, archive.names)
    related = archive.related("ppt/presentation.xml")
    listed = archive.require("ppt/presentation.xml").iterfind(".//{*}sldIdLst/{*}sldId")
    shown = [related.get(each.xpath("string(@*[namespace-uri()])"), "") for each in listed]
    slides = {name: int(part[1]) for name in archive.names if (part := _SLIDE_PART.match(name))}
    order = dict.fromkeys([*shown, *sorted(slides, key=lambda name: slides[name])])
    text, pages, hidden = "", [], []
    for number, name in enumerate((each for each in order if each in slides), start=1):
        start, slide = len(text), archive.parse(name)
        if slide.get("show") in ("0", "false"):
            hidden.append(str(number))
        content, _ = parse_html(source, _write_slide(archive, name, slide))
        content = content.strip("\n")
        text += content if content.startswith("## ") else f"## Slide {number}\n\n{content}"
        text += "\n\n"
        pages.append(Page(number, start, len(text)))
    if hidden:
        source.warn(f"hidden slides are read: {', '.join(hidden)}")
    metadata = read_properties(archive.parse(CORE))
    return replace(make_document(source, text, metadata=metadata), pages=tuple(pages))


def _write_slide(archive: Archive, name: str, slide: etree._Element) -> str:
    if (tree := slide.find(".//{*}spTree")) is None:
        return ""
    for shown, table in iter_graphics(archive, name, tree):
        shown.append(table)
    for cell in tree.findall(".//{*}tc"):
        if cell.get("hMerge") or cell.get("vMerge"):  # another cell covers it
            cell.getparent().remove(cell)
        else:
            cell.set("colspan", cell.get("gridSpan", "1"))
            cell.set("rowspan", cell.get("rowSpan", "1"))
    for run in tree.iterfind(".//{*}rPr[@strike]"):
        if run.get("strike") != "noStrike":
            run.getparent().tag = "struck"
    for shape in tree.findall(".//{*}sp"):
        kind = shape.xpath("string(*[local-name()='nvSpPr']//@type)")
        if kind in _TITLES and "".join(shape.itertext()).strip():
            for line in shape.iterfind(".//{*}p"):
                line.tail = " "
            for line_break in shape.iterfind(".//{*}br"):
                line_break.text = " "
            words = " ".join("".join(shape.itertext()).split())
            shape.clear(keep_tail=True)
            shape.tag, shape.text = "h2", words
            tree.insert(0, shape)
        else:
            _nest_items(shape)
    for picture in tree.findall(".//{*}pic"):
        described = picture.find("./{*}nvPicPr/{*}cNvPr")
        picture.text = described.get("descr", "") if described is not None else ""
    for text in _iter_remarks(archive, name):
        etree.SubElement(tree, "p").text = text
    return to_html(tree, _SLIDE, _NOT_SHOWN)


def _iter_remarks(archive: Archive, name: str) -> Iterator[str]:
    """Yield the speaker's notes of a slide and what others commented on it."""
    authors = {
        each.get("id"): each.get("name", "")
        for part in ("ppt/commentAuthors.xml", "ppt/authors.xml")
        for each in archive.parse(part)
    }
    for part in archive.related(name).values():
        if part.startswith("ppt/notesSlides/"):
            for shape in archive.parse(part).iterfind(".//{*}sp"):
                if shape.xpath("boolean(*[local-name()='nvSpPr']//@type='body')"):
                    lines = (_text_of(line) for line in shape.iter("{*}p"))
                    yield from (f"[Speaker's notes] {line}" for line in lines if line)
        elif part.startswith("ppt/comments/"):
            for each in archive.parse(part).iter("{*}cm", "{*}reply"):
                body = map(_text_of, each.iterfind("{*}txBody"))
                said = each.findtext("{*}text") or "".join(body)
                author = authors.get(each.get("authorId"), "")
                yield f"{label_comment(author)} {' '.join(said.split())}"


_BULLETS = "*[local-name()='buChar' or local-name()='buAutoNum']"


def _nest_items(shape: etree._Element) -> None:
    """Put the paragraphs with a bullet or an indent into lists, by their levels."""
    opened: list[etree._Element] = []
    for line in shape.findall("./{*}txBody/{*}p"):
        properties = line.find("./{*}pPr")
        level = int(properties.get("lvl") or 0) if properties is not None else 0
        marks = properties.xpath(_BULLETS) if properties is not None else []
        if not (level or marks):
            opened = []
            continue
        kind = "ol" if marks and "buAutoNum" in marks[0].tag else "ul"
        del opened[level + 1 :]
        if not opened:
            opened = [etree.Element(kind)]
            line.addprevious(opened[0])
        while len(opened) <= level:
            above = opened[-1]
            opened.append(etree.SubElement(above[-1] if len(above) else above, kind))
        line.tag = "li"
        opened[-1].append(line)
