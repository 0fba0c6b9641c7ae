"""Models' answers on disk, found by the digest of what was asked.

Answers may repeat the documents they were made from, so entries carry the ids of those documents
as tags, and removing a document removes its entries, bytes and all. Several processes may use
one file at once (SQLite, write-ahead log). A cache is never worth failing for: what goes wrong
with the file is said once and the model is asked.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from colligate.errors import ColligateError
from colligate.models.in_flight import InFlight

VERSION = 1
"""Of the entries' form: entries of another version are not used."""

_TABLES = """
CREATE TABLE IF NOT EXISTS responses (
    key TEXT PRIMARY KEY, version INTEGER NOT NULL, created REAL NOT NULL, value TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS tags (
    tag TEXT NOT NULL, key TEXT NOT NULL, PRIMARY KEY (tag, key)
) WITHOUT ROWID;
"""


class ResponseCache:
    """The file. Its methods block and may be called from any thread.

    `wait` is how many seconds to wait for another process that writes to it. `in_flight` are the
    calls whose answers are on their way.
    """

    def __init__(self, path: Path, *, wait: float = 10.0) -> None:
        self.path = path
        self.warnings: list[str] = []
        self.in_flight = InFlight()
        self._wait = wait
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None

    def get(self, key: str) -> Any | None:
        """The value stored under the key, or None."""
        return self.get_all([key]).get(key)

    def get_all(self, keys: Iterable[str]) -> dict[str, Any]:
        """The values stored, by key; keys without one are left out."""

        def read(db: sqlite3.Connection) -> dict[str, Any]:
            found = {}
            for key in keys:
                row = db.execute(
                    "SELECT value FROM responses WHERE key = ? AND version = ?", (key, VERSION)
                ).fetchone()
                if row is not None:
                    found[key] = json.loads(row[0])
            return found

        return self._try(read) or {}

    def put(self, key: str, value: Any, tags: Collection[str] = ()) -> None:
        """Store a JSON value; `tags` are the ids of the documents it may repeat."""
        self.put_all({key: value}, tags)

    def put_all(self, values: Mapping[str, Any], tags: Collection[str] = ()) -> None:
        """Store JSON values by key, all with the same tags."""
        now = time.time()
        rows = [(key, VERSION, now, json.dumps(value)) for key, value in values.items()]
        pairs = [(tag, key) for key in values for tag in set(tags)]

        def write(db: sqlite3.Connection) -> None:
            with db:
                db.executemany("INSERT OR REPLACE INTO responses VALUES (?, ?, ?, ?)", rows)
                db.executemany("INSERT OR IGNORE INTO tags VALUES (?, ?)", pairs)

        self._try(write)

    def remove(self, tags: Collection[str]) -> int:
        """Delete the entries with any of the tags, so that their bytes are gone from the disk.

        Entries without tags could repeat anything, and a damaged file set aside cannot be
        searched: they go as well. Returns how many entries were deleted.

        Raises:
            ColligateError: the entries could not be deleted.
        """
        with self._lock:
            try:
                for aside in self.path.parent.glob(f"{self.path.name}.damaged-*"):
                    aside.unlink(missing_ok=True)
                return self._remove(self._open(), tags) if self.path.exists() else 0
            except (sqlite3.OperationalError, OSError) as error:
                raise ColligateError(
                    f"the response cache {self.path} still holds text of removed documents",
                    str(error),
                    "stop the other processes that use it and try again, or delete the file",
                ) from error
            except sqlite3.DatabaseError as error:
                aside = self._set_aside(error)
                aside.unlink(missing_ok=True)
                return 0

    def _remove(self, db: sqlite3.Connection, tags: Collection[str]) -> int:
        with db:
            db.execute("CREATE TEMP TABLE IF NOT EXISTS doomed (key TEXT PRIMARY KEY)")
            db.execute("DELETE FROM doomed")
            db.executemany(
                "INSERT OR IGNORE INTO doomed SELECT key FROM tags WHERE tag = ?",
                [(tag,) for tag in tags],
            )
            db.execute(
                "INSERT OR IGNORE INTO doomed SELECT key FROM responses"
                " WHERE key NOT IN (SELECT key FROM tags)"
            )
            db.execute("DELETE FROM tags WHERE key IN (SELECT key FROM doomed)")
            count = db.execute(
                "DELETE FROM responses WHERE key IN (SELECT key FROM doomed)"
            ).rowcount
        # Deleting zeroes the cells, but pages may hold older copies of cells that moved, and the
        # log holds older pages: rewrite the one, empty the other. Always, as a process may have
        # been killed between the two steps.
        db.execute("VACUUM")
        busy, *_ = db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        if busy:
            raise sqlite3.OperationalError("another process is reading it")
        return count

    def close(self) -> None:
        """Close the file. Safe to call twice."""
        with self._lock:
            self._drop()

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _try(self, work: Callable[[sqlite3.Connection], Any]) -> Any:
        """Do the work; on any trouble with the file say so and return None."""
        with self._lock:
            try:
                return work(self._open())
            except (sqlite3.OperationalError, OSError) as error:  # locked, full, read-only
                self._warn(f"the response cache {self.path} cannot be used: {error}")
            except (sqlite3.DatabaseError, ValueError) as error:  # not a database, or damaged
                self._set_aside(error)
        return None

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            db = sqlite3.connect(self.path, timeout=self._wait, check_same_thread=False)
            try:
                db.execute("PRAGMA journal_mode = WAL")
                db.execute("PRAGMA synchronous = NORMAL")
                db.execute("PRAGMA secure_delete = ON")
                db.executescript(_TABLES)
            except BaseException:
                db.close()
                raise
            self._connection = db
        return self._connection

    def _set_aside(self, error: Exception) -> Path:
        with contextlib.suppress(sqlite3.Error):
            self._drop()
        self._connection = None
        aside = self.path.with_name(f"{self.path.name}.damaged-{time.time_ns()}")
        with contextlib.suppress(OSError):
            self.path.rename(aside)
            for ending in ("-wal", "-shm"):
                self.path.with_name(self.path.name + ending).unlink(missing_ok=True)
        self._warn(f"the response cache {self.path} was damaged ({error}); a new one is begun")
        return aside

    def _warn(self, warning: str) -> None:
        if warning not in self.warnings:
            self.warnings.append(warning)
