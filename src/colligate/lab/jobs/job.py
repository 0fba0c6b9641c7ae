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
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO, Generic, Protocol, Self, TypeVar

from pydantic import TypeAdapter

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
from colligate.lab.jobs.files import ResultFile, write_whole
from colligate.lab.jobs.identity import check_same, commit, hardware

_MOST_UNREACHED = 10  # items in a row; more failures of this kind would tell nothing new
_UNREACHED = tuple(
    kind.__name__ for kind in (EndpointUnreachable, NotAuthorised, RateLimited, ServerFailed)
)


class Result(Protocol):
    """The result of an item; `error` is "Kind: why" if the item failed, otherwise empty."""

    @property
    def error(self) -> str: ...


class JobRecord(Protocol):
    """A record of what the results of a folder are made with; a frozen dataclass.

    `resume` returns the record of a folder that is resumed with what is asked for `now`, and
    raises UsageError if the folder was begun with something else.
    """

    @property
    def sessions(self) -> tuple[Invocation, ...]: ...

    def resume(self, now: Self, folder: Path) -> Self: ...


I = TypeVar("I")  # noqa: E741 (an item)
K = TypeVar("K")
T = TypeVar("T")
R = TypeVar("R", bound=Result)
Rec = TypeVar("Rec", bound=JobRecord)


@dataclass(eq=False)
class Job(Generic[K, R, Rec]):
    """Work in a folder that this process holds (`lock_folder`); `results` are by key.

    At most `concurrency` items are in progress at once. `phase` is the verb of progress lines
    ("answering"). `retry_failed` does failed items again. `fail` makes the result of an item that
    raised an error of ours or took longer than `timeout` seconds; without it such an error ends
    the job. `done` counts the items that this process finished.
    """

    folder: Path
    record_file: RecordFile[Rec]
    result_file: ResultFile[K, R]
    trace: Trace
    phase: str
    concurrency: int = 1
    timeout: float | None = None
    retry_failed: bool = False
    fail: Callable[[str, str], R] | None = None
    results: dict[K, R] = field(default_factory=dict, init=False)
    done: int = field(default=0, init=False)
    _file: BinaryIO = field(init=False)
    _writing: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)
    _unreached: int = field(default=0, init=False)
    _stopped: ColligateError | None = field(default=None, init=False)

    @asynccontextmanager
    async def resume(self, record: Rec, arguments: Mapping[str, Any]) -> AsyncIterator[None]:
        """Open the folder's results and record this invocation; UsageError if begun otherwise."""
        record = await in_thread(self._check, record)
        session = await in_thread(Invocation.start, arguments)
        await in_thread(self._write_record, record, session)
        try:
            with await in_thread(self.result_file.open, self.folder, self.results) as self._file:
                yield
        finally:
            await in_thread(self._write_record, record, replace(session, ended=utc_now()))

    def _check(self, record: Rec) -> Rec:
        if next(self.result_file.scan(self.folder), None) is None:
            return record
        if not (self.folder / self.record_file.name).exists():
            what = f"{self.folder} holds {self.result_file.name} but no {self.record_file.name}"
            raise UsageError(what, "it is unknown what they were made with", "name another --out")
        return self.record_file.read(self.folder).resume(record, self.folder)

    def _write_record(self, record: Rec, session: Invocation) -> None:
        sessions = (*record.sessions, session)
        self.record_file.write(self.folder, replace(record, sessions=sessions))  # type: ignore[type-var]

    def is_missing(self, key: K) -> bool:
        """Whether an item has no result yet, or is to be tried again."""
        result = self.results.get(key)
        return result is None or (self.retry_failed and bool(result.error))

    async def run(self, items: Mapping[K, I], work: Callable[[I], Awaitable[R]]) -> None:
        """Do the work on each item, in their order; each result is on the disk when it is there.

        Raises:
            BudgetExceeded: the budget is spent; what was refused has no result.
            EndpointUnreachable: ten items in a row failed because no model can be reached.
        """
        slots = asyncio.Semaphore(self.concurrency)
        try:
            async with asyncio.TaskGroup() as group:
                for key, item in items.items():
                    await slots.acquire()
                    if self._stopped is not None:
                        break
                    task = group.create_task(self._do(key, item, work, len(items)))
                    task.add_done_callback(lambda _: slots.release())
        except BaseExceptionGroup as group:
            raise cause(group) from group
        if self._stopped is not None:
            raise self._stopped

    async def _do(self, key: K, item: I, work: Callable[[I], Awaitable[R]], total: int) -> None:
        try:
            result = await self._result(item, work)
        except BudgetExceeded as error:
            self._stopped = self._stopped or error
            return
        await self.put(key, result)
        self.done += 1
        self._count(result)
        what = f"{key}: {result.error}" if result.error else str(key)
        self.trace.emit(Progressed(self.phase, self.done, total, what))

    async def _result(self, item: I, work: Callable[[I], Awaitable[R]]) -> R:
        error: BaseException
        try:
            async with asyncio.timeout(self.timeout) as deadline:
                return await work(item)
        except TimeoutError:
            if self.fail is None or not deadline.expired():
                raise
            return self.fail("Timeout", f"not done within {self.timeout:g} seconds")
        except ColligateError as raised:
            error = raised
        except BaseExceptionGroup as group:
            if group.split(ColligateError)[1] is not None:
                raise
            # A call that the budget refused stops the job, whatever else failed at the same time.
            error = cause(group.subgroup(BudgetExceeded) or group)
        if self.fail is None or isinstance(error, BudgetExceeded):
            raise error
        return self.fail(type(error).__name__, str(error))

    async def put(self, key: K, result: R) -> None:
        """Write a result; it is on the disk when this returns."""
        async with self._writing:
            await in_thread(self.result_file.append, self._file, key, result)
        self.results[key] = result

    def _count(self, result: R) -> None:
        """Stop when no model can be reached."""
        kind, _, why = result.error.partition(": ")
        self._unreached = self._unreached + 1 if kind in _UNREACHED else 0
        if self._unreached >= _MOST_UNREACHED:
            what = f"the last {_MOST_UNREACHED} items all failed"
            hint = "the same command with --retry-failed tries them again"
            self._stopped = self._stopped or EndpointUnreachable(what, why, hint)


