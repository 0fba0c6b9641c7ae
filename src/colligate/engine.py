"""Asking: from a question and a folder to a cited answer.

`Engine` opens models and library once and answers many questions; `sync.ask` answers one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, Unpack

from pydantic import BaseModel

from colligate.concurrency import gather
from colligate.core.answer import Answer, Refined
from colligate.core.events import Listener, Noted, Trace
from colligate.core.parameters import set_parameters
from colligate.core.run import Consent, Retriever, Run, parse_risk, refuse
from colligate.core.strategy import Needs, Strategy, load_strategy, needs_of
from colligate.core.telemetry import record_spans
from colligate.documents.languages import guess_languages
from colligate.errors import BudgetExceeded, UnknownDocument, UsageError
from colligate.library.sources import SearchMode, Sources
from colligate.models import ChatModel, Role
from colligate.models.metering import Meter
from colligate.readers.filling import Shape, fill
from colligate.readers.followup import LONG_MESSAGE, Turn, complete_question, find_question
from colligate.readers.promise import keep_promise
from colligate.reporting import note_name, require_paths
from colligate.session import Session
from colligate.table.book import Book
from colligate.table.columns import Layout, parse_layout
from colligate.table.files import Table
from colligate.table.filler import TableFiller

if TYPE_CHECKING:
    from colligate.strategies.longrefiner import LongRefiner

DEFAULT_STRATEGY = "auto"
DEFAULT_REFINER = "longrefiner"

S = TypeVar("S")
R = TypeVar("R", Answer, Refined, Table)
Paths = Sequence[str | Path] | str | Path

_SECONDS_AHEAD = 0.5  # that models have to be opened before documents are read


class Limits(TypedDict, total=False):
    """What a run reads and takes.

    `documents` are ids of the library's documents to read instead of paths; `where` are conditions
    that documents must meet, such as "date>=2024" (`Condition`). `max_tokens_total` bounds input
    and output tokens of all calls together, `timeout` the seconds of the whole run. `parameters`
    are those of a strategy that is named, such as "k=3". `retriever` replaces the engine's.
    """

    documents: Sequence[str] | None
    where: Sequence[str]
    max_tokens_total: int | None
    timeout: float | None
    parameters: Sequence[str]
    retriever: str | Retriever | None


class AskOptions(Limits, total=False):
    """How a question is answered.

    `consent` is asked before work that takes many calls; by default it is not done. `history` are
    the turns of a conversation so far, oldest first (`Turn.of(answer)`). With `live` the models
    stream, and `on_event` hears what they have written so far. `risk` is the share of the
    answers given that may be wrong: a number above 0 and below 1, or "careful" (0.1), "balanced"
    (0.2) or "eager" (0.4). By default it is that of the settings, else the reader's own. `schema`,
    a JSON Schema or a Pydantic model, is the shape of the answer: `Answer.filled` and `values`.
    """

    consent: Consent
    history: Sequence[Turn]
    live: bool
    risk: float | str | None
    schema: Mapping[str, Any] | type[BaseModel] | None


@dataclass
class Engine(Session):
    """Models by role and a library, opened when first needed and closed together.

    Names are as on the command line. Instead of a name you can give a model, embedder, reranker,
    retriever, reader or check of your own, which the engine does not close. `library` is a folder
    or "s3://BUCKET/NAME"; with `folders` only the documents of files in them are in view, and
    nothing is changed. What is None is taken from the environment (COLLIGATE_MODEL and so on),
    then from a `colligate.toml`, then by default. `settings` replaces environment and file:
    `Settings.load(path)` reads another file, `Settings()` names nothing.

    `ocr` reads scanned PDFs and pictures, in English if the settings name no other languages. `pdf`
    names what reads PDFs: "liteparse", or the program "docling". `chunker` names what cuts the
    documents of a new library into passages: "structural", "words:100" or "tokens:1000/250".

        async with Engine(model="openai:gpt-5-mini") as engine:
            answer = await engine.ask("Who signed?", ["contracts/"])
    """

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
        points back to the turns in `history` is completed first, and one with a long text before it
        is found in it: `Answer.question` is the question that was answered.

        Raises:
            UsageError: an empty question, a strategy, model, path or document that does not exist,
                a risk that is not between 0 and 1, a schema that cannot be filled.
            MissingCapability: the model cannot do what the strategy needs.
            BudgetExceeded: tokens or time are spent.
            ModelError, LibraryError: the models or the library failed.
        """
        consent, live = options.pop("consent", refuse), options.pop("live", False)
        history, risk = options.pop("history", ()), options.pop("risk", None)
        schema = options.pop("schema", None)
        shape = None if schema is None else Shape(schema)
        limits: Any = options
        asked, trace = _Asked(question, paths, **limits), self.make_trace(on_event)
        if risk is None and self.named.risk is not None:
            note_name("risk", self.named.risk, trace)
            risk = self.named.risk.name
        share = parse_risk(risk)
        chosen = _make(strategy, asked)
        async with self._start(asked, chosen, trace) as run:
            run.consent, run.live, run.risk = consent, live, share
            if len(question) > LONG_MESSAGE:
                question = await find_question(question, run)
            if history:
                question = await complete_question(question, history, run)
                run.earlier = history[-1].cited
            answer: Answer = await chosen.answer(question, run)
            if shape is not None:
                answer = await fill(question, shape, answer, run)
            answer = keep_promise(answer, run)
        model, check = run.model(Role.READER).name, "" if run.check is None else run.check.name
        return _finish(replace(answer, strategy=chosen.name, model=model, check=check), run)

    async def prove(self, answer: Answer) -> dict[str, Any]:
        """Return an answer's citations as W3C Web Annotations, which `colligate audit` verifies.

        A document that is not in the library has no digest there.
        """
        from colligate.proof import Source, make_proof  # opens PDFs: a tenth of a second to import

        library, sources = await self.open_library(), dict[str, Source]()
        for name in {each.span.document_id for each in answer.citations}:
            with suppress(UnknownDocument):
                document, files = await library.document(name), await library.files(name)
                sources[name] = Source(document, files[0] if files else None)
        return await asyncio.to_thread(make_proof, answer, sources)

    async def refine(
        self,
        question: str,
        paths: Paths = (),
        *,
        refiner: str | LongRefiner = DEFAULT_REFINER,
        budget: int | None = None,
        on_event: Listener | None = None,
        **limits: Unpack[Limits],
    ) -> Refined:
        """Return what a question needs of the documents, within a token budget; answer nothing.

        `budget` replaces the refiner's own. Limits and errors are those of `ask`.
        """
        asked, trace = _Asked(question, paths, **limits), self.make_trace(on_event)
        chosen = _make(refiner, asked)
        if not hasattr(chosen, "refine"):
            raise UsageError(f"{chosen.name} does not refine", hint="longrefiner does")
        if budget is not None:
            chosen = replace(chosen, budget=budget)
        async with self._start(asked, chosen, trace) as run:
            refined: Refined = await chosen.refine(question, run)
        return _finish(refined, run)

    async def table(
        self,
        columns: str | Layout,
        paths: Paths = (),
        *,
        book: Book | None = None,
        on_event: Listener | None = None,
        **limits: Unpack[Limits],
    ) -> Table:
        """Return a table: a row for each document, each cell cited, or empty with the reason.

        `columns` are as `colligate table` takes them. `book` keeps what is finished, and has what
        is not filled again. What a document lacks, or could not be read, is said in its cells.
        Limits and errors are those of `ask`; a spent token budget is said in the cells too.
        """
        layout = parse_layout(columns) if isinstance(columns, str) else columns
        async with self._start_table(layout, paths, on_event, limits) as (filler, run):
            rows = await filler.fill(layout, book or Book(), run)
        name = run.model(Role.READER).name
        return _finish(Table(layout, tuple(rows), model=name), run)

    async def estimate_table(
        self,
        columns: str | Layout,
        paths: Paths = (),
        *,
        book: Book | None = None,
        on_event: Listener | None = None,
        **limits: Unpack[Limits],
    ) -> tuple[int, int, int]:
        """Return about how many documents are to read for a table, the calls and the tokens."""
        layout = parse_layout(columns) if isinstance(columns, str) else columns
        async with self._start_table(layout, paths, on_event, limits) as (filler, run):
            return await filler.estimate(layout, book or Book(), run)

    @asynccontextmanager
    async def _start_table(
        self, layout: Layout, paths: Paths, on_event: Listener | None, limits: Limits
    ) -> AsyncIterator[tuple[TableFiller, Run]]:
        asked = _Asked("; ".join(each.label for each in layout.columns), paths, **limits)
        filler = set_parameters(TableFiller, asked.parameters)
        async with self._start(asked, filler, self.make_trace(on_event)) as run:
            run.foreign = ""  # a few words tell no language
            yield filler, run

    @asynccontextmanager
    async def _start(self, asked: _Asked, chosen: Any, trace: Trace) -> AsyncIterator[Run]:
        """Open what a strategy needs and bound the work inside by tokens and seconds."""
        if not asked.question.strip():
            raise UsageError("the question is empty", hint="write a question")
        needs: Needs = chosen.needs
        name: str = getattr(chosen, "name", "refining")
        meter = Meter()
        try:
            async with record_spans(name, trace, meter), asyncio.timeout(asked.timeout) as deadline:
                # A wrong path must not cost a download.
                if asked.files and needs.reads:
                    await asyncio.to_thread(require_paths, asked.files)
                retriever, needs = await self._choose_retriever(asked, name, needs, trace)
                guessed = asyncio.to_thread(guess_languages, asked.question)  # slow at first
                opening = self._open_both(asked, name, needs, trace, meter)
                both: list[Any] = await gather([opening, guessed])
                (models, sources), shares = both
                finder = getattr(retriever, "name", "")
                for line in await self.check_models(finder, needs_of(retriever), models):
                    trace.emit(Noted(line, warning=True))
                reranker = None
                if needs.searches:
                    reranker = await self.open_reranker(default=needs.reranker)
                reader = await self.open_reader(models[Role.READER], trace)
                run = Run(
                    sources=sources,
                    models=models,
                    meter=meter,
                    trace=trace,
                    max_tokens=asked.max_tokens_total,
                    reranker=reranker,
                    retriever=retriever,
                    reader=reader,
                    check=await self.open_check(reader, models[Role.READER], trace),
                    embedder=await self.open_library() if needs.searches else None,
                    store=await self.open_store(needs),
                )
                await run.find_foreign(shares)
                before = len(self.warnings)
                yield run
        except TimeoutError as error:
            if not deadline.expired():
                raise
            why = f"no answer within {asked.timeout:g} seconds"
            raise BudgetExceeded(why, "", "raise the time limit (--timeout)") from error
        for warning in (*meter.warnings, *self.warnings[before:]):
            run.warn(warning)

    async def _choose_retriever(
        self, asked: _Asked, strategy: str, needs: Needs, trace: Trace
    ) -> tuple[Retriever | SearchMode | None, Needs]:
        """Return the retriever, and what is left to open: one from outside reads no documents."""
        if not needs.searches:
            if asked.retriever is not None:
                trace.emit(Noted(f"{strategy} does not search: no retriever is used", warning=True))
            return None, needs
        retriever = await self.open_retriever(asked.retriever, trace)
        if not getattr(retriever, "outside", False):
            return retriever, needs
        if asked.files or asked.documents is not None or asked.where or self.folders:
            what = "the retriever searches a corpus of its own, and not only some documents"
            raise UsageError(what, hint="name another retriever, or no documents")
        return retriever, replace(needs, reads=False)

    async def _open_both(
        self, asked: _Asked, name: str, needs: Needs, trace: Trace, meter: Meter
    ) -> tuple[dict[Role, ChatModel], Sources]:
        """Open the models and the documents at the same time."""
        opening = asyncio.create_task(self.open_models_for(name, needs, trace))

        async def open_models() -> dict[Role, ChatModel]:
            return await opening

        async def read() -> Sources:
            # A wrong model fails at once as a rule, and must not cost a download or an ingestion.
            await asyncio.wait([opening], timeout=_SECONDS_AHEAD)
            if opening.done():
                opening.result()
            began = time.perf_counter()
            sources = await self.open_sources(
                asked.files, needs, trace, asked.documents, asked.where
            )
            meter.reading_seconds = time.perf_counter() - began
            return sources

        opened: list[Any] = await gather([open_models(), read()])
        models, sources = opened
        return models, sources


@dataclass(frozen=True)
class _Asked:
    """A question, what is read for it, and its limits."""

    question: str
    paths: Paths
    documents: Sequence[str] | None = None
    where: Sequence[str] = ()
    max_tokens_total: int | None = None
    timeout: float | None = None
    parameters: Sequence[str] = ()
    retriever: str | Retriever | None = None

    @property
    def files(self) -> Sequence[str | Path]:
        return [self.paths] if isinstance(self.paths, str | Path) else self.paths


def _make(strategy: str | S, asked: _Asked) -> S:
    """Make the strategy of a name; a strategy is returned as it is."""
    if not isinstance(strategy, str):
        return strategy
    kind: Any = load_strategy(strategy)
    made: S = set_parameters(kind, asked.parameters)
    return made


def _finish(result: R, run: Run) -> R:
    """Return a result with what the run cost, and the warnings of both, each once."""
    usage = run.meter.report(seconds=run.trace.seconds)
    warnings = tuple(dict.fromkeys((*run.warnings, *result.warnings)))
    return replace(result, usage=usage, warnings=warnings)
