"""Asking: from a question and a folder to a cited answer.

`Engine` opens models and library once and answers many questions; `aask` and `ask` are one
question's worth of it.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn

from colligate.documents.reading import find_files
from colligate.errors import (
    BudgetExceeded,
    ColligateError,
    MissingCapability,
    NoDocuments,
    UsageError,
)
from colligate.library.given import Given
from colligate.library.ingestion import Ingested, Progress
from colligate.library.library import Library
from colligate.library.sources import Sources
from colligate.models import ChatModel, Embedder, Reranker, Role
from colligate.models.cached_chat import CachedChat
from colligate.models.metering import Meter
from colligate.models.names import (
    default_model,
    open_embedder,
    open_model,
    open_reranker,
    pull_embedder,
)
from colligate.models.response_cache import ResponseCache
from colligate.models.weights import OnProgress
from colligate.strategies.answer import Answer
from colligate.strategies.run import Budget, Run
from colligate.strategies.strategy import Strategy
from colligate.strategies.strategy import strategy as strategy_by_name
from colligate.strategies.trace import Listener, Noted, Progressed, Trace

DEFAULT_STRATEGY = "retrieve-read"


@dataclass
class Engine:
    """Models by role and a library, opened when first needed and closed together.

    Names are as on the command line; a model, embedder or reranker of your own may be given
    instead of a name, and stays yours to close. `library` is a folder; None is the user's own.
    `wait` is how many seconds to wait for another process that holds the library. `cache` keeps
    the models' responses in the library's folder, so that the same question over the same
    documents is paid for once.

        async with Engine(model="openai:gpt-5-mini") as engine:
            answer = await engine.ask("Who signed?", ["contracts/"])
    """

    model: str | ChatModel | None = None
    worker_model: str | ChatModel | None = None
    scorer: str | ChatModel | None = None
    embedder: str | Embedder = "minilm"
    reranker: str | Reranker | None = None
    library: Path | str | None = None
    wait: float = 30.0
    cache: bool = False
    on_event: Listener | None = None

    _opening: asyncio.Lock = field(default_factory=asyncio.Lock, init=False, repr=False)
    _stack: AsyncExitStack = field(default_factory=AsyncExitStack, init=False, repr=False)
    _models: dict[str, ChatModel] = field(default_factory=dict, init=False, repr=False)
    _library: Library | None = field(default=None, init=False, repr=False)
    _reranker: Reranker | None = field(default=None, init=False, repr=False)
    _responses: ResponseCache | None = field(default=None, init=False, repr=False)

    async def __aenter__(self) -> Engine:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Free the models and the library. Safe to call twice."""
        await self._stack.aclose()
        self._models.clear()
        self._library = self._reranker = self._responses = None

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
        paths, chosen = _listed(paths), _strategy(strategy)
        trace = Trace([listen for listen in (self.on_event, on_event) if listen])
        meter = Meter()
        began = time.perf_counter()
        try:
            async with asyncio.timeout(timeout) as deadline:
                # A wrong path must not cost a download, nor a wrong model an ingestion.
                if paths and chosen.needs.reads:
                    await asyncio.to_thread(_look_for, paths)
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
            self._library = Library(self.library, embedder=self.embedder, wait=self.wait)
            self._stack.push_async_callback(self._library.close)
        return self._library

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
            await library.index_pending(on_progress=_ingestion_listener(trace))
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
        ingested = await library.add(
            paths, index=index, workers=workers, on_progress=_ingestion_listener(trace)
        )
        errors = [*ingested.problems, *(error for _, error in ingested.failed)]
        if not ingested.document_ids:
            _nothing_read(errors)
        for error in errors:
            trace.emit(Noted(f"left out: {error}", warning=True))
        for warning in ingested.warnings:
            trace.emit(Noted(warning, warning=True))
        return ingested

    async def _open_models(self, chosen: Strategy, trace: Trace) -> dict[Role, ChatModel]:
        if self.model is None:
            # It may ask a server which models it has.
            name, why = await asyncio.to_thread(default_model)
            trace.emit(Noted(f"model: {name} ({why})"))
            reading = await self._open_model(name, trace)
        else:
            reading = await self._open_model(self.model, trace)
        models = {Role.READER: reading}
        for role, other in ((Role.WORKER, self.worker_model), (Role.SCORER, self.scorer)):
            if other is not None:
                models[role] = await self._open_model(other, trace)
        offered = {capability for model in models.values() for capability in model.capabilities}
        reader = models[Role.READER].name
        for capability in sorted(chosen.needs.required - offered):
            raise MissingCapability(
                f"{chosen.name} needs {capability.value}",
                f"{reader} does not offer it",
                "colligate strategies shows what each needs",
            )
        for capability in sorted(chosen.needs.optional - offered):
            note = f"done without {capability.value}, which {reader} does not offer"
            trace.emit(Noted(note, warning=True))
        return models

    async def _open_model(self, given: str | ChatModel, trace: Trace) -> ChatModel:
        if not isinstance(given, str):
            return given
        async with self._opening:  # of questions asked at once, one opens it for all
            if given not in self._models:
                listen = _pull_listener(trace)
                model = await asyncio.to_thread(open_model, given, on_progress=listen)
                self._stack.push_async_callback(model.aclose)
                self._models[given] = model
            return self._models[given]

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

    async def _open_reranker(self, models: dict[Role, ChatModel]) -> Reranker | None:
        if self.reranker is None or self.reranker == "none":
            return None
        if not isinstance(self.reranker, str):
            return self.reranker
        async with self._opening:
            if self._reranker is None:
                embedder = await self._open_embedder() if self.reranker == "embedding" else None
                scorer = models.get(Role.SCORER, models[Role.READER])
                self._reranker = await asyncio.to_thread(
                    open_reranker, self.reranker, embedder=embedder, scorer=scorer
                )
                self._stack.push_async_callback(self._reranker.aclose)
            return self._reranker

    async def _pull_embedder(self, trace: Trace) -> None:
        """Fetch missing weights here, where the progress can be shown."""
        if isinstance(self.embedder, str):
            listen = _pull_listener(trace)
            await asyncio.to_thread(pull_embedder, self.embedder, on_progress=listen)

    async def _open_embedder(self) -> Embedder:
        if not isinstance(self.embedder, str):
            return self.embedder
        embedder = await asyncio.to_thread(open_embedder, self.embedder)
        self._stack.push_async_callback(embedder.aclose)
        return embedder


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


