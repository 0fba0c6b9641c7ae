"""Who takes part in a run: models by role, embedder and reranker, and what measures the answers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from colligate.core.events import Noted, Trace
from colligate.core.run import Retriever
from colligate.core.strategy import needs_of
from colligate.documents.chunking import STRUCTURAL
from colligate.errors import MissingCapability, MissingExtra, UsageError
from colligate.lab.bench.metrics import groups
from colligate.lab.bench.metrics.catalogue import require_groups
from colligate.lab.bench.outcome import Answerer, ReaderAndCheck
from colligate.lab.bench.plan import Plan, SuiteEntry
from colligate.lab.bench.provenance import CHECK
from colligate.lab.jobs.identity import ModelRecord, model_records, weights_digest
from colligate.lab.jobs.spending import PaidJudge
from colligate.library.sources import SearchMode
from colligate.models import ChatModel, Embedder, Role
from colligate.models.cache import CachedChat, ResponseCache
from colligate.readers import make_reader
from colligate.session import Session
from colligate.settings import Settings


@dataclass(frozen=True)
class ModelNames:
    """Models by name in `settings`, or as objects; a judge, `nli` and `qa` only where named."""

    settings: Settings = field(default_factory=Settings)
    models: Mapping[Role, ChatModel] = field(default_factory=dict)
    embedder: Embedder | None = None
    nli: str | None = None
    qa: str | None = None

    @property
    def chunker(self) -> str:
        """The name of what cuts documents into passages."""
        named = self.settings.chunker
        return named.name if named else STRUCTURAL

    def with_chunker(self, of_suite: str | None) -> ModelNames:
        """Return the names with a suite's chunker, unless a flag or field has named another."""
        named = self.settings.chunker
        if of_suite is None or (named is not None and not named.source):
            return self
        return replace(self, settings=self.settings.override(chunker=of_suite))

    def session(self) -> Session:
        """Return a session that opens them."""
        return Session(
            model=self.models.get(Role.READER),
            worker_model=self.models.get(Role.WORKER),
            scorer=self.models.get(Role.SCORER),
            judge=self.models.get(Role.JUDGE),
            embedder=self.embedder,
            settings=self.settings,
        )


@dataclass(frozen=True)
class Participants:
    """Who takes part: what asks, what measures, their records, and what of the plan they can do."""

    plan: Plan
    answerer: Answerer
    backends: groups.Backends
    records: Mapping[str, ModelRecord]


async def open_participants(
    names: ModelNames,
    plan: Plan,
    answerer: Answerer,
    replies: Path | None,
    stack: AsyncExitStack,
    trace: Trace,
) -> Participants:
    """Open what a plan needs, until `stack` closes; `answerer` gets its models.

    Strategies that these cannot run, and optional metrics that cannot be taken, are left out and
    reported; a strategy that was chosen by name, or another metric, is an error. Models keep their
    replies in the file `replies` and reuse them; those that are not deterministic are never stored.
    """
    session = await stack.enter_async_context(names.session())
    every = await session.open_models(trace)
    # The judge measures and takes no part in the answers.
    models: dict[Role, ChatModel] = {r: m for r, m in every.items() if r is not Role.JUDGE}
    embedder = await session.open_embedder(trace) if plan.searches else None
    entries = await _choose_runnable(plan, models, session, trace)
    reranker = await session.open_reranker(trace) if plan.searches else None
    judge = every.get(Role.JUDGE)
    backends = groups.Backends(
        judge=PaidJudge(judge, answerer.spending) if judge is not None else None,
        nli=await asyncio.to_thread(groups.entail_by_trained, names.nli) if names.nli else None,
        qa=await asyncio.to_thread(groups.read_by_trained, names.qa) if names.qa else None,
    )
    records = await model_records(every, embedder, reranker)
    readers = await _open_readers({each.reader for each in entries}, models, session, trace)
    for reader, check in readers.values():
        records[f"{CHECK} {reader.name}"] = ModelRecord(check.name if check else "none")
    for what, name in (("nli", names.nli), ("qa", names.qa)):
        if name is not None:
            digest = await asyncio.to_thread(weights_digest, f"hf:{name}")
            records[what] = ModelRecord(name, digest)
    if replies is not None:
        cache = ResponseCache(replies)
        stack.callback(cache.close)
        models = {role: CachedChat(model, cache) for role, model in models.items()}
    answerer = replace(
        answerer,
        models=models,
        embedder=embedder,
        reranker=reranker,
        readers=readers,
        retrievers=await _open_retrievers(entries, models, session, trace),
    )
    plan = _add_optional_metrics(replace(plan, entries=tuple(entries)), backends, trace)
    return Participants(plan, answerer, backends, records)


async def _open_readers(
    names: Iterable[str], models: Mapping[Role, ChatModel], session: Session, trace: Trace
) -> Mapping[str, ReaderAndCheck]:
    opened: dict[str, ReaderAndCheck] = {}
    for name in sorted(names):
        model = models[Role.READER]
        reader = await asyncio.to_thread(make_reader, name, model)  # may read the model's file
        checked = reader.name != "plain"
        opened[name] = reader, await session.open_check(reader, model, trace) if checked else None
    return opened


async def _open_retrievers(
    entries: Iterable[SuiteEntry], models: Mapping[Role, ChatModel], session: Session, trace: Trace
) -> Mapping[str, Retriever | SearchMode]:
    opened: dict[str, Retriever | SearchMode] = {}
    for name in dict.fromkeys(each.retriever for each in entries):
        retriever = await session.open_retriever(name, trace) if name else None
        if name and retriever is not None:
            opened[name] = retriever
            for line in await session.check_models(name, needs_of(retriever), models):
                trace.emit(Noted(f"{name}: {line}", warning=True))
    return opened


async def _choose_runnable(
    plan: Plan, models: Mapping[Role, ChatModel], session: Session, trace: Trace
) -> list[SuiteEntry]:
    runnable = []
    for entry in plan.entries:
        name = entry.method.name
        try:
            without = await session.check_models(name, entry.strategy.needs, models)
        except MissingCapability as error:
            if entry.named:
                raise
            trace.emit(Noted(f"left out: {error}", warning=True))
        else:
            runnable.append(entry)
            for line in without:
                trace.emit(Noted(f"{name}: {line}", warning=True))
    if not runnable:
        raise UsageError("no strategy of the suite can run", "", "colligate doctor says why")
    return runnable


def _add_optional_metrics(plan: Plan, backends: groups.Backends, trace: Trace) -> Plan:
    left_out: dict[str, str] = {}
    datasets = []
    for planned in plan.datasets:
        dataset = planned.dataset
        require_groups(dataset.metrics, backends)
        taken = []
        for group in dataset.optional:
            try:
                require_groups([group], backends)
            except (groups.MissingBackend, MissingExtra) as error:
                left_out[group] = str(error)
            else:
                taken.append(group)
        dataset = replace(dataset, metrics=(*dataset.metrics, *taken))
        datasets.append(replace(planned, dataset=dataset))
    for group, why in left_out.items():
        trace.emit(Noted(f"without {group}: {why}", warning=True))
    return replace(plan, datasets=tuple(datasets))
