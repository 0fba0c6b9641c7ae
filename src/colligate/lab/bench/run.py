"""Run a suite: `colligate bench run`, which begins a run or resumes it.

Every question is asked of every strategy, question by question. An answer is a row on disk as soon
as it is measured; what has a row is not asked again, so the same command resumes a run, however it
was stopped.
"""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from colligate.concurrency import in_thread
from colligate.core.events import Listener, Noted, Trace
from colligate.documents.chunking import STRUCTURAL
from colligate.errors import UsageError
from colligate.lab.bench.corpus import INDEXES, CorpusResolver
from colligate.lab.bench.metrics.catalogue import is_of_run, measure_each
from colligate.lab.bench.metrics.groups import Backends
from colligate.lab.bench.outcome import ROWS, Answerer, Key, Row
from colligate.lab.bench.participants import ModelNames, Participants, open_participants
from colligate.lab.bench.plan import Plan, SuiteEntry, configure_entries, plan, require_path
from colligate.lab.bench.provenance import RUN, Provenance
from colligate.lab.bench.question import Question
from colligate.lab.bench.suites import Dataset, Suite
from colligate.lab.bench.tables import take_totals
from colligate.lab.jobs.files import lock_folder
from colligate.lab.jobs.identity import adapter_records, path_digest, prompt_digests, versions
from colligate.lab.jobs.job import Job, utc_now
from colligate.lab.jobs.spending import Spending
from colligate.library.sources import Sources
from colligate.readers.followup import Turn

RunJob = Job[Key, Row, Provenance]


@dataclass(frozen=True)
class BenchRequest:
    """A request to run a suite into a folder.

    `strategies` and `datasets` are names; without any the suite's default ones. `settings` are
    texts such as "k=3", for the strategies that have the parameter; they, `reader` and
    `retriever` replace the suite's. `max_tokens_total` limits what this process spends, `timeout`
    the seconds of each answer. `indexes` is the folder for indexed corpora, by default in `out`,
    `replies` a file of models' replies that runs can share. `arguments` are recorded as they are.
    """

    suite: Suite
    data: Path
    out: Path
    names: ModelNames = field(default_factory=ModelNames)
    strategies: Sequence[str] = ()
    datasets: Sequence[str] = ()
    settings: Sequence[str] = ()
    reader: str | None = None
    retriever: str | None = None
    limit: int | None = None
    seed: int = 0
    concurrency: int = 1
    max_tokens_total: int | None = None
    timeout: float | None = None
    retry_failed: bool = False
    indexes: Path | None = None
    replies: Path | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class SuiteRun:
    """The rows that a request asked for; `asked` are written and `tokens` spent by this process."""

    plan: Plan
    rows: Mapping[Key, Row]
    asked: int
    tokens: int


def make_plan(request: BenchRequest) -> Plan:
    """Return what the request asks. Blocks."""
    suite = request.suite
    reader, retriever = request.reader, request.retriever
    entries = configure_entries(suite, request.strategies, request.settings, reader, retriever)
    of, limit, seed = request.datasets, request.limit, request.seed
    return plan(suite, request.data, entries=entries, datasets=of, limit=limit, seed=seed)


async def run_suite(request: BenchRequest, on_event: Listener) -> SuiteRun:
    """Ask and measure what has no row yet. Finished rows are kept, whatever happens."""
    trace = Trace([on_event], keep=False)
    request = replace(request, names=request.names.with_chunker(request.suite.chunker))
    planned = await asyncio.to_thread(make_plan, request)
    answerer = Answerer(Spending(request.max_tokens_total), request.timeout)
    _check_places(request, planned)
    with lock_folder(request.out):
        async with AsyncExitStack() as stack:
            who = await open_participants(
                request.names, planned, answerer, request.replies, stack, trace
            )
            planned = who.plan
            record = await asyncio.to_thread(_make_provenance, request, who)
            indexes, embedder = request.indexes or request.out / INDEXES, who.answerer.embedder
            corpora = CorpusResolver(
                request.data, indexes, embedder, trace, chunker=request.names.chunker
            )
            await stack.enter_async_context(corpora)
            bench = Bench(planned, who.answerer, corpora, who.backends)
            job: RunJob = Job(
                request.out,
                RUN,
                ROWS,
                trace,
                phase="answering",
                concurrency=request.concurrency,
                retry_failed=request.retry_failed,
            )
            await stack.enter_async_context(job.resume(record, request.arguments))
            if kept := planned.answers - len(bench.missing(job)):
                trace.emit(Noted(f"{kept:,} of {planned.answers:,} rows are there"))
            await bench.run(job)
            rows = {key: job.results[key] for key in planned.row_keys() if key in job.results}
            problems = await in_thread(take_totals, request.out, planned, job.results.values())
            for metric, why in problems.items():
                trace.emit(Noted(f"without {metric}: {why}", warning=True))
    return SuiteRun(planned, rows, job.done, answerer.spending.tokens)


