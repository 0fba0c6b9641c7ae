"""HTML to Markdown: web pages, and what other formats are turned into first.

lxml repairs the page, as browsers do, and html-to-markdown writes it.
"""

from __future__ import annotations

import re

from lxml import etree  # type: ignore[import-untyped]
from lxml import html as lxml_html

from colligate.documents.document import Document, clean_text
from colligate.documents.markdown import superscript_mark
from colligate.documents.reading import elements
from colligate.documents.reading.elements import clean_xml
from colligate.documents.reading.source import SourceFile, make_document
from colligate.errors import CorruptFile


def read_html(source: SourceFile) -> Document:
    """Read an HTML page as Markdown, without its head."""
    text, facts = parse_html(source, source.text)
    return make_document(source, text, title=facts.pop("title", None), metadata=facts)


_SAVE = "save the page again"


def parse_html(source: SourceFile, written: str) -> tuple[str, dict[str, str]]:
    """Return the body of HTML as Markdown, and its head's title, language, date and authors."""
    _check_attributes(source, written)
    parser = lxml_html.HTMLParser(encoding="utf-8", huge_tree=True, remove_comments=True)
    try:
        root = lxml_html.document_fromstring(written.encode(), parser=parser)
    except etree.ParserError:  # nothing but comments and the like
        return "", {}
    except etree.XMLSyntaxError as error:
        raise source.error(CorruptFile, str(error), _SAVE) from error
    if any("depth" in entry.message for entry in parser.error_log):
        raise source.error(CorruptFile, "its elements nest too deeply", _SAVE)
    found = {
        "title": [root.findtext(".//title") or ""],
        "language": [root.get("lang") or ""],
        "date": root.xpath(_STATED_DATE)[:1],
        "authors": root.xpath("//meta[@name='author']/@content"),
    }
    facts = {name: "; ".join(" ".join(each.split()) for each in found[name]) for name in found}
    for head in root.findall("head"):
        root.remove(head)
    elements.drop_furniture(root)
    etree.strip_tags(root, "mark", "ins")  # marks such as "==" would be put around their text
    etree.strip_elements(root, "rt", "rp", with_tail=False)  # reading aids inside of words
    _write_formulas(root)
    elements.drop_note_marks(root)
    _mark_superscripts(root)
    elements.number_items(root)
    elements.mark_boxes(root)
    elements.arrange_tables(root)
    _flatten(root)
    page = clean_xml(etree.tostring(root, method="html", encoding="unicode"))
    return write_markdown(page), facts


_EMBEDDED_PICTURE = re.compile(r"!\[([^\[\]\n]*)\]\((?:data:[^()\s]*|[^()\s:]+\.\w{3,4})\)")


def write_markdown(page: str) -> str:
    """Return the Markdown of HTML that nests well, without pictures that are in the page."""
    # Imported here: the library has 8 MB.
    from html_to_markdown import ConversionOptions, PreprocessingOptions, convert

    kept = PreprocessingOptions(remove_forms=False)
    options = ConversionOptions(extract_metadata=False, compact_tables=True, preprocessing=kept)
    text = clean_text(convert(page, options).content or "")
    text = _EMBEDDED_PICTURE.sub(r"\1", text)
    return _LINE_END.sub("", text).strip("\n") + "\n"


_LINE_END = re.compile(r"[ \t]+$", re.MULTILINE)
_STATED_DATE = (
    "//meta[@property='article:published_time' or @name='date' or @name='dcterms.date']/@content"
)

_TAG = re.compile(r"<[a-zA-Z]")
# Possessive, and without an end: a quote that never closes ends a tag here, in linear time.
_INSIDE = re.compile(r"""(?:[^<>"']|"[^"]*+"|'[^']*+')*+""")
_QUOTED = re.compile(r""""[^"]*+"|'[^']*+'""")
_MOST_ATTRIBUTES = 10_000


