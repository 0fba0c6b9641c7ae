"""A job loses nothing that was finished, whatever stops it, and resumes only with the same."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest

from colligate.core.events import Event, Progressed, Trace
from colligate.errors import (
    BudgetExceeded,
    ColligateError,
    EndpointUnreachable,
    FaultyRecord,
    MalformedOutput,
    RateLimited,
    ServerFailed,
    UsageError,
)
from colligate.lab.jobs.files import ResultFile
from colligate.lab.jobs.job import IdentityRecord, Job, RecordFile


@dataclass(frozen=True)
class Doubled:
    value: str
    error: str = ""

    @classmethod
    def failed(cls, kind: str, why: str) -> Doubled:
        return cls("", f"{kind}: {why}")


RECORD = RecordFile("record.json", IdentityRecord, "a job", "the test")
RESULTS: ResultFile[str, Doubled] = ResultFile(
    "results.jsonl",
    lambda line: (line["key"], Doubled(line["value"], line["error"])),
    lambda key, result: {"key": key, **asdict(result)},
    "a result",
    "delete it",
)
IDENTITY = {"model": {"name": "a", "digest": "0" * 64}, "seed": 0}
ITEMS = [f"q{n}" for n in range(6)]
ALL = {item: Doubled(2 * item) for item in ITEMS}
Work = Callable[[str], Awaitable[Doubled]]


class Worker:
    """Does items and remembers which; `script` says which errors some raise."""

    def __init__(self, script: Mapping[str, BaseException] | None = None) -> None:
        self.script = dict(script or {})
        self.done: list[str] = []

    async def __call__(self, item: str) -> Doubled:
        await asyncio.sleep(0)
        self.done.append(item)
        if item in self.script:
            raise self.script[item]
        return Doubled(2 * item)


async def do(
    folder: Path,
    work: Work,
    items: Sequence[str] = ITEMS,
    identity: Mapping[str, Any] = IDENTITY,
    arguments: Mapping[str, Any] | None = None,
    events: list[Event] | None = None,
    **options: Any,
) -> dict[str, Doubled]:
    options.setdefault("fail", Doubled.failed)
    trace = Trace([(events if events is not None else []).append])
    job: Job[str, Doubled, IdentityRecord] = Job(
        folder, RECORD, RESULTS, trace, phase="doing", **options
    )
    async with job.resume(IdentityRecord(identity), arguments or {}):
        await job.run({item: item for item in items if job.is_missing(item)}, work)
    return job.results


def finished(folder: Path) -> list[str]:
    return list(RESULTS.read(folder))


async def test_each_item_is_done_once_and_its_progress_reported(tmp_path: Path) -> None:
    worker, events = Worker({"q4": ServerFailed("down")}), list[Event]()

    found = await do(tmp_path, worker, events=events, concurrency=3)

    assert found == {**ALL, "q4": Doubled("", "ServerFailed: down")}
    assert sorted(worker.done) == ITEMS
    told = [event for event in events if isinstance(event, Progressed)]
    assert [(event.done, event.total) for event in told] == [(n, 6) for n in range(1, 7)]
    assert sorted(event.what for event in told)[4] == "q4: ServerFailed: down"
    again = Worker()
    assert await do(tmp_path, again) == found
    assert again.done == []


# Failures


GROUP = [MalformedOutput("no JSON"), ServerFailed("down")]


@pytest.mark.parametrize(
    ("error", "options", "raised", "done"),
    [
        (BaseExceptionGroup("two", GROUP), {}, None, ITEMS),  # concurrent calls of one item
        (BaseExceptionGroup("two", [*GROUP, BudgetExceeded("spent")]), {}, BudgetExceeded, ["q0"]),
        (BaseExceptionGroup("two", [*GROUP, KeyError("x")]), {}, MalformedOutput, ["q0"]),
        (KeyError("a fault of ours"), {}, KeyError, ["q0"]),
        (TimeoutError("of the work itself"), {"timeout": 9}, TimeoutError, ["q0"]),
        (ServerFailed("down"), {"fail": None}, ServerFailed, ["q0"]),
    ],
)
async def test_only_errors_of_an_item_are_its_result_and_all_others_end_the_job(
    tmp_path: Path,
    error: BaseException,
    options: dict[str, Any],
    raised: type[Exception] | None,
    done: list[str],
) -> None:
    worker = Worker({"q1": error})
    if raised is None:
        assert (await do(tmp_path, worker, **options))["q1"].error == "MalformedOutput: no JSON"
    else:
        with pytest.raises(raised):
            await do(tmp_path, worker, **options)

    assert finished(tmp_path) == done


async def test_an_item_that_takes_too_long_has_failed(tmp_path: Path) -> None:
    async def work(item: str) -> Doubled:
        if item == "q1":
            await asyncio.Event().wait()
        return Doubled(2 * item)

    found = await do(tmp_path, work, ITEMS[:3], timeout=0.05)

    assert found["q1"].error == "Timeout: not done within 0.05 seconds"
    assert found["q2"] == ALL["q2"]


@pytest.mark.parametrize(
    ("errors", "stops"),
    [
        ([EndpointUnreachable("nobody"), RateLimited("later")] * 5, True),
        ([EndpointUnreachable("nobody")] * 9 + [None] + [ServerFailed("down")] * 9, False),
        ([MalformedOutput("no JSON")] * 12, False),
    ],
)
async def test_ten_in_a_row_that_reach_no_model_are_enough(
    tmp_path: Path, errors: list[Exception | None], stops: bool
) -> None:
    items = [f"q{n:02}" for n in range(20)]
    worker = Worker({item: e for item, e in zip(items, errors, strict=False) if e is not None})

    if stops:
        with pytest.raises(EndpointUnreachable, match=r"last 10 items all failed.*--retry-failed"):
            await do(tmp_path, worker, items)
    else:
        await do(tmp_path, worker, items)

    assert len(finished(tmp_path)) == (10 if stops else 20)


# What stops it


async def test_when_the_budget_is_spent_it_ends_and_resumes_later(tmp_path: Path) -> None:
    spent = asyncio.Event()

    async def work(item: str) -> Doubled:
        if item == "q0":
            spent.set()
            raise BudgetExceeded("the token budget is spent")
        await spent.wait()
        await asyncio.sleep(0)
        return Doubled(2 * item)

    with pytest.raises(BudgetExceeded, match="token budget"):
        await do(tmp_path, work, concurrency=2)

    assert finished(tmp_path) == ["q1"]  # it was in progress
    rich = Worker()
    assert await do(tmp_path, rich) == ALL
    assert rich.done == ["q0", *ITEMS[2:]]


# What it is made with


@pytest.mark.parametrize(
    ("changed", "differs"),
    [
        ({"seed": 1}, "seed was 0 and is 1"),
        ({"model": {"name": "a", "digest": "f" * 64}}, "model: digest has changed"),
        ({"tasks": ["scope"]}, r"tasks was none and is \['scope'\]"),
    ],
)
async def test_what_was_begun_with_something_else_is_not_resumed(
    tmp_path: Path, changed: dict[str, Any], differs: str
) -> None:
    await do(tmp_path, Worker(), ITEMS[:1])
    before = (tmp_path / RECORD.name).read_bytes()
    worker = Worker()

    with pytest.raises(UsageError, match=f"cannot resume .*{differs}.*name another --out"):
        await do(tmp_path, worker, identity={**IDENTITY, **changed})

    assert worker.done == []
    assert (tmp_path / RECORD.name).read_bytes() == before


async def test_results_without_a_record_are_not_resumed(tmp_path: Path) -> None:
    await do(tmp_path, Worker())
    (tmp_path / RECORD.name).unlink()

    with pytest.raises(UsageError, match=r"holds results.jsonl but no record.json"):
        await do(tmp_path, Worker())


async def test_a_damaged_line_or_record_is_named(tmp_path: Path) -> None:
    await do(tmp_path, Worker())
    with (tmp_path / RESULTS.name).open("a") as lines:
        lines.write('{"key": "q9"}\n')
    with pytest.raises(FaultyRecord, match=r"line 7 of .* is not a result"):
        await do(tmp_path, Worker())

    (tmp_path / RECORD.name).write_text('{"identity": ', "utf-8")
    with pytest.raises(ColligateError, match=r"record.json cannot be read"):
        await do(tmp_path, Worker())
