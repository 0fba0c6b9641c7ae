"""The only place that calls kreuzberg: no cache, no OCR, no network, bounded time."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from colligate.documents.document import clean_text
from colligate.documents.reading.source import SourceFile
from colligate.errors import CorruptFile, EncryptedFile

_SECONDS = 300
_EMBEDDED_PICTURE = re.compile(r"!\[([^\[\]\n]*)\]\((?:data:[^()\s]*|[^()\s:]+\.\w{3,4})\)")


def extract_markdown(
    source: SourceFile, data: bytes, media_type: str, *, page_marker: str | None = None
) -> ExtractedText:
    """Parse bytes of a media type kreuzberg knows; put `page_marker` before each page."""
    # Imported here: the library has 76 MB.
    import kreuzberg

    config = kreuzberg.ExtractionConfig(
        use_cache=False,
        enable_quality_processing=False,
        output_format="markdown",
        extraction_timeout_secs=_SECONDS,
        concurrency=kreuzberg.ConcurrencyConfig(max_threads=1),
        content_filter=kreuzberg.ContentFilterConfig(strip_repeating_text=False),
    )
    config.disable_ocr = True  # type: ignore[attr-defined]  # its stub lags behind
    config.max_archive_depth = 0
    if page_marker is not None:
        config.pages = kreuzberg.PageConfig(insert_page_markers=True, marker_format=page_marker)
    try:
        result = kreuzberg.extract_bytes_sync(data, media_type, config)
    except Exception as error:  # whatever a parser in another language raises is a damaged file
        raise _refuse(source, error) from error
    text = clean_text(result.content)
    return ExtractedText(_EMBEDDED_PICTURE.sub(r"\1", text).strip("\n") + "\n", result.metadata)


@dataclass(frozen=True, slots=True)
class ExtractedText:
    """A file as kreuzberg reads it: Markdown and metadata."""

    text: str
    metadata: Mapping[str, Any]


def _refuse(source: SourceFile, error: Exception) -> EncryptedFile | CorruptFile:
    reason = re.sub(r"^\w+Error: ", "", str(error))
    if re.search(r"encrypt|password", reason, re.IGNORECASE):
        return source.error(EncryptedFile, "it is encrypted", "remove its password")
    return source.error(CorruptFile, reason[:200], "open and save it again")
