"""What has to be asked of a server once and holds from then on."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import sqlite3
import threading
import time
from collections.abc import (
    Awaitable,
    Callable,
    Collection,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary

from colligate.errors import ColligateError, MissingCapability
from colligate.models.base import (
    AdapterModel,
    AttentionModel,
    Capability,
    ChatModel,
    Completion,
    LabelModel,
    LabelOdds,
    LikelihoodModel,
    Message,
    OnToken,
    Prompt,
    Usage,
)

T = TypeVar("T")


class FoundOnce(Generic[T]):
    """Asks at the first use; those who come meanwhile wait for the same answer.

    That there is none (`MissingCapability`) is an answer too, and kept. Any other failure is not:
    the next use asks again.
    """

    def __init__(self, find: Callable[[], Awaitable[T]]) -> None:
        self._find = find
        self._found: tuple[T] | None = None
        self._missing: MissingCapability | None = None
        # Locks belong to the event loop they are waited for in.
        self._locks: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = (
            WeakKeyDictionary()
        )

    @property
    def known(self) -> T | None:
        """What was found so far, without asking."""
        return None if self._found is None else self._found[0]

    async def get(self) -> T:
        """What there is.

        Raises:
            MissingCapability: there is none.
        """
        async with self._locks.setdefault(asyncio.get_running_loop(), asyncio.Lock()):
            if self._missing is not None:  # raised anew: a raised error collects its callers
                missing = self._missing
                raise MissingCapability(missing.what, missing.why, missing.hint)
            if self._found is None:
                try:
                    self._found = (await self._find(),)
                except MissingCapability as missing:
                    self._missing = missing
                    raise
            return self._found[0]


# Equal calls made at the same time are one call.


@dataclass
class _Call:
    task: asyncio.Task[Any]
    waiting: int = 0


class InFlight:
    """The calls under way, by key; each event loop has its own.

    Cancelling one who waits leaves the call to the others. When nobody is left, it is cancelled.
    """

    def __init__(self) -> None:
        self._calls: dict[tuple[asyncio.AbstractEventLoop, str], _Call] = {}

    def __contains__(self, key: str) -> bool:
        """Whether a call with this key is under way here."""
        return (asyncio.get_running_loop(), key) in self._calls

    async def share(self, key: str, work: Callable[[], Coroutine[Any, Any, T]]) -> tuple[T, bool]:
        """The result of the work under way with this key, else of `work`; and whether of `work`.

        What the work raises, all who wait for it raise.
        """
        place = (asyncio.get_running_loop(), key)
        call = self._calls.get(place)
        own = call is None
        if call is None:
            call = self._calls[place] = _Call(asyncio.create_task(work()))
        call.waiting += 1
        try:
            await asyncio.wait([call.task])
            result: T = call.task.result()
            return result, own
        finally:
            call.waiting -= 1
            if not call.waiting:
                del self._calls[place]
                if not call.task.done():
                    call.task.cancel()
                    await asyncio.wait([call.task])
                    if not call.task.cancelled():
                        call.task.exception()  # nobody is left to hear of it


# Models' answers on disk, found by the digest of what was asked.
#
# Answers may repeat the documents they were made from, so entries carry the ids of those
# documents
# as tags, and removing a document removes its entries, bytes and all. Several processes may use
# one file at once (SQLite, write-ahead log). A cache is never worth failing for: what goes wrong
# with the file is said once and the model is asked.

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


# A chat model that remembers: the same question to the same model is paid for once.

_recalls: ContextVar[list[bool] | None] = ContextVar("recalls", default=None)


@contextmanager
def recalls() -> Iterator[list[bool]]:
    """Notes for each thing scored inside, in order, whether it was remembered and cost nothing.

    Scores are plain numbers, which cannot say so themselves as a `Completion` does. The list
    stays empty where the model scored is no `CachedChat`.
    """
    noted: list[bool] = []
    token = _recalls.set(noted)
    try:
        yield noted
    finally:
        _recalls.reset(token)


def _note(remembered: Iterable[bool]) -> None:
    noted = _recalls.get()
    if noted is not None:
        noted.extend(remembered)


class CachedChat:
    """A chat model whose deterministic answers are kept; else the same as the model it wraps.

    Kept are chat answers at temperature 0 or with a seed, likelihoods (pair by pair), label odds
    and attention; failures never. Equal calls made at the same time are asked once, those that
    stream excepted. `tags` gives the ids of the documents in view when a call is made. What the
    model cannot do is not in `capabilities`, and its method here raises MissingCapability.
    """

    def __init__(
        self,
        model: ChatModel,
        cache: ResponseCache,
        tags: Collection[str] | Callable[[], Collection[str]] = (),
    ) -> None:
        self._model = model
        self._cache = cache
        self._tags = tags if callable(tags) else lambda: tags
        self._said = 0
        # Of the weights, for others that keep what this model said.
        self.version = str(getattr(model, "version", ""))

    @property
    def name(self) -> str:
        """The wrapped model's."""
        return self._model.name

    @property
    def capabilities(self) -> frozenset[Capability]:
        """The wrapped model's."""
        return self._model.capabilities

    @property
    def context_tokens(self) -> int | None:
        """The wrapped model's."""
        return self._model.context_tokens

    async def chat(
        self,
        messages: Sequence[Message],
        *,
        max_tokens: int,
        temperature: float = 0.0,
        stop: Sequence[str] = (),
        seed: int | None = None,
        schema: Mapping[str, Any] | None = None,
        on_token: OnToken | None = None,
    ) -> Completion:
        """As `ChatModel.chat`; an answer out of the cache says `cached`."""
        fresh: list[Completion] = []

        async def ask() -> dict[str, Any]:
            completion = await self._model.chat(
                messages,
                max_tokens=max_tokens,
                temperature=temperature,
                stop=stop,
                seed=seed,
                schema=schema,
                on_token=on_token,
            )
            fresh.append(completion)
            return asdict(replace(completion, warnings=()))

        if temperature != 0 and seed is None:
            await ask()
            return fresh[0]
        request = {
            "messages": [asdict(message) for message in messages],
            "max_tokens": max_tokens,
            "temperature": temperature,
            "stop": list(stop),
            "seed": seed,
            "schema": schema,
        }
        value, _ = await self._remember("chat", request, ask, alone=on_token is not None)
        warnings = tuple(self._cache.warnings[self._said :])
        self._said = len(self._cache.warnings)
        if fresh:
            return replace(fresh[0], warnings=fresh[0].warnings + warnings)
        if on_token is not None and value["text"]:
            on_token(value["text"])
        return Completion(
            **{**value, "usage": Usage(**value["usage"]), "warnings": warnings, "cached": True}
        )

    async def likelihood(self, prefix: str, continuation: str) -> list[float]:
        """As `LikelihoodModel.likelihood`."""
        return (await self.likelihoods([(prefix, continuation)]))[0]

    async def likelihoods(self, pairs: Sequence[tuple[str, str]]) -> list[list[float]]:
        """As `LikelihoodModel.likelihoods`; the model is asked for the pairs not known yet."""
        model = self._model
        if not isinstance(model, LikelihoodModel):
            raise MissingCapability(f"{self.name} gives no likelihoods")
        requests = ({"prefix": prefix, "continuation": after} for prefix, after in pairs)
        keys = [_key("likelihood", self._model, request) for request in requests]
        unknown: dict[str, tuple[str, str]] = {}

        async def recall() -> dict[str, list[float]]:
            known = await asyncio.to_thread(self._cache.get_all, dict.fromkeys(keys))
            unknown.update(
                {key: pair for key, pair in zip(keys, pairs, strict=True) if key not in known}
            )
            if unknown:
                scores = await model.likelihoods(list(unknown.values()))
                asked = dict(zip(unknown, scores, strict=True))
                await asyncio.to_thread(self._cache.put_all, asked, self._tags())
                known |= asked
            return known

        values, _ = await self._cache.in_flight.share("likelihoods " + " ".join(keys), recall)
        _note(unknown.pop(key, None) is None for key in keys)
        return [list(values[key]) for key in keys]

    async def labels(
        self, messages: Sequence[Message], labels: Sequence[str], *, forced: str = ""
    ) -> LabelOdds:
        """As `LabelModel.labels`."""
        model = self._model
        if not isinstance(model, LabelModel):
            raise MissingCapability(f"{self.name} gives no label probabilities")

        async def ask() -> dict[str, Any]:
            odds = await model.labels(messages, labels, forced=forced)
            return {"odds": dict(odds.odds), "mass": odds.mass, "bounded": list(odds.bounded)}

        request = {
            "messages": [asdict(message) for message in messages],
            "labels": list(labels),
            "forced": forced,
        }
        value, remembered = await self._remember("labels", request, ask)
        _note([remembered] * len(labels))
        return LabelOdds(dict(value["odds"]), value["mass"], tuple(value["bounded"]))

    async def attention(
        self,
        prompt: Prompt,
        spans: Sequence[tuple[int, int]],
        *,
        query: int | None = None,
        layers: tuple[float, float] = (0.0, 1.0),
    ) -> list[float]:
        """As `AttentionModel.attention`."""
        model = self._model
        if not isinstance(model, AttentionModel):
            raise MissingCapability(f"{self.name} gives no attention")
        request = {
            "prompt": prompt if isinstance(prompt, str) else [asdict(turn) for turn in prompt],
            "spans": [list(span) for span in spans],
            "query": query,
            "layers": list(layers),
        }
        value, remembered = await self._remember(
            "attention",
            request,
            lambda: model.attention(prompt, spans, query=query, layers=layers),
        )
        _note([remembered])
        return list(value)

    async def with_adapter(self, adapter: str | Path) -> CachedChat:
        """As `AdapterModel.with_adapter`; what it answers is remembered apart from this one's."""
        model = self._model
        if not isinstance(model, AdapterModel):
            raise MissingCapability(f"{self.name} takes no adapters")
        return CachedChat(await model.with_adapter(adapter), self._cache, self._tags)

    async def _remember(
        self,
        kind: str,
        request: Mapping[str, Any],
        ask: Callable[[], Awaitable[Any]],
        *,
        alone: bool = False,
    ) -> tuple[Any, bool]:
        """The answer, and whether it was known or on its way already.

        What is asked `alone` waits for an equal call under way, and lets no other wait for it.
        """
        key = _key(kind, self._model, request)
        asked = False

        async def recall() -> Any:
            nonlocal asked
            value = await asyncio.to_thread(self._cache.get, key)
            if value is None:
                asked = True
                value = await ask()
                await asyncio.to_thread(self._cache.put, key, value, self._tags())
            return value

        if alone and key not in self._cache.in_flight:
            return await recall(), not asked
        value, _ = await self._cache.in_flight.share(key, recall)
        return value, not asked

    async def count_tokens(self, text: str) -> int:
        """The wrapped model's."""
        return await self._model.count_tokens(text)

    async def count_prompt(self, messages: Sequence[Message]) -> int:
        """The wrapped model's."""
        return await self._model.count_prompt(messages)

    async def token_spans(self, text: str) -> list[tuple[int, int]]:
        """The wrapped model's."""
        return await self._model.token_spans(text)

    async def aclose(self) -> None:
        """Close the model; the cache is its owner's to close. Safe to call twice."""
        await self._model.aclose()


def _key(kind: str, model: ChatModel, request: Mapping[str, Any]) -> str:
    """SHA-256 of everything an answer depends on; the request itself is not stored.

    A model whose name may come to mean other weights says so in `version`.
    """
    whole = {
        "kind": kind,
        "model": model.name,
        "version": getattr(model, "version", ""),
        "request": request,
    }
    text = json.dumps(whole, sort_keys=True, ensure_ascii=False, default=asdict)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
