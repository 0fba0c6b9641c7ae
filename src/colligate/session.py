"""A session: models by role, an embedder, a reranker, a check and a library.

Each is opened when it is first needed, shared by all that ask for it, and closed with the session.
The engine, the bench, training and the command line open models only here.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Protocol, Self, TypeVar, cast, runtime_checkable

from colligate.concurrency import Slots
from colligate.core.events import Listener, Noted, Trace
from colligate.core.run import Check, Reader, Retriever
from colligate.core.strategy import SCORING, Need, Needs, Strategy, check_needs
from colligate.errors import (
    ColligateError,
    EndpointUnreachable,
    MissingCapability,
    NoDocuments,
    UsageError,
)
from colligate.library.in_memory import InMemorySources
from colligate.library.index import OWN_EMBEDDERS
from colligate.library.ingest import Ingested
from colligate.library.library import AsyncLibrary, Prune
from colligate.library.search import View
from colligate.library.sources import SearchMode, Sources, parse_conditions, select_documents
from colligate.models import AdapterModel, Capability, ChatModel, Embedder, Reranker, Role
from colligate.models.advice import find_machine, suggest
from colligate.models.cache import KeyValueStore, MemoryStore, ResponseCache
from colligate.models.names import (
    default_model,
    open_embedder,
    open_head,
    open_model,
    open_reranker,
    pull_embedder,
    split_adapter,
)
from colligate.models.weights import BUNDLED, OnProgress, find_weights
from colligate.readers import make_reader
from colligate.readers.checks import ModelCheck, OddsCheck, PairCheck
from colligate.reporting import ingest, note_name, report_ingestion, report_pull
from colligate.retrievers import HTTP, make_retriever
from colligate.settings import Named, Settings


class _Closable(Protocol):
    async def aclose(self) -> None: ...


M = TypeVar("M", bound=_Closable)
_Key = tuple[str, str, bool]  # a kind, a name, and whether it gets the key from the environment

DEFAULT_EMBEDDER = Named("minilm")
ENGLISH_EMBEDDERS = frozenset({"minilm", "static"})

PROBED = frozenset({Capability.LIKELIHOOD, Capability.LABELS})
"""Capabilities that only a model's server knows, which is asked when they matter."""

_FIELDS = {
    Role.READER.value: "model",
    Role.WORKER.value: "worker_model",
    Role.SCORER.value: "scorer",
    Role.JUDGE.value: "judge",
    "embedder": "embedder",
    "reranker": "reranker",
    "reading": "reader",
    "retriever": "retriever",
    "check": "check",
    "library": "library",
    "pdf": "pdf",
    "chunker": "chunker",
}
"""The field of a session that comes before each name of the settings."""

ROLE_NAMES = {role: role.value for role in Role} | {Role.READER: "model"}
FLAGS = {
    Role.READER: "--model",
    Role.WORKER: "--worker-model",
    Role.SCORER: "--scorer",
    Role.JUDGE: "--judge",
}
"""The options of the command line that name the models of the roles."""

_SECONDS_TO_PROBE = 20.0


@runtime_checkable
class Probed(Protocol):
    """A model some of whose capabilities only its server knows."""

    async def probe(self) -> frozenset[Capability]:
        """Ask the server; afterwards `capabilities` says what it offers."""


