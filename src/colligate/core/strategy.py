"""Strategies: what a method declares, and how it is found by name."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from typing import Any, ClassVar, Protocol

from colligate.core.answer import Answer
from colligate.core.run import Run
from colligate.errors import UnknownStrategy, closest
from colligate.models import Capability, Role
from colligate.plugins import load_plugin, plugins

SCORING = frozenset({Capability.LIKELIHOOD, Capability.LABELS, Capability.ATTENTION})
"""Capabilities that the scorer must have."""


@dataclass(frozen=True)
class Needs:
    """The capabilities that a strategy must have, and those it can do without.

    `searches`: it searches passages, so the documents must be indexed. `reads`: it reads documents
    at all. `reranker`: the one it uses if none is named, because it was measured to be better with
    it; the bench names one or uses none.
    """

    required: frozenset[Capability] = frozenset({Capability.CHAT})
    optional: frozenset[Capability] = frozenset()
    searches: bool = True
    reads: bool = True
    reranker: str | None = None


def needs_of(retriever: object) -> Needs:
    """Return what a retriever needs of the models: nothing, if it does not say."""
    return getattr(retriever, "needs", Needs(frozenset()))


@dataclass(frozen=True)
class Need:
    """A capability that a strategy must have (`required`) or can use.

    `role` is the role whose model needs it. `met` is None if only the model's server knows.
    """

    capability: Capability
    required: bool
    role: Role
    met: bool | None

    def to_json(self) -> dict[str, Any]:
        names = {"capability": self.capability.value, "role": self.role.value}
        return {**names, "required": self.required, "met": self.met}

    def explain(self, model: str) -> str:
        """Return why it is not met, with a name for the model of its role."""
        whose = f"the {self.role.value} {model}"
        if self.met is None:
            return f"only its server knows whether {whose} offers {self.capability.value}"
        return f"{whose} does not offer {self.capability.value}"


def check_needs(
    needs: Needs,
    offered: Mapping[Role, Collection[Capability]],
    unsure: Mapping[Role, Collection[Capability]] | None = None,
) -> tuple[Need, ...]:
    """Return whether the models meet a strategy's needs, the required ones first.

    `offered` are the capabilities of each role's own model, `unsure` those that it may have. Chat
    and structured output must come from the reader, and from worker and judge if they have models
    of their own; likelihood, labels and attention from the scorer; adapters from the reader or the
    worker. The reader fills roles without a model.
    """
    unsure = unsure or {}

    def need(capability: Capability, required: bool) -> Need:
        asked = [Role.READER, Role.WORKER, Role.JUDGE]
        if capability in SCORING:
            asked = [Role.SCORER if Role.SCORER in offered else Role.READER]
        elif capability is Capability.ADAPTERS:
            asked = [Role.READER, Role.WORKER]
        met: dict[Role, bool | None] = {}
        for role in asked:
            if role in offered:
                known = None if capability in unsure.get(role, ()) else False
                met[role] = True if capability in offered[role] else known
        # One model with adapters is enough; everything else must come from every model.
        best = capability is Capability.ADAPTERS
        order = [True, None, False] if best else [False, None, True]
        role = min(met, key=lambda each: order.index(met[each]))
        return Need(capability, required, role, met[role])

    return tuple(
        need(capability, required)
        for required, wanted in ((True, needs.required), (False, needs.optional - needs.required))
        for capability in Capability
        if capability in wanted
    )


class Strategy(Protocol):
    """A paper's algorithm: a frozen dataclass whose fields are the paper's parameters.

    It may declare more: a field `STEP_adapter` for each step that takes a LoRA adapter; a field
    `gold` that the bench fills with a question's gold documents.
    """

    name: ClassVar[str]
    needs: ClassVar[Needs]

    async def answer(self, question: str, run: Run) -> Answer:
        """Answer one question. Hold no state between calls."""


def list_strategies() -> dict[str, EntryPoint]:
    """Return all registered strategies by name, colligate's own and those of other packages."""
    return plugins("strategies")


def load_strategy(name: str) -> type[Strategy]:
    """Load the class of a strategy by name; an unknown name raises `UnknownStrategy`."""
    known = list_strategies()
    if name not in known:
        near = closest(name, known)
        why = f"did you mean {near!r}?" if near else f"known are {', '.join(known)}"
        raise UnknownStrategy(f"unknown strategy {name!r}", why, "colligate strategies lists them")
    loaded: type[Strategy] = load_plugin("strategies", name, type)
    return loaded


def summarize(kind: type[Strategy]) -> str:
    """Return the first line of a strategy's docstring."""
    return (kind.__doc__ or "").strip().split("\n")[0].rstrip(".")
