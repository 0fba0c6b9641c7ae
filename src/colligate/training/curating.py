"""Making samples item by item, so that work which was stopped goes on with the same command."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from colligate.errors import (
    BudgetExceeded,
    ColligateError,
    EndpointUnreachable,
    NotAuthorised,
    RateLimited,
    ServerFailed,
    UsageError,
    cause,
)
from colligate.evaluation import machine, out_folder
from colligate.evaluation.datasets.sampling import HasId
from colligate.evaluation.provenance import Session
from colligate.evaluation.safe_files import write_whole
from colligate.library.blocking import in_thread
from colligate.training.going_on import hold_to
from colligate.training.journal import Journal, Made

__all__ = ["RECORD", "Made", "OnDone", "Work", "curated", "held", "read_record"]

RECORD = "curation.json"

_IN_VAIN = 10  # items in a row without any model to ask
_NOBODY_THERE = (EndpointUnreachable, NotAuthorised, RateLimited, ServerFailed)

I = TypeVar("I", bound=HasId)  # noqa: E741 (an item)
Work = Callable[[I], Awaitable[Made]]
OnDone = Callable[[str, Made], None]


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """The folder, made if it is not there, for this process alone.

    Raises:
        UsageError: another has it, or it cannot be made.
    """
    out_folder.make(folder)
    with out_folder.held(folder):
        yield


async def curated(
    items: Sequence[I],
    work: Work[I],
    out: Path,
    *,
    identity: Mapping[str, Any],
    arguments: Mapping[str, Any] | None = None,
    concurrency: int = 1,
    timeout: float | None = None,
    retry_failed: bool = False,
    on_done: OnDone = lambda *_: None,
) -> list[tuple[str, Made]]:
    """Do what is not done yet, `concurrency` items at once; what each item gave, in their order.

    The folder must be there, and be this process's (`held`). An item whose work raises a
    ColligateError, or takes longer than `timeout` seconds, is put down as failed; `retry_failed`
    does again what failed before. `identity` is JSON, what all of it is made with; `arguments`
    are those of the command, kept on record.

    Raises:
        UsageError: the folder holds what was made with something else.
        BudgetExceeded: the budget of all of it is spent; what was refused is not put down.
        EndpointUnreachable: nobody could be asked any more.
        FaultyRecord: the journal is damaged.
    """
    ids = [item.id for item in items]
    if len(set(ids)) < len(ids):
        raise ValueError("two items have the same id")

    def wanted(item: I) -> bool:
        made = journal.made.get(item.id)
        return made is None or (retry_failed and bool(made.error))

    with Journal(out) as journal:
        before = read_record(out) if journal.made else Record(identity)
        hold_to(before.identity, identity, out, "samples")
        session = await in_thread(_session, arguments or {})
        record = replace(before, sessions=(*before.sessions, session))
        _write_record(out, record)
        try:
            curating = _Curating(work, journal, timeout, on_done)
            await curating.run([item for item in items if wanted(item)], concurrency)
        finally:
            ended = replace(session, ended=_now())
            _write_record(out, replace(record, sessions=(*before.sessions, ended)))
        return [(id_, journal.made[id_]) for id_ in ids]


@dataclass
class _Curating:
    """The work under way: whether it was stopped, and how many items in a row nobody answered."""

    work: Callable[[Any], Awaitable[Made]]
    journal: Journal
    timeout: float | None
    on_done: OnDone
    _stopped: ColligateError | None = field(default=None, init=False)
    _in_vain: int = field(default=0, init=False)
    _writing: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)

    async def run(self, items: Sequence[HasId], concurrency: int) -> None:
        at_once = asyncio.Semaphore(concurrency)
        try:
            async with asyncio.TaskGroup() as group:
                for item in items:
                    await at_once.acquire()
                    if self._stopped is not None:
                        break
                    doing = group.create_task(self._one(item))
                    doing.add_done_callback(lambda _: at_once.release())
        except BaseExceptionGroup as group:
            raise cause(group) from group
        if self._stopped is not None:
            raise self._stopped

    async def _one(self, item: HasId) -> None:
        error: ColligateError | None = None
        made = Made()
        try:
            async with asyncio.timeout(self.timeout) as deadline:
                made = await self.work(item)
        except TimeoutError:
            if not deadline.expired():
                raise
            made = Made.failed("Timeout", f"not done within {self.timeout:g} seconds")
        except ColligateError as trouble:
            error = trouble
        except BaseExceptionGroup as group:
            if group.split(ColligateError)[1] is not None:
                raise
            # A call that the budget refused stops all of it, whatever else went wrong beside it.
            error = cause(group.subgroup(BudgetExceeded) or group)  # type: ignore[assignment]
        if isinstance(error, BudgetExceeded):
            self._stopped = self._stopped or error
            return
        if error is not None:
            made = Made.failed(type(error).__name__, str(error))
        async with self._writing:
            await in_thread(self.journal.add, item.id, made)
        self._look_out(error)
        self.on_done(item.id, made)

    def _look_out(self, error: ColligateError | None) -> None:
        """Stop where nobody answers any more: hours of failures would tell nothing."""
        self._in_vain = self._in_vain + 1 if isinstance(error, _NOBODY_THERE) else 0
        if self._in_vain >= _IN_VAIN and error is not None:
            what = f"the last {_IN_VAIN} items all failed"
            mend = "the same command with --retry-failed goes on"
            self._stopped = self._stopped or EndpointUnreachable(what, str(error), mend)


@dataclass(frozen=True)
class Record:
    """What a folder's samples are made with, and each time that the command ran.

    `identity` is the same for all of them.
    """

    identity: Mapping[str, Any]
    sessions: tuple[Session, ...] = ()


def read_record(folder: Path) -> Record:
    """What the samples of a folder are made with.

    Raises:
        UsageError: nobody knows.
    """
    file = folder / RECORD
    mend = "name another --out"
    try:
        whole = json.loads(file.read_text("utf-8"))
        sessions = tuple(Session(**session) for session in whole["sessions"])
        return Record(dict(whole["identity"]), sessions)
    except FileNotFoundError:
        why = f"without {RECORD} nobody knows what it was made with"
        raise UsageError(f"{folder} holds a journal", why, mend) from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"cannot read {file}", f"{type(error).__name__}: {error}", mend) from error


def _write_record(folder: Path, record: Record) -> None:
    """Put it down whole: a process killed meanwhile leaves what was there before. Blocks."""
    whole = {"identity": record.identity, "sessions": [asdict(each) for each in record.sessions]}
    write_whole(folder / RECORD, [json.dumps(whole, ensure_ascii=False, indent=1)])


def _session(arguments: Mapping[str, Any]) -> Session:
    """One that begins now. Blocks."""
    return Session(_now(), "", machine.commit(), machine.hardware(), dict(arguments))


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
