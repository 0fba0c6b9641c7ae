"""The catalogue: what documents a library holds, from which files, cut into which passages."""

from __future__ import annotations

import os
import threading
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from sqlite3 import Connection
from typing import Any

from colligate.documents import Document, Span
from colligate.library import rows
from colligate.library.rows import FileRecord, Placed, Text
from colligate.library.schema import State, connect, speaking_of
from colligate.library.sources import DocumentInfo

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
            f" FROM documents WHERE {rows.STAYING} ORDER BY number"
        )
        return [DocumentInfo(*row) for row in found]

    def numbers(self, ids: Iterable[str] | None = None) -> dict[str, int]:
        """The numbers of these documents (None: of all), those not in the library left out."""
        query = f"SELECT id, number FROM documents WHERE {rows.STAYING}"
        if ids is None:
            return dict(self._rows(query + " ORDER BY number"))
        possible = [id_ for id_ in ids if rows.printable(id_) == id_]
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
        query = f"SELECT {rows.DOCUMENT} FROM documents WHERE number = ?"
        found = self._rows(query, number)
        return rows.document_of(found[0]) if found else None

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
            f"SELECT {rows.PLACED} FROM passages p JOIN documents d ON d.number = p.document"
            " WHERE d.state = ? AND p.number IN (%s)"
        )
        found = map(rows.placed_of, self._listed(query, numbers, State.INDEXED))
        return {placed.number: placed for placed in found}

    def passages_of(self, document: int) -> list[Placed]:
        """All passages of one document, in order."""
        query = f"SELECT {rows.PLACED} FROM passages p WHERE document = ? ORDER BY number"
        return [rows.placed_of(row) for row in self._rows(query, document)]

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
        found = self._rows(f"SELECT {rows.FILE} FROM files WHERE path = ?", os.fsencode(path))
        return rows.file_of(found[0]) if found else None

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
            rows.write_file(db, file)

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
            before = rows.linked(db, file.path)
            rows.write_file(db, file)
            rows.link(db, file.path, [])
            staying = {rows.same(db, document) for document, _ in documents}
            rows.leave_unlinked(db, before - staying)
            numbers = [
                rows.same(db, document) or rows.add_document(db, document, spans)
                for document, spans in documents
            ]
            rows.link(db, file.path, numbers)
            return [number for number in numbers if rows.is_pending(db, number)]

    def forget_file(self, path: Path) -> None:
        """Take a file out; documents that no other file holds are leaving."""
        with self._transaction() as db:
            before = rows.linked(db, path)
            db.execute("DELETE FROM files WHERE path = ?", (os.fsencode(path),))
            rows.leave_unlinked(db, before)

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
            rows.leave_unlinked(db, numbers)

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
