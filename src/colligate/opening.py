"""Models opened by name and role, shared, held to what a strategy needs, closed together."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Protocol, TypeVar, runtime_checkable

from colligate.errors import ColligateError, EndpointUnreachable, MissingCapability
from colligate.models import AdapterModel, Capability, ChatModel, Embedder, Reranker, Role
from colligate.models.name_parts import shown
from colligate.models.names import (
    default_model,
    open_embedder,
    open_model,
    open_reranker,
    split_adapter,
)
from colligate.models.weights import OnProgress
from colligate.settings import Named, Settings
from colligate.strategies.parameters import configured
from colligate.strategies.strategy import SCORING, Need, Needs, met
from colligate.strategies.trace import Noted, Progressed, Trace

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
