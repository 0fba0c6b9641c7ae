"""Between documents and the catalogue's rows; used inside its transactions."""

from __future__ import annotations

import dataclasses
import json
import sqlite3
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from colligate.documents import Document, Span, Tree
from colligate.documents.document import Page
from colligate.library.schema import State

DOCUMENT = "id, title, text, tree, pages, source, media_type, language, metadata, warnings"
FILE = "path, size, mtime_ns, checked_ns, sha256, warnings"
PLACED = "p.number, p.document, p.start, p.end, p.page, p.section"


@dataclass(frozen=True, slots=True)
class FileRecord:
    """A file as it was when it was read: what tells whether it has changed since."""

    path: str
    size: int
    mtime_ns: int
    checked_ns: int
    sha256: str
    warnings: tuple[str, ...] = ()


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
    path, size, mtime_ns, checked_ns, sha256, warnings = row
    return FileRecord(path, size, mtime_ns, checked_ns, sha256, tuple(json.loads(warnings)))


def placed_of(row: Sequence[Any]) -> Placed:
    """A passage from the columns `PLACED`."""
    number, document, start, end, page, section = row
    return Placed(number, document, start, end, page, tuple(json.loads(section)))


def add_file(db: sqlite3.Connection, file: FileRecord) -> None:
    """Write a file's row, in place of what was known of it."""
    db.execute("DELETE FROM files WHERE path = ?", (file.path,))
    _insert(db, "files", dataclasses.asdict(file) | {"warnings": json.dumps(file.warnings)})


def linked(db: sqlite3.Connection, path: str) -> set[int]:
    """The documents of a file."""
    rows = db.execute("SELECT document FROM file_documents WHERE path = ?", (path,))
    return {number for (number,) in rows}


def link(db: sqlite3.Connection, path: str, place: int, document: int) -> None:
    """Say that a file holds a document."""
    _insert(db, "file_documents", {"path": path, "place": place, "document": document})


def leave_unlinked(db: sqlite3.Connection, numbers: Collection[int]) -> None:
    """Make those of these documents leave that no file holds."""
    db.executemany(
        "UPDATE documents SET state = ? WHERE number = ?"
        " AND number NOT IN (SELECT document FROM file_documents)",
        [(State.LEAVING, number) for number in numbers],
    )


def same(db: sqlite3.Connection, document: Document) -> int | None:
    """The number of the document with this id and text, if it is here; it stays if it was leaving.

    A document that was leaving has to be indexed again: its passages may be half gone.
    """
    rows = db.execute(
        "SELECT number, state FROM documents WHERE id IN (?, ?) AND digest = ? ORDER BY state",
        (document.id, _renamed(document), document.digest),
    ).fetchall()
    if not rows:
        return None
    number, state = rows[0]
    if state == State.LEAVING:
        if _taken(db, document.id):
            return None
        db.execute("UPDATE documents SET state = ? WHERE number = ?", (State.PENDING, number))
    return int(number)


def add_document(db: sqlite3.Connection, document: Document, spans: Sequence[Span]) -> int:
    """Write a pending document and its passages; returns its number.

    Where another document has its id (two files of records may both have a "1"), it is
    known by the id and the first ten digits of its digest.
    """
    if _taken(db, document.id):
        new = _renamed(document)
        tree = Tree.from_json(document.tree.to_json(), new)
        document = dataclasses.replace(document, id=new, tree=tree)
        spans = [Span(new, span.start, span.end) for span in spans]
    number = _insert(
        db,
        "documents",
        {
            "state": State.PENDING,
            "id": document.id,
            "title": document.title,
            "source": document.source,
            "media_type": document.media_type,
            "language": document.language,
            "digest": document.digest,
            "characters": len(document.text),
            "page_count": len(document.pages),
            "passage_count": len(spans),
            "metadata": _json(dict(document.metadata)),
            "warnings": _json(document.warnings),
            "pages": _json([[p.number, p.start, p.end, p.label] for p in document.pages]),
            "tree": _json(document.tree.to_json()),
            "text": document.text,
        },
    )
    db.executemany(
        "INSERT INTO passages (document, start, end, page, section) VALUES (?, ?, ?, ?, ?)",
        [
            (number, p.span.start, p.span.end, p.page, _json(p.section))
            for p in map(document.passage, spans)
        ],
    )
    return number


def _renamed(document: Document) -> str:
    return f"{document.id}-{document.digest[:10]}"


def _taken(db: sqlite3.Connection, document_id: str) -> bool:
    query = "SELECT 1 FROM documents WHERE id = ? AND state != ?"
    return db.execute(query, (document_id, State.LEAVING)).fetchone() is not None


def _insert(db: sqlite3.Connection, table: str, row: Mapping[str, Any]) -> int:
    marks = ", ".join("?" * len(row))
    query = f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})"
    return db.execute(query, tuple(row.values())).lastrowid or 0


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
