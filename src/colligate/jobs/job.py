"""A job: many items of work in one folder, interrupted at any moment and resumed later.

The folder holds a record of what its results are made with and a file of results, one line of JSON
for each finished item. What has a line is not done again. The job stops by itself when the budget
is spent or when ten items in a row fail because no model can be reached.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Generic, Protocol, Self, TypeVar

from colligate.concurrency import in_thread
from colligate.core.events import Progressed, Trace
from colligate.errors import (
    BudgetExceeded,
    ColligateError,
    EndpointUnreachable,
    MissingPath,
    NotAuthorised,
    RateLimited,
    ServerFailed,
    UsageError,
    cause,
)
from colligate.jobs.files import JsonlReader, JsonlWriter, write_whole
from colligate.jobs.identity import commit, hardware

_MOST_UNREACHED = 10  # items in a row; more failures of this kind would tell nothing new
_UNREACHED = tuple(
    kind.__name__ for kind in (EndpointUnreachable, NotAuthorised, RateLimited, ServerFailed)
)


class Result(Protocol):
    """What an item gave; `error` is "Kind: why" if the item failed, otherwise empty."""

    @property
    def error(self) -> str: ...


class JobRecord(Protocol):
    """What all results of a folder are made with; a frozen dataclass."""

    @property
    def sessions(self) -> tuple[Invocation, ...]:
        """The times the command ran."""
        ...

    def to_json(self) -> dict[str, Any]:
        """Return what the file holds."""
        ...

    def resume(self, now: Self, folder: Path) -> Self:
        """Return the record of the folder that is resumed with `now`.

        Raises:
            UsageError: it was begun with something else.
        """
        ...


I = TypeVar("I")  # noqa: E741 (an item)
K = TypeVar("K")
T = TypeVar("T")
R = TypeVar("R", bound=Result)
Rec = TypeVar("Rec", bound=JobRecord)


class Job(Generic[K, R, Rec]):
    """Work in a folder that this process holds (`lock_folder`).

    At most `concurrency` items are in progress at once. `phase` is the verb of progress lines
    ("answering"). `retry_failed` does failed items again. `fail` makes the result of an item that
    raised an error of ours or took longer than `timeout` seconds; without it such an error ends
    the job.
    """

    def __init__(
        self,
        folder: Path,
        records: RecordFile[Rec],
        results: ResultFile[K, R],
        trace: Trace,
        *,
        phase: str,
        concurrency: int = 1,
        timeout: float | None = None,
        retry_failed: bool = False,
        fail: Callable[[str, str], R] | None = None,
    ) -> None:
        self.folder = folder
        self.results: dict[K, R] = {}
        self.done = 0
        self._records = records
        self._results = results
        self._trace = trace
        self._phase = phase
        self._concurrency = concurrency
        self._timeout = timeout
        self._retry_failed = retry_failed
        self._fail = fail
        self._file: JsonlWriter | None = None
        self._writing = asyncio.Lock()
        self._total = 0
        self._unreached = 0
        self._stopped: ColligateError | None = None

    @asynccontextmanager
    async def resume(self, record: Rec, arguments: Mapping[str, Any]) -> AsyncIterator[None]:
        """Open the folder's results, begun with the same record, and record this invocation.

        Raises:
            UsageError: the folder was begun with something else, or its record is missing.
            FaultyRecord: a line of the results is wrong.
        """
        record = await in_thread(self._resumed, record)
        session = await in_thread(Invocation.start, arguments)
        before = record.sessions
        await in_thread(self._records.write, self.folder, _with(record, (*before, session)))
        try:
            with await in_thread(self._results.open, self.folder, self.results) as self._file:
                yield
        finally:
            session = replace(session, ended=utc_now())
            await in_thread(self._records.write, self.folder, _with(record, (*before, session)))

    def _resumed(self, record: Rec) -> Rec:
        if not self._results.any(self.folder):
            return record
        if not (self.folder / self._records.name).exists():
            what = f"{self.folder} holds {self._results.name} but no {self._records.name}"
            raise UsageError(what, "nobody knows what it was made with", "name another --out")
        return self._records.read(self.folder).resume(record, self.folder)

    def is_missing(self, key: K) -> bool:
        """Whether an item has no result yet, or is to be tried again."""
        result = self.results.get(key)
        return result is None or (self._retry_failed and bool(result.error))

    async def run(self, items: Mapping[K, I], work: Callable[[I], Awaitable[R]]) -> None:
        """Do the work on each item, in their order; each result is on the disk when it is there.

        Raises:
            BudgetExceeded: the budget is spent; what was refused has no result.
            EndpointUnreachable: ten items in a row failed because no model can be reached.
        """
        self._total = len(items)
        slots = asyncio.Semaphore(self._concurrency)
        try:
            async with asyncio.TaskGroup() as group:
                for key, item in items.items():
                    await slots.acquire()
                    if self._stopped is not None:
                        break
                    task = group.create_task(self._do(key, item, work))
                    task.add_done_callback(lambda _: slots.release())
        except BaseExceptionGroup as group:
            raise cause(group) from group
        if self._stopped is not None:
            raise self._stopped

    async def _do(self, key: K, item: I, work: Callable[[I], Awaitable[R]]) -> None:
        try:
            result = await self._result(item, work)
        except BudgetExceeded as error:
            self._stopped = self._stopped or error
            return
        await self.put(key, result)
        self.done += 1
        self._count(result)
        what = f"{key}: {result.error}" if result.error else str(key)
        self._trace.emit(Progressed(self._phase, self.done, self._total, what))

    async def _result(self, item: I, work: Callable[[I], Awaitable[R]]) -> R:
        error: BaseException
        try:
            async with asyncio.timeout(self._timeout) as deadline:
                return await work(item)
        except TimeoutError:
            if self._fail is None or not deadline.expired():
                raise
            return self._fail("Timeout", f"not done within {self._timeout:g} seconds")
        except ColligateError as raised:
            error = raised
        except BaseExceptionGroup as group:
            if group.split(ColligateError)[1] is not None:
                raise
            # A call that the budget refused stops the job, whatever else failed at the same time.
            error = cause(group.subgroup(BudgetExceeded) or group)
        if self._fail is None or isinstance(error, BudgetExceeded):
            raise error
        return self._fail(type(error).__name__, str(error))

    async def put(self, key: K, result: R) -> None:
        """Write a result; it is on the disk when this returns."""
        assert self._file is not None  # within `resume`
        async with self._writing:
            await in_thread(self._file.append, self._results.to_line(key, result))
        self.results[key] = result

    def _count(self, result: R) -> None:
        """Stop when no model can be reached."""
        kind, _, why = result.error.partition(": ")
        self._unreached = self._unreached + 1 if kind in _UNREACHED else 0
        if self._unreached >= _MOST_UNREACHED:
            what = f"the last {_MOST_UNREACHED} items all failed"
            hint = "the same command with --retry-failed tries them again"
            self._stopped = self._stopped or EndpointUnreachable(what, why, hint)


# What the folder holds.


@dataclass(frozen=True)
class Invocation:
    """One time that the command ran: when (UTC), where, from which commit, with which arguments.

    `ended` is empty if the process was killed, or still runs.
    """

    began: str
    ended: str = ""
    commit: str = ""
    hardware: Mapping[str, Any] = field(default_factory=dict)
    arguments: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def start(cls, arguments: Mapping[str, Any]) -> Invocation:
        """Return the invocation that begins now. Blocks."""
        return cls(utc_now(), "", commit(), hardware(), dict(arguments))


def utc_now() -> str:
    """Return the time in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


