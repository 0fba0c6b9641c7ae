"""Reading one file: load it, see what it is, hand it to its reader, name its language."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from colligate.documents.document import Document
from colligate.documents.languages import detect_language
from colligate.documents.reading import markup, wikitext
from colligate.documents.reading import records as jsonl
from colligate.documents.reading import text as plain
from colligate.documents.reading.formats import Reader, detect_format
from colligate.documents.reading.limits import Limits
from colligate.documents.reading.office import read_docx, read_email, read_office
from colligate.documents.reading.source import SourceFile, load


@dataclass(frozen=True, slots=True)
class Reading:
    """The documents of one file (one, but for a file of records) and what went wrong with it."""

    documents: tuple[Document, ...]
    warnings: tuple[str, ...] = ()


def read_file(path: Path, limits: Limits = Limits()) -> Reading:  # noqa: B008 (it is immutable)
    """Read one file, whatever its format. Blocking; the result can be pickled.

    Raises:
        MissingPath: if there is no such file.
        ReadingError: if it cannot be read; the subclass says why.
    """
    path = Path(path)
    data = load(path, limits)
    source = SourceFile(path, data, detect_format(path, data), limits)
    if source.format.reader is Reader.RECORDS:
        found, warnings = jsonl.read_records(source)
    else:
        document = _READERS[source.format.reader](source)
        found, warnings = (document,), document.warnings
    return Reading(tuple(map(_with_language, found)), warnings)


def _read_pdf(source: SourceFile) -> Document:
    # Imported where it is needed: its parsers are slow to load.
    from colligate.documents.reading.pdf.reader import read_pdf

    return read_pdf(source.path, source.data, stem=source.stem)


_READERS: dict[Reader, Callable[[SourceFile], Document]] = {
    Reader.PDF: _read_pdf,
    Reader.MARKDOWN: markup.read_markdown,
    Reader.TEXT: plain.read_text,
    Reader.HTML: markup.read_html,
    Reader.WIKITEXT: wikitext.read_wikitext,
    Reader.EMAIL: read_email,
    Reader.DOCX: read_docx,
    Reader.OFFICE: read_office,
}


def _with_language(document: Document) -> Document:
    if document.language != "und":
        return document
    return dataclasses.replace(document, language=detect_language(document.text))
