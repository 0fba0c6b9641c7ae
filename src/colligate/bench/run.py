"""`colligate bench run`: from a suite to rows on disk, begun or gone on with."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import json
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from colligate.bench.corpus import CorpusResolver
from colligate.bench.identity import adapter_records, path_digest, prompt_digests
from colligate.bench.metrics.backends import Backends
from colligate.bench.metrics.catalogue import is_of_run, measure_each
from colligate.bench.outcome import Answerer, Outcome
from colligate.bench.participants import Named, Participants, measurable, opened_cast, remembering
from colligate.bench.plan import (
    MANY,
    Estimate,
    Plan,
    SuiteEntry,
    contenders,
    estimated,
    existing,
    plan,
)
from colligate.bench.provenance import FILE as RUN
from colligate.bench.provenance import (
    Invocation,
    Provenance,
    going_on,
    read_provenance,
    write_provenance,
)
from colligate.bench.question import Question
from colligate.bench.rows import FILE as ROWS
from colligate.bench.rows import Key, Row, RowFile, read_rows
from colligate.bench.suites import Dataset, Suite
from colligate.bench.totals import Totals, forget_totals, read_totals, take_totals
from colligate.concurrency import in_thread
from colligate.core.events import Listener, Noted, Progressed, Trace
from colligate.errors import (
    BudgetExceeded,
    ColligateError,
    EndpointUnreachable,
    NotAuthorised,
    UsageError,
    cause,
)
from colligate.jobs import identity as machine
from colligate.jobs.files import held, make
from colligate.jobs.spending import Spending
from colligate.library.sources import Sources

# The bench: every question of every strategy, a row as each is answered.
#
# Work goes question by question, the strategies of one side by side. What stands in a row is not
# asked again, so a run that was stopped, however, goes on with the same command.

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
    answering: Answerer
    in_view: CorpusResolver
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
            raise cause(group) from group
        if self._stopped is not None:
            raise self._stopped

    async def _all(self, work: _Work) -> None:
        at_once = asyncio.Semaphore(self.concurrency)
        wanted = [each for each in self._questions() if self._wanted(*each, work.rows)]
        for dataset, question in wanted:
            await self.in_view.resolve(dataset, question)  # raises before any is asked
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

    def _wanted(self, dataset: Dataset, question: Question, rows: RowFile) -> list[SuiteEntry]:
        """The strategies whose row is missing, is to be tried again, or lacks metrics."""

        def wanted(contender: SuiteEntry) -> bool:
            row = rows.rows.get(Key(dataset.name, question.id, contender.method.name))
            return row is None or self._again(row) or bool(_untaken(dataset, row))

        return [contender for contender in self.plan.contenders if wanted(contender)]

    def _again(self, row: Row) -> bool:
        return self.retry_failed and bool(row.outcome.error)

    async def _question(self, dataset: Dataset, question: Question, work: _Work) -> None:
        question = await self.in_view.resolve(dataset, question)
        unasked = []
        for contender in self._wanted(dataset, question, work.rows):
            row = work.rows.rows.get(Key(dataset.name, question.id, contender.method.name))
            if row is None or self._again(row):
                unasked.append((contender, row.attempt + 1 if row is not None else 1))
            else:
                await self._measured_again(dataset, question, row, work)
        if not unasked:
            return
        async with (
            self.in_view.open_sources(dataset, question) as sources,
            asyncio.TaskGroup() as group,
        ):
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
        contender: SuiteEntry,
        sources: Sources,
        attempt: int,
        work: _Work,
    ) -> None:
        began = datetime.now(UTC).isoformat(timespec="seconds")
        strategy = contender.asked(question)
        try:
            outcome, trace = await self.answering.answer(strategy, question.text, sources)
        except BudgetExceeded as error:
            self._stopped = self._stopped or error
            return
        key = Key(dataset.name, question.id, contender.method.name)
        row = Row(
            *key,
            question_text=question.text,
            answers=question.right_answers,
            outcome=outcome,
            metrics={},
            gold_at=question.gold_at,
            answerable=question.answerable,
            trace=await in_thread(self._keep, trace, key) if self.traces else None,
            began=began,
            attempt=attempt,
        )
        groups = [group for group in dataset.metrics if not is_of_run(group)]
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
                measure_each(groups, question, row.outcome, self.backends)
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
            hint = "the same command with --retry-failed goes on"
            self._stopped = self._stopped or EndpointUnreachable(what, why, hint)


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


INDEXES = "corpus"


@dataclass(frozen=True)
class Request:
    """What is to be run, and into which folder.

    `strategies` and `datasets` are names; without any the suite's default ones. `settings` are
    texts such as "k=3", for the strategies that have the parameter. `limit` is how many questions
    of each data set, None as many as the suite says. `max_tokens_total` bounds what this process
    spends, `timeout` the seconds of each answer. `indexes` is where corpora are kept; by default
    in `out`. `replies` is a file of models' replies, for runs to share. `arguments` are kept on
    record as they are.
    """

    suite: Suite
    data: Path
    out: Path
    named: Named = field(default_factory=Named)
    strategies: Sequence[str] = ()
    datasets: Sequence[str] = ()
    settings: Sequence[str] = ()
    limit: int | None = None
    seed: int = 0
    concurrency: int = 1
    max_tokens_total: int | None = None
    timeout: float | None = None
    retry_failed: bool = False
    traces: bool = True
    indexes: Path | None = None
    replies: Path | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Done:
    """What a run made: all its rows that the request asked for, and what this process spent.

    `totals` are the metrics of a whole run that stand in its folder.
    """

    plan: Plan
    rows: Mapping[Key, Row]
    totals: Totals
    asked: int
    tokens: int


def planned(request: Request) -> Plan:
    """What the request asks. Blocks.

    Raises:
        UsageError: there is no such strategy or data set.
        MissingPath, FaultyRecord: a file of questions or a corpus is not there, or is wrong.
    """
    taking_part = contenders(request.suite, request.strategies, request.settings)
    made = plan(
        request.suite,
        request.data,
        taking_part=taking_part,
        datasets=request.datasets,
        limit=request.limit,
        seed=request.seed,
    )
    return replace(made, named_outright=bool(request.strategies))


def estimate(request: Request) -> Estimate:
    """What the request would take, with nothing asked or written. Blocks.

    Raises:
        UsageError, MissingPath, FaultyRecord: as `planned`.
    """
    there = (request.out / ROWS).is_file()
    rows = {row.key: row for row in read_rows(request.out)} if there else {}
    return estimated(planned(request), rows)


async def run_suite(request: Request, on_event: Listener) -> Done:
    """Ask what has no row yet. Rows stand in the folder as they are made, whatever happens.

    Raises:
        UsageError: the request is wrong, or the folder holds a run made otherwise.
        BudgetExceeded: the budget is spent.
        ColligateError: what could not be opened, read or asked.
    """
    trace = Trace([on_event], keep=False)
    asked = await asyncio.to_thread(planned, request)
    spending = Spending(request.max_tokens_total)
    _make_folder(request, asked)
    with held(request.out, "runs a bench"):
        async with AsyncExitStack() as stack:
            cast, able = await opened_cast(request.named, asked, spending, stack, trace)
            if request.replies is not None:
                cast = remembering(cast, request.replies, stack)
            asked = measurable(replace(asked, contenders=tuple(able)), cast.backends, trace)
            await stack.enter_async_context(_on_record(request, asked, cast))
            rows = stack.enter_context(RowFile(request.out))
            answers = await _asked(request, asked, cast, spending, rows, stack, trace)
            wanted = _of_plan(asked, rows.rows)
            problems = await in_thread(take_totals, request.out, asked, wanted)
            for metric, why in problems.items():
                trace.emit(Noted(f"without {metric}: {why}", warning=True))
            totals = await in_thread(read_totals, request.out)
    return Done(asked, wanted, totals, answers, spending.tokens)


async def _asked(
    request: Request,
    asked: Plan,
    cast: Participants,
    spending: Spending,
    rows: RowFile,
    stack: AsyncExitStack,
    trace: Trace,
) -> int:
    """Have the bench ask; how many answers it was asked for."""
    indexes = request.indexes or request.out / INDEXES
    in_view = CorpusResolver(request.data, indexes, cast.embedder, trace)
    await stack.enter_async_context(in_view)
    answering = Answerer(cast.models, spending, cast.embedder, cast.reranker, request.timeout)
    done = 0

    def on_row(row: Row) -> None:
        nonlocal done
        done += 1
        what = f"{row.dataset} {row.question}: {row.strategy}"
        trace.emit(Progressed("answering", done, len(missing), what))

    bench = Bench(
        asked,
        request.out,
        answering,
        in_view,
        cast.backends,
        concurrency=request.concurrency,
        retry_failed=request.retry_failed,
        traces=request.traces,
        on_row=on_row,
    )
    missing = bench.missing(rows)
    expected = estimated(asked, rows.rows)
    if missing and expected.calls > MANY:
        trace.emit(Noted(str(expected)))
    elif len(missing) < asked.answers:
        trace.emit(Noted(f"{asked.answers - len(missing):,} of {asked.answers:,} rows are there"))
    await in_thread(forget_totals, request.out, {(key.dataset, key.strategy) for key in missing})
    await bench.run(rows)
    return done


def _make_folder(request: Request, asked: Plan) -> None:
    """Make the run's folder, which must not lie among the documents.

    Raises:
        UsageError: it does, or it cannot be made.
    """
    for dataset in (each.dataset for each in asked.datasets if each.dataset.corpus is not None):
        corpus = existing(request.data, str(dataset.corpus)).resolve()
        for place in (request.out, request.indexes or request.out):
            if place.resolve().is_relative_to(corpus):
                why = f"what is written there would be among the documents of {dataset.name}"
                raise UsageError(f"{place} lies in {corpus}", why, "name a folder outside it")
    make(request.out)


@asynccontextmanager
async def _on_record(request: Request, asked: Plan, cast: Participants) -> AsyncIterator[None]:
    """Put down what the run is made with, held to what stands there, and when it ended."""
    now = await asyncio.to_thread(_provenance, request, asked, cast)
    rows = request.out / ROWS
    if rows.exists() and rows.stat().st_size:  # else there is nothing to go on with
        if not (request.out / RUN).exists():
            why = f"without {RUN} nobody knows what they were made with"
            raise UsageError(f"{request.out} holds rows", why, "name another --out")
        before = await asyncio.to_thread(read_provenance, request.out)
        now = going_on(before, now, request.out)
    await in_thread(write_provenance, request.out, now)
    try:
        yield
    finally:
        session = replace(now.sessions[-1], ended=_now())
        ended = replace(now, sessions=(*now.sessions[:-1], session))
        await in_thread(write_provenance, request.out, ended)


def _provenance(request: Request, asked: Plan, cast: Participants) -> Provenance:
    files = {each.dataset.file for each in asked.datasets}
    files |= {each.dataset.corpus for each in asked.datasets if each.dataset.corpus is not None}
    data = {file: path_digest(existing(request.data, file)) for file in sorted(files)}
    kinds = [type(contender.strategy) for contender in asked.contenders]
    session = Invocation(
        began=_now(),
        commit=machine.commit(),
        hardware=machine.hardware(),
        arguments=dict(request.arguments),
    )
    return Provenance(
        suite=request.suite.name,
        suite_text=request.suite.text,
        seed=request.seed,
        models={**cast.records, **adapter_records(each.strategy for each in asked.contenders)},
        datasets=tuple(each.dataset.name for each in asked.datasets),
        strategies=tuple(contender.method.name for contender in asked.contenders),
        questions={each.dataset.name: len(each.questions) for each in asked.datasets},
        limit=request.limit,
        settings={"timeout": request.timeout, **_settings(request)},
        prompts=prompt_digests(kinds),
        data=data,
        versions=machine.versions(),
        sessions=(session,),
    )


def _settings(request: Request) -> dict[str, Any]:
    return {"set": list(request.settings)} if request.settings else {}


def _of_plan(asked: Plan, rows: Mapping[Key, Row]) -> dict[Key, Row]:
    keys = [
        Key(each.dataset.name, question.id, contender.method.name)
        for each in asked.datasets
        for question in each.questions
        for contender in asked.contenders
    ]
    return {key: rows[key] for key in keys if key in rows}


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
