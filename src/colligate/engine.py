"""Asking: from a question and a folder to a cited answer.

`Engine` opens models and library once and answers many questions; `sync.ask` answers one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, TypedDict, TypeVar

from typing_extensions import Unpack

from colligate.concurrency import gather
from colligate.core.answer import Answer, Refined
from colligate.core.budget import Budget
from colligate.core.events import Listener, Trace
from colligate.core.run import SHOWN, Check, Consent, Reader, Run, refuse
from colligate.core.strategy import (
    DocumentRoute,
    Need,
    Needs,
    RefiningStrategy,
    RoutingStrategy,
    Strategy,
    load_strategy,
)
from colligate.core.telemetry import record_spans
from colligate.errors import BudgetExceeded, ColligateError, UsageError
from colligate.library.ingest import Ingested
from colligate.library.library import AsyncLibrary, Prune
from colligate.library.sources import Sources
from colligate.models import ChatModel, Embedder, Reranker, Role
from colligate.models.metering import Meter, UsageReport
from colligate.readers.followup import Turn, complete_question
from colligate.reporting import require_paths
from colligate.session import Session, configure
from colligate.settings import Settings

DEFAULT_STRATEGY = "auto"
DEFAULT_REFINER = "longrefiner"
DEFAULT_ROUTER = "rdr2"

_SECONDS_AHEAD = 0.5  # that models have to be opened before documents are read

S = TypeVar("S")
Paths = Sequence[str | Path] | str | Path


class Limits(TypedDict, total=False):
    """What a run reads and takes.

    `documents` are ids of the library's documents to read instead of paths; `where` are conditions
    that documents must meet, such as "date>=2024" (`Condition`). `max_tokens_total` bounds input
    and output tokens of all calls together, `timeout` the seconds of the whole run.
    """

    documents: Sequence[str] | None
    where: Sequence[str]
    max_tokens_total: int | None
    timeout: float | None


class AskOptions(Limits, total=False):
    """How a question is answered.

    `consent` is asked before work that takes many calls; by default it is not done. `history` are
    the turns of a conversation so far, oldest first (`Turn.of(answer)`). With `live` the models
    stream, and `on_event` hears how much they have written so far.
    """

    consent: Consent
    history: Sequence[Turn]
    live: bool


@dataclass(frozen=True)
class Routes:
    """The routing of a question in each document, the document found first coming first."""

    question: str
    routings: tuple[DocumentRoute, ...]
    usage: UsageReport = field(default_factory=UsageReport)
    warnings: tuple[str, ...] = ()
    model: str = ""

    @property
    def found(self) -> bool:
        """Whether the router accepted anything."""
        return any(routing.found for routing in self.routings)

    def to_json(self) -> dict[str, Any]:
        """Return the routes as a JSON object."""
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

    Names are as on the command line. Instead of a name you can give a model, embedder, reranker,
    reader or check of your own, which the engine does not close. `library` is a folder or
    "s3://BUCKET/NAME". What is None is taken from the environment (COLLIGATE_MODEL and so on), then
    from a `colligate.toml`, then by default. `settings` replaces environment and file:
    `Settings.load(path)` reads another file, `Settings()` names nothing.

    `wait` is how many seconds to wait for another process that holds the library. `cache` keeps
    the models' replies in the library's folder, so that the same question over the same documents
    is paid for once. `follow_links` follows symbolic links that lead out of the folders named.
    `ocr` reads scanned PDFs and pictures, in English if the settings name no other languages.
    `pdf` names what reads PDFs: "liteparse", or the program "docling". `chunker` names what cuts
    the documents of a new library into passages: "structural", "words:100" or "tokens:1000/250".

        async with Engine(model="openai:gpt-5-mini") as engine:
            answer = await engine.ask("Who signed?", ["contracts/"])
    """

    model: str | ChatModel | None = None
    worker_model: str | ChatModel | None = None
    scorer: str | ChatModel | None = None
    judge: str | ChatModel | None = None
    embedder: str | Embedder | None = None
    reranker: str | Reranker | None = None
    reader: str | Reader | None = None
    check: str | Check | None = None
    library: Path | str | None = None
    settings: Settings | None = None
    wait: float = 30.0
    cache: bool = False
    follow_links: bool = False
    ocr: bool = False
    pdf: str | None = None
    chunker: str | None = None
    on_event: Listener | None = None

    _session: Session = field(init=False, repr=False)

    def __post_init__(self) -> None:
        same = {each.name for each in fields(self)} & {each.name for each in fields(Session)}
        given: dict[str, Any] = {name: getattr(self, name) for name in same}
        models = {
            Role.READER: self.model,
            Role.WORKER: self.worker_model,
            Role.SCORER: self.scorer,
            Role.JUDGE: self.judge,
        }
        self._session = Session(models=models, folder=self.library, **given)

    async def __aenter__(self) -> Engine:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Free the models and the library. Safe to call twice."""
        await self._session.aclose()

    async def ask(
        self,
        question: str,
        paths: Paths = (),
        *,
        strategy: str | Strategy = DEFAULT_STRATEGY,
        on_event: Listener | None = None,
        **options: Unpack[AskOptions],
    ) -> Answer:
        """Answer a question over files and folders, or over the whole library if none are given.

        Files that cannot be read are left out and reported in `Answer.warnings`. A question that
        points back to the turns in `history` is completed first: `Answer.question` is the complete
        one.

        Raises:
            UsageError: an empty question, a strategy, model, path or document that does not exist.
            MissingCapability: the model cannot do what the strategy needs.
            BudgetExceeded: tokens or time are spent.
            ModelError, LibraryError: the models or the library failed.
        """
        consent, live = options.pop("consent", refuse), options.pop("live", False)
        history = options.pop("history", ())
        limits: Any = options
        asked = _Asked(question, paths, locate=not history, **limits)
        trace = self._trace(on_event)
        chosen = await self._make(strategy, trace)
        async with self._start(asked, chosen.name, chosen.needs, trace) as started:
            started.run.consent, started.run.live = consent, live
            if history:
                question = await complete_question(question, history, started.run)
                started.run.earlier = history[-1].cited
            answer: Answer = await chosen.answer(question, started.run)
        return replace(
            answer,
            strategy=chosen.name,
            usage=started.usage,
            warnings=started.merge_warnings(answer.warnings),
            model=started.models[Role.READER],
        )

    async def refine(
        self,
        question: str,
        paths: Paths = (),
        *,
        refiner: str | RefiningStrategy = DEFAULT_REFINER,
        budget: int | None = None,
        on_event: Listener | None = None,
        **limits: Unpack[Limits],
    ) -> Refined:
        """Return what a question needs of the documents, within a token budget; answer nothing.

        `refiner` is any strategy with `refine`, by name or as an object; `budget` replaces its own.
        Limits and errors are those of `ask`.
        """
        asked = _Asked(question, paths, **limits)
        trace = self._trace(on_event)
        chosen = await self._make(refiner, trace)
        if not isinstance(chosen, RefiningStrategy):
            raise UsageError(f"{chosen.name} does not refine", hint="longrefiner does")
        if budget is not None:
            chosen = replace(chosen, budget=budget)  # type: ignore[type-var]
        async with self._start(asked, "refining", chosen.needs, trace) as started:
            refined: Refined = await chosen.refine(question, started.run)
        warnings = started.merge_warnings(refined.warnings)
        return replace(refined, usage=started.usage, warnings=warnings)

    async def route(
        self,
        question: str,
        paths: Paths = (),
        *,
        strategy: str | RoutingStrategy = DEFAULT_ROUTER,
        on_event: Listener | None = None,
        **limits: Unpack[Limits],
    ) -> Routes:
        """Walk the documents' heading trees as RDR2 does before it reads; answer nothing.

        `strategy` is any strategy with `route`. Limits and errors are those of `ask`.
        """
        asked = _Asked(question, paths, **limits)
        trace = self._trace(on_event)
        chosen = await self._make(strategy, trace)
        if not isinstance(chosen, RoutingStrategy):
            raise UsageError(f"{chosen.name} does not route", hint="rdr2 does")
        async with self._start(asked, chosen.name, chosen.needs, trace) as started:
            routings = await chosen.route(question, started.run)
        router = started.models.get(Role.WORKER, started.models[Role.READER])
        return Routes(question, tuple(routings), started.usage, started.warnings, router)

    async def add(
        self,
        paths: Sequence[str | Path],
        *,
        index: bool = True,
        workers: int | str | None = None,
        prune: bool | Prune = False,
        on_event: Listener | None = None,
    ) -> Ingested:
        """Read files, folders and web addresses into the library; what is unchanged stays as it is.

        With `prune`, files of these folders that no longer exist are removed; a function decides
        for each folder.
        """
        trace = self._trace(on_event)
        return await self._session.add(paths, trace, index=index, workers=workers, prune=prune)

    async def open_library(self) -> AsyncLibrary:
        """Open the library. Its embedder is loaded at the first search or index."""
        return await self._session.open_library()

    def with_library(self, library: Path | str) -> Engine:
        """Return an engine over another library; the models stay this engine's to close."""
        other = replace(self, library=library)
        other._session = self._session.with_library(library)
        return other

    async def open_models(self, on_event: Listener | None = None) -> dict[str, str]:
        """Open the models now instead of at the first question; return their names by role.

        Raises:
            UnknownModel, ModelError: a model cannot be opened.
        """
        models = await self._session.open_models(self._trace(on_event))
        return {role.value: model.name for role, model in models.items()}

    async def list_search_models(self) -> dict[str, str]:
        """Return the names of embedder, reranker, reader and check; open nothing."""
        return await self._session.list_search_models()

    async def list_needs(self, kind: type[Strategy]) -> tuple[Need, ...]:
        """Open the models and return which needs of a strategy they meet, required ones first.

        Raises:
            UnknownModel, ModelError: a model cannot be opened.
        """
        return await self._session.list_needs(kind)

    async def _make(self, strategy: str | S, trace: Trace) -> S:
        """Make the strategy of a name; a strategy is returned as it is."""
        if not isinstance(strategy, str):
            return strategy
        kind: Any = load_strategy(strategy)
        made: S = configure(kind, await self._session.load_settings(), (), trace)
        return made

    @asynccontextmanager
    async def _start(
        self, asked: _Asked, name: str, needs: Needs, trace: Trace
    ) -> AsyncIterator[_Started]:
        """Open what the strategy `name` needs and bound the work inside by tokens and seconds."""
        if not asked.question.strip():
            raise UsageError("the question is empty", hint="write a question")
        session, meter, began = self._session, Meter(), time.perf_counter()
        try:
            async with record_spans(name, trace, meter), asyncio.timeout(asked.timeout) as deadline:
                # A wrong path must not cost a download.
                if asked.files and needs.reads:
                    await asyncio.to_thread(require_paths, asked.files)
                models, sources, located = await self._open(asked, name, needs, trace, meter)
                models = await session.with_cache(models, sources)
                reranker = None
                if needs.searches:
                    reranker = await session.open_reranker(models, default=needs.reranker)
                run = Run(
                    sources=sources,
                    models=models,
                    meter=meter,
                    trace=trace,
                    budget=Budget(asked.max_tokens_total),
                    reranker=reranker,
                    embedder=await session.open_library() if needs.searches else None,
                    store=await session.open_store(needs),
                    located=located,
                )
                if Role.READER in models:
                    model = models[Role.READER]
                    run.reader = await session.open_reader(model, trace)
                    run.check = await session.open_check(run.reader, model, trace)
                started = _Started(run, {role: model.name for role, model in models.items()})
                before = len(session.warnings)
                yield started
        except TimeoutError as error:
            if not deadline.expired():
                raise
            why = f"no answer within {asked.timeout:g} seconds"
            raise BudgetExceeded(why, "", "raise the time limit (--timeout)") from error
        started.usage = meter.report(seconds=time.perf_counter() - began)
        problems = (*run.warnings, *meter.warnings, *session.warnings[before:])
        started.warnings = tuple(dict.fromkeys(problems))

    async def _open(
        self, asked: _Asked, name: str, needs: Needs, trace: Trace, meter: Meter
    ) -> tuple[dict[Role, ChatModel], Sources, bool]:
        """Open the models and the documents at the same time.

        If the documents are open first, a person sees what a search for the question locates in
        them while the models are downloaded; the last value says so.
        """
        session, opened = self._session, asyncio.Event()
        models: dict[Role, ChatModel] = {}
        sources: Sources
        located = False

        async def open_models() -> None:
            models.update(await session.open_models_for(name, needs, trace))
            opened.set()

        async def open_sources() -> None:
            nonlocal sources, located
            # A wrong model fails at once as a rule, and must not cost an ingestion.
            with suppress(TimeoutError):
                await asyncio.wait_for(opened.wait(), _SECONDS_AHEAD)
            began = time.perf_counter()
            sources = await session.open_sources(
                asked.files, needs, trace, asked.documents, asked.where
            )
            meter.reading_seconds = time.perf_counter() - began
            if asked.locate and needs.searches and not opened.is_set():
                with suppress(ColligateError):  # the strategy's own search reports it
                    first = Run(sources, {}, Meter(), trace)
                    located = bool(await first.search(asked.question, k=SHOWN))

        await gather([open_models(), open_sources()])
        return models, sources, located

    def _trace(self, on_event: Listener | None) -> Trace:
        return Trace([listen for listen in (self.on_event, on_event) if listen], keep=False)


@dataclass(frozen=True)
class _Asked:
    """A question, what is read for it, and its limits.

    With `locate` a person sees what the question locates even if the models are not open then.
    """

    question: str
    paths: Paths
    documents: Sequence[str] | None = None
    where: Sequence[str] = ()
    max_tokens_total: int | None = None
    timeout: float | None = None
    locate: bool = True

    @property
    def files(self) -> Sequence[str | Path]:
        return [self.paths] if isinstance(self.paths, str | Path) else self.paths


@dataclass
class _Started:
    """A run under way, and what it cost once it has ended."""

    run: Run
    models: Mapping[Role, str]
    usage: UsageReport = field(default_factory=UsageReport)
    warnings: tuple[str, ...] = ()

    def merge_warnings(self, more: Sequence[str]) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.warnings, *more)))