def _check_attributes(source: SourceFile, written: str) -> None:
    """Refuse a tag of very many attributes: the parser's time grows with their square."""
    at = 0
    while tag := _TAG.search(written, at):
        inside = _INSIDE.match(written, tag.end())
        assert inside is not None
        at = inside.end()
        if at - tag.end() < 2 * _MOST_ATTRIBUTES:  # each has two characters
            continue
        count = len(_QUOTED.sub(" ", inside[0]).replace("/", " ").split())
        if count > _MOST_ATTRIBUTES:
            why = f"one of its tags has {count:,} attributes"
            raise source.error(CorruptFile, why, _SAVE)


# html-to-markdown silently drops text that nests deeper than some 1,000 elements.
_DEEPEST = 500
_IS_DEEP = etree.XPath(f"boolean({'/*' * (_DEEPEST + 2)})")
_NOT_TEXT = ("script", "style", "template", "noscript")


def _flatten(root: lxml_html.HtmlElement) -> None:
    """Turn each element at the greatest depth into a paragraph of all its text."""
    level = [root] if _IS_DEEP(root) else []
    for _ in range(_DEEPEST):
        level = [child for element in level for child in element if isinstance(child.tag, str)]
    for element in level:
        if len(element):
            etree.strip_elements(element, *_NOT_TEXT, with_tail=False)
            text = " ".join(clean_xml(element.text_content()).split())
            element.clear(keep_tail=True)
            element.tag, element.text = "p", text


def _mark_superscripts(root: lxml_html.HtmlElement) -> None:
    for element in root.iter("sup"):
        before = element.getprevious()
        text = element.getparent().text if before is None else before.tail or before.text_content()
        if mark := superscript_mark(text or "", element.text_content()):
            element.text = mark + clean_xml(element.text)


# What stands before the parts of a formula, in MathML and in Word's own markup.
_MARKS = {"msup": ("", "^"), "msub": ("", "_"), "msubsup": ("", "_", "^"), "mfrac": ("", "/")}
_MARKS |= {"sSup": ("", "^"), "sSub": ("", "_"), "sSubSup": ("", "_", "^"), "f": ("", "/")}
_MARKS |= {"nary": ("_", "^", " "), "eqArr": ("", "; "), "func": ("", " ")}
_SIMPLE = re.compile(r"[\w.,]*")


def _write_formulas(root: lxml_html.HtmlElement) -> None:
    """Turn each formula of MathML into its TeX, or into one line of its text: 10^6, a/(b+c)."""
    for math in root.findall(".//math"):
        tex = math.xpath(".//annotation[contains(@encoding, 'tex') or contains(@encoding, 'TeX')]")
        etree.strip_elements(math, *(() if tex else ("annotation", "annotation-xml")))
        text = " ".join(clean_xml(tex[0].text_content()).split()) if tex else spell_out(math)
        math.clear(keep_tail=True)
        math.tag, math.text = "span", text


def spell_out(math: etree._Element) -> str:
    """Return a formula as one line of text."""
    for element in list(math.iter(etree.Element)):
        kind = etree.QName(element).localname
        inner = element.iterfind("{*}*/{*}*")
        shown = {etree.QName(each).localname: "".join(each.values()[:1]) for each in inner}
        if kind in ("msqrt", "rad", "d"):
            element.text = shown.get("begChr", "(") if kind == "d" else "\u221a("
            etree.SubElement(element, "mo").text = shown.get("endChr", ")") if kind == "d" else ")"
        elif kind == "nary":
            element.text = shown.get("chr", "\u222b")
        parts = [part for part in element if not etree.QName(part).localname.endswith("Pr")]
        for mark, part in zip(_MARKS.get(kind, ()), parts, strict=False):
            if not (text := clean_xml("".join(part.itertext())).strip()):
                continue
            plain = len(part) < 2 and _SIMPLE.fullmatch(text)
            opened, closed = ("", "") if plain or mark == " " else ("(", ")")
            part.text = mark + opened + clean_xml(part.text).strip()
            part.tail = closed
    return " ".join(clean_xml("".join(math.itertext())).split())
