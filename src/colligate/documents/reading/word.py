"""Word documents: mammoth turns DOCX into HTML.

Before that, what it leaves out is written into the body as plain paragraphs: automatic numbers,
notes and comments below the block that they belong to, text boxes, and the headers of pages.
"""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Callable, Iterator

from lxml import etree  # type: ignore[import-untyped]

from colligate.documents.document import Document
from colligate.documents.reading import elements, office
from colligate.documents.reading.elements import PAGE, PAGE_FIELD, put_below, read_integer
from colligate.documents.reading.html import parse_html, spell_out
from colligate.documents.reading.numbers import format_number
from colligate.documents.reading.office import Archive, attr
from colligate.documents.reading.source import SourceFile, make_document
from colligate.errors import CorruptFile

# Styles that mammoth's own map lacks. "List Bullet 2" is the second level of a list.
_STYLES = "p[style-name='Title'] => h1.title:fresh"
_STYLES += "".join(f"\np[style-name='heading {n}'] => h6:fresh" for n in (7, 8, 9))
_STYLES += "".join(
    f"\np[style-name='List {kind} {n}'] => {'ul|ol > li > ' * (n - 1)}{tag} > li:fresh"
    for kind, tag in (("Bullet", "ul"), ("Number", "ol"))
    for n in (2, 3, 4, 5)
)
_TITLE = re.compile(r'<h1 class="title">(.*?)</h1>')
_HEADING = re.compile(r"^(?=#{1,5} )", re.MULTILINE)
_MAIN = "word/document.xml"
_ITEM = re.compile("(?<=<li)>\ue000(\\d+)\ue000")  # as `_number` marks the number of an item
_NUMBER = re.compile("\ue000(\\d+)\ue000")


def read_docx(source: SourceFile) -> Document:
    """Read a Word document without its pictures."""
    # Imported here: few files are DOCX, and the import takes time.
    import mammoth  # type: ignore[import-untyped]

    archive = Archive(source)
    office.warn_of_parts(source, archive.names)
    try:
        prepared = _prepare(source, archive)
        converted = mammoth.convert_to_html(prepared, style_map=_STYLES, convert_image=lambda _: [])
    except Exception as error:  # mammoth lets whatever the XML and zip readers raise through
        raise source.error(CorruptFile, f"it is damaged ({error})", office.DAMAGED) from error
    metadata = office.read_properties(archive.parse(office.CORE))
    written = _NUMBER.sub(r"\1. ", _ITEM.sub(r' value="\1">', converted.value))
    text, _ = parse_html(source, written)
    titles = _TITLE.findall(written)
    if len(titles) == 1 and text.startswith("# "):
        first, line_end, rest = text.partition("\n")
        text = first + line_end + _HEADING.sub("#", rest)  # the title is above the headings
    if titles:
        metadata.pop("title", "")
    return make_document(source, text, metadata=metadata)


def _prepare(source: SourceFile, archive: Archive) -> io.BytesIO:
    """Return the XML of a DOCX, with all that is to be read in its body."""
    changed = {}
    root = archive.parse(_MAIN)
    if (body := root.find("{*}body")) is not None:
        _Body(source, archive, body).complete()
        changed[_MAIN] = etree.tostring(root, encoding="UTF-8")
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as packed:
        for name in dict.fromkeys(archive.names):
            if name.endswith((".xml", ".rels")):
                packed.writestr(name, changed.get(name) or archive.read(name))
    return written


_WITHOUT_TEXT = ("deleted", "moveFrom", "rt", "rubyPr")  # what was moved; reading aids
_AROUND_TEXT = ("fldSimple", "dir", "bdo", "ruby", "rubyBase")  # what mammoth leaves out
_MOST_SKIPPED = 60  # columns before the first cell of a row: Word has no more
_OFF = ("0", "false", "off")


