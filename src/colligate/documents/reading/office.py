"""Slides, sheets, e-books and other marked-up formats, through kreuzberg."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from colligate.documents.document import Document, Page
from colligate.documents.reading.formats import EPUB, PPTX, RTF, Container
from colligate.documents.reading.kreuzberg_parser import to_markdown
from colligate.documents.reading.limits import check_archive
from colligate.documents.reading.slides import MARKER, slide_sections
from colligate.documents.reading.source import Source, markdown_document

_KEPT = ("title", "subject", "authors", "created_at", "modified_at", "language")
_NO_TITLES = {"powerpoint presentation", "document", "untitled"}  # what programs fill in
# Where a chapter of an e-book is not well-formed, its head comes as front matter.
_CHAPTER_HEAD = re.compile(r"^---\n(?:[\w:.-]+: .*\n)+---\n+", re.MULTILINE)


def read_office(source: Source) -> Document:
    """A file of any format kreuzberg turns into Markdown.

    Raises:
        ReadingError: if it is damaged, encrypted or unpacks to too much.
    """
    form, data = source.format, source.data
    warnings: tuple[str, ...] = ()
    if form.container is Container.ZIP:
        members = check_archive(data, str(source.path), source.limits)
        if any(name.startswith("ppt/notesSlides/") for name in members):
            warnings = (f"{source.path}: the speaker's notes are not read",)
    elif form.container is Container.TEXT and form is not RTF:
        data, warnings = source.decoded.text.encode(), source.decoded.warnings
    marker = MARKER if form is PPTX else None
    parsed = to_markdown(source, data, form.media_type, page_marker=marker)
    text = parsed.text
    pages: tuple[Page, ...] = ()
    if form is PPTX:
        text, pages = slide_sections(text)
    elif form is EPUB:
        text = _CHAPTER_HEAD.sub("", text)
    metadata = _metadata(parsed.metadata)
    title = metadata.get("title", "")
    return markdown_document(
        source,
        text,
        title=None if title.lower() in _NO_TITLES else title,
        metadata=metadata,
        warnings=warnings,
        pages=pages,
    )


def _metadata(found: Mapping[str, Any]) -> dict[str, str]:
    kept = {}
    for key in _KEPT:
        value = found.get(key)
        if value:
            kept[key] = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return kept
