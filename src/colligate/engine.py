"""Asking: from a question and a folder to a cited answer.

`Engine` opens models and library once and answers many questions; `aask` and `ask` are one
question's worth of it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from colligate.errors import BudgetExceeded, NoDocuments, UsageError
from colligate.ingesting import ingest, ingestion_listener, look_for
from colligate.library.given import Given
from colligate.library.ingestion import Ingested
from colligate.library.library import Library
from colligate.library.sources import Sources
from colligate.models import Capability, ChatModel, Embedder, Reranker, Role
from colligate.models.cached_chat import CachedChat
from colligate.models.metering import Meter
from colligate.models.names import pull_embedder
from colligate.models.response_cache import ResponseCache
from colligate.opening import Opened, meet, pull_listener, say_named
from colligate.settings import Named, Settings
from colligate.strategies.answer import Answer
from colligate.strategies.run import Budget, Run
from colligate.strategies.strategy import Strategy
from colligate.strategies.strategy import strategy as strategy_by_name
from colligate.strategies.trace import Listener, Noted, Trace

DEFAULT_STRATEGY = "retrieve-read"
DEFAULT_EMBEDDER = Named("minilm")


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

    _stack: AsyncExitStack = field(default_factory=AsyncExitStack, init=False, repr=False)
    _opened: Opened = field(default_factory=Opened, init=False, repr=False)
    _chosen: Settings | None = field(default=None, init=False, repr=False)
    _library: Library | None = field(default=None, init=False, repr=False)
    _responses: ResponseCache | None = field(default=None, init=False, repr=False)

    async def __aenter__(self) -> Engine:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Free the models and the library. Safe to call twice."""
        try:
            await self._stack.aclose()
        finally:
            await self._opened.aclose()
        self._library = self._responses = None

    async def ask(
        self,
        question: str,
        paths: Sequence[str | Path] | str | Path = (),
        *,
        strategy: str | Strategy = DEFAULT_STRATEGY,
        max_tokens_total: int | None = None,
        timeout: float | None = None,
        on_event: Listener | None = None,
    ) -> Answer:
        """Answer a question over files and folders, or over the whole library if none are given.

        Files that cannot be read are left out and said in `Answer.warnings`; the others are
        answered over. `max_tokens_total` bounds input and output tokens of all calls together,
        `timeout` the seconds of the whole run.

        Raises:
            UsageError: an empty question, a strategy, model or path that does not exist.
            MissingCapability: the model cannot do what the strategy needs.
            BudgetExceeded: tokens or time are spent.
            ModelError, LibraryError: what the models or the library could not do.
        """
        if not question.strip():
            raise UsageError("the question is empty", mend="write a question")
        paths = [paths] if isinstance(paths, str | Path) else paths
        chosen = strategy_by_name(strategy) if isinstance(strategy, str) else strategy
        trace = Trace([listen for listen in (self.on_event, on_event) if listen])
        meter = Meter()
        began = time.perf_counter()
        try:
            async with asyncio.timeout(timeout) as deadline:
                # A wrong path must not cost a download, nor a wrong model an ingestion.
                if paths and chosen.needs.reads:
                    await asyncio.to_thread(look_for, paths)
                models = await self._open_models(chosen, trace)
                sources = await self._sources(paths, chosen, trace)
                if self.cache:
                    models = await self._cached(models, sources)
                run = Run(
                    sources=sources,
                    models=models,
                    meter=meter,
                    trace=trace,
                    budget=Budget(max_tokens_total),
                    reranker=await self._open_reranker(models) if chosen.needs.searches else None,
                )
                answer = await chosen.answer(question, run)
        except TimeoutError as error:
            if not deadline.expired():
                raise
            raise BudgetExceeded(
                f"no answer within {timeout:g} seconds", "", "raise --timeout"
            ) from error
        usage = meter.report(seconds=time.perf_counter() - began)
        warnings = tuple(dict.fromkeys((*run.warnings, *meter.warnings, *answer.warnings)))
        reader = models[Role.READER].name
        return replace(answer, usage=usage, warnings=warnings, model=reader)

    async def add(
        self,
        paths: Sequence[str | Path],
        *,
        index: bool = True,
        workers: int | None = None,
        on_event: Listener | None = None,
    ) -> Ingested:
        """Read files and folders into the library; unchanged files are left as they are."""
        trace = Trace([listen for listen in (self.on_event, on_event) if listen])
        return await self._add(paths, trace, index=index, workers=workers)

    async def open_library(self) -> Library:
        """The library, opened. Its embedder is loaded when something is searched or indexed."""
        if self._library is None:
            settings = await self._settings()
            embedder = self._embedder(settings)
            if isinstance(embedder, Named) and not embedder.with_key:
                embedder = await self._opened.embedder(embedder)
            # A library opens an embedder by name itself, with the key.
            by_name = embedder.name if isinstance(embedder, Named) else embedder
            folder = settings.library.name if settings.library else None
            if self._library is None:  # still: of calls made at once, one opens it for all
                self._library = Library(folder, embedder=by_name, wait=self.wait)
                self._stack.push_async_callback(self._library.close)
        return self._library

    async def _settings(self) -> Settings:
        """What was named: here, else by the environment or a file."""
        if self._chosen is None:
            loaded = self.settings
            if loaded is None:
                loaded = await asyncio.to_thread(Settings.load)
            self._chosen = loaded.given(
                **{role.value: given for role, given in self._given().items()},
                embedder=self.embedder,
                reranker=self.reranker,
                library=None if self.library is None else str(self.library),
            )
        return self._chosen

    def _embedder(self, settings: Settings) -> Embedder | Named:
        """The embedder given, else the one named."""
        if isinstance(self.embedder, str | None):
            return settings.embedder or DEFAULT_EMBEDDER
        return self.embedder

    def _given(self) -> dict[Role, str | ChatModel | None]:
        return {
            Role.READER: self.model,
            Role.WORKER: self.worker_model,
            Role.SCORER: self.scorer,
            Role.JUDGE: self.judge,
        }

    async def _sources(
        self, paths: Sequence[str | Path], chosen: Strategy, trace: Trace
    ) -> Sources:
        """The documents in view: those of the paths, or the whole library without paths."""
        if not chosen.needs.reads:
            return Given(())
        library = await self.open_library()
        if paths:
            ingested = await self._add(paths, trace, index=chosen.needs.searches)
            return library.view(ingested.document_ids)
        if not await library.documents():
            raise NoDocuments(
                "there is nothing to ask",
                f"the library {library.path} is empty",
                "name files or folders after the question",
            )
        if chosen.needs.searches:
            await self._pull_embedder(trace)
            await library.index_pending(on_progress=ingestion_listener(trace))
        return library

    async def _add(
        self,
        paths: Sequence[str | Path],
        trace: Trace,
        *,
        index: bool,
        workers: int | None = None,
    ) -> Ingested:
        library = await self.open_library()
        if index:
            await self._pull_embedder(trace)
        return await ingest(library, paths, trace, index=index, workers=workers)

    async def _open_models(self, chosen: Strategy, trace: Trace) -> dict[Role, ChatModel]:
        settings = await self._settings()
        if settings.library is not None and chosen.needs.reads:
            say_named("library", settings.library, trace)
        models = await self._opened.by_role(self._given(), settings, trace)
        reranker = settings.reranker if chosen.needs.searches else None
        also = frozenset[Capability]()
        if reranker is not None and isinstance(self.reranker, str | None):
            say_named("reranker", reranker, trace)
            if reranker.name == "likelihood":
                also = frozenset({Capability.LIKELIHOOD})
        for line in await meet(chosen.name, chosen.needs, models, self._opened, also=also):
            trace.emit(Noted(line, warning=True))
        return models

    async def _cached(
        self, models: Mapping[Role, ChatModel], sources: Sources
    ) -> dict[Role, ChatModel]:
        """The same models, with a memory in the library's folder."""
        if self._responses is None:
            self._responses = ResponseCache((await self.open_library()).responses)
            self._stack.callback(self._responses.close)
        in_view = [info.id for info in await sources.documents()]
        return {
            role: CachedChat(model, self._responses, tags=in_view) for role, model in models.items()
        }

    async def _open_reranker(self, models: Mapping[Role, ChatModel]) -> Reranker | None:
        if not isinstance(self.reranker, str | None):
            return self.reranker
        settings = await self._settings()
        if settings.reranker is None or settings.reranker.name == "none":
            return None
        scorer = models.get(Role.SCORER, models[Role.READER])
        return await self._opened.reranker(settings.reranker, self._embedder(settings), scorer)

    async def _pull_embedder(self, trace: Trace) -> None:
        """Fetch missing weights here, where the progress can be shown."""
        named = self._embedder(await self._settings())
        if isinstance(named, Named):
            say_named("embedder", named, trace)
            listen = pull_listener(trace)
            await asyncio.to_thread(pull_embedder, named.name, on_progress=listen)


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
