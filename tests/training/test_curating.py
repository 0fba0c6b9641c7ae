"""Work item by item: what was done stays done, whatever stops it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from colligate.errors import (
    BudgetExceeded,
    EndpointUnreachable,
    FaultyRecord,
    MalformedOutput,
    ServerFailed,
    UsageError,
)
from colligate.models import Message
from colligate.training.curate import RECORD, curated, held_rows, read_record
from colligate.training.journal import FILE, Journal, Made, read_journal
from colligate.training.samples import Sample

SETTINGS = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
IDENTITY = {"system": "test", "models": {"teacher": {"name": "a", "digest": "0" * 64}}, "seed": 0}


@dataclass(frozen=True)
class Item:
    id: str


ITEMS = [Item(f"q{n}") for n in range(6)]


def made(item: Item, reply: str = "Yes.") -> Made:
    messages = (Message("user", f"Is it {item.id}?"), Message("assistant", reply))
    sample = Sample(f"{item.id}/0", "router", messages, {"class": "answer"})
    return Made((sample,), {"too long": 1}, {"shown": 2}, {"calls": 1})


class Worker:
    """Does items, and remembers which; `script` says what becomes of some."""

    def __init__(self, script: Mapping[str, BaseException] | None = None) -> None:
        self.script = dict(script or {})
        self.done: list[str] = []

    async def __call__(self, item: Item) -> Made:
        await asyncio.sleep(0)
        self.done.append(item.id)
        if item.id in self.script:
            raise self.script[item.id]
        return made(item)


async def test_each_item_is_done_once_and_comes_in_order(tmp_path: Path) -> None:
    worker, told = Worker(), []

    found = await curated(
        ITEMS,
        worker,
        tmp_path,
        identity=IDENTITY,
        concurrency=3,
        on_done=lambda id_, _: told.append(id_),
    )

    assert found == [(item.id, made(item)) for item in ITEMS]
    assert sorted(worker.done) == sorted(told) == [item.id for item in ITEMS]
    again = Worker()
    assert await curated(ITEMS, again, tmp_path, identity=IDENTITY) == found
    assert again.done == []


async def test_no_more_are_under_way_than_asked_for(tmp_path: Path) -> None:
    now = most = 0

    async def work(item: Item) -> Made:
        nonlocal now, most
        now += 1
        most = max(most, now)
        for _ in range(5):
            await asyncio.sleep(0)
        now -= 1
        return made(item)

    await curated(ITEMS, work, tmp_path, identity=IDENTITY, concurrency=2)

    assert most == 2


async def test_more_items_may_be_asked_for_and_fewer(tmp_path: Path) -> None:
    await curated(ITEMS[:2], Worker(), tmp_path, identity=IDENTITY)
    more = Worker()

    await curated(ITEMS, more, tmp_path, identity=IDENTITY)
    few = await curated(ITEMS[1:2], more, tmp_path, identity=IDENTITY)

    assert more.done == ["q2", "q3", "q4", "q5"]
    assert [id_ for id_, _ in few] == ["q1"]


async def test_an_item_that_fails_is_put_down_with_its_kind_and_can_be_done_again(
    tmp_path: Path,
) -> None:
    broken = Worker({"q1": MalformedOutput("no JSON"), "q2": ServerFailed("down")})
    found = dict(await curated(ITEMS, broken, tmp_path, identity=IDENTITY))

    assert found["q1"] == Made(discarded={"MalformedOutput": 1}, error="MalformedOutput: no JSON")
    assert found["q2"].discarded == {"ServerFailed": 1}
    patient = Worker()
    assert dict(await curated(ITEMS, patient, tmp_path, identity=IDENTITY)) == found
    assert patient.done == []

    mended = await curated(ITEMS, patient, tmp_path, identity=IDENTITY, retry_failed=True)

    assert sorted(patient.done) == ["q1", "q2"]
    assert mended == [(item.id, made(item)) for item in ITEMS]


async def test_a_failure_within_tasks_side_by_side_is_that_failure(tmp_path: Path) -> None:
    group = BaseExceptionGroup("two", [MalformedOutput("no JSON"), ServerFailed("down")])

    found = await curated(ITEMS[:1], Worker({"q0": group}), tmp_path, identity=IDENTITY)

    assert found[0][1].error == "MalformedOutput: no JSON"


async def test_a_spent_budget_among_failures_is_a_spent_budget(tmp_path: Path) -> None:
    group = BaseExceptionGroup("two", [MalformedOutput("no JSON"), BudgetExceeded("spent")])

    with pytest.raises(BudgetExceeded):
        await curated(ITEMS, Worker({"q1": group}), tmp_path, identity=IDENTITY)

    assert list(read_journal(tmp_path)) == ["q0"]


async def test_a_fault_of_ours_is_no_failure_of_the_item(tmp_path: Path) -> None:
    with pytest.raises(KeyError):
        await curated(ITEMS, Worker({"q1": KeyError("oops")}), tmp_path, identity=IDENTITY)

    assert "q1" not in read_journal(tmp_path)


async def test_an_item_that_takes_too_long_is_put_down_so(tmp_path: Path) -> None:
    async def work(item: Item) -> Made:
        if item.id == "q1":
            await asyncio.Event().wait()
        return made(item)

    found = dict(await curated(ITEMS[:3], work, tmp_path, identity=IDENTITY, timeout=0.05))

    assert found["q1"].error == "Timeout: not done within 0.05 seconds"
    assert found["q2"] == made(ITEMS[2])


async def test_a_timeout_of_the_work_itself_is_not_ours(tmp_path: Path) -> None:
    with pytest.raises(TimeoutError):
        await curated(ITEMS, Worker({"q0": TimeoutError()}), tmp_path, identity=IDENTITY, timeout=9)


async def test_where_the_budget_is_spent_it_ends_and_goes_on_later(tmp_path: Path) -> None:
    poor = Worker({"q2": BudgetExceeded("the token budget is spent")})

    with pytest.raises(BudgetExceeded, match="token budget"):
        await curated(ITEMS, poor, tmp_path, identity=IDENTITY)

    assert list(read_journal(tmp_path)) == ["q0", "q1"]
    rich = Worker()
    found = await curated(ITEMS, rich, tmp_path, identity=IDENTITY)
    assert rich.done == ["q2", "q3", "q4", "q5"]
    assert found == [(item.id, made(item)) for item in ITEMS]


async def test_what_was_under_way_when_the_budget_was_spent_is_kept(tmp_path: Path) -> None:
    spent = asyncio.Event()

    async def work(item: Item) -> Made:
        if item.id == "q0":
            spent.set()
            raise BudgetExceeded("the token budget is spent")
        await spent.wait()
        await asyncio.sleep(0)
        return made(item)

    with pytest.raises(BudgetExceeded):
        await curated(ITEMS, work, tmp_path, identity=IDENTITY, concurrency=2)

    assert list(read_journal(tmp_path)) == ["q1"]


@pytest.mark.parametrize(
    ("errors", "stops"),
    [
        ([EndpointUnreachable("nobody")] * 10, True),
        ([EndpointUnreachable("nobody")] * 9 + [None] + [ServerFailed("down")] * 9, False),
        ([MalformedOutput("no JSON")] * 12, False),
    ],
)
async def test_ten_in_a_row_without_a_server_are_enough(
    tmp_path: Path, errors: list[Exception | None], stops: bool
) -> None:
    items = [Item(f"q{n:02}") for n in range(20)]
    script = {item.id: e for item, e in zip(items, errors, strict=False) if e is not None}

    if stops:
        with pytest.raises(EndpointUnreachable, match=r"last 10 items all failed.*--retry-failed"):
            await curated(items, Worker(script), tmp_path, identity=IDENTITY)
    else:
        await curated(items, Worker(script), tmp_path, identity=IDENTITY)

    assert len(read_journal(tmp_path)) == (10 if stops else 20)


async def test_an_interrupt_loses_nothing_that_was_done(tmp_path: Path) -> None:
    begun = asyncio.Event()

    async def work(item: Item) -> Made:
        if item.id == "q3":
            begun.set()
            await asyncio.Event().wait()
        return made(item)

    task = asyncio.create_task(curated(ITEMS, work, tmp_path, identity=IDENTITY))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert list(read_journal(tmp_path)) == ["q0", "q1", "q2"]
    assert read_record(tmp_path).sessions[0].ended
    worker = Worker()
    await curated(ITEMS, worker, tmp_path, identity=IDENTITY)
    assert worker.done == ["q3", "q4", "q5"]


KILLED = """
import asyncio, os, signal, sys
from dataclasses import dataclass
from pathlib import Path
from colligate.models import Message
from colligate.training.curate import Made, curated
from colligate.training.samples import Sample

