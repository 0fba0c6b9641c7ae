"""OpenDocument texts, which become HTML first."""

from __future__ import annotations

from lxml import etree  # type: ignore[import-untyped]

from colligate.documents.document import Document
from colligate.documents.reading import elements
from colligate.documents.reading.elements import PAGE, put_below, read_integer
from colligate.documents.reading.html import parse_html, spell_out
from colligate.documents.reading.numbers import format_number
from colligate.documents.reading.office import Archive, attr, read_properties, to_html
from colligate.documents.reading.source import SourceFile, make_document

_ODT = {"p": "p", "list": "div", "list-item": "div", "list-header": "li", "a": "a"}
_ODT |= {"table": "table", "table-row": "tr", "table-cell": "td", "table-header-rows": "thead"}
_ODT |= {"table-rows": "tbody", "table-row-group": "tbody"}
_ODT |= {"line-break": "br", "section": "div", "text-box": "div", "text": "div", "struck": "s"}
_ODT |= {name: name for name in ("ul", "ol", "li", *(f"h{level}" for level in range(1, 7)))}
_ODT_DROPPED = "tracked-changes annotation annotation-end hidden-text hidden-paragraph forms desc"
_ODT_DROPPED += " note sequence-decls variable-decls user-field-decls title covered-table-cell"
_ODT_DROPPED += " hidden"
_DEEPEST_HEADING = 6


def read_odt(source: SourceFile) -> Document:
    """Read an OpenDocument text: headings, lists, tables, and notes below their paragraphs."""
    archive = Archive(source)
    content, styles = archive.require("content.xml"), archive.parse("styles.xml")
    body = content.find(".//{*}body/{*}text")
    written = ""
    if body is not None:
        _place_notes(body)
        _mark_styles(source, body, [content, styles])
        _number_paragraphs(body, [content, styles])
        _spell_out(source, body, archive)
        _add_page_headers(body, styles)
        written = to_html(body, _ODT, _ODT_DROPPED.split())
    metadata = read_properties(archive.parse("meta.xml"))
    text, _ = parse_html(source, written)
    return make_document(source, text, metadata=metadata)


def _place_notes(body: etree._Element) -> None:
    """Put notes, comments and the text of boxes below the block that they belong to."""
    last: dict[etree._Element, etree._Element] = {}
    for element in list(body.iter("{*}note", "{*}annotation", "{*}text-box")):
        if etree.QName(element).localname == "text-box":
            for block in list(element):
                put_below(element, block, last)
            if not len(element):
                element.tag = "span"  # no block, which would cut the sentence
            continue
        note = element.find("{*}note-body")
        label = f"[Note {element.findtext('{*}note-citation') or '*'}]"
        if note is None:
            label = elements.label_comment(element.findtext("{*}creator") or "")
        lines = (element if note is None else note).iter("{*}p", "{*}h")
        text = " ".join(" ".join(map("".join, map(etree._Element.itertext, lines))).split())
        block = etree.Element("p")
        block.text = f"{label} {text}"
        put_below(element, block, last)


def _mark_styles(source: SourceFile, body: etree._Element, parts: list[etree._Element]) -> None:
    """Mark what its style strikes out, and what it hides."""
    styles = {attr(each, "name"): each for part in parts[::-1] for each in part.iter("{*}style")}
    shown = {name: _find_property(styles, name, "display") for name in styles}
    lines = {name: _find_property(styles, name, "text-line-through-style") for name in styles}
    found = False
    for element in body.iter("{*}span", "{*}p", "{*}h", "{*}section"):
        name, kind = attr(element, "style-name"), etree.QName(element).localname
        if shown.get(name) == "none" or attr(element, "display") == "none":
            element.tag, found = "hidden", True
        elif lines.get(name, "none") not in ("", "none"):
            if kind == "span" and next(element.iterancestors("struck"), None) is None:
                element.tag = "struck"
            elif kind in ("p", "h") and not any(
                lines.get(attr(span, "style-name")) == "none" for span in element.iter("{*}span")
            ):
                _strike_out(element)
    if found:
        source.warn("hidden text is not read")


_MOST_PARENTS = 20


def _find_property(styles: dict[str, etree._Element], name: str, kind: str) -> str:
    """Return what a style says of its text, or else those that it is based on."""
    for _ in range(_MOST_PARENTS):
        if name not in styles:
            break
        if value := attr(styles[name].find("{*}text-properties"), kind):
            return value
        name = attr(styles[name], "parent-style-name")
    return ""


def _strike_out(line: etree._Element) -> None:
    """Put all that a paragraph holds into an element that is struck out."""
    if "".join(line.itertext()).strip():
        struck = etree.Element("struck")
        struck.text, line.text = line.text, None
        struck.extend(list(line))
        line.append(struck)


