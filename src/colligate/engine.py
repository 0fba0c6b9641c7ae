"""One run over one question: opened, held to its limits, and what it cost."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from colligate.core.answer import Answer
from colligate.core.events import Listener, Trace
from colligate.core.run import Budget, Run
from colligate.core.strategy import Need, Needs, Strategy, strategy_type
from colligate.core.units import best_documents
from colligate.errors import BudgetExceeded, UsageError
from colligate.library.ingest import Ingested
from colligate.library.library import Library
from colligate.models import ChatModel, Embedder, Reranker, Role
from colligate.models.metering import Meter, UsageReport
from colligate.session import Resources, look_for
from colligate.settings import Settings
from colligate.strategies.longrefiner.method import LongRefiner, Refined, Refiner
from colligate.strategies.rdr2.method import RDR2, Routing

T = TypeVar("T")


@dataclass(frozen=True)
class Limits:
    """What a run may take: tokens of all calls together, in and out, and seconds."""

    tokens: int | None = None
    seconds: float | None = None


@dataclass(frozen=True)
class Cost:
    """What a run took, what it warned of, and the names of its models."""

    usage: UsageReport
    warnings: tuple[str, ...]
    models: Mapping[Role, str]

    def model(self, role: Role) -> str:
        """The name of a role's model; the reader fills roles that have none of their own."""
        return self.models.get(role, self.models[Role.READER])


async def carried_out(
    work: Callable[[str, Run], Awaitable[T]],
    question: str,
    paths: Sequence[str | Path] | str | Path,
    resources: Resources,
    *,
    name: str,
    needs: Needs,
    trace: Trace,
    limits: Limits,
    documents: Sequence[str] | None = None,
) -> tuple[T, Cost]:
    """Open what `needs` says, do the work, and say what it cost; errors call it `name`.

    In view are the files of `paths`, or of the library the `documents` with these ids, or all.

    Raises:
        UsageError: an empty question, a path that does not exist.
        BudgetExceeded: tokens or time are spent.
        ColligateError: what could not be opened, or what the work raises.
    """
    if not question.strip():
        raise UsageError("the question is empty", hint="write a question")
    paths = [paths] if isinstance(paths, str | Path) else paths
    meter = Meter()
    began = time.perf_counter()
    try:
        async with asyncio.timeout(limits.seconds) as deadline:
            # A wrong path must not cost a download, nor a wrong model an ingestion.
            if paths and needs.reads:
                await asyncio.to_thread(look_for, paths)
            models = await resources.open_models(name, needs, trace)
            sources = await resources.sources(paths, needs, trace, documents)
            models = await resources.remembering(models, sources)
            run = Run(
                sources=sources,
                models=models,
                meter=meter,
                trace=trace,
                budget=Budget(limits.tokens),
                reranker=await resources.open_reranker(models) if needs.searches else None,
                embedder=await resources.library() if needs.searches else None,
                kept=await resources.kept(needs),
            )
            said = len(resources.warnings)
            result = await work(question, run)
    except TimeoutError as error:
        if not deadline.expired():
            raise
        why = f"no answer within {limits.seconds:g} seconds"
        raise BudgetExceeded(why, "", "raise --timeout") from error
    usage = meter.report(seconds=time.perf_counter() - began)
    warnings = dict.fromkeys((*run.warnings, *meter.warnings, *resources.warnings[said:]))
    names = {role: model.name for role, model in models.items()}
    return result, Cost(usage, tuple(warnings), names)


# Asking: from a question and a folder to a cited answer.
#
# `Engine` opens models and library once and answers many questions; `aask` and `arefine` are one
# question's worth of it.

DEFAULT_STRATEGY = "retrieve-read"


@dataclass(frozen=True)
class Routes:
    """Where routing a question went in each document, the document found first coming first."""

    question: str
    routings: tuple[Routing, ...]
    usage: UsageReport = field(default_factory=UsageReport)
    warnings: tuple[str, ...] = ()
    model: str = ""

    @property
    def found(self) -> bool:
        """Whether the router accepted anything."""
        return any(routing.answers for routing in self.routings)

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "question": self.question,
            "found": self.found,
            "documents": [routing.to_json() for routing in self.routings],
            "usage": self.usage.to_json(),
            "warnings": list(self.warnings),
        }