@dataclass
class Session:
    """What a question needs, by name or as objects; `Engine` documents the fields.

    What is None is taken from `settings`, or from the environment and `colligate.toml` if there are
    none. Whoever gives an object closes it.
    """

    model: str | ChatModel | None = None
    worker_model: str | ChatModel | None = None
    scorer: str | ChatModel | None = None
    judge: str | ChatModel | None = None
    embedder: str | Embedder | None = None
    reranker: str | Reranker | None = None
    reader: str | Reader | None = None
    check: str | Check | None = None
    retriever: str | Retriever | None = None
    library: Path | str | None = None
    settings: Settings | None = None
    ocr: bool = False
    pdf: str | None = None
    chunker: str | None = None
    on_event: Listener | None = None
    folders: Sequence[Path | str] = ()

    _stack: AsyncExitStack = field(default_factory=AsyncExitStack, init=False, repr=False)
    _open: _OpenModels = field(default_factory=lambda: _OpenModels(), init=False, repr=False)
    _borrows: bool = field(default=False, init=False, repr=False)
    _library: AsyncLibrary | None = field(default=None, init=False, repr=False)
    _responses: ResponseCache | None = field(default=None, init=False, repr=False)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the library and the models. Safe to call twice."""
        try:
            await self._stack.aclose()
        finally:
            if not self._borrows:
                await self._open.aclose()
        self._library = self._responses = None

    def with_library(self, library: Path | str) -> Self:
        """Return the same over another library; the models stay this one's to close."""
        return self._share(library=library)

    def within(self, folders: Sequence[Path | str]) -> Self:
        """Return the same over documents of these folders alone; none stands for all."""
        return self._share(folders=folders)

    def _share(self, **changes: Any) -> Self:
        other = replace(self, **changes)
        other._open, other._borrows = self._open, True
        return other

    @property
    def warnings(self) -> Sequence[str]:
        """Problems so far with the file that holds what strategies keep."""
        return () if self._responses is None else self._responses.warnings

    @cached_property
    def named(self) -> Settings:
        """The settings, with what was given here in place of environment and file."""
        given = {what: getattr(self, name) for what, name in _FIELDS.items()}
        if isinstance(self.library, Path):
            given["library"] = str(self.library)
        return (self.settings or Settings.load()).override(**given)

    def _choose(self, what: str) -> Any:
        """Return what was given as an object, else what the settings name: a `Named` or None."""
        given = getattr(self, _FIELDS[what])
        return getattr(self.named, what) if isinstance(given, str | None) else given

    def make_trace(self, on_event: Listener | None = None) -> Trace:
        """Return a trace that keeps notes alone and passes all events on."""
        return Trace([listen for listen in (self.on_event, on_event) if listen], keep=False)

    async def open_models(
        self, trace: Trace | None = None, roles: Collection[Role] = tuple(Role)
    ) -> dict[Role, ChatModel]:
        """Open the model of each role that has one of its own; the reader always has.

        UnknownModel or ModelError if a model cannot be opened.
        """
        trace = trace or self.make_trace()
        models: dict[Role, ChatModel] = {}
        for role in roles:
            chosen = self._choose(role.value)
            if chosen is None and role is Role.READER:
                chosen = Named(*default_model())
                await _suggest(chosen, trace)
            if isinstance(chosen, Named):
                note_name(ROLE_NAMES[role], chosen, trace)
                chosen = await self.open_model(chosen, report_pull(trace))
            if chosen is not None:
                models[role] = chosen
        return models

    async def open_model(self, named: Named, on_progress: OnProgress | None = None) -> ChatModel:
        """Open the model of a name, once for all who ask; an adapter shares its base."""
        key = ("model", named.name, named.with_key)
        base, adapter = split_adapter(named.name)
        if adapter is not None:
            under = await self.open_model(Named(base), on_progress)
            if not isinstance(under, AdapterModel):
                raise MissingCapability(f"{base} takes no adapter", f"{adapter} cannot be used")
            return await self._open.open(key, partial(under.with_adapter, adapter))
        options = self.named.options_of(named.name)
        return await self._open.open_in_thread(
            key, open_model, on_progress=on_progress, options=options
        )

    async def open_models_for(self, name: str, needs: Needs, trace: Trace) -> dict[Role, ChatModel]:
        """Open the models by role and check them against the needs of the strategy `name`."""
        if self.named.library is not None and needs.reads:
            note_name("library", self.named.library, trace)
        models = await self.open_models(trace)
        reranker = self._choose("reranker")
        if needs.searches and isinstance(reranker, Named):
            note_name("reranker", reranker, trace)
        for line in await self.check_models(name, needs, models):
            trace.emit(Noted(line, warning=True))
        return models

    async def check_models(
        self, strategy: str, needs: Needs, models: Mapping[Role, ChatModel]
    ) -> list[str]:
        """Return a line for each optional need that is not met; a required one is an error.

        A server is asked what it offers only if that can matter to this strategy.
        """
        scorer = models.get(Role.SCORER, models[Role.READER])
        unanswered = ""
        if (needs.required | needs.optional) & self.find_unprobed(scorer):
            try:
                await self.probe(scorer)
            except ColligateError as error:
                if needs.required & PROBED:
                    raise
                unanswered = f" ({error})"
        missing = []
        offered = {role: model.capabilities for role, model in models.items()}
        for need in check_needs(needs, offered):
            if need.met:
                continue
            model, what = models[need.role], need.capability.value
            why = f"the {need.role.value} {model.name} does not offer it"
            if need.required:
                flag = "--scorer" if need.capability in SCORING else FLAGS[need.role]
                hint = f"name a {flag} that does; colligate strategies shows what each needs"
                raise MissingCapability(f"{strategy} needs {what}", why, hint)
            asked = unanswered if model is scorer else ""
            missing.append(f"{what} is not used, because {why}{asked}")
        return missing

    async def list_needs(self, kind: type[Strategy]) -> tuple[Need, ...]:
        """Open the models and return which needs of a strategy they meet, required ones first."""
        models = await self.open_models()
        offered = {role: model.capabilities for role, model in models.items()}
        unsure = {role: self.find_unprobed(model) for role, model in models.items()}
        return check_needs(kind.needs, offered, unsure)

    def find_unprobed(self, model: ChatModel) -> frozenset[Capability]:
        """Return what a model may turn out to offer when its server is asked."""
        if not isinstance(model, Probed) or any(model is each for each in self._open.probed):
            return frozenset()
        return PROBED - model.capabilities

    async def probe(self, model: ChatModel) -> None:
        """Ask a model's server what it offers, if it has one that was not asked before."""
        if not isinstance(model, Probed) or any(model is each for each in self._open.probed):
            return
        try:
            await asyncio.wait_for(model.probe(), _SECONDS_TO_PROBE)
        except TimeoutError:
            why = f"no answer within {_SECONDS_TO_PROBE:g} seconds"
            what = f"cannot ask {model.name} what it offers"
            raise EndpointUnreachable(what, why, "is the server busy?") from None
        self._open.probed.append(model)

    async def open_embedder(self, trace: Trace | None = None) -> Embedder:
        """Open the embedder: the one given, else the one named, else the default."""
        chosen = self._choose("embedder") or DEFAULT_EMBEDDER
        if not isinstance(chosen, Named):
            return cast("Embedder", chosen)
        if trace is not None:
            await self._pull_embedder(trace)
        key = ("embedder", chosen.name, chosen.with_key)
        return await self._open.open_in_thread(key, open_embedder)

    async def open_reranker(
        self, trace: Trace | None = None, default: str | None = None
    ) -> Reranker | None:
        """Open the reranker that was given or named, else the default, if any."""
        named = self._choose("reranker") or (Named(default) if default else None)
        if not isinstance(named, Named):
            return cast("Reranker | None", named)
        if named.name == "none":
            return None
        if trace is not None:
            note_name("reranker", named, trace)
        key = ("reranker", named.name, named.with_key)
        return await self._open.open_in_thread(key, open_reranker)

    async def open_reader(self, model: ChatModel, trace: Trace) -> Reader:
        """Return the reader that was given or named, else the one that suits the model."""
        named = self._choose("reading") or Named("auto")
        if not isinstance(named, Named):
            return cast("Reader", named)
        note_name("reader", named, trace)
        if named.name == "pointwise" and not await self._find_odds(named, model, trace, "quoting"):
            named = Named("quoting")
        if named.name == "plain":
            raise UsageError("the plain reader cites nothing", "only `bench run` can choose it")
        # A local model counts its weights in its file.
        return await asyncio.to_thread(make_reader, named.name, model)

    async def open_retriever(
        self, given: str | Retriever | None, trace: Trace
    ) -> Retriever | SearchMode | None:
        """Return the retriever that was given or named here, else the session's, if any."""
        named = Named(given) if isinstance(given, str) else given or self._choose("retriever")
        if not isinstance(named, Named):
            return cast("Retriever | None", named)
        note_name("retriever", named, trace)
        if not HTTP.match(named.name):
            return make_retriever(named.name)
        work: Callable[[], Any] = partial(asyncio.to_thread, make_retriever, named.name)
        opened: Retriever = await self._open.open(("retriever", named.name, False), work)
        return opened

    async def open_check(self, reader: Reader, model: ChatModel, trace: Trace) -> Check | None:
        """Open the check that was given or named, else the default for a reader.

        That is `odds` for a pointwise reader whose model gives them, none for a plain reader, and
        `model` for others, and where `odds` is named and the model gives none.
        """
        odds = Capability.LABELS in model.capabilities
        defaults = {"pointwise": "odds" if odds else "none", "plain": "none"}
        named = self._choose("check") or Named(defaults.get(reader.name, "model"))
        if not isinstance(named, Named):
            return cast("Check", named)
        note_name("check", named, trace)
        match named.name:
            case "none":
                return None
            case "model":
                return ModelCheck()
            case "odds":
                found = await self._find_odds(named, model, trace, "model")
                return OddsCheck() if found else ModelCheck()
        work = partial(asyncio.to_thread, open_head, named.name)
        return PairCheck(await self._open.open(("check", named.name, False), work))

    async def _find_odds(self, named: Named, model: ChatModel, trace: Trace, instead: str) -> bool:
        """Return whether a model gives label odds, which its server is asked; warn if not."""
        asked = ""
        try:
            await self.probe(model)
        except ColligateError as error:
            asked = f" ({error})"
        if Capability.LABELS in model.capabilities:
            return True
        why = f"{named.name} needs label odds, which {model.name} does not give{asked}"
        trace.emit(Noted(f"{why}: {instead} is used instead", warning=True))
        return False

    async def open_library(self) -> AsyncLibrary:
        """Open the library. Its embedder is loaded at the first search or index."""
        if self._library is None:
            named, embedder = self.named, self._choose("embedder")
            if isinstance(embedder, Named) and not embedder.with_key:
                embedder = await self.open_embedder()
            if self._library is None:  # calls may come at once; the first one opens it
                self._library = AsyncLibrary(
                    named.library.name if named.library else None,
                    # By name it opens one itself, and with the key.
                    embedder=embedder.name if isinstance(embedder, Named) else embedder,
                    chunker=named.chunker.name if named.chunker else None,
                    ocr=named.ocr_languages(asked=self.ocr),
                    pdf=named.pdf.name if named.pdf else "",
                    folders=self.folders,
                )
                self._stack.push_async_callback(self._library.close)
        return self._library

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
        trace = self.make_trace(on_event)
        return await self._read(paths, trace, index=index, workers=workers, prune=prune)

    async def _read(
        self, paths: Sequence[str | Path], trace: Trace, *, index: bool, **options: Any
    ) -> Ingested:
        """Read files and folders into the library, as `ingest` does."""
        library = await self.open_library()
        new = await library.embedder_name() is None
        if index:
            await self._pull_embedder(trace, library)
        ingested = await ingest(library, paths, trace, index=index, **options)
        if index and (new or ingested.added or ingested.updated):
            await self._note_languages(library, ingested.document_ids, trace)
        return ingested

    async def _note_languages(
        self, library: AsyncLibrary, documents: Collection[str], trace: Trace
    ) -> None:
        """Note the languages of new documents that the embedder was not trained on."""
        embedder = self._choose("embedder")
        name = embedder.name if embedder else await library.embedder_name()
        languages = {
            each.language for each in await library.documents() if each.id in set(documents)
        }
        others = ", ".join(sorted(languages - {"en", "und"}))
        if others and name in ENGLISH_EMBEDDERS:
            what = f"documents in {others}: the embedder {name} was trained on English"
            hint = library.refused_embedder or "--embedder e5 knows about a hundred languages"
            trace.emit(Noted(f"{what}; {hint}"))

    async def open_sources(
        self,
        paths: Sequence[str | Path],
        needs: Needs,
        trace: Trace,
        documents: Sequence[str] | None = None,
        where: Sequence[str] = (),
    ) -> Sources:
        """Return the documents of the paths or ids, or the whole library if neither is given.

        What other processes change from now on is not seen: it is one version for one question.
        `where` are conditions that they must meet too (`library.sources.Condition`).
        """
        parse_conditions(where)  # a wrong one is reported before anything is read
        if paths and documents is not None:
            raise UsageError("paths and documents exclude each other", hint="give one of them")
        if not needs.reads:
            return InMemorySources(())
        library = await self.open_library()
        if paths:
            ingested = await self._read(paths, trace, index=needs.searches)
            return await _narrow(await library.pin(ingested.document_ids), where)
        stored = await library.documents()
        if not stored:
            why = f"the library {library.path.name} is empty"  # clients of a server see it
            raise NoDocuments("there is nothing to ask", why, "name files or folders to read")
        if needs.searches:
            await self._pull_embedder(trace, library)
            new = not self.folders and await library.embedder_name() is None
            if not self.folders:  # its progress would tell of other documents
                await library.index_pending(on_progress=report_ingestion(trace))
            if new:
                await self._note_languages(library, [each.id for each in stored], trace)
        sources = await library.pin(documents)
        if documents is not None and not await sources.documents():
            raise NoDocuments("there is nothing to ask", "no document was named")
        return await _narrow(sources, where)

    async def open_store(self, needs: Needs) -> KeyValueStore:
        """Return the store for what strategies learn about documents, in the library's folder."""
        if not needs.reads:
            return MemoryStore()
        path = (await self.open_library()).responses
        if self._responses is None:
            self._responses = ResponseCache(path)
            self._stack.callback(self._responses.close)
        return self._responses

    async def _pull_embedder(self, trace: Trace, library: AsyncLibrary | None = None) -> None:
        """Fetch missing weights here, where the progress can be shown.

        They are of the embedder named, else of the one that made the library's vectors, if it runs
        here without being named, else of the default.
        """
        named = self._choose("embedder")
        if named is None:
            made = await library.embedder_name() if library else None
            if made is not None and made not in OWN_EMBEDDERS.values():
                return
            named = Named(made) if made else DEFAULT_EMBEDDER
        if isinstance(named, Named):
            note_name("embedder", named, trace)
            report = report_pull(trace)
            await asyncio.to_thread(pull_embedder, named.name, on_progress=report)