def _check_places(request: BenchRequest, planned: Plan) -> None:
    """Check that nothing will be written among the documents."""
    for dataset in (each.dataset for each in planned.datasets if each.dataset.corpus is not None):
        corpus = require_path(request.data, str(dataset.corpus)).resolve()
        for place in (request.out, request.indexes or request.out):
            if place.resolve().is_relative_to(corpus):
                why = f"what is written there would be among the documents of {dataset.name}"
                raise UsageError(f"{place} lies in {corpus}", why, "name a folder outside it")


def _make_provenance(request: BenchRequest, who: Participants) -> Provenance:
    """Return the record of a run that begins now; reads every file of the data."""
    planned = who.plan
    datasets = [each.dataset for each in planned.datasets]
    files = {file for each in datasets for file in (each.file, each.corpus) if file is not None}
    strategies = [entry.strategy for entry in planned.entries]
    chunker = request.names.chunker
    given = {
        "set": list(request.settings),
        "reader": request.reader,
        "retriever": request.retriever,
        "chunker": None if chunker == STRUCTURAL else chunker,
    }
    own_prompts = {each for one in strategies if (each := getattr(one, "prompts", None))}
    return Provenance(
        suite=request.suite.name,
        suite_text=request.suite.text,
        seed=request.seed,
        models={**who.records, **adapter_records(strategies)},
        datasets=tuple(each.name for each in datasets),
        strategies=tuple(entry.method.name for entry in planned.entries),
        questions={each.dataset.name: len(each.questions) for each in planned.datasets},
        limit=request.limit,
        settings={"timeout": request.timeout, **{k: v for k, v in given.items() if v}},
        prompts=prompt_digests(type(each) for each in strategies),
        data={
            **{file: path_digest(require_path(request.data, file)) for file in sorted(files)},
            **{file: path_digest(Path(file)) for file in sorted(own_prompts)},
        },
        versions=versions(),
    )


