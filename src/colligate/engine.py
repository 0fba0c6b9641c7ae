"""Asking: from a question and a folder to a cited answer.

`Engine` opens models and library once and answers many questions; `aask` and `arefine` are one
question's worth of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from colligate.library.ingestion import Ingested
from colligate.library.library import Library
from colligate.models import ChatModel, Embedder, Reranker, Role
from colligate.models.metering import UsageReport
from colligate.resources import Resources
from colligate.running import Limits, carried_out
from colligate.settings import Settings
from colligate.strategies.answer import Answer
from colligate.strategies.longrefiner import LongRefiner
from colligate.strategies.maxp import best_documents
from colligate.strategies.rdr2 import RDR2
from colligate.strategies.refined import Refined
from colligate.strategies.refiner import Refiner
from colligate.strategies.routing import Routing
from colligate.strategies.run import Run
from colligate.strategies.strategy import Need, Strategy, strategy_type
from colligate.strategies.trace import Listener, Trace

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