@dataclass(frozen=True)
class Invocation:
    """One time that the command ran (UTC; `ended` is "" if it was killed), where and with what."""

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
class IdentityRecord:
    """The record of a folder whose results are all made with the same `identity`, which is JSON."""

    identity: Mapping[str, Any]
    sessions: tuple[Invocation, ...] = ()

    def resume(self, now: IdentityRecord, folder: Path) -> IdentityRecord:
        check_same(self.identity, now.identity, folder)
        return self


@dataclass(frozen=True)
class RecordFile(Generic[T]):
    """The file of a folder that says what its results are made with.

    The record is a dataclass; fields that another version wrote are left out. `what` names such a
    folder for errors ("a run"), `made_by` is the command that makes one.
    """

    name: str
    kind: type[T]
    what: str
    made_by: str

    def read(self, folder: Path) -> T:
        """Read the record of a folder; MissingPath if there is none. Blocks."""
        file = folder / self.name
        try:
            return TypeAdapter(self.kind).validate_json(file.read_bytes())
        except (FileNotFoundError, NotADirectoryError) as error:
            why, hint = f"it has no {self.name}", f"{self.made_by} makes one"
            raise MissingPath(f"{folder} is not {self.what}", why, hint) from error
        except (OSError, ValueError) as error:
            why = " ".join(str(error).split())
            hint = "restore the file, or name another --out"
            raise ColligateError(f"{file} cannot be read", why, hint) from error

    def write(self, folder: Path, record: T) -> None:
        """Write the record whole: a process killed meanwhile leaves the former one. Blocks."""
        text = json.dumps(asdict(record), ensure_ascii=False, indent=1)  # type: ignore[call-overload]
        write_whole(folder / self.name, [text])
