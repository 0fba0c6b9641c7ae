"""Markdown and HTML files."""

from __future__ import annotations

import html
import re

from colligate.documents.document import Document
from colligate.documents.reading.kreuzberg_parser import to_markdown
from colligate.documents.reading.source import Source, markdown_document

_FRONT_MATTER = re.compile(r"---[ \t]*\n(.*?\n)(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL)
_FRONT_TITLE = re.compile(r"^title[ \t]*:[ \t]*(.+?)[ \t]*$", re.MULTILINE | re.IGNORECASE)
_TITLE = re.compile(r"<title\b[^>]*>([^<]{0,1000})</title\s*>", re.IGNORECASE)
_HEAD = re.compile(r"<head\b[^>]*>.*?</head\s*>", re.IGNORECASE | re.DOTALL)
_META = re.compile(r"<(?:meta|base|link)\b[^>]*>", re.IGNORECASE)
_LANGUAGE = re.compile(r"<html\b[^>]*?\blang\s*=\s*[\"']?([a-z]{2})\b", re.IGNORECASE)


def read_markdown(source: Source) -> Document:
    """A Markdown file; a title in its front matter is the document's."""
    text = source.decoded.text
    return markdown_document(
        source, text, title=_front_matter_title(text), warnings=source.decoded.warnings
    )


def _front_matter_title(text: str) -> str | None:
    front = _FRONT_MATTER.match(text)
    title = _FRONT_TITLE.search(front[1]) if front else None
    return title[1].strip("\"'") or None if title else None


def read_html(source: Source) -> Document:
    """An HTML page as Markdown; what is in its head is not text."""
    page = source.decoded.text
    title = _TITLE.search(page)
    body = _META.sub("", _TITLE.sub("", _HEAD.sub("", page, count=1)))
    parsed = to_markdown(source, body.encode(), "text/html")
    return markdown_document(
        source,
        parsed.text,
        title=" ".join(html.unescape(title[1]).split()) if title else None,
        warnings=source.decoded.warnings,
    )
