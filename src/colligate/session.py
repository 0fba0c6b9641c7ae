"""From paths to documents in a library, with what went wrong said in the trace."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NoReturn, Protocol, TypeVar, runtime_checkable

from colligate.core.events import Noted, Progressed, Trace
from colligate.core.parameters import configured
from colligate.core.run import InMemory, Kept
from colligate.core.strategy import SCORING, Need, Needs, Strategy, met
from colligate.documents.reading import find_files
from colligate.errors import (
    ColligateError,
    EndpointUnreachable,
    MissingCapability,
    NoDocuments,
    UsageError,
)
from colligate.library.in_memory import Given
from colligate.library.ingest import Ingested, Progress
from colligate.library.library import Library
from colligate.library.sources import Sources
from colligate.models import AdapterModel, Capability, ChatModel, Embedder, Reranker, Role
from colligate.models.cache import CachedChat, ResponseCache
from colligate.models.name_parts import shown, split_adapter
from colligate.models.names import (
    default_model,
    open_embedder,
    open_model,
    open_reranker,
    pull_embedder,
)
from colligate.models.weights import OnProgress
from colligate.settings import Named, Settings


def look_for(paths: Sequence[str | Path]) -> None:
    """Raise what is wrong with paths of which none is there; ingestion finds out the rest."""
    if not any(os.path.lexists(path) for path in paths):
        found = find_files(paths)
        if not found.files:
            _nothing_read(found.problems)


async def ingest(
    library: Library,
    paths: Sequence[str | Path],
    trace: Trace,
    *,
    index: bool,
    workers: int | None = None,
) -> Ingested:
    """Read files and folders into a library; what is left out, and why, goes to the trace.

    Raises:
        NoDocuments, ReadingError: nothing could be read.
        LibraryError: what the library could not do.
    """
    ingested = await library.add(
        paths, index=index, workers=workers, on_progress=ingestion_listener(trace)
    )
    errors = [*ingested.problems, *(error for _, error in ingested.failed)]
    if not ingested.document_ids:
        _nothing_read(errors)
    for error in errors:
        trace.emit(Noted(f"left out: {error}", warning=True))
    for warning in ingested.warnings:
        trace.emit(Noted(warning, warning=True))
    return ingested


def ingestion_listener(trace: Trace) -> Callable[[Progress], None]:
    """Shows how far reading and embedding have come."""

    def listen(progress: Progress) -> None:
        trace.emit(Progressed(progress.phase, progress.done, progress.total, progress.file))

    return listen


def _nothing_read(errors: Sequence[ColligateError]) -> NoReturn:
    if len(errors) == 1:
        raise errors[0]  # best said in its own words
    raise NoDocuments(
        "nothing could be read",
        "; ".join(str(error) for error in errors[:3]),
        f"{len(errors) - 3} more failed" if len(errors) > 3 else "",
    )


# Models opened by name and role, shared, held to what a strategy needs, closed together.

T = TypeVar("T")

WHAT = {Role.READER: "model", Role.WORKER: "worker", Role.SCORER: "scorer", Role.JUDGE: "judge"}
"""What each role's model is called where a person reads it."""

LEARNT = frozenset({Capability.LIKELIHOOD, Capability.LABELS})
"""What a model behind an endpoint may turn out to offer once its server is asked."""

_SECONDS_TO_PROBE = 20.0


@runtime_checkable
class Probed(Protocol):
    """A model some of whose capabilities only its server knows."""

    async def probe(self) -> frozenset[Capability]:
        """Ask the server; afterwards `capabilities` says what it offers."""
        ...


