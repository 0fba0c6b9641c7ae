"""Markdown and HTML files."""

from __future__ import annotations

import re
from dataclasses import dataclass

from lxml import etree  # type: ignore[import-untyped]
from lxml import html as lxml_html

from colligate.documents.document import Document
from colligate.documents.reading.kreuzberg import extract_markdown
from colligate.documents.reading.source import SourceFile, make_document
from colligate.errors import CorruptFile


def read_markdown(source: SourceFile) -> Document:
    """Read a Markdown file; a title in its front matter is the document's."""
    return make_document(source, source.text, title=_read_front_title(source.text))


_FRONT_MATTER = re.compile(r"---[ \t]*\n(.*?\n)(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL)
_FRONT_TITLE = re.compile(r"^title[ \t]*:(.+)$", re.MULTILINE | re.IGNORECASE)


def _read_front_title(text: str) -> str | None:
    front = _FRONT_MATTER.match(text)
    title = _FRONT_TITLE.search(front[1]) if front else None
    return title[1].strip().strip("\"'") or None if title else None


def read_html(source: SourceFile) -> Document:
    """Read an HTML page as Markdown, without its head."""
    page = parse_html(source, source.text)
    metadata = {"language": page.language} if page.language else None
    return make_document(source, page.text, title=page.title, metadata=metadata)


@dataclass(frozen=True, slots=True)
class HtmlPage:
    """An HTML page: its body as Markdown, its title, and the language it declares."""

    text: str
    title: str | None
    language: str | None


# A character of the private use area, as kreuzberg would escape a backslash once more.
_ESCAPE = "\ue002"
_SAVE = "save the page again"


def parse_html(source: SourceFile, page: str) -> HtmlPage:
    """Parse HTML as browsers do, unclosed elements included; refuse it if thousands nest."""
    parser = lxml_html.HTMLParser(encoding="utf-8", huge_tree=True, remove_comments=True)
    try:
        root = lxml_html.document_fromstring(page.encode(), parser=parser)
    except etree.ParserError:  # nothing but comments and the like
        return HtmlPage("", None, None)
    except etree.XMLSyntaxError as error:
        raise source.error(CorruptFile, str(error), _SAVE) from error
    if any("depth" in entry.message for entry in parser.error_log):
        raise source.error(CorruptFile, "its elements nest too deeply", _SAVE)
    title = root.findtext(".//title")
    for head in root.findall("head"):
        root.remove(head)
    _flatten(root)
    _escape(root)
    markdown = extract_markdown(
        source, etree.tostring(root, method="html", encoding="utf-8"), "text/html"
    )
    text = markdown.text.replace(_ESCAPE, "\\")
    return HtmlPage(text, " ".join((title or "").split()) or None, root.get("lang"))


# kreuzberg silently drops text that nests deeper than this many elements.
_DEEPEST = 40
_NOT_TEXT = ("script", "style", "template", "noscript")


def _flatten(root: lxml_html.HtmlElement) -> None:
    """Turn each element at the greatest depth into a paragraph of all its text."""
    level = [root]
    for _ in range(_DEEPEST):
        level = [child for element in level for child in element if isinstance(child.tag, str)]
    for element in level:
        if len(element):
            etree.strip_elements(element, *_NOT_TEXT, with_tail=False)
            text, tail = " ".join(element.text_content().split()), element.tail
            element.clear()
            element.tag, element.text, element.tail = "p", text, tail


_VERBATIM = ("pre", "code", *_NOT_TEXT)
_ESCAPED = rf"\1{_ESCAPE}\2"
_MARKDOWN = re.compile(r"\A(\s*)(#{1,6}(?=\s)|`{3,}|~{3,})")


def _escape(root: lxml_html.HtmlElement) -> None:
    """Escape what Markdown would take for a heading or a code fence at a line's beginning."""
    for element in root.iter():
        if element.tag not in _VERBATIM and element.text:
            element.text = _MARKDOWN.sub(_ESCAPED, element.text)
        if element.tag == "br" and element.tail:
            element.tail = _MARKDOWN.sub(_ESCAPED, element.tail)
