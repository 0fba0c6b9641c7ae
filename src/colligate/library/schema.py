"""The tables of a library's database, opening a file that has them, and its errors."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from enum import IntEnum
from pathlib import Path
from typing import Any, TypeVar

from colligate.errors import LibraryDamaged, LibraryError, LibraryLocked, LibraryVersion
from colligate.private import make_private_file

T = TypeVar("T")

SCHEMA_VERSION = 3
_APPLICATION = 0x434F4C4C  # "COLL"
WAIT_SECONDS = 30.0  # for another process that writes
MEMORY = ":memory:"
_LISTED = 500  # values in one SQL list
_MAPPED = 1 << 30  # bytes of the file: reading them needs no call of the system


class DocumentState(IntEnum):
    """Where a document is on its way into or out of the passage index."""

    PENDING = 0  # stored, not searchable yet
    INDEXED = 1  # all its passages are in the index
    REMOVING = 2  # replaced or removed: invisible, its passages are being taken out


# Numbers are never used twice: searches in other processes may still have them. Long columns come
# last, so that lists do not read them. Paths are bytes: some file names are not valid text.
# `library.passages` says what is in a row of `words`.
_TABLES = f"""
CREATE TABLE documents (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    state INTEGER NOT NULL,
    id TEXT NOT NULL,
    title TEXT NOT NULL,
    source TEXT NOT NULL,
    media_type TEXT NOT NULL,
    language TEXT NOT NULL,
    digest TEXT NOT NULL,
    characters INTEGER NOT NULL,
    page_count INTEGER NOT NULL,
    passage_count INTEGER NOT NULL,
    metadata TEXT NOT NULL,
    warnings TEXT NOT NULL,
    pages TEXT NOT NULL,
    tree TEXT NOT NULL,
    text TEXT NOT NULL
);
CREATE UNIQUE INDEX documents_id ON documents (id) WHERE state != {DocumentState.REMOVING:d};
CREATE INDEX documents_digest ON documents (digest, id);
CREATE INDEX documents_state ON documents (state, language);
CREATE TABLE passages (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    document INTEGER NOT NULL REFERENCES documents ON DELETE CASCADE,
    start INTEGER NOT NULL,
    end INTEGER NOT NULL,
    page INTEGER,
    section TEXT NOT NULL
);
CREATE INDEX passages_document ON passages (document);
CREATE TABLE files (
    path BLOB PRIMARY KEY,
    size INTEGER NOT NULL,
    mtime_ns INTEGER NOT NULL,
    checked_ns INTEGER NOT NULL,
    sha256 TEXT NOT NULL,
    warnings TEXT NOT NULL,
    failure TEXT NOT NULL
);
CREATE TABLE file_documents (
    path BLOB NOT NULL REFERENCES files ON DELETE CASCADE,
    place INTEGER NOT NULL,
    document INTEGER NOT NULL REFERENCES documents ON DELETE CASCADE,
    PRIMARY KEY (path, place)
) WITHOUT ROWID;
CREATE INDEX file_documents_document ON file_documents (document);
CREATE TABLE words (
    block INTEGER NOT NULL,
    term INTEGER NOT NULL,
    postings BLOB NOT NULL,
    PRIMARY KEY (block, term)
) WITHOUT ROWID;
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
PRAGMA application_id = {_APPLICATION};
PRAGMA user_version = {SCHEMA_VERSION};
"""


class Database:
    """A library's SQLite file. Calls block and may come from any thread.

    Any number of processes read it while one writes; another that writes waits. Any call raises a
    `LibraryError` if the file is damaged, the disk full or the version another.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._connection, writable = _open(file)
        self.read_only = not writable
        # It stands for a library that does not exist yet.
        self.in_memory = str(file) == MEMORY
        self._lock = threading.RLock()

    def rows(self, query: str, *values: Any) -> list[Any]:
        """Return all rows of a query."""
        with self._lock, translate_errors(self._file):
            return self._connection.execute(query, values).fetchall()

    def listed(self, query: str, listed: Sequence[Any], *values: Any) -> Iterator[Any]:
        """Yield the rows of a query that has a list of values in place of its `%s`, at the end."""
        for at in range(0, len(listed), _LISTED):
            some = listed[at : at + _LISTED]
            yield from self.rows(query % ",".join("?" * len(some)), *values, *some)

    def run_all(self, statement: str, values: Iterable[Any]) -> None:
        """Run a statement with each of these values, inside a transaction."""
        self._connection.executemany(statement, values)

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Do all that is written inside, or nothing; no other process writes meanwhile."""
        with self._lock, translate_errors(self._file):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                self._connection.rollback()
                raise

    def change(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run a function that writes, in a transaction of its own."""
        with self.transaction() as db:
            return work(db)

    def empty_log(self) -> None:
        """Move the write-ahead log into the file, and empty it."""
        ((busy, *_),) = self.rows("PRAGMA wal_checkpoint(TRUNCATE)")
        if busy:  # another process reads on and on
            what = f"cannot empty the write-ahead log of {self._file}"
            raise LibraryLocked(what, "another process is using it", "try again")

    def close(self) -> None:
        """Close the file. Safe to call twice."""
        with self._lock:
            self._connection.close()


