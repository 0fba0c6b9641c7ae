"""What is paid for once: replies of models, and what strategies work out about documents.

`CachedChat` wraps a model, `ResponseCache` is the file. Entries of a library have the ids of the
documents whose text they may repeat as tags: removing a document removes their bytes too.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import sqlite3
import threading
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

from colligate.concurrency import SingleFlight
from colligate.errors import ColligateError, MissingCapability
from colligate.models.base import (
    AdapterModel,
    AttentionModel,
    ChatModel,
    ChatRequest,
    Completion,
    LabelModel,
    LabelOdds,
    LikelihoodModel,
    Message,
    OnToken,
    Usage,
    WrappedModel,
)
from colligate.private import make_private_file, make_private_folder

T = TypeVar("T")


class CachedChat(WrappedModel):
    """A chat model whose repeatable answers are stored.

    These are chat answers at temperature 0 or with a seed, likelihoods, label odds and attention,
    but no failures. Equal calls made at the same time are made once, except those that stream. A
    method of a capability that the model does not have raises MissingCapability.
    """

    def __init__(self, model: ChatModel, cache: ResponseCache) -> None:
        super().__init__(model)
        self._cache = cache
        self._warned = 0
        # The version of the weights, also for others that store what this model wrote.
        self.version = str(getattr(model, "version", ""))

    async def chat(self, request: ChatRequest, on_token: OnToken | None = None) -> Completion:
        if not request.repeatable:
            return await self._model.chat(request, on_token)
        fresh: list[Completion] = []

        async def ask() -> dict[str, Any]:
            fresh.append(await self._model.chat(request, on_token))
            return asdict(replace(fresh[0], warnings=()))

        key = self._key("chat", asdict(request))
        value, _ = await self._remember(key, ask, alone=on_token is not None)
        warnings = tuple(self._cache.warnings[self._warned :])
        self._warned = len(self._cache.warnings)
        if fresh:
            return replace(fresh[0], warnings=fresh[0].warnings + warnings)
        if on_token is not None and value["text"]:
            on_token(value["text"])
        value = {**value, "usage": Usage(**value["usage"]), "warnings": warnings, "cached": True}
        return Completion(**value)

    async def likelihoods(self, pairs: Sequence[tuple[str, str]]) -> list[list[float]]:
        model = self._model
        if not isinstance(model, LikelihoodModel):
            raise MissingCapability(f"{self.name} gives no likelihoods")
        key = self._key("likelihoods", {"pairs": list(pairs)})
        return CachedScores(*await self._remember(key, lambda: model.likelihoods(pairs)))

    async def labels(
        self, messages: Sequence[Message], labels: Sequence[str], *, forced: str = ""
    ) -> LabelOdds:
        model = self._model
        if not isinstance(model, LabelModel):
            raise MissingCapability(f"{self.name} gives no label probabilities")

        async def ask() -> dict[str, Any]:
            odds = await model.labels(messages, labels, forced=forced)
            return {"odds": dict(odds.odds), "mass": odds.mass, "bounded": list(odds.bounded)}

        turns = [asdict(message) for message in messages]
        request = {"messages": turns, "labels": list(labels), "forced": forced}
        value, cached = await self._remember(self._key("labels", request), ask)
        return LabelOdds(dict(value["odds"]), value["mass"], tuple(value["bounded"]), cached)

    async def attention(self, text: str, spans: Sequence[tuple[int, int]]) -> list[float]:
        model = self._model
        if not isinstance(model, AttentionModel):
            raise MissingCapability(f"{self.name} gives no attention")
        key = self._key("attention", {"prompt": text, "spans": list(spans)})
        return CachedScores(*await self._remember(key, lambda: model.attention(text, spans)))

    async def with_adapter(self, adapter: str | Path) -> CachedChat:
        """Return the model with an adapter; its answers are kept apart from this one's."""
        model = self._model
        if not isinstance(model, AdapterModel):
            raise MissingCapability(f"{self.name} takes no adapters")
        return CachedChat(await model.with_adapter(adapter), self._cache)

    async def aclose(self) -> None:
        await self._model.aclose()  # the cache is closed by its owner

    def _key(self, kind: str, request: Mapping[str, Any]) -> str:
        """Return the SHA-256 of all that an answer depends on; the request is not stored.

        A model whose name may mean other weights later has a `version`.
        """
        whole = {"kind": kind, "model": self.name, "version": self.version, "request": request}
        text = json.dumps(whole, sort_keys=True, ensure_ascii=False)
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()

    async def _remember(
        self, key: str, ask: Callable[[], Awaitable[Any]], *, alone: bool = False
    ) -> tuple[Any, bool]:
        """Return the answer, and whether it was in the cache or already on its way.

        A call that is made `alone` waits for an equal call under way, but no other waits for it:
        an error of one caller's stream must not fail another call.
        """
        asked = False

        async def recall() -> Any:
            nonlocal asked
            value = await asyncio.to_thread(self._cache.get, key)
            if value is None:
                asked = True
                value = await ask()
                await asyncio.to_thread(self._cache.put, key, value)
            return value

        if alone and key not in self._cache.in_flight:
            return await recall(), not asked
        return await self._cache.in_flight.run(key, recall), not asked


class CachedScores(list[T]):
    """Scores, and whether they came from the cache."""

    def __init__(self, scores: Iterable[T], cached: bool) -> None:
        super().__init__(scores)
        self.cached = cached