@dataclass(frozen=True)
class Item:
    id: str

async def work(item):
    if item.id == "q3":
        os.kill(os.getpid(), signal.SIGKILL)
    messages = (Message("user", f"Is it {item.id}?"), Message("assistant", "Yes."))
    sample = Sample(f"{item.id}/0", "router", messages, {"class": "answer"})
    return Made((sample,), {"too long": 1}, {"shown": 2}, {"calls": 1})

items = [Item(f"q{n}") for n in range(6)]
asyncio.run(curated(items, work, Path(sys.argv[1]), identity={"system": "test"}))
"""


def test_a_process_that_was_killed_loses_nothing_that_was_done(tmp_path: Path) -> None:
    command = [sys.executable, "-c", KILLED, str(tmp_path)]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    worker = Worker()

    found = asyncio.run(curated(ITEMS, worker, tmp_path, identity={"system": "test"}))

    assert worker.done == ["q3", "q4", "q5"]
    assert found == [(item.id, made(item)) for item in ITEMS]
    [killed, ended] = read_record(tmp_path).sessions
    assert (bool(killed.ended), bool(ended.ended)) == (False, True)


async def test_two_items_of_one_id_are_a_fault(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="two items have the same id"):
        await curated([Item("q"), Item("q")], Worker(), tmp_path, identity=IDENTITY)


# What it is made with


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"seed": 1}, "seed was 0 and is 1"),
        (
            {"models": {"teacher": {"name": "b", "digest": "0" * 64}}},
            "teacher: name was a and is b",
        ),
        (
            {"models": {"teacher": {"name": "a", "digest": "f" * 64}}},
            "models: teacher: digest has changed",
        ),
        ({"tasks": ["scope"]}, r"tasks was none and is \['scope'\]"),
        ({"models": {}}, "teacher: name was a and is none"),
    ],
)
async def test_what_was_made_with_something_else_is_not_gone_on_with(
    tmp_path: Path, changed: dict[str, Any], said: str
) -> None:
    await curated(ITEMS[:1], Worker(), tmp_path, identity=IDENTITY)
    worker = Worker()

    with pytest.raises(UsageError, match=f"made otherwise: .*{said}.*name another --out"):
        await curated(ITEMS, worker, tmp_path, identity={**IDENTITY, **changed})

    assert worker.done == []
    assert read_record(tmp_path).identity == IDENTITY


async def test_where_nothing_is_made_yet_it_may_be_made_with_anything(tmp_path: Path) -> None:
    with pytest.raises(BudgetExceeded):
        await curated(ITEMS, Worker({"q0": BudgetExceeded("no")}), tmp_path, identity=IDENTITY)

    await curated(ITEMS, Worker(), tmp_path, identity={"system": "another"})

    assert read_record(tmp_path).identity == {"system": "another"}


async def test_every_session_is_on_record(tmp_path: Path) -> None:
    for n in range(2):
        await curated(ITEMS, Worker(), tmp_path, identity=IDENTITY, arguments={"n": n})

    sessions = read_record(tmp_path).sessions
    assert [session.arguments for session in sessions] == [{"n": 0}, {"n": 1}]
    assert all(session.began and session.ended and session.hardware for session in sessions)


async def test_a_journal_of_which_nobody_knows_what_it_was_made_with(tmp_path: Path) -> None:
    await curated(ITEMS, Worker(), tmp_path, identity=IDENTITY)
    (tmp_path / RECORD).unlink()

    with pytest.raises(UsageError, match=f"holds a journal: without {RECORD} nobody knows"):
        await curated(ITEMS, Worker(), tmp_path, identity=IDENTITY)


def test_a_folder_is_held_by_one_process_at_a_time(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "out"
    refused = pytest.raises(UsageError, match="another process works there")
    with held_rows(folder), refused, held_rows(folder):
        pass

    with held_rows(folder):
        pass  # it was let go


def test_a_file_in_the_folders_place_is_said(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("", "utf-8")

    refused = pytest.raises(UsageError, match="a file is in its place; name another --out")
    with refused, held_rows(tmp_path / "out"):
        pass


# The journal

COUNTS = st.dictionaries(st.text(max_size=8), st.integers(0, 9), max_size=3)
TEXTS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20).filter(str.strip)


@st.composite
def things(draw: st.DrawFn) -> Made:
    samples = tuple(
        Sample(f"s{n}", "scope", (Message("user", draw(TEXTS)), Message("assistant", draw(TEXTS))))
        for n in range(draw(st.integers(0, 2)))
    )
    return Made(
        samples, draw(COUNTS), draw(COUNTS), {"calls": draw(st.integers(0, 9))}, draw(TEXTS)
    )


@SETTINGS
@given(entries=st.lists(st.tuples(st.sampled_from("abc"), things()), max_size=6), cut=st.data())
def test_a_torn_journal_holds_all_but_what_was_torn(
    tmp_path_factory: pytest.TempPathFactory,
    entries: list[tuple[str, Made]],
    cut: st.DataObject,
) -> None:
    folder = tmp_path_factory.mktemp("journal")
    ends = []
    with Journal(folder) as journal:
        for item, each in entries:
            journal.add(item, each)
            ends.append((folder / FILE).stat().st_size)
    at = cut.draw(st.integers(0, ends[-1] if ends else 0))
    os.truncate(folder / FILE, at)
    # A line that lacks nothing but its end is whole.
    whole = [entry for entry, end in zip(entries, ends, strict=True) if end - 1 <= at]

    assert read_journal(folder) == dict(whole)
    with Journal(folder) as journal:
        assert journal.made == dict(whole)
        journal.add("d", made(Item("d")))

    assert read_journal(folder) == {**dict(whole), "d": made(Item("d"))}


def test_a_line_in_the_middle_that_is_nothing_is_said(tmp_path: Path) -> None:
    with Journal(tmp_path) as journal:
        journal.add("q0", made(ITEMS[0]))
    with (tmp_path / FILE).open("a") as lines:
        lines.write(json.dumps({"item": "q1"}) + "\n")

    with pytest.raises(FaultyRecord, match=f"line 2 of .*{FILE} is nothing that was made"):
        Journal(tmp_path)


def test_half_a_surrogate_pair_can_be_put_down(tmp_path: Path) -> None:
    with Journal(tmp_path) as journal:
        journal.add("q", made(Item("q"), reply="b\ud83d"))

    assert read_journal(tmp_path)["q"].samples[0].target == "b?"


def test_without_a_journal_nothing_was_made(tmp_path: Path) -> None:
    read: Callable[[Path], dict[str, Made]] = read_journal
    assert read(tmp_path) == {}