@dataclass
class Engine:
    """Models by role and a library, opened when first needed and closed together.

    Names are as on the command line; a model, embedder or reranker of your own may be given
    instead of a name, and stays yours to close. `library` is a folder. What is None is found as
    the command line finds it: in the environment (COLLIGATE_MODEL and so on), else in a
    `colligate.toml`, else by default. `settings` stands in place of environment and file:
    `Settings.load(path)` reads another file, `Settings()` names nothing.

    `wait` is how many seconds to wait for another process that holds the library. `cache` keeps
    the models' responses in the library's folder, so that the same question over the same
    documents is paid for once.

        async with Engine(model="openai:gpt-5-mini") as engine:
            answer = await engine.ask("Who signed?", ["contracts/"])
    """

    model: str | ChatModel | None = None
    worker_model: str | ChatModel | None = None
    scorer: str | ChatModel | None = None
    judge: str | ChatModel | None = None
    embedder: str | Embedder | None = None
    reranker: str | Reranker | None = None
    library: Path | str | None = None
    settings: Settings | None = None
    wait: float = 30.0
    cache: bool = False
    on_event: Listener | None = None

    _resources: Resources = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._resources = Resources(
            models={
                Role.READER: self.model,
                Role.WORKER: self.worker_model,
                Role.SCORER: self.scorer,
                Role.JUDGE: self.judge,
            },
            embedder=self.embedder,
            reranker=self.reranker,
            folder=self.library,
            settings=self.settings,
            wait=self.wait,
            cache=self.cache,
        )

    async def __aenter__(self) -> Engine:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Free the models and the library. Safe to call twice."""
        await self._resources.aclose()

    async def ask(
        self,
        question: str,
        paths: Sequence[str | Path] | str | Path = (),
        *,
        strategy: str | Strategy = DEFAULT_STRATEGY,
        documents: Sequence[str] | None = None,
        max_tokens_total: int | None = None,
        timeout: float | None = None,
        on_event: Listener | None = None,
    ) -> Answer:
        """Answer a question over files and folders, or over the whole library if none are given.

        `documents` are ids of the library's documents to answer over, in place of paths. Files
        that cannot be read are left out and said in `Answer.warnings`; the others are answered
        over. `max_tokens_total` bounds input and output tokens of all calls together, `timeout`
        the seconds of the whole run.

        Raises:
            UsageError: an empty question, a strategy, model, path or document that does not exist.
            MissingCapability: the model cannot do what the strategy needs.
            BudgetExceeded: tokens or time are spent.
            ModelError, LibraryError: what the models or the library could not do.
        """
        trace, chosen = self._trace(on_event), strategy
        if isinstance(chosen, str):
            chosen = await self._resources.set_up(strategy_type(chosen), trace)
        answer, cost = await carried_out(
            chosen.answer,
            question,
            paths,
            self._resources,
            name=chosen.name,
            needs=chosen.needs,
            trace=trace,
            limits=Limits(max_tokens_total, timeout),
            documents=documents,
        )
        warnings = tuple(dict.fromkeys((*cost.warnings, *answer.warnings)))
        return replace(answer, usage=cost.usage, warnings=warnings, model=cost.model(Role.READER))

    async def refine(
        self,
        question: str,
        paths: Sequence[str | Path] | str | Path = (),
        *,
        refiner: Refiner | None = None,
        budget: int | None = None,
        max_tokens_total: int | None = None,
        timeout: float | None = None,
        on_event: Listener | None = None,
    ) -> Refined:
        """What a question needs of the documents, under a budget of tokens; nothing is answered.

        A `LongRefiner` (which None stands for) ranks the documents and refines the best of them;
        a `Refiner` refines all in view, in their order. `budget` stands in place of its own.
        Limits and errors are those of `ask`.
        """
        trace = self._trace(on_event)
        chosen = refiner
        if chosen is None:
            chosen = await self._resources.set_up(LongRefiner, trace)
        if budget is not None:
            chosen = replace(chosen, budget=budget)

        async def work(question: str, run: Run) -> Refined:
            best = None
            if isinstance(chosen, LongRefiner):
                best = await best_documents(question, run, chosen.documents, chosen.mode)
            return await chosen.refine(question, run, documents=best)

        refined, cost = await carried_out(
            work,
            question,
            paths,
            self._resources,
            name="refining",
            needs=LongRefiner.needs,
            trace=trace,
            limits=Limits(max_tokens_total, timeout),
        )
        warnings = tuple(dict.fromkeys((*cost.warnings, *refined.warnings)))
        return replace(refined, usage=cost.usage, warnings=warnings)

    async def route(
        self,
        question: str,
        paths: Sequence[str | Path] | str | Path = (),
        *,
        strategy: RDR2 | None = None,
        max_tokens_total: int | None = None,
        timeout: float | None = None,
        on_event: Listener | None = None,
    ) -> Routes:
        """Walk the documents' heading trees as RDR2 does before it reads; nothing is answered.

        Limits and errors are those of `ask`.
        """
        trace = self._trace(on_event)
        chosen = strategy
        if chosen is None:
            chosen = await self._resources.set_up(RDR2, trace)

        async def work(question: str, run: Run) -> list[Routing]:
            hits = await run.search(question, k=chosen.k, pool=chosen.pool, mode=chosen.mode)
            return await chosen.route(question, run, hits)

        routings, cost = await carried_out(
            work,
            question,
            paths,
            self._resources,
            name=chosen.name,
            needs=chosen.needs,
            trace=trace,
            limits=Limits(max_tokens_total, timeout),
        )
        return Routes(question, tuple(routings), cost.usage, cost.warnings, cost.model(Role.WORKER))

    async def add(
        self,
        paths: Sequence[str | Path],
        *,
        index: bool = True,
        workers: int | None = None,
        on_event: Listener | None = None,
    ) -> Ingested:
        """Read files and folders into the library; unchanged files are left as they are."""
        trace = self._trace(on_event)
        return await self._resources.add(paths, trace, index=index, workers=workers)

    async def open_library(self) -> Library:
        """The library, opened. Its embedder is loaded when something is searched or indexed."""
        return await self._resources.library()

    def beside(self, library: Path | str) -> Engine:
        """An engine over another library with these same models, which stay this one's to close."""
        other = replace(self, library=library)
        other._resources = self._resources.beside(library)
        return other

    async def open_models(self, on_event: Listener | None = None) -> dict[str, str]:
        """Open the models now instead of at the first question; their names by role.

        Raises:
            UnknownModel, ModelError: what could not be opened.
        """
        models = await self._resources.by_role(self._trace(on_event))
        return {role.value: model.name for role, model in models.items()}

    async def search_models(self) -> dict[str, str]:
        """The names of the embedder and the reranker; nothing is opened."""
        return await self._resources.search_models()

    async def needs(self, kind: type[Strategy]) -> tuple[Need, ...]:
        """Which needs of a strategy the models meet, the required ones first; opens the models.

        Raises:
            UnknownModel, ModelError: what could not be opened.
        """
        return await self._resources.needs(kind)

    def _trace(self, on_event: Listener | None) -> Trace:
        return Trace([listen for listen in (self.on_event, on_event) if listen], keep=False)


async def aask(
    question: str,
    paths: Sequence[str | Path] | str | Path = (),
    *,
    strategy: str | Strategy = DEFAULT_STRATEGY,
    max_tokens_total: int | None = None,
    timeout: float | None = None,
    **engine: Any,
) -> Answer:
    """Answer one question over files and folders; `engine` takes the fields of `Engine`."""
    async with Engine(**engine) as opened:
        return await opened.ask(
            question,
            paths,
            strategy=strategy,
            max_tokens_total=max_tokens_total,
            timeout=timeout,
        )


async def arefine(
    question: str,
    paths: Sequence[str | Path] | str | Path = (),
    *,
    refiner: Refiner | None = None,
    budget: int | None = None,
    max_tokens_total: int | None = None,
    timeout: float | None = None,
    **engine: Any,
) -> Refined:
    """What one question needs of files and folders; `engine` takes the fields of `Engine`."""
    async with Engine(**engine) as opened:
        return await opened.refine(
            question,
            paths,
            refiner=refiner,
            budget=budget,
            max_tokens_total=max_tokens_total,
            timeout=timeout,
        )
