"""The bench: every question of every strategy, a row as each is answered.

Work goes question by question, the strategies of one side by side. What stands in a row is not
asked again, so a run that was stopped, however, goes on with the same command.
"""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import json
import re
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from colligate.errors import BudgetExceeded, ColligateError, EndpointUnreachable, NotAuthorised
from colligate.evaluation.answering import Answering, first_of
from colligate.evaluation.inview import InView
from colligate.evaluation.measuring import measured_groups, right_answers
from colligate.evaluation.metrics.backends import Backends
from colligate.evaluation.metrics.catalogue import CORPUS
from colligate.evaluation.outcome import Outcome
from colligate.evaluation.planning import Contender, Plan
from colligate.evaluation.question import Question
from colligate.evaluation.rows import Key, Row, RowFile
from colligate.evaluation.suite import Dataset
from colligate.library.blocking import in_thread
from colligate.library.sources import Sources
from colligate.strategies.trace import Trace

TRACES = "traces"

_IN_VAIN = 10  # answers in a row without any model to ask
_NOBODY_THERE = tuple(kind.__name__ for kind in (EndpointUnreachable, NotAuthorised))
_COMPRESSION = 3

OnRow = Callable[[Row], None]


@dataclass
class Bench:
    """A run into a folder. `concurrency` is how many answers are under way at once.

    With `retry_failed` what broke before is asked again. Without `traces` the events of the
    answers are not kept. `on_row` is told of each row as it stands.
    """

    plan: Plan
    folder: Path
    answering: Answering
    in_view: InView
    backends: Backends
    concurrency: int = 1
    retry_failed: bool = False
    traces: bool = True
    on_row: OnRow = field(default=lambda _: None)
    _stopped: ColligateError | None = field(default=None, init=False)
    _in_vain: int = field(default=0, init=False)

    async def run(self, rows: RowFile) -> None:
        """Ask what has no row yet.

        Raises:
            BudgetExceeded: the budget of the whole run is spent.
            EndpointUnreachable, NotAuthorised: nobody can be asked any more.
            FaultyRecord, LibraryError: documents that cannot be shown.
        """
        work = _Work(rows, asyncio.Semaphore(self.concurrency), asyncio.Lock())
        try:
            await self._all(work)
        except BaseExceptionGroup as group:
            raise first_of(group) from group
        if self._stopped is not None:
            raise self._stopped

    async def _all(self, work: _Work) -> None:
        at_once = asyncio.Semaphore(self.concurrency)
        wanted = [each for each in self._questions() if self._wanted(*each, work.rows)]
        for dataset, question in wanted:
            await self.in_view.named(dataset, question)  # or say what is wrong, before any is asked
        async with asyncio.TaskGroup() as group:
            for dataset, question in wanted:
                await at_once.acquire()
                if self._stopped is not None:
                    break
                asking = group.create_task(self._question(dataset, question, work))
                asking.add_done_callback(lambda _: at_once.release())

    def missing(self, rows: RowFile) -> list[Key]:
        """The answers that are still to be asked for, or measured."""
        return [
            Key(dataset.name, question.id, contender.method.name)
            for dataset, question in self._questions()
            for contender in self._wanted(dataset, question, rows)
        ]

    def _questions(self) -> list[tuple[Dataset, Question]]:
        return [
            (asked.dataset, question)
            for asked in self.plan.datasets
            for question in asked.questions
        ]

    def _wanted(self, dataset: Dataset, question: Question, rows: RowFile) -> list[Contender]:
        """The strategies whose row is missing, is to be tried again, or lacks metrics."""

        def wanted(contender: Contender) -> bool:
            row = rows.rows.get(Key(dataset.name, question.id, contender.method.name))
            return row is None or self._again(row) or bool(_untaken(dataset, row))

        return [contender for contender in self.plan.contenders if wanted(contender)]

    def _again(self, row: Row) -> bool:
        return self.retry_failed and bool(row.outcome.error)

    async def _question(self, dataset: Dataset, question: Question, work: _Work) -> None:
        question = await self.in_view.named(dataset, question)
        unasked = []
        for contender in self._wanted(dataset, question, work.rows):
            row = work.rows.rows.get(Key(dataset.name, question.id, contender.method.name))
            if row is None or self._again(row):
                unasked.append((contender, row.attempt + 1 if row is not None else 1))
            else:
                await self._measured_again(dataset, question, row, work)
        if not unasked:
            return
        async with self.in_view.of(dataset, question) as sources, asyncio.TaskGroup() as group:
            for contender, attempt in unasked:
                await work.slots.acquire()
                if self._stopped is not None:
                    work.slots.release()
                    break
                answering = self._answer(dataset, question, contender, sources, attempt, work)
                group.create_task(answering).add_done_callback(lambda _: work.slots.release())

    async def _answer(
        self,
        dataset: Dataset,
        question: Question,
        contender: Contender,
        sources: Sources,
        attempt: int,
        work: _Work,
    ) -> None:
        began = datetime.now(UTC).isoformat(timespec="seconds")
        strategy = contender.asked(question)
        try:
            outcome, trace = await self.answering.answered(strategy, question.text, sources)
        except BudgetExceeded as error:
            self._stopped = self._stopped or error
            return
        key = Key(dataset.name, question.id, contender.method.name)
        row = Row(
            *key,
            question_text=question.text,
            answers=right_answers(question),
            outcome=outcome,
            metrics={},
            gold_at=question.gold_at,
            answerable=question.answerable,
            trace=await in_thread(self._keep, trace, key) if self.traces else None,
            began=began,
            attempt=attempt,
        )
        groups = [group for group in dataset.metrics if group not in CORPUS]
        await self._put(row, groups, question, work)
        self._look_out(outcome)

    async def _measured_again(
        self, dataset: Dataset, question: Question, row: Row, work: _Work
    ) -> None:
        async with work.slots:
            await self._put(row, _untaken(dataset, row), question, work)

    async def _put(self, row: Row, groups: Sequence[str], question: Question, work: _Work) -> None:
        """Measure a row and put it down; one interrupted meanwhile is put down all the same."""
        metrics = dict(row.metrics)
        unmeasured = {**row.unmeasured, **dict.fromkeys(groups, "interrupted")}
        try:
            async with aclosing(
                measured_groups(groups, question, row.outcome, self.backends)
            ) as taken:
                async for group, values, why in taken:
                    metrics.update(values)
                    unmeasured[group] = why
        finally:
            left = {group: why for group, why in unmeasured.items() if why}
            row = replace(row, metrics=metrics, unmeasured=left)
            async with work.writing:
                await in_thread(work.rows.add, row)
        self.on_row(row)

    def _keep(self, trace: Trace, key: Key) -> str:
        """Write the events of an answer; the place below the run's folder."""
        whole = hashlib.sha256("\0".join(key).encode("utf-8", "replace")).hexdigest()
        name = f"{_slug(key.question)}-{whole[:8]}"  # names that differ may have one slug
        place = Path(TRACES, _slug(key.dataset), _slug(key.strategy), f"{name}.jsonl.gz")
        file = self.folder / place
        file.parent.mkdir(parents=True, exist_ok=True)
        lines = "".join(json.dumps(event) + "\n" for event in trace.to_json())
        file.write_bytes(gzip.compress(lines.encode(), _COMPRESSION, mtime=0))
        return place.as_posix()

    def _look_out(self, outcome: Outcome) -> None:
        """Stop where nobody answers any more: hours of failures would tell nothing."""
        kind, _, why = outcome.error.partition(": ")
        self._in_vain = self._in_vain + 1 if kind in _NOBODY_THERE else 0
        if self._in_vain >= _IN_VAIN:
            what = f"the last {_IN_VAIN} answers all failed"
            mend = "the same command with --retry-failed goes on"
            self._stopped = self._stopped or EndpointUnreachable(what, why, mend)


@dataclass(frozen=True)
class _Work:
    """What the tasks of a run share: the rows, places for answers, who writes."""

    rows: RowFile
    slots: asyncio.Semaphore
    writing: asyncio.Lock


def _untaken(dataset: Dataset, row: Row) -> list[str]:
    """The groups of metrics that could not be taken of a row before."""
    return [group for group in dataset.metrics if group in row.unmeasured]


def _slug(text: str) -> str:
    return re.sub(r"[^\w.-]+", "-", text)[:60].strip(".-") or "unnamed"
