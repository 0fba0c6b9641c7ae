"""A library's documents, files and facts in one Lance table.

All of its rows but the texts are in an SQLite database in memory, which `Catalogue` reads. What a
change does there is one commit of the table.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from sqlite3 import Connection
from typing import Any, TypeVar

from cachetools import LRUCache

from colligate.documents.document import digest
from colligate.errors import LibraryLocked
from colligate.library.catalogue import Catalogue, insert
from colligate.library.protocols import StoredPassage
from colligate.library.schema import MEMORY, Database, DocumentState
from colligate.scale.tables import CATALOGUE, NUMBER, TRIES, Table, TablesPlace, any_of, pa

T = TypeVar("T")


# Numbers go up in steps, so that the passages of a document come between it and the next one.
_STEP = 1 << 20

# Rows that are not documents have a state of their own. One that is gone is deleted later.
_CLOCK, _FILE, _FACT, _GONE = 10, 11, 12, 13

_LONG = ("passages", "pages", "tree", "text")
_EMPTY = dict.fromkeys(_LONG, "")
_ROWS = pa.schema(
    [
        NUMBER,
        pa.field("state", pa.int8()),
        pa.field("record", pa.string()),
        *(pa.field(name, pa.large_string()) for name in _LONG),
    ]
)

# What the record of a document has, and the columns of the database in memory. That has a digest
# of pages and tree in the place of both.
_DOCUMENT = {
    "id": "id",
    "title": "title",
    "source": "source",
    "media_type": "media_type",
    "language": "language",
    "digest": "digest",
    "structure": "pages",
    "characters": "characters",
    "pages": "page_count",
    "passages": "passage_count",
    "metadata": "metadata",
    "warnings": "warnings",
}
_STATE_OF_FILE = ("size", "mtime_ns", "checked_ns", "sha256")

# Which row of the table a file or a fact is, and what a change has touched. A table that is damaged
# may have an id twice.
_PLACES = """
DROP INDEX documents_id;
CREATE INDEX documents_id ON documents (id);
CREATE TABLE places (kind TEXT, key BLOB, number INTEGER, PRIMARY KEY (kind, key)) WITHOUT ROWID;
CREATE TABLE touched (kind TEXT, key BLOB, PRIMARY KEY (kind, key)) WITHOUT ROWID;
"""
_TOUCH = """
CREATE TRIGGER touch_{table}_{event} AFTER {event} ON {table}
BEGIN INSERT OR IGNORE INTO touched VALUES ('{kind}', {row}.{key}); END
"""
_TOUCHING = (
    ("documents", "document", "number"),
    ("files", "file", "path"),
    ("file_documents", "file", "path"),
    ("meta", "fact", "key"),
)


class Mirror(Database):
    """A table's rows in a database in memory, as new as the table whenever it is read.

    Each commit also replaces the clock, the row that says which number is the next: of two writers
    at the same time one meets a conflict, reads again and repeats its change.
    """

    def __init__(self, table: Table, *, read_only: bool) -> None:
        super().__init__(Path(MEMORY))
        self.table = table
        self.read_only, self.in_memory = read_only, False
        self._version = 0  # 0: read everything again
        self._changing = False
        self._file = Path(table.uri)  # for errors
        self._connection.executescript(_PLACES)
        for table_name, kind, key in _TOUCHING:
            for event, row in (("INSERT", "new"), ("UPDATE", "new"), ("DELETE", "old")):
                names = {"table": table_name, "event": event, "row": row, "kind": kind, "key": key}
                self._connection.execute(_TOUCH.format(**names))

    def pin(self) -> Mirror:
        """Return the rows as they are now; those in memory are copied, not read again."""
        with self._lock:
            pinned = Mirror(self.table.pin(), read_only=True)
            if self._version == pinned.table.refresh():
                self._connection.backup(pinned._connection)
                pinned._version = self._version
            return pinned

    def rows(self, query: str, *values: Any) -> list[Any]:
        with self._lock:
            self._refresh()
            return super().rows(query, *values)

    def change(self, work: Callable[[Connection], T]) -> T:
        """Run a function that writes, and commit the rows that it touches together."""
        with self._lock:
            for _ in range(TRIES):
                self._refresh()
                self._changing = True
                try:
                    with self.transaction() as db:
                        db.execute("DELETE FROM touched")
                        result = work(db)
                        self._commit(db)
                    return result
                except BaseException as error:
                    self._version = 0
                    if not isinstance(error, LibraryLocked):
                        raise
                    conflict = error
                finally:
                    self._changing = False
            raise conflict

    def move(self, numbers: Collection[int], state: DocumentState) -> None:
        """Move documents to a state, except those that are being removed; their texts stay."""
        with self._lock:
            query = "SELECT number FROM documents WHERE state NOT IN (?, ?) AND number IN (%s)"
            found = self.listed(query, list(numbers), state, DocumentState.REMOVING)
            moved = [number for (number,) in found]
            if moved:
                where = f"{any_of('number', moved)} AND state != {DocumentState.REMOVING:d}"
                self._note_version(self.table.update({"state": f"{state:d}"}, where))
                with self.transaction() as db:
                    each = [(state, number) for number in moved]
                    db.executemany("UPDATE documents SET state = ? WHERE number = ?", each)

    def purge(self, numbers: Sequence[int]) -> bool:
        """Delete those of these documents that are being removed, and other rows that are gone;
        return whether there were any."""
        with self._lock:
            query = "SELECT number FROM documents WHERE state = ? AND number IN (%s)"
            gone = [
                *self.rows("SELECT number FROM places WHERE kind = 'gone'"),
                *self.listed(query, numbers, DocumentState.REMOVING),
            ]
            if gone:
                where = any_of("number", (number for (number,) in gone))
                self.table.delete(f"{where} AND state IN ({DocumentState.REMOVING:d}, {_GONE})")
                self._version = 0
            return bool(gone)

    def restore(self, name: str) -> None:
        """Go back to the version of this name, but give no number a second time: other processes
        keep documents by number."""
        with self._lock:
            ((following,),) = self.rows("SELECT number FROM places WHERE kind = 'clock'")

            def set_clock(db: Connection) -> None:
                db.execute("UPDATE places SET number = ? WHERE kind = 'clock'", (following,))
                db.execute("INSERT INTO touched VALUES ('clock', '')")

            self.table.restore(name)
            self._version = 0
            self.change(set_clock)

    def _refresh(self) -> None:
        """Read the rows again if another process has changed the table."""
        if self._changing or (self._version and self.table.refresh() == self._version):
            return
        version = self.table.refresh()  # if others write now, the next call reads again
        found = self.table.read(["number", "state", "record"]).to_pylist()
        self._connection.execute("PRAGMA foreign_keys = OFF")  # what is damaged is read too
        try:
            with self.transaction() as db:
                _load(db, found)
        finally:
            self._connection.execute("PRAGMA foreign_keys = ON")
        self._version = version

    def _commit(self, db: Connection) -> None:
        touched = db.execute("SELECT kind, key FROM touched").fetchall()
        if not touched:
            return
        pack: dict[str, Callable[[Connection, Any], dict[str, Any] | None]] = {
            "document": self._pack_document,
            "file": _pack_file,
            "fact": _pack_fact,
        }
        rows = [row for kind, key in touched if kind in pack and (row := pack[kind](db, key))]
        ((following,),) = db.execute("SELECT number FROM places WHERE kind = 'clock'")
        rows.append(_make_row(0, _CLOCK, {"next": following}))
        self._note_version(self.table.upsert(_to_table(rows), self._version))

    def _note_version(self, written: int) -> None:
        """Note which version was written here; read all again if others wrote too."""
        self._version = written if written == self._version + 1 else 0

    def _pack_document(self, db: Connection, number: int) -> dict[str, Any]:
        columns = ("state", "tree", "text", *_DOCUMENT.values())
        query = f"SELECT {', '.join(columns)} FROM documents WHERE number = ?"
        (state, tree, text, *found) = db.execute(query, (number,)).fetchone()
        record = dict(zip(_DOCUMENT, found, strict=True))
        long: Mapping[str, str] = _EMPTY
        if tree:  # it is new; from now on its texts are in the table alone
            pages, record["structure"] = record["structure"], digest(record["structure"] + tree)
            query = "SELECT start, end, page, section FROM passages WHERE document = ? ORDER BY 1"
            passages = [
                (*row, json.loads(section)) for *row, section in db.execute(query, (number,))
            ]
            long = {"passages": json.dumps(passages), "pages": pages, "tree": tree, "text": text}
            db.execute("DELETE FROM passages WHERE document = ?", (number,))
            emptied = "UPDATE documents SET pages = ?, tree = '', text = '' WHERE number = ?"
            db.execute(emptied, (record["structure"], number))
        elif state != DocumentState.REMOVING:
            long = self.read_long(number) or _EMPTY
        return _make_row(number, state, record, {} if state == DocumentState.REMOVING else long)

    def read_long(self, number: int, columns: Sequence[str] = _LONG) -> dict[str, str]:
        """Return columns of a document that are in the table alone; nothing if it is gone."""
        found = self.table.read(columns, f"number = {number}").to_pylist()
        return found[0] if found else {}


class LanceCatalogue(Catalogue):
    """Documents, files and facts in one table; what lists need is kept in memory."""

    database: Mirror

    def __init__(self, database: Mirror) -> None:
        super().__init__(database)
        self.table = database.table
        self._passages: LRUCache[int, list[StoredPassage]] = LRUCache(1000)
        self._caching = threading.Lock()

    @classmethod
    def open(cls, table: Table, *, read_only: bool) -> LanceCatalogue:
        """Open the catalogue in a table."""
        return cls(Mirror(table, read_only=read_only))

    @classmethod
    def make(cls, place: TablesPlace) -> LanceCatalogue:
        """Make an empty catalogue."""
        clock = _make_row(0, _CLOCK, {"next": 1})
        return cls.open(place.make(CATALOGUE, _to_table([clock])), read_only=False)

    def pin(self) -> LanceCatalogue:
        """Return the catalogue as it is now."""
        return LanceCatalogue(self.database.pin())

    def is_at(self, other: LanceCatalogue) -> bool:
        """Return whether both see the same version of the table."""
        return self.table.refresh() == other.table.refresh(again=True)

    def passages(self, numbers: Sequence[int]) -> dict[int, StoredPassage]:
        owners = list({number - number % _STEP for number in numbers})
        query = "SELECT number FROM documents WHERE state = ? AND number IN (%s)"
        indexed = self._listed(query, owners, DocumentState.INDEXED)
        known = {p.number: p for (owner,) in indexed for p in self.passages_of(owner)}
        return {number: known[number] for number in numbers if number in known}

    def passages_of(self, document: int) -> list[StoredPassage]:
        with self._caching:
            if (known := self._passages.get(document)) is not None:
                return known
        found = self.database.read_long(document, ["passages"])
        if not found or not found["passages"]:
            return []
        listed = [
            StoredPassage(document + place, document, start, end, page, tuple(section))
            for place, (start, end, page, section) in enumerate(json.loads(found["passages"]), 1)
        ]
        with self._caching:
            self._passages[document] = listed
        return listed

    def passage_numbers(self, state: DocumentState) -> dict[int, int]:
        counts = self._rows("SELECT number, passage_count FROM documents WHERE state = ?", state)
        return {number + place: number for number, count in counts for place in range(1, count + 1)}

    def mark(self, numbers: Collection[int], state: DocumentState) -> None:
        self.database.move(numbers, state)

    def purge(self, numbers: Collection[int]) -> None:
        self.checkpoint(erase=self.database.purge(list(numbers)))

    def checkpoint(self, *, erase: bool = False) -> None:
        """Put the fragments of many small changes together."""
        self.table.tidy(erase=erase)

    def list_facts(self, start: str) -> dict[str, str]:
        """Return the facts whose names start so."""
        return dict(self._rows("SELECT key, value FROM meta WHERE instr(key, ?) = 1", start))

    def check(self) -> list[str]:
        return self.table.check() + super().check()

    def _read(self, number: int, *columns: str) -> dict[str, Any]:
        found = super()._read(number, *columns)
        long = [name for name in columns if name in _LONG]
        if found and long:
            stored = self.database.read_long(number, long)
            return found | stored if stored else {}
        return found

    def _take_number(self, db: Connection) -> int | None:
        return _take_number(db)

    def _is_same(self, stored: tuple[str, str], given: tuple[str, str]) -> bool:
        # Until it is committed a document has its pages and tree.
        return stored in (given, (digest("".join(given)), ""))


# Rows of the table, and of the database in memory


def _make_row(
    number: int, state: int, record: Mapping[str, Any], long: Mapping[str, str] = _EMPTY
) -> dict[str, Any]:
    # The record is in ASCII: a path may be no valid text.
    return {"number": number, "state": state, "record": json.dumps(record), **_EMPTY, **long}


def _to_table(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=_ROWS)


def _load(db: Connection, rows: Iterable[Mapping[str, Any]]) -> None:
    """Fill the database with the rows of the table."""
    for name in ("documents", "files", "file_documents", "meta", "places"):
        db.execute(f"DELETE FROM {name}")
    for row in rows:
        number, state, of = row["number"], row["state"], json.loads(row["record"])
        place: tuple[str, str | bytes | int, int]
        if state == _CLOCK:
            place = ("clock", "", of["next"])
        elif state == _GONE:
            place = ("gone", number, number)
        elif state == _FACT:
            place = ("fact", of["key"], number)
            insert(db, "meta", {"key": of["key"], "value": of["value"]})
        elif state == _FILE:
            path = os.fsencode(of["path"])
            place = ("file", path, number)
            lists = {name: json.dumps(of[name]) for name in ("warnings", "failure")}
            insert(db, "files", {"path": path, **{n: of[n] for n in _STATE_OF_FILE}, **lists})
            db.executemany(
                "INSERT INTO file_documents (path, place, document) VALUES (?, ?, ?)",
                [(path, at, document) for at, document in enumerate(of["documents"])],
            )
        else:
            # Older releases stored no digest of the structure.
            columns = {column: of.get(name, "") for name, column in _DOCUMENT.items()}
            insert(db, "documents", {"number": number, "state": state, **columns, **_NO_TEXT})
            continue
        db.execute("INSERT INTO places VALUES (?, ?, ?)", place)


_NO_TEXT = {"tree": "", "text": ""}


def _take_number(db: Connection) -> int:
    """Return a new number, and set the clock."""
    ((following,),) = db.execute("SELECT number FROM places WHERE kind = 'clock'")
    db.execute("UPDATE places SET number = number + 1 WHERE kind = 'clock'")
    return int(following) * _STEP


def _find_place(db: Connection, kind: str, key: str | bytes, *, is_there: bool) -> int | None:
    """Return the number of a file's or fact's row, a new one if it needs one; note one that is
    gone."""
    query = "SELECT number FROM places WHERE kind = ? AND key = ?"
    found = db.execute(query, (kind, key)).fetchone()
    if found and not is_there:
        gone = "UPDATE places SET kind = 'gone', key = number WHERE kind = ? AND key = ?"
        db.execute(gone, (kind, key))
    elif is_there and not found:
        found = (_take_number(db),)
        db.execute("INSERT INTO places VALUES (?, ?, ?)", (kind, key, *found))
    return found[0] if found else None


def _pack_fact(db: Connection, key: str) -> dict[str, Any] | None:
    found = db.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
    number = _find_place(db, "fact", key, is_there=bool(found))
    record = {"key": key, "value": found[0] if found else None}
    return None if number is None else _make_row(number, _FACT if found else _GONE, record)


def _pack_file(db: Connection, path: bytes) -> dict[str, Any] | None:
    query = f"SELECT {', '.join(_STATE_OF_FILE)}, warnings, failure FROM files WHERE path = ?"
    found = db.execute(query, (path,)).fetchone()
    number = _find_place(db, "file", path, is_there=bool(found))
    if number is None:
        return None
    if not found:
        return _make_row(number, _GONE, {"path": os.fsdecode(path)})
    *state, warnings, failure = found
    query = "SELECT document FROM file_documents WHERE path = ? ORDER BY place"
    record = {
        "path": os.fsdecode(path),
        **dict(zip(_STATE_OF_FILE, state, strict=True)),
        "warnings": json.loads(warnings),
        "failure": json.loads(failure),
        "documents": [document for (document,) in db.execute(query, (path,))],
    }
    return _make_row(number, _FILE, record)