class _OpenModels:
    """What was opened by name, each name once; closed in reverse order, so adapters first."""

    def __init__(self) -> None:
        self.probed: list[ChatModel] = []
        # One for each name: what is downloaded must not hold up the others.
        self._opening: defaultdict[_Key, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._slots = Slots()  # calls in flight are bounded per server, whatever asks it
        self._stack = AsyncExitStack()
        self._opened: dict[_Key, Any] = {}

    async def open(self, key: _Key, make: Callable[[], Awaitable[M]]) -> M:
        """Return what was opened under a key, or make it."""
        async with self._opening[key]:
            if key not in self._opened:
                made = self._opened[key] = await make()
                self._stack.push_async_callback(made.aclose)
            opened: M = self._opened[key]
            return opened

    async def open_in_thread(self, key: _Key, make: Callable[..., M], **options: Any) -> M:
        """Open what has a name and may have an endpoint, by a function of `models.names`."""
        _, name, with_key = key
        work = partial(make, name, with_key=with_key, slots=self._slots, **options)
        return await self.open(key, partial(asyncio.to_thread, work))

    async def aclose(self) -> None:
        self._opened.clear()
        self.probed.clear()
        await self._stack.aclose()


async def _suggest(default: Named, trace: Trace) -> None:
    """Note a larger model that suits this machine, before the bundled one is fetched."""
    first = default.name == "bundled" and find_weights(BUNDLED) is None
    if first and (line := await asyncio.to_thread(lambda: suggest(find_machine()))):
        trace.emit(Noted(line))


async def _narrow(sources: View, where: Sequence[str]) -> View:
    return sources.view(await select_documents(sources, where)) if where else sources
