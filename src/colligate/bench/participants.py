"""Who takes part in a run: models by role, what they search with, what measures, on record."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from colligate.bench.identity import model_record, server_says, weights_digest
from colligate.bench.metrics.backends import (
    Backends,
    Entails,
    JudgeEntails,
    JudgeReads,
    MissingBackend,
    Reads,
    TrainedEntails,
    TrainedReads,
)
from colligate.bench.metrics.catalogue import require_groups
from colligate.bench.plan import Plan, SuiteEntry
from colligate.bench.provenance import ModelRecord
from colligate.core.events import Noted, Trace
from colligate.errors import MissingCapability, MissingExtra, UsageError
from colligate.jobs.spending import Paid, Spending
from colligate.models import ChatModel, Embedder, Reranker, Role
from colligate.models.cache import CachedChat, ResponseCache
from colligate.session import Session
from colligate.settings import Settings

B = TypeVar("B")

JUDGE = "judge"
"""In place of a trained model's name: the judge measures entailment, or reads answers."""


@dataclass(frozen=True)
class Named:
    """Models as they were named, or given outright; `nli` and `qa` for the metrics that ask them.

    A judge is only asked where one is named: a reader that judges itself measures little.
    """

    settings: Settings = field(default_factory=Settings)
    models: Mapping[Role, ChatModel] = field(default_factory=dict)
    embedder: Embedder | None = None
    nli: str | None = None
    qa: str | None = None

    def session(self) -> Session:
        """Return a session that opens them."""
        return Session(settings=self.settings, models=self.models, embedder=self.embedder)


@dataclass(frozen=True)
class Participants:
    """Who takes part, and the record of each. `models` are those that answer, without the judge."""

    models: Mapping[Role, ChatModel]
    embedder: Embedder | None
    reranker: Reranker | None
    backends: Backends
    records: Mapping[str, ModelRecord]


async def opened_cast(
    named: Named, plan: Plan, spending: Spending, stack: AsyncExitStack, trace: Trace
) -> tuple[Participants, list[SuiteEntry]]:
    """Open what a plan needs; closed with `stack`. Also those strategies that can run with it.

    Raises:
        UnknownModel, ModelError: as `open_model`.
        MissingBackend, UsageError: a metric's model was not given.
    """
    session = await stack.enter_async_context(named.session())
    every = await session.open_models(trace)
    # Who measures takes no part in the answers.
    models: dict[Role, ChatModel] = {r: m for r, m in every.items() if r is not Role.JUDGE}
    embedder = await session.open_embedder(trace) if plan.searches else None
    able = await _able(plan, models, session, trace)
    reranker = await session.open_reranker(models, trace) if plan.searches else None
    backends = await _backends(named, every.get(Role.JUDGE), session, spending)
    records = await records_of(every, embedder, reranker)
    for what, name in (("nli", named.nli), ("qa", named.qa)):
        if name is not None:
            digest = await asyncio.to_thread(weights_digest, f"hf:{name}")
            records[what] = ModelRecord(name, "" if name == JUDGE else digest)
    return Participants(models, embedder, reranker, backends, records), able


def remembering(cast: Participants, replies: Path, stack: AsyncExitStack) -> Participants:
    """The cast with models that know what the file holds, and put down there what they say.

    What is not deterministic is never kept. The file is closed with `stack`.
    """
    cache = ResponseCache(replies)
    stack.callback(cache.close)
    models = {role: CachedChat(model, cache) for role, model in cast.models.items()}
    return replace(cast, models=models)


def measurable(plan: Plan, backends: Backends, trace: Trace) -> Plan:
    """The plan with those of the optional metrics that can be taken; the others are said once.

    Raises:
        UsageError, MissingBackend, MissingExtra: a metric that is not optional cannot be.
    """
    left_out: dict[str, str] = {}
    datasets = []
    for asked in plan.datasets:
        dataset = asked.dataset
        require_groups(dataset.metrics, backends)
        taken = []
        for group in dataset.optional:
            try:
                require_groups([group], backends)
            except (MissingBackend, MissingExtra) as error:
                left_out[group] = str(error)
            else:
                taken.append(group)
        datasets.append(
            replace(asked, dataset=replace(dataset, metrics=(*dataset.metrics, *taken)))
        )
    for group, why in left_out.items():
        trace.emit(Noted(f"without {group}: {why}", warning=True))
    return replace(plan, datasets=tuple(datasets))


async def records_of(
    models: Mapping[Role, ChatModel], embedder: Embedder | None, reranker: Reranker | None
) -> dict[str, ModelRecord]:
    """The record of each model by role, and of what searches."""
    searching = (("embedder", embedder), ("reranker", reranker))
    records = {}
    for what, each in (*((role.value, model) for role, model in models.items()), *searching):
        if each is not None:
            said = await server_says(each)
            records[what] = await asyncio.to_thread(model_record, each, said)
    return records


async def _able(
    plan: Plan,
    models: Mapping[Role, ChatModel],
    session: Session,
    trace: Trace,
) -> list[SuiteEntry]:
    """The strategies that these models can run; what one named outright lacks is an error."""
    able = []
    for contender in plan.contenders:
        name = contender.method.name
        try:
            without = await session.check(name, contender.strategy.needs, models)
        except MissingCapability as error:
            if plan.named_outright:
                raise
            trace.emit(Noted(f"left out: {error}", warning=True))
        else:
            able.append(contender)
            for line in without:
                trace.emit(Noted(f"{name}: {line}", warning=True))
    if not able:
        raise UsageError("no strategy of the suite can run", "", "colligate strategies says why")
    return able


async def _backends(
    named: Named, judge: ChatModel | None, session: Session, spending: Spending
) -> Backends:
    paid = Paid(judge, spending) if judge is not None else None
    if judge is not None and named.nli == JUDGE:
        await session.probe(judge)  # a server's odds of labels are only known when it is asked

    async def backend(
        what: str, name: str | None, of_judge: Callable[[ChatModel], B], trained: Callable[[str], B]
    ) -> B | None:
        if name is None:
            return None
        if name != JUDGE:
            return await asyncio.to_thread(trained, name)
        if paid is None:
            raise UsageError(f"--{what} {JUDGE} needs a judge", "none is named", "name a --judge")
        return of_judge(paid)

    nli: Entails | None = await backend("nli", named.nli, JudgeEntails, TrainedEntails)
    qa: Reads | None = await backend("qa", named.qa, JudgeReads, TrainedReads)
    return Backends(paid, nli, qa)