def _open(file: Path) -> tuple[sqlite3.Connection, bool]:
    """Open a database, or make a new one; return it and whether it can be written."""
    with translate_errors(file):
        try:
            if str(file) != MEMORY:
                with suppress(OSError):  # SQLite says what is wrong
                    make_private_file(file)
            return _connect(file, file, writable=True), True
        except sqlite3.OperationalError as error:
            if not (file.exists() and _is_forbidden(error)):
                raise
        log = file.with_name(f"{file.name}-wal")
        if log.exists() and log.stat().st_size:
            why = "it cannot be written here, and the last process that wrote it was interrupted"
            hint = "open the library once where it can be written, e.g. `colligate library verify`"
            raise LibraryError(f"cannot read the catalogue {file}", why, hint)
        # Nobody writes it: SQLite needs no log and no lock, which it would have to write.
        uri = f"{file.resolve().as_uri()}?mode=ro&immutable=1"
        return _connect(file, uri, writable=False), False


def _connect(file: Path, target: Path | str, *, writable: bool) -> sqlite3.Connection:
    connection = sqlite3.connect(
        target, WAIT_SECONDS, isolation_level=None, check_same_thread=False, uri=not writable
    )
    try:
        if writable:
            _prepare(connection, file)
        _check(connection, file)
        connection.execute(f"PRAGMA mmap_size = {_MAPPED}")
    except BaseException:
        connection.close()
        raise
    return connection


def _prepare(connection: sqlite3.Connection, file: Path) -> None:
    ((mode,),) = connection.execute("PRAGMA journal_mode = WAL").fetchall()
    if mode != "wal" and str(file) != MEMORY:
        why = "processes cannot share memory on its disk, as on a network's"
        hint = "name a folder on a disk of this machine with --library"
        raise LibraryError(f"cannot open the library {file.parent}", why, hint)
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA secure_delete = ON")
    if not _read_pragma(connection, "application_id") and not _count_tables(connection):
        connection.execute("BEGIN IMMEDIATE")
        if not _count_tables(connection):  # another process may have been first
            for statement in _TABLES.split(";"):
                connection.execute(statement)
        connection.execute("COMMIT")


def _check(connection: sqlite3.Connection, file: Path) -> None:
    if _read_pragma(connection, "application_id") != _APPLICATION:
        raise _damaged(file, "it is not a catalogue of colligate")
    version = _read_pragma(connection, "user_version")
    if version != SCHEMA_VERSION:
        why = f"its format is version {version} and this colligate reads version {SCHEMA_VERSION}"
        hint = "index the files again into another --library, or use the colligate that made it"
        raise LibraryVersion(f"cannot open the library {file.parent}", why, hint)


def _read_pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])


def _count_tables(connection: sqlite3.Connection) -> int:
    return int(connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0])


@contextmanager
def translate_errors(file: Path) -> Iterator[None]:
    """Raise SQLite's errors about this file as errors of colligate."""
    try:
        yield
    except sqlite3.OperationalError as error:
        name = getattr(error, "sqlite_errorname", "")
        if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
            why = "another process is writing it"
            raise LibraryLocked(f"cannot write the catalogue {file}", why, "try again") from error
        if _is_forbidden(error) or name.startswith(("SQLITE_FULL", "SQLITE_IOERR")):
            hint = "name a folder with space that you can write with --library"
            raise LibraryError(f"cannot write the catalogue {file}", str(error), hint) from error
        raise _damaged(file, str(error)) from error
    except sqlite3.DatabaseError as error:
        raise _damaged(file, str(error)) from error


def _is_forbidden(error: sqlite3.OperationalError) -> bool:
    name = getattr(error, "sqlite_errorname", "")
    return name.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM"))


def _damaged(file: Path, why: str) -> LibraryDamaged:
    hint = "index the files again into another --library"
    return LibraryDamaged(f"cannot read the catalogue {file}", why, hint)
