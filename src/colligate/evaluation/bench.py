"""`colligate bench run`: from a suite to rows on disk, begun or gone on with."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from colligate.errors import UsageError
from colligate.evaluation import machine, out_folder
from colligate.evaluation.answering import Answering
from colligate.evaluation.cast import Cast, Named, measurable, opened_cast, remembering
from colligate.evaluation.estimate import MANY, Estimate, estimated
from colligate.evaluation.identity import adapter_records, path_digest, prompt_digests
from colligate.evaluation.inview import InView
from colligate.evaluation.planning import Plan, contenders, existing, plan
from colligate.evaluation.provenance import FILE as RUN
from colligate.evaluation.provenance import (
    Provenance,
    Session,
    going_on,
    read_provenance,
    write_provenance,
)
from colligate.evaluation.rows import FILE as ROWS
from colligate.evaluation.rows import Key, Row, RowFile, read_rows
from colligate.evaluation.runner import Bench
from colligate.evaluation.spending import Spending
from colligate.evaluation.suite import Suite
from colligate.evaluation.totals import Totals, forget_totals, read_totals, take_totals
from colligate.library.blocking import in_thread
from colligate.strategies.trace import Listener, Noted, Progressed, Trace

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


async def carried_out(request: Request, on_event: Listener) -> Done:
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
    with out_folder.held(request.out, "runs a bench"):
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
    cast: Cast,
    spending: Spending,
    rows: RowFile,
    stack: AsyncExitStack,
    trace: Trace,
) -> int:
    """Have the bench ask; how many answers it was asked for."""
    indexes = request.indexes or request.out / INDEXES
    in_view = InView(request.data, indexes, cast.embedder, trace)
    await stack.enter_async_context(in_view)
    answering = Answering(cast.models, spending, cast.embedder, cast.reranker, request.timeout)
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
    out_folder.make(request.out)


@asynccontextmanager
async def _on_record(request: Request, asked: Plan, cast: Cast) -> AsyncIterator[None]:
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


def _provenance(request: Request, asked: Plan, cast: Cast) -> Provenance:
    files = {each.dataset.file for each in asked.datasets}
    files |= {each.dataset.corpus for each in asked.datasets if each.dataset.corpus is not None}
    data = {file: path_digest(existing(request.data, file)) for file in sorted(files)}
    kinds = [type(contender.strategy) for contender in asked.contenders]
    session = Session(
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
