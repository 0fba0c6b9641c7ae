"""Office documents, e-books and other marked-up formats, through kreuzberg."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from colligate.documents.document import Document
from colligate.documents.reading.formats import Container
from colligate.documents.reading.kreuzberg_parser import to_markdown
from colligate.documents.reading.limits import check_archive
from colligate.documents.reading.source import Source, markdown_document

_KEPT = ("title", "subject", "authors", "created_at", "modified_at", "language")


def read_office(source: Source) -> Document:
    """A file of any format kreuzberg turns into Markdown.

    Raises:
        ReadingError: if it is damaged, encrypted or unpacks to too much.
    """
    data, warnings = source.data, ()
    if source.format.container is Container.ZIP:
        check_archive(data, str(source.path), source.limits)
    elif source.format.container is Container.TEXT and source.format.media_type != "application/rtf":
        data, warnings = source.decoded.text.encode(), source.decoded.warnings
    parsed = to_markdown(source, data, source.format.media_type)
    metadata = _metadata(parsed.metadata)
    return markdown_document(
        source, parsed.text, title=metadata.get("title"), metadata=metadata, warnings=warnings
    )


def _metadata(found: Mapping[str, Any]) -> dict[str, str]:
    kept = {}
    for key in _KEPT:
        value = found.get(key)
        if value:
            kept[key] = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return kept