class Opened:
    """What was opened by name: each name once, and what stands on another is closed before it."""

    def __init__(self) -> None:
        self._opening = asyncio.Lock()
        self._stack = AsyncExitStack()
        self._models: dict[tuple[str, bool], ChatModel] = {}
        self._probed: list[ChatModel] = []
        self._embedders: dict[Named, Embedder] = {}
        self._rerankers: dict[Named, Reranker] = {}

    async def model(
        self, named: Named, settings: Settings, on_progress: OnProgress | None = None
    ) -> ChatModel:
        """The model of a name; of calls made at once, one opens it for all.

        Raises:
            UnknownModel, ModelError: as `open_model`.
            MissingCapability: the name has an adapter, and its base takes none.
        """
        async with self._opening:
            return await self._open(named, settings, on_progress)

    async def _open(
        self, named: Named, settings: Settings, on_progress: OnProgress | None
    ) -> ChatModel:
        key = (named.name, named.with_key)
        if key in self._models:
            return self._models[key]
        base, adapter = split_adapter(named.name)
        if adapter is None:
            model = await asyncio.to_thread(
                open_model,
                named.name,
                on_progress=on_progress,
                options=settings.options_of(named.name),
                with_key=named.with_key,
            )
        else:
            under = await self._open(Named(base), settings, on_progress)
            if not isinstance(under, AdapterModel):
                raise MissingCapability(f"{base} takes no adapter", f"{adapter} cannot be used")
            model = await under.with_adapter(adapter)
        # What was opened last is closed first, so an adapter before its base.
        self._stack.push_async_callback(model.aclose)
        self._models[key] = model
        return model

    async def by_role(
        self, given: Mapping[Role, str | ChatModel | None], settings: Settings, trace: Trace
    ) -> dict[Role, ChatModel]:
        """The model of each role that has one of its own: models given, else those named.

        Raises:
            UnknownModel, ModelError: as `open_model`.
        """
        models: dict[Role, ChatModel] = {}
        for role in Role:
            own = given.get(role)
            if own is not None and not isinstance(own, str):
                models[role] = own
                continue
            named = settings.of(role)
            if named is None and role is Role.READER:
                named = await default_reader()
            if named is not None:
                say_named(WHAT[role], named, trace)
                models[role] = await self.model(named, settings, pull_listener(trace))
        return models

    def unsure(self, model: ChatModel) -> frozenset[Capability]:
        """What a model may turn out to offer when its server is asked; empty once it was."""
        if not isinstance(model, Probed) or any(model is asked for asked in self._probed):
            return frozenset()
        return LEARNT - model.capabilities

    async def probe(self, model: ChatModel) -> None:
        """Ask the server of a model what it offers, if it has one that was not asked before.

        Raises:
            ModelError: it does not answer, or not in time.
        """
        if not isinstance(model, Probed) or any(model is asked for asked in self._probed):
            return
        try:
            async with asyncio.timeout(_SECONDS_TO_PROBE) as deadline:
                await model.probe()
        except TimeoutError:
            if not deadline.expired():
                raise
            why = f"no answer within {_SECONDS_TO_PROBE:g} seconds"
            raise EndpointUnreachable(
                f"cannot ask {model.name} what it offers", why, "is the server busy?"
            ) from None
        self._probed.append(model)

    async def embedder(self, named: Named) -> Embedder:
        """The embedder of a name.

        Raises:
            UnknownModel, ModelError: as `open_embedder`.
        """
        async with self._opening:
            if named not in self._embedders:
                embedder = await asyncio.to_thread(
                    open_embedder, named.name, with_key=named.with_key
                )
                self._stack.push_async_callback(embedder.aclose)
                self._embedders[named] = embedder
            return self._embedders[named]

    async def reranker(
        self, named: Named, embedder: Embedder | Named, scorer: ChatModel
    ) -> Reranker:
        """The reranker of a name, on this embedder or this scorer if it stands on one.

        Raises:
            UnknownModel, ModelError, UsageError: as `open_reranker`.
        """
        if named.name == "likelihood":
            # A thin face of a scorer that may be wrapped for one question: not kept for others.
            return open_reranker(named.name, scorer=scorer)
        under = None
        if named.name == "embedding":
            under = await self.embedder(embedder) if isinstance(embedder, Named) else embedder
        async with self._opening:
            if named not in self._rerankers:
                reranker = await asyncio.to_thread(
                    open_reranker, named.name, embedder=under, with_key=named.with_key
                )
                self._stack.push_async_callback(reranker.aclose)
                self._rerankers[named] = reranker
            return self._rerankers[named]

    async def aclose(self) -> None:
        """Close everything. Safe to call twice."""
        self._models.clear()
        self._probed.clear()
        self._embedders.clear()
        self._rerankers.clear()
        await self._stack.aclose()


async def default_reader() -> Named:
    """The reader when none was named, and why that one.

    Raises:
        EndpointUnreachable: OPENAI_BASE_URL is set, and does not say which models it has.
    """
    return Named(*await asyncio.to_thread(default_model))


def say_named(what: str, named: Named, trace: Trace) -> None:
    """Note what was taken and who named it, and a key that is kept from it."""
    if not named.source:
        return  # it was given outright: whoever gave it knows
    trace.emit(Noted(f"{what}: {shown(named.name)} ({named.source})"))
    variable = "COLLIGATE_RERANKER_KEY" if what == "reranker" else "OPENAI_API_KEY"
    if not named.with_key and os.environ.get(variable):
        trace.emit(
            Noted(
                f"{variable} is not sent there: only the {named.source} found here names that "
                f"address; --config {named.source} trusts the file"
            )
        )


def set_up(kind: type[T], settings: Settings, given: Sequence[str], trace: Trace) -> T:
    """A strategy set up by texts such as "k=3", and beneath them by the adapters of the settings.

    Raises:
        UsageError: as `configured`.
    """
    outright = {text.partition("=")[0].strip() for text in given}
    named = {
        parameter: adapter
        for parameter, adapter in settings.adapters_of(kind).items()
        if parameter not in outright
    }
    made = configured(
        kind, [*(f"{parameter}={each.name}" for parameter, each in named.items()), *given]
    )
    for parameter, each in named.items():
        say_named(parameter.replace("_", " "), each, trace)
    return made