def _number_paragraphs(body: etree._Element, parts: list[etree._Element]) -> None:
    """Number headings and the items of lists as their styles say."""
    styles = {
        attr(style, "name") or _OUTLINE: {attr(level, "level"): level for level in style}
        for part in parts
        for style in part.iter("{*}list-style", "{*}outline-style")
    }
    counts: dict[str, dict[int, int]] = {}
    names: dict[etree._Element, str] = {}  # of the styles of lists
    items = []
    for element in body.iter("{*}list", "{*}list-item", "{*}h"):
        around = next(element.iterancestors("{*}list"), None)
        if etree.QName(element).localname == "list":
            names[element] = attr(element, "style-name") or names.get(around, "")
            if around is None and not element.xpath(_CONTINUED):
                counts.pop(names[element], None)
            continue
        line = element.find("{*}p") if around is not None else element
        line = element.find("{*}h") if line is None else line
        if line is None or (around is not None and line is element):
            continue  # it has no text of its own, or is the heading of an item
        name = _OUTLINE if around is None else names[around]
        lists = sum(1 for _ in element.iterancestors("{*}list"))
        level = lists or read_integer(attr(element, "outline-level"), 1)
        levels, counted = styles.get(name, {}), counts.setdefault(name, {})
        label, number = _next_number(levels, counted, level, element)
        if around is not None and line.tag.endswith("}p") and (number or not label):
            items.append((element, around, number))
        elif label:  # Markdown does not have it: it stands in the text, and its item is a paragraph
            line.text = f"{label} {line.text or ''}"
    for item, around, number in items:
        item.tag, around.tag = "li", "ol" if number else "ul"
        if number:
            item.set("value", str(number))


_OUTLINE = "Outline"
_CONTINUED = (
    "boolean(@*[local-name()='continue-list'] or @*[local-name()='continue-numbering']='true')"
)


def _next_number(
    levels: dict[str, etree._Element], counts: dict[int, int], level: int, item: etree._Element
) -> tuple[str, int]:
    """Return the next number of a level as it is shown, and the bare one if it is simple."""
    style = levels.get(str(level))
    if style is None or attr(item, "is-list-header") == "true":
        return "", 0
    first = "" if level in counts else attr(style, "start-value") or "1"
    start = attr(item, "start-value") or first
    counts[level] = read_integer(start, counts.get(level, 0) + 1)
    for deeper in [each for each in counts if each > level]:
        del counts[deeper]
    shown = range(max(1, level + 1 - read_integer(attr(style, "display-levels"), 1)), level + 1)
    forms = {at: attr(levels.get(str(at)), "num-format") for at in shown}
    if not forms[level]:  # a bullet, or nothing
        return "", 0
    written = ".".join(format_number(counts.get(at, 1), forms[at]) for at in shown if forms[at])
    label = attr(style, "num-prefix") + written + attr(style, "num-suffix")
    is_simple = label in (f"{counts[level]}.", f"{counts[level]})")
    return label.strip(), counts[level] if is_simple else 0


_SPACES = {"s": " ", "tab": "\t"}


def _spell_out(source: SourceFile, body: etree._Element, archive: Archive) -> None:
    """Write blanks, levels of headings, spans of cells and formulas in the way of HTML."""
    for element in body.iter("{*}s", "{*}tab"):
        element.text = _SPACES[etree.QName(element).localname]
    for line in body.iterfind(".//li/{*}p[1]"):
        line.tag = "span"  # else each item is a paragraph apart
    for heading in body.iter("{*}h"):
        level = attr(heading, "outline-level")
        heading.tag = f"h{min(int(level) if level.isdigit() else 1, _DEEPEST_HEADING)}"
    for cell in body.iter("{*}table-cell"):
        cell.set("colspan", attr(cell, "number-columns-spanned") or "1")
        cell.set("rowspan", attr(cell, "number-rows-spanned") or "1")
    others = False
    for shown in body.iter("{*}object", "{*}object-ole"):
        place = attr(shown, "href").removeprefix("./")
        formula = archive.parse(f"{place}/content.xml")
        if etree.QName(formula).localname == "math":
            tex = formula.xpath("string(.//*[local-name()='annotation'])")
            shown.text = tex or spell_out(formula)
        else:
            others = True
    if others:
        source.warn("embedded files are not read")


def _add_page_headers(body: etree._Element, styles: etree._Element) -> None:
    """Put what stands above and below the pages at the end, each text once."""
    found: dict[str, None] = {}
    for kind in ("header", "footer"):
        for part in styles.iterfind(f".//{{*}}master-page/{{*}}{kind}"):
            for each in part.iter("{*}page-number", "{*}page-count"):
                each.text = PAGE
            for each in part.iter("{*}tab"):
                each.text = "\t"
            lines = map("".join, map(etree._Element.itertext, part.iter("{*}p")))
            if text := elements.join_pieces("\t".join(lines)):
                found[f"[Page {kind}] {text}"] = None
    for text in found:
        etree.SubElement(body, "p").text = text
