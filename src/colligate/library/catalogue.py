"""The catalogue: what documents a library holds, from which files, cut into which passages."""

from __future__ import annotations

import dataclasses
import json
import os
import sqlite3
import threading
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from sqlite3 import Connection
from typing import Any

from colligate.documents import Document, Span, Tree
from colligate.documents.document import Page
from colligate.errors import CorruptFile, UnknownDocument
from colligate.library.schema import State, connect, speaking_of
from colligate.library.sources import DocumentInfo

# Between documents and the catalogue's rows; used inside its transactions.

DOCUMENT = "id, title, text, tree, pages, source, media_type, language, metadata, warnings"
FILE = "path, size, mtime_ns, checked_ns, sha256, warnings, failure"
STAYING = f"state != {State.LEAVING:d}"  # in these words, so that the index on ids serves
PLACED = "p.number, p.document, p.start, p.end, p.page, p.section"


@dataclass(frozen=True, slots=True)
class FileRecord:
    """A file as it was when it was read: what tells whether it has changed since.

    `failure` says why a file could not be read: the release that could not, then the error's
    class, what, why and hint. Empty for a file that was read.
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


_LISTED = 500  # values in one SQL list


class Catalogue:
    """A library's SQLite file. Calls block and may come from any thread.

    Raises:
        LibraryError: from any call, if the file is damaged, full or of another version.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._connection, writable = connect(file)
        self.read_only = not writable
        self.in_memory = str(file) == ":memory:"
        self._lock = threading.RLock()

    # Documents and passages

    def infos(self) -> list[DocumentInfo]:
        """All documents that are not leaving, in the order they were added."""
        found = self._rows(
            "SELECT id, title, source, characters, page_count, passage_count, language"
            f" FROM documents WHERE {STAYING} ORDER BY number"
        )
        return [DocumentInfo(*row) for row in found]

    def numbers(self, ids: Iterable[str] | None = None) -> dict[str, int]:
        """The numbers of these documents (None: of all), those not in the library left out."""
        query = f"SELECT id, number FROM documents WHERE {STAYING}"
        if ids is None:
            return dict(self._rows(query + " ORDER BY number"))
        possible = [id_ for id_ in ids if printable(id_) == id_]
        return dict(self._listed(query + " AND id IN (%s)", possible))

    def ids(self, numbers: Sequence[int]) -> list[str]:
        """The ids of these documents, leaving or not."""
        found = self._listed("SELECT id FROM documents WHERE number IN (%s)", numbers)
        return [id_ for (id_,) in found]

    def in_state(self, state: State) -> list[int]:
        """Document numbers, in order."""
        query = "SELECT number FROM documents WHERE state = ? ORDER BY number"
        return [number for (number,) in self._rows(query, state)]

    def can_be_searched(self) -> bool:
        """Whether any passage should be in the index."""
        query = "SELECT 1 FROM documents WHERE state = ? AND passage_count > 0 LIMIT 1"
        return bool(self._rows(query, State.INDEXED))

    def languages(self) -> list[str]:
        """The languages of the documents that can be searched."""
        query = "SELECT DISTINCT language FROM documents WHERE state = ?"
        return [language for (language,) in self._rows(query, State.INDEXED)]

    def document(self, number: int) -> Document | None:
        """One document, whole."""
        query = f"SELECT {DOCUMENT} FROM documents WHERE number = ?"
        found = self._rows(query, number)
        return document_of(found[0]) if found else None

    def text(self, number: int) -> Text | None:
        """One document's text, without building its tree."""
        query = "SELECT id, title, language, text FROM documents WHERE number = ?"
        found = self._rows(query, number)
        return Text(*found[0]) if found else None

    def digest(self, number: int) -> str:
        """The SHA-256 of a document's text as it was stored."""
        found = self._rows("SELECT digest FROM documents WHERE number = ?", number)
        return str(found[0][0]) if found else ""

    def passages(self, numbers: Sequence[int]) -> dict[int, Placed]:
        """The passages with these numbers, of documents that can be searched."""
        query = (
            f"SELECT {PLACED} FROM passages p JOIN documents d ON d.number = p.document"
            " WHERE d.state = ? AND p.number IN (%s)"
        )
        found = map(placed_of, self._listed(query, numbers, State.INDEXED))
        return {placed.number: placed for placed in found}

    def passages_of(self, document: int) -> list[Placed]:
        """All passages of one document, in order."""
        query = f"SELECT {PLACED} FROM passages p WHERE document = ? ORDER BY number"
        return [placed_of(row) for row in self._rows(query, document)]

    def passage_numbers(self, state: State) -> dict[int, int]:
        """The passages of all documents in this state, each with its document."""
        query = (
            "SELECT p.number, p.document FROM passages p JOIN documents d ON d.number = p.document"
            " WHERE d.state = ?"
        )
        return dict(self._rows(query, state))

    def count_passages(self, documents: Sequence[int]) -> int:
        """How many passages these documents have together."""
        query = "SELECT passage_count FROM documents WHERE number IN (%s)"
        return sum(count for (count,) in self._listed(query, documents))

    # Files

    def file(self, path: Path) -> FileRecord | None:
        """What is known of a file that was read, or could not be."""
        found = self._rows(f"SELECT {FILE} FROM files WHERE path = ?", os.fsencode(path))
        return file_of(found[0]) if found else None

    def files(self) -> list[Path]:
        """The paths of all files of which something is known."""
        found = self._rows("SELECT path FROM files ORDER BY path")
        return [Path(os.fsdecode(path)) for (path,) in found]

    def documents_of(self, path: Path) -> list[str]:
        """The ids of a file's documents, in the file's order."""
        found = self._rows(
            "SELECT d.id FROM file_documents f JOIN documents d ON d.number = f.document"
            " WHERE f.path = ? ORDER BY f.place",
            os.fsencode(path),
        )
        return [id_ for (id_,) in found]

    def sources_only_of(self, numbers: Sequence[int]) -> list[str]:
        """The files that these documents were read from, but for those others came from too."""
        found = self._listed("SELECT source FROM documents WHERE number IN (%s)", numbers)
        sources = {source for (source,) in found}
        others = "SELECT source FROM documents WHERE state != ?"
        return sorted(sources.difference(s for (s,) in self._rows(others, State.LEAVING)))

    # Changes, each one transaction

    def note_file(self, file: FileRecord) -> None:
        """Record how a file was found; its documents, if it has any, stay as they are."""
        with self._transaction() as db:
            write_file(db, file)

    def store(
        self, file: FileRecord, documents: Sequence[tuple[Document, list[Span]]]
    ) -> list[int]:
        """Put a file's documents in place of those it had before; returns which are pending.

        New ones are pending; those that no file holds any more are leaving. A document that
        is here already stays as it is.

        Raises:
            CorruptFile: if a text cannot be written as UTF-8.
        """
        with self._transaction() as db:
            before = linked(db, file.path)
            write_file(db, file)
            link(db, file.path, [])
            staying = {same(db, document) for document, _ in documents}
            leave_unlinked(db, before - staying)
            numbers = [
                same(db, document) or add_document(db, document, spans)
                for document, spans in documents
            ]
            link(db, file.path, numbers)
            return [number for number in numbers if is_pending(db, number)]

    def forget_file(self, path: Path) -> None:
        """Take a file out; documents that no other file holds are leaving."""
        with self._transaction() as db:
            before = linked(db, path)
            db.execute("DELETE FROM files WHERE path = ?", (os.fsencode(path),))
            leave_unlinked(db, before)

    def leave(self, numbers: Collection[int]) -> None:
        """Make documents leave. Their files are read again when they are added again."""
        each = [(number,) for number in numbers]
        holders = "path IN (SELECT path FROM file_documents WHERE document = ?)"
        with self._transaction() as db:
            db.executemany(f"UPDATE files SET size = -1, sha256 = '' WHERE {holders}", each)
            db.executemany("DELETE FROM file_documents WHERE document = ?", each)
            db.execute(
                "DELETE FROM files WHERE sha256 = ''"
                " AND path NOT IN (SELECT path FROM file_documents)"
            )
            leave_unlinked(db, numbers)

    def mark(self, numbers: Collection[int], state: State) -> None:
        """Move documents to a state; those that are leaving stay so."""
        with self._transaction() as db:
            db.executemany(
                "UPDATE documents SET state = ? WHERE number = ? AND state != ?",
                [(state, number, State.LEAVING) for number in numbers],
            )

    def purge(self, numbers: Collection[int]) -> None:
        """Delete those of these documents that are leaving, and every trace of their text."""
        with self._transaction() as db:
            db.executemany(
                "DELETE FROM documents WHERE number = ? AND state = ?",
                [(number, State.LEAVING) for number in numbers],
            )
        self.checkpoint()

    def checkpoint(self) -> None:
        """Move SQLite's write-ahead log into the file and empty it."""
        self._rows("PRAGMA wal_checkpoint(TRUNCATE)")

    # What the library is

    def meta(self, key: str) -> str | None:
        """One fact about the library."""
        found = self._rows("SELECT value FROM meta WHERE key = ?", key)
        return str(found[0][0]) if found else None

    def set_meta(self, **facts: str) -> None:
        """Record facts about the library."""
        with self._transaction() as db:
            db.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", facts.items())

    def problems(self) -> list[str]:
        """What SQLite itself finds wrong with the file."""
        found = [line for (line,) in self._rows("PRAGMA integrity_check") if line != "ok"]
        broken = self._rows("PRAGMA foreign_key_check")
        return found + [f"a row of {row[0]} refers to a missing row of {row[2]}" for row in broken]

    def close(self) -> None:
        """Let the file go. Safe to call twice."""
        with self._lock:
            self._connection.close()

    def _rows(self, query: str, *values: Any) -> list[Any]:
        with self._lock, speaking_of(self._file):
            return self._connection.execute(query, values).fetchall()

    def _listed(self, query: str, listed: Sequence[Any], *values: Any) -> Iterator[Any]:
        for at in range(0, len(listed), _LISTED):
            some = listed[at : at + _LISTED]
            yield from self._rows(query % ",".join("?" * len(some)), *values, *some)

    @contextmanager
    def _transaction(self) -> Iterator[Connection]:
        with self._lock, speaking_of(self._file):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                self._connection.rollback()
                raise