VERSION = 1
"""Version of the format of entries: entries of another version are not used."""

_TABLES = """
CREATE TABLE IF NOT EXISTS responses (
    key TEXT PRIMARY KEY, version INTEGER NOT NULL, created REAL NOT NULL, value TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS tags (
    tag TEXT NOT NULL, key TEXT NOT NULL, PRIMARY KEY (tag, key)
) WITHOUT ROWID;
"""

# Entries with one of the tags, and those without any, which could repeat anything.
_OF_TAGS = """FROM responses WHERE key NOT IN (SELECT key FROM tags)
 OR key IN (SELECT key FROM tags WHERE tag IN (SELECT value FROM json_each(?)))"""


class KeyValueStore(Protocol):
    """JSON values by key. `ResponseCache` is one, on disk; its methods may block."""

    def get(self, key: str) -> Any | None:
        """Return the value of a key, or None."""

    def put(self, key: str, value: Any, tags: Collection[str] = ()) -> None:
        """Store a value; `tags` are the ids of the documents whose text it may repeat."""


class MemoryStore(dict[str, Any]):
    """A `KeyValueStore` that lasts as long as this object."""

    def put(self, key: str, value: Any, tags: Collection[str] = ()) -> None:
        self[key] = value


class ResponseCache:
    """JSON values by key in a SQLite file, which several processes may use at once.

    Methods block and may be called from any thread. `wait` is how many seconds to wait for
    another process that writes. A problem with the file never fails a call: it is added to
    `warnings` once, and the model is asked. `in_flight` are the calls under way.
    """

    def __init__(self, path: Path, *, wait: float = 10.0) -> None:
        self.path = path
        self.warnings: list[str] = []
        self.in_flight = SingleFlight()
        self._wait = wait
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None

    def get(self, key: str) -> Any | None:
        of = "FROM responses WHERE version = ? AND key = ?"

        def read(db: sqlite3.Connection) -> Any:
            row = db.execute(f"SELECT value {of}", (VERSION, key)).fetchone()
            return json.loads(row[0]) if row else None

        return self._try(read)

    def put(self, key: str, value: Any, tags: Collection[str] = ()) -> None:
        row = (key, VERSION, time.time(), json.dumps(value))

        def write(db: sqlite3.Connection) -> None:
            with db:
                db.execute("INSERT OR REPLACE INTO responses VALUES (?, ?, ?, ?)", row)
                pairs = [(tag, key) for tag in set(tags)]
                db.executemany("INSERT OR IGNORE INTO tags VALUES (?, ?)", pairs)

        self._try(write)

    def remove(self, tags: Collection[str]) -> int:
        """Delete the entries with any of the tags, so that their bytes are gone from the disk.

        Entries without tags are deleted as well. Returns how many entries were deleted.
        ColligateError if the entries could not be deleted.
        """

        def delete(db: sqlite3.Connection) -> int:
            with db:
                count = db.execute(f"DELETE {_OF_TAGS}", (json.dumps(list(tags)),)).rowcount
                db.execute("DELETE FROM tags WHERE key NOT IN (SELECT key FROM responses)")
            # Deleting zeroes the cells, but pages may contain older copies of cells that moved:
            # rewrite the file. Also if nothing was deleted: an earlier process may be dead.
            db.execute("VACUUM")
            return count

        with self._lock:
            try:
                return (self._use(delete) or 0) if self.path.exists() else 0
            except (sqlite3.OperationalError, OSError) as error:
                what = f"the response cache {self.path} still holds text of removed documents"
                hint = "stop the other processes that use it and try again, or delete the file"
                raise ColligateError(what, str(error), hint) from error

    def close(self) -> None:
        """Close the file. Safe to call twice."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
            self._connection = None

    def _try(self, work: Callable[[sqlite3.Connection], Any]) -> Any:
        """Do the work; on a problem with the file, warn and return None."""
        with self._lock:
            try:
                return self._use(work)
            except (sqlite3.OperationalError, OSError) as error:  # locked, full, read-only
                self._warn(f"the response cache {self.path} cannot be used: {error}")
        return None

    def _use(self, work: Callable[[sqlite3.Connection], Any]) -> Any:
        """Do the work; delete a damaged file, which may hold text that has to be removable."""
        try:
            return work(self._open())
        except (sqlite3.OperationalError, OSError):
            raise
        except (sqlite3.DatabaseError, ValueError) as error:  # not a database, or damaged
            if self._connection is not None:
                with contextlib.suppress(sqlite3.Error):
                    self._connection.close()
            self._connection = None
            self.path.unlink(missing_ok=True)
            self._warn(
                f"the response cache {self.path} was damaged ({error}); a new one is started"
            )

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            make_private_folder(self.path.parent)
            make_private_file(self.path)
            db = sqlite3.connect(self.path, timeout=self._wait, check_same_thread=False)
            try:
                # No log, which would hold copies of removed text beside the file.
                db.execute("PRAGMA journal_mode = DELETE")
                db.execute("PRAGMA secure_delete = ON")
                db.executescript(_TABLES)
            except BaseException:
                db.close()
                raise
            self._connection = db
        return self._connection

    def _warn(self, warning: str) -> None:
        if warning not in self.warnings:
            self.warnings.append(warning)