def pull_listener(trace: Trace) -> OnProgress:
    """Shows how far weights have come."""

    def listen(done_bytes: int, total_bytes: int, what: str) -> None:
        trace.emit(Progressed("pulling", done_bytes, total_bytes, what))

    return listen


async def meet(
    strategy: str,
    needs: Needs,
    models: Mapping[Role, ChatModel],
    opened: Opened,
    *,
    also: frozenset[Capability] = frozenset(),
) -> list[str]:
    """Hold the models to what a strategy needs; returns what it will be done without, a line each.

    A server is asked what it offers only when that could make a difference to this strategy, or
    to `also`: what else the scorer is wanted for.

    Raises:
        MissingCapability: something required is not offered.
        ModelError: a server that must offer something required cannot be asked.
    """
    failed: dict[Role, ColligateError] = {}
    scorer = Role.SCORER if Role.SCORER in models else Role.READER
    if (needs.required | needs.optional | also) & opened.unsure(models[scorer]):
        try:
            await opened.probe(models[scorer])
        except ColligateError as error:
            if (needs.required | also) & LEARNT:
                raise
            failed[scorer] = error
    without = []
    for need in met(needs, {role: model.capabilities for role, model in models.items()}):
        if need.met:
            continue
        whose = f"the {need.role.value} {models[need.role].name}"
        if need.required:
            raise MissingCapability(
                f"{strategy} needs {need.capability.value}",
                f"{whose} does not offer it",
                f"{_mend(need)}; colligate strategies shows what each needs",
            )
        why = f" ({failed[need.role]})" if need.role in failed else ""
        without.append(f"done without {need.capability.value}, which {whose} does not offer{why}")
    return without


def _mend(need: Need) -> str:
    """What to do about a need that is not met."""
    if need.capability in SCORING:
        return "name a --scorer that does"
    flags = {Role.WORKER: "--worker-model", Role.JUDGE: "--judge"}
    return f"name a {flags.get(need.role, '--model')} that does"


# What runs stand on: models by role, a library, a reranker; opened when first needed.

DEFAULT_EMBEDDER = Named("minilm")