class _Body:
    """The body of a document, into which all that stands elsewhere is written."""

    def __init__(self, source: SourceFile, archive: Archive, body: etree._Element) -> None:
        self._source = source
        self._archive = archive
        self._body = body
        self._space = f"{{{etree.QName(body).namespace}}}"  # there are two, strict and not
        self._last: dict[etree._Element, etree._Element] = {}  # what was written below a block

    def complete(self) -> None:
        """Write all that mammoth leaves out as paragraphs."""
        self._settle_text()
        for shown, block in office.iter_graphics(self._archive, _MAIN, self._body, self._space):
            put_below(shown, block, self._last)
        self._place_boxes()
        _Numbering(self._archive).write(self._body, self._make)
        self._place_notes()
        self._place_page_headers()

    def _settle_text(self) -> None:
        """Leave out what is deleted or hidden, and write what fields and equations show."""
        body = self._body
        for deleted in list(body.iter("{*}del")):
            if len(deleted):  # else it says that the end of a paragraph or a row is deleted
                deleted.tag = f"{self._space}deleted"
        etree.strip_elements(body, *(f"{{*}}{name}" for name in _WITHOUT_TEXT), with_tail=False)
        etree.strip_tags(body, *(f"{{*}}{name}" for name in _AROUND_TEXT))
        hidden = [run for run in body.iter("{*}r") if _is_on(run.find("{*}rPr/{*}vanish"))]
        for run in hidden:
            run.clear(keep_tail=True)
        if hidden:
            self._source.warn("hidden text is not read")
        for struck in body.iter("{*}dstrike"):
            struck.tag = f"{self._space}strike"
        for skipped in body.iter("{*}gridBefore"):
            for _ in range(min(read_integer(attr(skipped), 0), _MOST_SKIPPED)):
                cell = etree.Element(f"{self._space}tc")
                cell.append(self._make("p", ""))
                skipped.getparent().addnext(cell)  # after the row's properties
        for choice in list(body.iter("{*}ddList")):  # a field of a form
            entries = [attr(each) for each in choice.iterfind("{*}listEntry")]
            chosen = read_integer(attr(choice.find("{*}result")), 0)
            run = next(choice.iterancestors("{*}r"), None)
            if run is not None and 0 <= chosen < len(entries):
                run.addnext(self._make("r", entries[chosen]))
        if body.find(".//{*}altChunk") is not None:
            self._source.warn("inserted files are not read")
        for equation in list(body.iter("{*}oMath")):
            equation.getparent().replace(equation, self._make("r", spell_out(equation)))
        for group in list(body.iter("{*}oMathPara")):
            group.tag = f"{self._space}smartTag"

    def _make(self, name: str, text: str) -> etree._Element:
        """Return a run or a paragraph of a text."""
        made = etree.Element(f"{self._space}{name}")
        run = etree.SubElement(made, f"{self._space}r") if name == "p" else made
        etree.SubElement(run, f"{self._space}t").text = text
        return made

    def _place_boxes(self) -> None:
        """Put the text of boxes below the paragraph they hang on; it is there in two forms."""
        for either in list(self._body.iter("{*}AlternateContent")):
            if either.find("{*}Choice//{*}txbxContent") is not None:
                etree.strip_elements(either, "{*}Fallback")
        for box in list(self._body.iter("{*}txbxContent")):
            for block in list(box):
                put_below(box, block, self._last)

    def _place_notes(self) -> None:
        """Put notes and comments below the block that has their mark, and drop the marks."""
        for kind, form in (("footnote", "1"), ("endnote", "i"), ("comment", "")):
            part = self._archive.parse(f"word/{kind}s.xml")
            notes = {attr(note, "id"): note for note in part.iterfind(f"{{*}}{kind}")}
            marks = list(self._body.iter(f"{{*}}{kind}Reference"))
            for number, mark in enumerate(marks, 1):
                note = notes.pop(attr(mark, "id"), None)
                label = f"[Note {format_number(number, form)}]"
                if note is not None and not form:
                    label = elements.label_comment(attr(note, "author"))
                if note is not None and (text := _read_text(note)):
                    put_below(mark, self._make("p", f"{label} {text}"), self._last)
                if attr(mark, "customMarkFollows") in ("1", "true", "on"):
                    for text in mark.itersiblings(f"{self._space}t"):
                        text.text = ""
                mark.tag = "dropped"
        etree.strip_elements(self._body, "dropped", with_tail=False)

    def _place_page_headers(self) -> None:
        """Put what stands above and below the pages at the end, each text once."""
        related = self._archive.related(_MAIN)
        found: dict[str, None] = {}
        for kind in ("header", "footer"):
            for listed in self._body.iter(f"{{*}}{kind}Reference"):
                part = self._archive.parse(related.get(attr(listed, "id"), ""))
                if text := _read_text(part):
                    found[f"[Page {kind}] {text}"] = None
        for text in found:
            self._body.append(self._make("p", text))


