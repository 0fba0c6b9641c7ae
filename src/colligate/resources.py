"""What runs stand on: models by role, a library, a reranker; opened when first needed."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from colligate.errors import NoDocuments, UsageError
from colligate.ingesting import ingest, ingestion_listener
from colligate.library.given import Given
from colligate.library.ingestion import Ingested
from colligate.library.library import Library
from colligate.library.sources import Sources
from colligate.models import Capability, ChatModel, Embedder, Reranker, Role
from colligate.models.cached_chat import CachedChat
from colligate.models.names import pull_embedder
from colligate.models.response_cache import ResponseCache
from colligate.opening import Opened, meet, pull_listener, say_named, set_up
from colligate.settings import Named, Settings
from colligate.strategies.kept import InMemory, Kept
from colligate.strategies.strategy import Need, Needs, Strategy, met
from colligate.strategies.trace import Noted, Trace

T = TypeVar("T")

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
            raise UsageError("paths and documents exclude each other", mend="give one of them")
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