@dataclass(frozen=True)
class RecordFile(Generic[Rec]):
    """The file of a folder that says what its results are made with.

    `parse` makes a record of its JSON. `what` names such a folder for errors ("a run"), `made_by`
    is the command that makes one.
    """

    name: str
    parse: Callable[[Mapping[str, Any]], Rec]
    what: str
    made_by: str

    def read(self, folder: Path) -> Rec:
        """Read the record of a folder. Blocks.

        Raises:
            MissingPath: there is none.
            ColligateError: it cannot be read.
        """
        file = folder / self.name
        try:
            return self.parse(json.loads(file.read_text("utf-8")))
        except (FileNotFoundError, NotADirectoryError) as error:
            raise self.missing(folder, self.name) from error
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            why = f"{type(error).__name__}: {error}"
            hint = "restore the file, or name another --out"
            raise ColligateError(f"{file} cannot be read", why, hint) from error

    def missing(self, folder: Path, name: str) -> MissingPath:
        """Return the error for a folder without a file."""
        hint = f"{self.made_by} makes one"
        return MissingPath(f"{folder} is not {self.what}", f"it has no {name}", hint)

    def write(self, folder: Path, record: Rec) -> None:
        """Write the record whole: a process killed meanwhile leaves the former one. Blocks."""
        text = json.dumps(record.to_json(), ensure_ascii=False, indent=1)
        write_whole(folder / self.name, [text])


@dataclass(frozen=True)
class ResultFile(Generic[K, R]):
    """The file of a folder with its results, one line each; the last line of a key counts."""

    name: str
    lines: JsonlReader[tuple[K, R]]
    to_line: Callable[[K, R], Mapping[str, Any]]

    def read(self, folder: Path) -> dict[K, R]:
        """Read the results of a folder, in the order in which their keys first came. Blocks.

        A last line that is not whole is left out, so a folder can be read while its job runs.

        Raises:
            FaultyRecord: a line is wrong.
        """
        return dict(self.lines.read(folder / self.name))

    def any(self, folder: Path) -> bool:
        """Whether the folder has a result. Blocks."""
        file = folder / self.name
        return file.is_file() and next(self.lines.read(file), None) is not None

    def open(self, folder: Path, results: dict[K, R]) -> JsonlWriter:
        """Open the file for appending and add what it holds to `results`. Blocks."""

        def take(line: tuple[K, R]) -> None:
            key, result = line
            results[key] = result

        return JsonlWriter(folder / self.name, self.lines, take)


def parse_known(kind: type[T], record: Mapping[str, Any]) -> T:
    """Make a dataclass of JSON; fields that another version wrote are left out."""
    known = {each.name for each in fields(kind)}  # type: ignore[arg-type]
    return kind(**{name: value for name, value in record.items() if name in known})


def _with(record: Rec, sessions: tuple[Invocation, ...]) -> Rec:
    return replace(record, sessions=sessions)  # type: ignore[type-var]