def _is_on(element: etree._Element | None) -> bool:
    return element is not None and attr(element) not in _OFF


def _read_text(part: etree._Element) -> str:
    """Return the text of a note or of a page's header in one line, without numbers of pages."""
    etree.strip_elements(part, "{*}Fallback", with_tail=False)
    return elements.join_pieces("".join(_iter_text(part)))


def _iter_text(part: etree._Element) -> Iterator[str]:
    for element in part.iter(*(f"{{*}}{name}" for name in _TEXTS)):
        kind = etree.QName(element).localname
        if kind == "t":
            yield element.text or ""
        elif kind in ("instrText", "fldSimple"):
            yield PAGE if PAGE_FIELD.match(element.text or attr(element, "instr")) else ""
        else:
            yield " " if kind == "br" else "\t"


_TEXTS = ("t", "p", "tab", "ptab", "br", "instrText", "fldSimple")

_FORMS = {"lowerLetter": "a", "upperLetter": "A", "lowerRoman": "i", "upperRoman": "I"}
_FORMS |= dict.fromkeys(("chineseCounting", "chineseCountingThousand", "japaneseCounting"), "一")
_SIMPLE = re.compile(r"%\d[.)]")  # what Markdown has for the items of a list
_PLACE = re.compile(r"%([1-9])")
_LONGEST_LABEL = 100
_MOST_BASES = 20  # styles that a style is based on, each on the next


