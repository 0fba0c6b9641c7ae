"""Between documents and the catalogue's rows; used inside its transactions."""

from __future__ import annotations

import dataclasses
import json
import os
import sqlite3
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from colligate.documents import Document, Span, Tree
from colligate.documents.document import Page
from colligate.errors import CorruptFile
from colligate.library.schema import State

DOCUMENT = "id, title, text, tree, pages, source, media_type, language, metadata, warnings"
FILE = "path, size, mtime_ns, checked_ns, sha256, warnings, failure"
STAYING = f"state != {State.LEAVING:d}"  # in these words, so that the index on ids serves
PLACED = "p.number, p.document, p.start, p.end, p.page, p.section"


@dataclass(frozen=True, slots=True)
class FileRecord:
    """A file as it was when it was read: what tells whether it has changed since.

    `failure` says why a file could not be read: the release that could not, then the error's
    class, what, why and mend. Empty for a file that was read.
    """

    path: Path
    size: int
    mtime_ns: int
    checked_ns: int
    sha256: str
    warnings: tuple[str, ...] = ()
    failure: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Placed:
    """A passage in the catalogue."""

    number: int
    document: int
    start: int
    end: int
    page: int | None
    section: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Text:
    """What is needed of a document to show or embed its passages."""

    id: str
    title: str
    language: str
    text: str


def document_of(row: Sequence[Any]) -> Document:
    """A document from the columns `DOCUMENT`."""
    id_, title, text, tree, pages, source, media_type, language, metadata, warnings = row
    return Document(
        id=id_,
        title=title,
        text=text,
        tree=Tree.from_json(json.loads(tree), id_),
        pages=tuple(Page(*page) for page in json.loads(pages)),
        source=source,
        media_type=media_type,
        language=language,
        metadata=json.loads(metadata),
        warnings=tuple(json.loads(warnings)),
    )


def file_of(row: Sequence[Any]) -> FileRecord:
    """A file from the columns `FILE`."""
    path, size, mtime_ns, checked_ns, sha256, warnings, failure = row
    return FileRecord(
        Path(os.fsdecode(path)),
        size,
        mtime_ns,
        checked_ns,
        sha256,
        tuple(json.loads(warnings)),
        tuple(json.loads(failure)),
    )


def placed_of(row: Sequence[Any]) -> Placed:
    """A passage from the columns `PLACED`."""
    number, document, start, end, page, section = row
    return Placed(number, document, start, end, page, tuple(json.loads(section)))


def write_file(db: sqlite3.Connection, file: FileRecord) -> None:
    """Write a file's row, in place of what was known of it; its documents stay its own."""
    values = (
        os.fsencode(file.path),
        file.size,
        file.mtime_ns,
        file.checked_ns,
        file.sha256,
        _json([printable(warning) for warning in file.warnings]),
        _json([printable(part) for part in file.failure]),
    )
    columns = FILE.split(", ")
    marks = ", ".join("?" * len(columns))
    changes = ", ".join(f"{column} = excluded.{column}" for column in columns[1:])
    db.execute(
        f"INSERT INTO files ({FILE}) VALUES ({marks}) ON CONFLICT (path) DO UPDATE SET {changes}",
        values,
    )


def linked(db: sqlite3.Connection, path: Path) -> set[int]:
    """The documents of a file."""
    rows = db.execute("SELECT document FROM file_documents WHERE path = ?", (os.fsencode(path),))
    return {number for (number,) in rows}


def link(db: sqlite3.Connection, path: Path, documents: Sequence[int]) -> None:
    """Say which documents a file holds, and no others, in order."""
    key = os.fsencode(path)
    db.execute("DELETE FROM file_documents WHERE path = ?", (key,))
    db.executemany(
        "INSERT INTO file_documents (path, place, document) VALUES (?, ?, ?)",
        [(key, place, number) for place, number in enumerate(documents)],
    )


def leave_unlinked(db: sqlite3.Connection, numbers: Collection[int]) -> None:
    """Make those of these documents leave that no file holds."""
    db.executemany(
        "UPDATE documents SET state = ? WHERE number = ?"
        " AND number NOT IN (SELECT document FROM file_documents)",
        [(State.LEAVING, number) for number in numbers],
    )


def is_pending(db: sqlite3.Connection, number: int) -> bool:
    """Whether a document is not indexed yet."""
    query = "SELECT 1 FROM documents WHERE number = ? AND state = ?"
    return db.execute(query, (number, State.PENDING)).fetchone() is not None


def same(db: sqlite3.Connection, document: Document) -> int | None:
    """The number of the document of this id, title and text, if it is here.

    It stays if it was leaving, but has to be indexed again: its passages may be half gone.
    """
    rows = db.execute(
        "SELECT number, state FROM documents"
        " WHERE id IN (?, ?) AND title = ? AND digest = ? ORDER BY state",
        (document.id, _renamed(document), printable(document.title), document.digest),
    ).fetchall()
    if not rows:
        return None
    number, state = rows[0]
    if state == State.LEAVING:
        if _taken(db, document.id):
            return None
        db.execute("UPDATE documents SET state = ? WHERE number = ?", (State.PENDING, number))
    # Its file may have moved.
    source = (printable(document.source), number)
    db.execute("UPDATE documents SET source = ? WHERE number = ?", source)
    return int(number)


def add_document(db: sqlite3.Connection, document: Document, spans: Sequence[Span]) -> int:
    """Write a pending document and its passages; returns its number.

    Where another document has its id (two files of records may both have a "1"), it is
    known by the id and the first ten digits of its digest.

    Raises:
        CorruptFile: if its text, or its id, cannot be written as UTF-8.
    """
    if printable(document.id) != document.id or printable(document.text) != document.text:
        raise CorruptFile(
            f"cannot store {printable(document.source or document.id)}",
            "its text holds half a surrogate pair, which is no character",
            "save it as UTF-8",
        )
    if _taken(db, document.id):
        new = _renamed(document)
        tree = Tree.from_json(document.tree.to_json(), new)
        document = dataclasses.replace(document, id=new, tree=tree)
        spans = [Span(new, span.start, span.end) for span in spans]
    title = printable(document.title)
    number = db.execute(
        "INSERT INTO documents (state, id, title, source, media_type, language, digest, characters,"
        " page_count, passage_count, metadata, warnings, pages, tree, text)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            State.PENDING,
            document.id,
            title,
            printable(document.source),
            document.media_type,
            document.language,
            document.digest,
            len(document.text),
            len(document.pages),
            len(spans),
            printable(_json(dict(document.metadata))),
            printable(_json(document.warnings)),
            _json([[p.number, p.start, p.end, p.label] for p in document.pages]),
            _json(document.tree.to_json()),
            document.text,
        ),
    ).lastrowid
    assert number is not None
    db.executemany(
        "INSERT INTO passages (document, start, end, page, section) VALUES (?, ?, ?, ?, ?)",
        [
            (number, p.span.start, p.span.end, p.page, _json(p.section))
            for p in map(document.passage, spans)
        ],
    )
    return number


def printable(text: str) -> str:
    """A text as UTF-8 can write it: half surrogate pairs, as in names of files, are escaped."""
    return text.encode("utf-8", "backslashreplace").decode()


def _renamed(document: Document) -> str:
    return f"{document.id}-{document.digest[:10]}"


def _taken(db: sqlite3.Connection, document_id: str) -> bool:
    query = f"SELECT 1 FROM documents WHERE id = ? AND {STAYING}"
    return db.execute(query, (document_id,)).fetchone() is not None


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