@dataclass
class Resources:
    """Models and a library, opened once and closed together; what was given stays its owner's.

    The fields are those of `Engine`.
    """

    models: Mapping[Role, str | ChatModel | None]
    embedder: str | Embedder | None
    reranker: str | Reranker | None
    folder: Path | str | None
    settings: Settings | None
    wait: float
    cache: bool

    _stack: AsyncExitStack = field(default_factory=AsyncExitStack, init=False)
    _opened: Opened = field(default_factory=Opened, init=False)
    _chosen: Settings | None = field(default=None, init=False)
    _library: Library | None = field(default=None, init=False)
    _responses: ResponseCache | None = field(default=None, init=False)
    _borrows: bool = field(default=False, init=False)

    def beside(self, folder: Path | str) -> Resources:
        """The same models over another library; they stay open when that is closed."""
        other = replace(self, folder=folder)
        other._opened, other._borrows = self._opened, True
        return other

    @property
    def warnings(self) -> Sequence[str]:
        """What went wrong so far with the file that `remembering` and `kept` use."""
        return () if self._responses is None else self._responses.warnings

    async def aclose(self) -> None:
        """Free the models and the library. Safe to call twice."""
        try:
            await self._stack.aclose()
        finally:
            if not self._borrows:
                await self._opened.aclose()
        self._library = self._responses = None

    async def library(self) -> Library:
        """The library, opened. Its embedder is loaded when something is searched or indexed."""
        if self._library is None:
            settings = await self._named()
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

    async def add(
        self,
        paths: Sequence[str | Path],
        trace: Trace,
        *,
        index: bool,
        workers: int | None = None,
    ) -> Ingested:
        """Read files and folders into the library."""
        library = await self.library()
        if index:
            await self._pull_embedder(trace)
        return await ingest(library, paths, trace, index=index, workers=workers)

    async def sources(
        self,
        paths: Sequence[str | Path],
        needs: Needs,
        trace: Trace,
        documents: Sequence[str] | None = None,
    ) -> Sources:
        """The documents in view: those of the paths or ids given, else the whole library.

        Raises:
            NoDocuments: there are none.
            UnknownDocument: an id that is not in the library.
            UsageError: both paths and ids are given.
        """
        if paths and documents is not None:
            raise UsageError("paths and documents exclude each other", hint="give one of them")
        if not needs.reads:
            return Given(())
        library = await self.library()
        if paths:
            ingested = await self.add(paths, trace, index=needs.searches)
            return library.view(ingested.document_ids)
        if not await library.documents():
            raise NoDocuments(
                "there is nothing to ask",
                f"the library {library.path} is empty",
                "name files or folders after the question",
            )
        if needs.searches:
            await self._pull_embedder(trace)
            await library.index_pending(on_progress=ingestion_listener(trace))
        if documents is None:
            return library
        view = library.view(documents)
        if not await view.documents():
            raise NoDocuments("there is nothing to ask", "no document was named")
        return view

    async def open_models(self, name: str, needs: Needs, trace: Trace) -> dict[Role, ChatModel]:
        """The models by role, held to the needs of what is called `name`.

        Raises:
            MissingCapability: a model cannot do what is needed.
            UnknownModel, ModelError: as `open_model`.
        """
        settings = await self._named()
        if settings.library is not None and needs.reads:
            say_named("library", settings.library, trace)
        models = await self._opened.by_role(self.models, settings, trace)
        reranker = settings.reranker if needs.searches else None
        also = frozenset[Capability]()
        if reranker is not None and isinstance(self.reranker, str | None):
            say_named("reranker", reranker, trace)
            if reranker.name == "likelihood":
                also = frozenset({Capability.LIKELIHOOD})
        for line in await meet(name, needs, models, self._opened, also=also):
            trace.emit(Noted(line, warning=True))
        return models

    async def set_up(self, kind: type[T], trace: Trace) -> T:
        """A strategy with its defaults, and the adapters that the settings name for its steps."""
        return set_up(kind, await self._named(), (), trace)

    async def by_role(self, trace: Trace) -> dict[Role, ChatModel]:
        """The model of each role that has one of its own; they are opened if need be.

        Raises:
            UnknownModel, ModelError: as `open_model`.
        """
        return await self._opened.by_role(self.models, await self._named(), trace)

    async def search_models(self) -> dict[str, str]:
        """The names of the embedder and the reranker; nothing is opened."""
        settings = await self._named()
        given = None if isinstance(self.reranker, str) else self.reranker
        reranker = given or settings.reranker or Named("none")
        return {"embedder": self._embedder(settings).name, "reranker": reranker.name}

    async def needs(self, kind: type[Strategy]) -> tuple[Need, ...]:
        """Which needs of a strategy the models meet.

        Raises:
            UnknownModel, ModelError: as `open_model`.
        """
        models = await self.by_role(Trace())
        return met(
            kind.needs,
            {role: model.capabilities for role, model in models.items()},
            {role: self._opened.unsure(model) for role, model in models.items()},
        )

    async def remembering(
        self, models: dict[Role, ChatModel], sources: Sources
    ) -> dict[Role, ChatModel]:
        """The same models, with a memory in the library's folder if `cache` asks for one."""
        if not self.cache:
            return models
        responses = await self._response_cache()
        in_view = [info.id for info in await sources.documents()]
        return {role: CachedChat(model, responses, tags=in_view) for role, model in models.items()}

    async def kept(self, needs: Needs) -> Kept:
        """Where what is worked out about documents is kept: in the library's folder."""
        return await self._response_cache() if needs.reads else InMemory()

    async def open_reranker(self, models: Mapping[Role, ChatModel]) -> Reranker | None:
        """The reranker given, else the one named, if any."""
        if not isinstance(self.reranker, str | None):
            return self.reranker
        settings = await self._named()
        if settings.reranker is None or settings.reranker.name == "none":
            return None
        scorer = models.get(Role.SCORER, models[Role.READER])
        return await self._opened.reranker(settings.reranker, self._embedder(settings), scorer)

    async def _response_cache(self) -> ResponseCache:
        path = (await self.library()).responses
        if self._responses is None:
            self._responses = ResponseCache(path)
            self._stack.callback(self._responses.close)
        return self._responses

    async def _named(self) -> Settings:
        """What was named: here, else by the environment or a file."""
        if self._chosen is None:
            loaded = self.settings
            if loaded is None:
                loaded = await asyncio.to_thread(Settings.load)
            self._chosen = loaded.given(
                **{role.value: given for role, given in self.models.items()},
                embedder=self.embedder,
                reranker=self.reranker,
                library=None if self.folder is None else str(self.folder),
            )
        return self._chosen

    def _embedder(self, settings: Settings) -> Embedder | Named:
        """The embedder given, else the one named."""
        if isinstance(self.embedder, str | None):
            return settings.embedder or DEFAULT_EMBEDDER
        return self.embedder

    async def _pull_embedder(self, trace: Trace) -> None:
        """Fetch missing weights here, where the progress can be shown."""
        named = self._embedder(await self._named())
        if isinstance(named, Named):
            say_named("embedder", named, trace)
            listen = pull_listener(trace)
            await asyncio.to_thread(pull_embedder, named.name, on_progress=listen)