class _Numbering:
    """Counts the numbered paragraphs of a document, as Word does when it shows them."""

    def __init__(self, archive: Archive) -> None:
        numbering = archive.parse("word/numbering.xml")
        styles = archive.parse("word/styles.xml").iter("{*}style")
        self._styles = {attr(each, "styleId"): each for each in styles}
        kinds = numbering.iterfind("{*}abstractNum")
        self._kinds = {attr(each, "abstractNumId"): each for each in kinds}
        self._lists = {attr(each, "numId"): each for each in numbering.iterfind("{*}num")}
        self._counts: dict[str, dict[int, int]] = {}  # by the kind of list, then the level
        self._begun: set[str] = set()
        self._levels: dict[str, dict[int, etree._Element]] = {}  # by the list
        self._inherited: dict[str, tuple[str, str]] = {}  # list and level by the style

    def write(self, body: etree._Element, make: Callable[[str, str], etree._Element]) -> None:
        """Put the number of each paragraph before its text."""
        space = f"{{{etree.QName(body).namespace}}}"
        for properties in list(body.iter(f"{space}pPr")):
            paragraph = properties.getparent()
            if properties.find("{*}rPr/{*}del") is not None:
                continue
            style = attr(properties.find("{*}pStyle"))
            label, number = self._count(*self._find(properties.find("{*}numPr"), style))
            if not label or not any(paragraph.itertext(f"{space}t")):
                continue
            name = attr(self._styles[style].find("{*}name")) if style in self._styles else ""
            if number and not name.lower().startswith(("heading", "title")):
                properties.addnext(make("r", f"\ue000{number}\ue000"))  # it stays an item of a list
                continue
            properties.addnext(make("r", f"{label} "))
            etree.strip_elements(properties, "{*}numPr")
            plain = etree.SubElement(properties, f"{space}numPr")  # it is no item of a list
            for part in ("ilvl", "numId"):
                etree.SubElement(plain, f"{space}{part}").set(f"{space}val", "0")

    def _find(self, own: etree._Element | None, style: str) -> tuple[str, str]:
        """Return the list and the level of a paragraph: its own, otherwise those of its style."""
        number, level = self._inherit(style)
        if own is not None and (stated := attr(own.find("{*}numId"))):
            level = attr(own.find("{*}ilvl")) or (level if stated == number else "")
            number = stated
        return number, level

    def _inherit(self, style: str, left: int = _MOST_BASES) -> tuple[str, str]:
        if style in self._inherited or not left:
            return self._inherited.get(style, ("", ""))
        self._inherited[style] = "", ""
        if (found := self._styles.get(style)) is not None:
            number = attr(found.find("{*}pPr/{*}numPr/{*}numId"))
            level = attr(found.find("{*}pPr/{*}numPr/{*}ilvl"))
            levels = self._find_levels(number)
            linked = [at for at in levels if attr(levels[at].find("{*}pStyle")) == style]
            above = self._inherit(attr(found.find("{*}basedOn")), left - 1)
            level = level or "".join(map(str, linked[:1]))
            self._inherited[style] = (number or above[0], level or above[1])
        return self._inherited[style]

    def _find_levels(self, number: str) -> dict[int, etree._Element]:
        if number not in self._levels and (listed := self._lists.get(number)) is not None:
            kind = self._kinds.get(attr(listed.find("{*}abstractNumId")))
            style = attr(kind.find("{*}numStyleLink")) if kind is not None else ""
            if style in self._styles:  # the list is defined where the style is
                linked = attr(self._styles[style].find("{*}pPr/{*}numPr/{*}numId"))
                if linked in self._lists:
                    at = attr(self._lists[linked].find("{*}abstractNumId"))
                    kind = self._kinds.get(at, kind)
            found = [*kind.iterfind("{*}lvl")] if kind is not None else []
            found += listed.iterfind("{*}lvlOverride/{*}lvl")
            self._levels[number] = {read_integer(attr(each, "ilvl"), 0): each for each in found}
        return self._levels.get(number, {})

    def _count(self, number: str, stated: str) -> tuple[str, int]:
        """Return the next number of a list as it is shown, and the bare one if it is simple."""
        levels, level = self._find_levels(number), read_integer(stated, 0)
        if level not in levels:
            return "", 0
        listed = self._lists[number]
        counts = self._counts.setdefault(attr(listed.find("{*}abstractNumId")), {})
        for begun in listed.iterfind("{*}lvlOverride") if number not in self._begun else ():
            if start := attr(begun.find("{*}startOverride")):
                counts[read_integer(attr(begun, "ilvl"), 0)] = read_integer(start, 1) - 1
        self._begun.add(number)
        counts[level] = counts.get(level, _read_start(levels[level]) - 1) + 1
        for deeper in [each for each in counts if each > level]:
            if deeper not in levels or attr(levels[deeper].find("{*}lvlRestart")) != "0":
                del counts[deeper]
        form, text = (attr(levels[level].find(f"{{*}}{name}")) for name in ("numFmt", "lvlText"))
        text = text[:_LONGEST_LABEL]
        legal = _is_on(levels[level].find("{*}isLgl"))

        def show(place: re.Match[str]) -> str:
            at = int(place[1]) - 1
            if at not in levels:
                return ""
            count = counts.get(at, _read_start(levels[at]))
            shown = attr(levels[at].find("{*}numFmt"))
            if legal and shown != "decimalZero":  # these are figures: Section 1.01
                shown = "decimal"
            if shown in ("none", "bullet"):
                return ""
            if shown == "decimalZero":
                return f"{count:02}"
            return format_number(count, _FORMS.get(shown, "1"))

        if form == "bullet":
            return "", 0
        is_simple = form == "decimal" and _SIMPLE.fullmatch(text) and text[1] == str(level + 1)
        return _PLACE.sub(show, text).strip(), counts[level] if is_simple else 0


def _read_start(level: etree._Element) -> int:
    return read_integer(attr(level.find("{*}start")), 1)