def _look_for(paths: Sequence[str | Path]) -> None:
    """Raise what is wrong with paths of which none is there; ingestion finds out the rest."""
    if not any(os.path.lexists(path) for path in paths):
        found = find_files(paths)
        if not found.files:
            _nothing_read(found.problems)


def _nothing_read(errors: Sequence[ColligateError]) -> NoReturn:
    if len(errors) == 1:
        raise errors[0]  # best said in its own words
    raise NoDocuments(
        "nothing could be read",
        "; ".join(str(error) for error in errors[:3]),
        f"{len(errors) - 3} more failed" if len(errors) > 3 else "",
    )


def _listed(paths: Sequence[str | Path] | str | Path) -> Sequence[str | Path]:
    return [paths] if isinstance(paths, (str, Path)) else paths


def _strategy(given: str | Strategy) -> Strategy:
    return strategy_by_name(given) if isinstance(given, str) else given


def _ingestion_listener(trace: Trace) -> Callable[[Progress], None]:
    def listen(progress: Progress) -> None:
        trace.emit(Progressed(progress.phase, progress.done, progress.total, progress.file))

    return listen


def _pull_listener(trace: Trace) -> OnProgress:
    def listen(done_bytes: int, total_bytes: int, what: str) -> None:
        trace.emit(Progressed("pulling", done_bytes, total_bytes, what))

    return listen