# Which documents of a catalogue are meant: by id, by file, by folder.


def ids_of(catalogue: Catalogue, files: Sequence[Path]) -> list[str]:
    """The ids of the documents of these files, in order and each once."""
    ids: dict[str, None] = {}
    for path in files:
        ids.update(dict.fromkeys(catalogue.documents_of(real(path))))
    return list(ids)


def prune_missing(catalogue: Catalogue, paths: Sequence[Path | str]) -> list[Path]:
    """Forget the files read from these folders before that are gone; returns them."""
    gone = []
    for folder in map(real, paths):
        if folder.is_dir():
            gone += [path for path in _under(catalogue, folder) if _is_gone(path)]
    for path in gone:
        catalogue.forget_file(path)
    return gone


def take_out(catalogue: Catalogue, ids_or_paths: Sequence[str | Path]) -> None:
    """Make documents leave: those named by id, and those of the files and folders named.

    Raises:
        UnknownDocument: if one of them is neither; nothing has changed then.
    """
    known = catalogue.numbers()
    numbers: list[int] = []
    files: list[Path] = []
    for meant in ids_or_paths:
        if str(meant) in known:
            numbers.append(known[str(meant)])
            continue
        path = real(meant)
        found = [path] if catalogue.file(path) else _under(catalogue, path)
        if not found:
            raise UnknownDocument(
                f"cannot remove {meant}",
                "the library has no document and no file of this name",
                "see `colligate library list`",
            )
        files += found
    catalogue.leave(numbers)
    for path in files:
        catalogue.forget_file(path)


def real(path: Path | str) -> Path:
    """Where a file really stands, as the catalogue knows it."""
    try:
        return Path(os.path.realpath(os.path.expanduser(path)))  # noqa: PTH111 (pathlib may refuse)
    except ValueError:  # no file is named so
        return Path(path)


def _is_gone(path: Path) -> bool:
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:  # out of reach is not gone
        return False
    return False


def _under(catalogue: Catalogue, folder: Path) -> list[Path]:
    return [path for path in catalogue.files() if folder in path.parents]