@dataclass(frozen=True)
class Bench:
    """The work of a run: answers that are missing, and metrics that could not be taken before."""

    plan: Plan
    answering: Answerer
    corpora: CorpusResolver
    backends: Backends

    def missing(self, job: RunJob) -> list[_Item]:
        """Return what is to be asked, or measured again, in the order of the plan."""
        items = []
        for planned in self.plan.datasets:
            for question in planned.questions:
                for entry in self.plan.entries:
                    item = _Item(planned.dataset, question, entry)
                    row = job.results.get(item.key)
                    if row is None or job.is_missing(item.key):
                        items.append(replace(item, attempt=row.attempt + 1 if row else 1))
                    elif groups := [g for g in planned.dataset.metrics if g in row.unmeasured]:
                        items.append(replace(item, unmeasured=tuple(groups)))
        return items

    async def run(self, job: RunJob) -> None:
        """Do what is missing; see `Job.run` for what ends it early."""
        items = {item.key: item for item in self.missing(job)}
        documents: dict[tuple[str, str], _SharedSources] = {}
        for key, item in items.items():
            if key[:2] not in documents:
                # All documents are looked up now, so that a wrong name is found before any call.
                question = await self.corpora.resolve(item.dataset, item.question)
                documents[key[:2]] = _SharedSources(question, item.dataset, self.corpora)
            documents[key[:2]].users += not item.unmeasured

        async def work(item: _Item) -> Row:
            shared = documents[item.key[:2]]
            if item.unmeasured:
                row, groups = job.results[item.key], item.unmeasured
            else:
                row = await self._answer(item, shared, job.folder)
                groups = tuple(each for each in item.dataset.metrics if not is_of_run(each))
            return await self._measure(row, groups, shared.question, job)

        try:
            await job.run(items, work)
        finally:
            for each in documents.values():
                await each.close()

    async def _answer(self, item: _Item, shared: _SharedSources, folder: Path) -> Row:
        began, question = utc_now(), shared.question
        async with shared as sources:
            entry, turns = item.entry, tuple(Turn(*each) for each in question.history)
            strategy = entry.for_question(question, item.dataset)
            outcome, trace = await self.answering.answer(
                strategy, question.text, sources, entry.reader, entry.retriever, turns
            )
        return Row(
            *item.key,
            question_text=question.text,
            answers=question.right_answers,
            outcome=outcome,
            metrics={},
            gold_at=question.gold_at,
            answerable=question.answerable,
            trace=await in_thread(_write_trace, folder, item.key, trace.to_json()),
            began=began,
            attempt=item.attempt,
        )

    async def _measure(
        self, row: Row, groups: Sequence[str], question: Question, job: RunJob
    ) -> Row:
        metrics = dict(row.metrics)
        unmeasured = {**row.unmeasured, **dict.fromkeys(groups, "interrupted")}

        def measured_row() -> Row:
            left = {group: why for group, why in unmeasured.items() if why}
            # Bare, because all rows of a long run are in memory.
            return replace(row, metrics=metrics, unmeasured=left).bare()

        try:
            async with aclosing(
                measure_each(groups, question, row.outcome, self.backends)
            ) as taken:
                async for group, values, why in taken:
                    metrics.update(values)
                    unmeasured[group] = why
        except BaseException:  # interrupted: the answer is kept, its metrics are taken later
            await job.put(row.key, measured_row())
            raise
        return measured_row()


@dataclass(frozen=True)
class _Item:
    """A question for a strategy. `unmeasured` are the metrics to take if it has an answer."""

    dataset: Dataset
    question: Question
    entry: SuiteEntry
    attempt: int = 1
    unmeasured: tuple[str, ...] = ()

    @property
    def key(self) -> Key:
        return Key(self.dataset.name, self.question.id, self.entry.method.name)


class _SharedSources:
    """The documents of a question, opened for its first strategy and closed after its last."""

    def __init__(self, question: Question, dataset: Dataset, corpora: CorpusResolver) -> None:
        self.question = question
        self.users = 0
        self._open = partial(corpora.open_sources, dataset, question)
        self._lock = asyncio.Lock()
        self._stack = AsyncExitStack()
        self._sources: Sources | None = None

    async def __aenter__(self) -> Sources:
        async with self._lock:
            if self._sources is None:
                self._sources = await self._stack.enter_async_context(self._open())
            return self._sources

    async def __aexit__(self, *_: object) -> None:
        self.users -= 1
        if not self.users:
            await self.close()

    async def close(self) -> None:
        self._sources = None
        await self._stack.aclose()


def _write_trace(folder: Path, key: Key, events: Sequence[Mapping[str, Any]]) -> str:
    """Write the events of an answer; return the file's place below the run's folder. Blocks."""
    whole = hashlib.sha256("\0".join(key).encode("utf-8", "replace")).hexdigest()
    name = f"{_slug(key.question)}-{whole[:8]}"  # different names may have one slug
    place = Path("traces", _slug(key.dataset), _slug(key.strategy), f"{name}.jsonl.gz")
    file = folder / place
    file.parent.mkdir(parents=True, exist_ok=True)
    lines = "".join(json.dumps(event) + "\n" for event in events)
    file.write_bytes(gzip.compress(lines.encode(), 3, mtime=0))  # most of the gain, little time
    return place.as_posix()


def _slug(text: str) -> str:
    return re.sub(r"[^\w.-]+", "-", text)[:60].strip(".-") or "unnamed"
