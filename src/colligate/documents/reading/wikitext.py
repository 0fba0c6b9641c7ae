"""Wikitext (MediaWiki) to Markdown."""

from __future__ import annotations

from colligate.documents.document import Document
from colligate.documents.reading.source import Source, markdown_document


def read_wikitext(source: Source) -> Document:
    """A page in wikitext."""
    raise NotImplementedError
