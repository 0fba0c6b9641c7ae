"""Reading files: find the files that paths name, and read each into documents.

Another package adds a format by an entry point that names a file suffix and a `Reader`:

    [project.entry-points."colligate.formats"]
    srt = "my_package:read_subtitles"
"""

from __future__ import annotations

import dataclasses
import pkgutil
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from colligate.documents.document import SHEETS, Document
from colligate.documents.languages import detect_language
from colligate.documents.reading.discovery import FoundFiles, find_files
from colligate.documents.reading.formats import describe_mismatch, detect_format
from colligate.documents.reading.source import (
    Limits,
    SourceFile,
    document_id,
    find_path,
    load,
    make_document,
)
from colligate.documents.reading.tables import find_prose
from colligate.documents.tree import Kind, flat_tree
from colligate.errors import ColligateError, NoText, ReadingError, UnsupportedFormat, find_installer

__all__ = ["FoundFiles", "Limits", "Reader", "Reading", "SourceFile", "document_id", "find_files"]
__all__ += ["make_document", "read_file"]

Reader = Callable[[SourceFile], Document | Iterable[Document]]
"""A function that reads a format: from a loaded file to its document or documents.

`source.text` is the file's text, whatever its encoding, and `source.data` its bytes.
`make_document(source, text)` makes the document of a Markdown text. A reader reports what it leaves
out with `source.warn(...)` and raises `source.error(CorruptFile, why, hint)` if it cannot read.
"""


@dataclass(frozen=True, slots=True)
class Reading:
    """The documents of one file (one, or many for a file of records) and the warnings about it."""

    documents: tuple[Document, ...]
    warnings: tuple[str, ...] = ()


def read_file(path: Path, limits: Limits = Limits()) -> Reading:  # noqa: B008 (it is immutable)
    """Read one file of any format. Blocking; the result can be pickled.

    Raises:
        MissingPath: if the file does not exist.
        ReadingError: if it cannot be read; the subclass says why.
    """
    path = find_path(path)
    data = load(path, limits)
    source = SourceFile(path, data, detect_format(path, data), limits)
    documents = read_source(source)
    return Reading(documents, tuple(source.warnings))


def read_source(source: SourceFile) -> tuple[Document, ...]:
    """Read a loaded file; its warnings are in `source.warnings` then."""
    if mismatch := describe_mismatch(source.path, source.format):
        source.warn(mismatch)
    try:
        read: Reader = pkgutil.resolve_name(source.format.reader)
        made = read(source)
        documents = (made,) if isinstance(made, Document) else tuple(made)
        documents = tuple(_without_empty_tree(_with_language(each), source) for each in documents)
    except (ColligateError, MemoryError):
        raise
    except Exception as error:  # a parser or a reader of another package may raise anything
        missing = error.name if isinstance(error, ImportError) else None
        if missing and missing == source.format.package:
            why = f"reading it needs {missing}, which is not installed"
            hint = f"{find_installer()} 'colligate[{source.format.extra}]'"
            raise source.error(UnsupportedFormat, why, hint) from error
        why = f"its reader {source.format.reader} failed ({type(error).__name__}: {error})"
        hint = "leave it out, or convert it to another format"
        raise source.error(ReadingError, why, hint) from error
    if not documents:
        raise source.error(NoText, "it holds no document", "leave it out")
    return documents


_SHORTEST = 200  # characters of a section, on average, of a document with very many


def _without_empty_tree(document: Document, source: SourceFile) -> Document:
    """Return a document without its structure if that is very many headings with hardly any text:
    each would become a passage of its own."""
    most, characters = source.limits.sections, len(document.text)
    if len(document.tree.nodes) <= most:
        return document
    sections = sum(node.kind is Kind.SECTION for node in document.tree)
    if sections <= most or sections * _SHORTEST <= characters:
        return document
    source.warn(f"{sections:,} headings in {characters:,} characters are read as plain text")
    return dataclasses.replace(document, tree=flat_tree(document.id, characters))


def _with_language(document: Document) -> Document:
    if not isinstance(document, Document):
        raise TypeError(f"expected a Document, got {type(document).__name__}")
    if document.language != "und":
        return document
    text = find_prose(document.text) if document.media_type in SHEETS else document.text
    language = detect_language(text)
    if language == "und":  # what the file says comes second: programs state that of their user
        stated = re.match(r"[a-z]{2}(?![a-z])", document.metadata.get("language", "").lower())
        language = stated[0] if stated else language
    return dataclasses.replace(document, language=language)
