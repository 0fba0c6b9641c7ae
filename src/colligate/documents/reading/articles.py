"""XML of articles and books (JATS, TEI, DocBook), as HTML first; other XML is plain text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import escape

from lxml import etree  # type: ignore[import-untyped]

from colligate.documents.document import Document
from colligate.documents.reading.html import parse_html
from colligate.documents.reading.office import to_html
from colligate.documents.reading.source import SourceFile, make_document
from colligate.documents.reading.text import read_text

_ROOTS = ("article", "book", "TEI")
_ROOT = re.compile(rf"<(?:\w+:)?(?:{'|'.join(_ROOTS)})\b")
_HEAD = 10_000  # characters
_FRONTS = ("front", "book-meta", "teiHeader", "info", "articleinfo", "bookinfo")
_SECTIONS = "sec section sect1 sect2 sect3 sect4 sect5 simplesect chapter part appendix preface div"
_SECTIONS += " div1 div2 div3 abstract ref-list app ack glossary bibliography book-part boxed-text"
_HTML = {"p": "p", "para": "p", "simpara": "p", "ab": "p", "l": "p", "term": "p", "label": "p"}
_HTML |= {"title": "p", "head": "p", "ref": "p", "disp-formula": "p", "disp-quote": "blockquote"}
_HTML |= {"caption": "div", "lg": "div", "fig": "div", "table-wrap": "div", "note": "div"}
_HTML |= {"itemizedlist": "ul", "orderedlist": "ol", "list": "ul", "informaltable": "table"}
_HTML |= {"listitem": "li", "list-item": "li", "item": "li", "row": "tr", "entry": "td"}
_HTML |= {"cell": "td", "programlisting": "pre", "screen": "pre", "preformat": "pre"}
_HTML |= {"emphasis": "em", "italic": "em", "bold": "strong", "break": "br", "lb": "br"}
_SAME = "div ul ol li table thead tbody tr td th pre em strong br sup sub blockquote h2 h3 h4 h5 h6"
_SAME += " math mi mo mn mrow msup msub msubsup mfrac msqrt mtext semantics annotation"
_HTML |= {name: name for name in (*_SAME.split(), *_SECTIONS.split())}
_HTML |= dict.fromkeys(_SECTIONS.split(), "div")


def read_xml(source: SourceFile) -> Document:
    """Read an article or a book, with its title, authors and date; other XML as plain text."""
    if not _ROOT.search(source.text[:_HEAD]):
        return read_text(source)
    parser = etree.XMLParser(resolve_entities="internal", no_network=True, remove_comments=True)
    try:
        root = etree.fromstring(source.data, parser)
    except (etree.XMLSyntaxError, ValueError):
        return read_text(source)
    front = next((each for each in root if _name(each) in _FRONTS), root.find("{*}title"))
    if _name(root) not in _ROOTS or front is None:
        return read_text(source)
    parts = [*front.findall(".//{*}abstract"), root]
    for part in (front, *parts[:-1]):
        part.getparent().remove(part)
    facts = _take_facts(front)
    # What else is at its front: the journal, addresses, numbers.
    rest = "; ".join(filter(None, (" ".join(text.split()) for text in front.itertext())))
    written = f"<h1>{escape(facts['title'])}</h1>"
    written += "".join(f"<p>{escape(said)}</p>" for said in (facts["authors"], facts["date"], rest))
    notes = list(_mark_notes(root))
    for part in parts:
        _shape(part)
        written += to_html(part, _HTML, ["graphic", "media", "imagedata", "colspec"])
    written += "".join(f"<p>[^{at}]: {escape(note)}</p>" for at, note in enumerate(notes, 1))
    text, _ = parse_html(source, written)
    return make_document(source, text, title=facts.pop("title") or None, metadata=facts)


def _name(element: etree._Element) -> str:
    return str(etree.QName(element).localname) if isinstance(element.tag, str) else ""


def _say(element: etree._Element | None) -> str:
    return "" if element is None else " ".join("".join(element.itertext()).split())


def _take_facts(front: etree._Element) -> dict[str, str]:
    """Return title, authors and date, and take them from the front."""

    def take(*names: str) -> Iterator[etree._Element]:
        for each in [each for name in names for each in front.iter(f"{{*}}{name}")]:
            if each.getparent() is not None:
                each.getparent().remove(each)
            yield each

    title = _say(next(take("article-title", "book-title", "title"), front))
    authors = []
    for author in take("contrib", "author"):
        names = ("given-names", "firstname", "forename", "surname")
        parts = [_say(author.find(f".//{{*}}{name}")) for name in names]
        authors.append(" ".join(filter(None, parts)) or _say(author))
    dates = []
    for date in take("pub-date", "pubdate", "date"):
        parts = [_say(date.find(f"{{*}}{part}")).zfill(2) for part in ("year", "month", "day")]
        whole = "-".join(parts).replace("-00", "") if parts[0] != "00" else ""
        dates.append(whole or date.get("when") or _say(date))
    return {"title": title, "authors": "; ".join(authors), "date": next(filter(None, dates), "")}


def _mark_notes(root: etree._Element) -> Iterator[str]:
    """Yield the texts of footnotes; their marks stay in the text."""
    numbers: dict[str, int] = {}
    notes = [*root.iter("{*}fn", "{*}footnote"), *root.iterfind(".//{*}note[@place]")]
    for number, note in enumerate(notes, 1):
        yield _say(note)
        numbers[note.get("id", "")] = number
        listed = _name(note.getparent()).endswith(("group", "foot"))
        note.clear(keep_tail=True)
        note.tag, note.text = "span", "" if listed else f"[^{number}]"
    for mark in root.iter("{*}xref"):
        if noted := numbers.get(mark.get("rid") or "-"):
            mark.clear(keep_tail=True)
            mark.text = f"[^{noted}]"


def _shape(part: etree._Element) -> None:
    """Name headings by their level, and what HTML writes in another way."""
    etree.strip_tags(part, "{*}tgroup")
    for title in list(part.iter("{*}title", "{*}head")):
        holder = title.getparent()
        while holder is not None and _name(holder) in _FRONTS:
            holder = holder.getparent()
        if holder is not None and _name(holder) in _SECTIONS.split():
            above = (each for each in holder.iterancestors() if _name(each) in _SECTIONS.split())
            title.tag = f"h{min(2 + sum(1 for _ in above), 6)}"
        elif holder is not None and _name(holder) == "table":
            holder.addprevious(title)
    for ordered in part.iterfind(".//{*}list[@list-type]"):
        if ordered.get("list-type") not in ("bullet", "simple"):
            ordered.tag = "ol"
    for item in part.iter("{*}list-item", "{*}listitem", "{*}item"):
        if len(item) and _name(item[0]) in ("p", "para", "simpara"):
            item[0].tag = "span"  # else each item is a paragraph apart
    for label in part.iterfind(".//{*}ref/{*}label"):
        label.tag, label.text = "span", f"[{_say(label)}] "
