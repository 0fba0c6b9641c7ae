"""Word documents and presentations.

mammoth turns DOCX into HTML; in PPTX the elements of text are given the names that HTML has for
them.
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
from colligate.documents.reading.html import parse_html
from colligate.documents.reading.source import SourceFile, make_document
from colligate.errors import CorruptFile, EncryptedFile, TooLarge

_DAMAGED = "open and save it again"
_MEMBER_ERRORS = (KeyError, zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError)
_ALLOWED = 1 << 20  # bytes that an archive of any size may unpack to
_PIECE = 1 << 16


class Archive:
    """The members of a zip-based file that is within the limits; one that is damaged is empty."""

    def __init__(self, source: SourceFile) -> None:
        self._source = source
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
        data, limits = self._source.data, self._source.limits
        if len(self.names) > limits.members:
            why = f"it packs {len(self.names):,} members and the limit is {limits.members:,}"
            raise self._source.error(TooLarge, why, "split it")
        left = most = min(limits.unpacked_bytes, max(_ALLOWED, limits.ratio * len(data)))
        for member in self._zip.infolist():
            if member.flag_bits & 0x1:
                raise self._source.error(EncryptedFile, "it is encrypted", "remove its password")
            if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                why = f"its members are packed by method {member.compress_type}"
                raise self._source.error(CorruptFile, why, _DAMAGED)
            with suppress(*_MEMBER_ERRORS), self._zip.open(member) as packed:
                while left >= 0 and (piece := packed.read(_PIECE)):
                    left -= len(piece)
            if left < 0:
                why = f"its {len(data):,} bytes unpack to more than {most:,}"
                raise self._source.error(TooLarge, why, "unpack it yourself and give the parts")

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
            raise self._source.error(CorruptFile, why, _DAMAGED)
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


_PROPERTIES = {
    "title": "title",
    "creator": "authors",
    "initial-creator": "authors",
    "subject": "subject",
    "language": "language",
    "created": "created_at",
    "creation-date": "created_at",
    "date": "modified_at",
    "modified": "modified_at",
}
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


_CORE = "docProps/core.xml"
_NOT_READ = {
    "ppt/notesSlides/": "the speaker's notes",
    "ppt/charts/": "the figures of charts",
    "word/charts/": "the figures of charts",
}


def _warn_of_parts(source: SourceFile, members: Iterable[str]) -> None:
    for folder, what in _NOT_READ.items():
        if any(name.startswith(folder) for name in members):
            source.warn(f"{what} are not read")


# DOCX

# Styles that mammoth's own map lacks. "List Bullet 2" is the second level of a list.
_STYLES = "\n".join(
    [
        "p[style-name='Title'] => h1.title:fresh",
        *(f"p[style-name='heading {n}'] => h6:fresh" for n in (7, 8, 9)),
        *(
            f"p[style-name='List {kind} {n}'] => "
            + " > ".join(["ul|ol > li"] * (n - 1))
            + f" > {tag} > li:fresh"
            for kind, tag in (("Bullet", "ul"), ("Number", "ol"))
            for n in (2, 3, 4, 5)
        ),
    ]
)
_TITLE = re.compile(r'<h1 class="title">(.*?)</h1>')
_HEADING = re.compile(r"^(?=#{1,5} )", re.MULTILINE)
_FIELD = re.compile(rb"""</?w:fldSimple\b(?:[^<>"']|"[^"<]*+"|'[^'<]*+')*+>""")


def read_docx(source: SourceFile) -> Document:
    """Read a Word document without its pictures."""
    # Imported here: few files are DOCX, and the import takes time.
    import mammoth  # type: ignore[import-untyped]

    archive = Archive(source)
    _warn_of_parts(source, archive.names)
    try:
        converted = mammoth.convert_to_html(
            _without_fields(archive), style_map=_STYLES, convert_image=lambda _: []
        )
    except Exception as error:  # mammoth lets whatever the XML and zip readers raise through
        raise source.error(CorruptFile, f"it is damaged ({error})", _DAMAGED) from error
    if any(message.message.endswith(("oMath", "oMathPara")) for message in converted.messages):
        source.warn("equations are not read")
    metadata = read_properties(archive.parse(_CORE))
    text, _ = parse_html(source, converted.value)
    titles = _TITLE.findall(converted.value)
    if len(titles) == 1 and text.startswith("# "):
        first, line_end, rest = text.partition("\n")
        text = first + line_end + _HEADING.sub("#", rest)  # the title is above the headings
    if titles:
        metadata.pop("title", "")
    return make_document(source, text, metadata=metadata)


def _without_fields(archive: Archive) -> io.BytesIO:
    """Return the XML of a DOCX without simple fields, whose text mammoth leaves out."""
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as changed:
        for name in dict.fromkeys(archive.names):
            if name.endswith((".xml", ".rels")):
                part = archive.read(name)
                changed.writestr(name, _FIELD.sub(b"", part) if name.startswith("word/") else part)
    return written


# Elements of other formats as HTML's

_Names = Mapping[str, str]


def to_html(root: etree._Element, names: _Names, dropped: Iterable[str]) -> str:
    """Return an element as HTML: `names` has the new names; what is neither there nor dropped
    keeps its text alone."""
    etree.strip_elements(root, *(f"{{*}}{name}" for name in dropped), with_tail=False)
    for element in root.iter(etree.Element):
        element.tag = names.get(etree.QName(element).localname, "span")
        for name in set(element.keys()) - {"colspan", "rowspan", "href"}:
            del element.attrib[name]
    etree.cleanup_namespaces(root)
    written: str = etree.tostring(root, method="html", encoding="unicode", with_tail=False)
    return written


# PPTX: one section and one page for each slide, in the order they are shown.

_SLIDE = {"sp": "div", "p": "p", "br": "br", "tbl": "table", "tr": "tr", "tc": "td"}
_SLIDE |= {name: name for name in ("h2", "ul", "ol", "li")} | {"graphicFrame": "div", "pic": "div"}
_NOT_SHOWN = ("fld", "extLst", "Fallback", "tblPr", "tblGrid", "style", "txPr", "oleObj")
_TITLES = ("title", "ctrTitle")
_SLIDE_PART = re.compile(r"ppt/slides/slide(\d+)\.xml\Z")


def read_pptx(source: SourceFile) -> Document:
    """Read the slides of a presentation; those taken out of it come last."""
    archive = Archive(source)
    _warn_of_parts(source, archive.names)
    related = archive.related("ppt/presentation.xml")
    listed = archive.require("ppt/presentation.xml").iterfind(".//{*}sldIdLst/{*}sldId")
    shown = [related.get(each.xpath("string(@*[namespace-uri()])"), "") for each in listed]
    slides = {name: int(part[1]) for name in archive.names if (part := _SLIDE_PART.match(name))}
    order = dict.fromkeys([*shown, *sorted(slides, key=lambda name: slides[name])])
    text, pages = "", []
    for number, name in enumerate((each for each in order if each in slides), start=1):
        start = len(text)
        content, _ = parse_html(source, _write_slide(archive.parse(name)))
        content = content.strip("\n")
        text += content if content.startswith("## ") else f"## Slide {number}\n\n{content}"
        text += "\n\n"
        pages.append(Page(number, start, len(text)))
    metadata = read_properties(archive.parse(_CORE))
    return replace(make_document(source, text, metadata=metadata), pages=tuple(pages))


def _write_slide(slide: etree._Element) -> str:
    tree = slide.find(".//{*}spTree")
    if tree is None:
        return ""
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
    return to_html(tree, _SLIDE, _NOT_SHOWN)


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
