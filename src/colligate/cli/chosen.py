"""The models that were chosen, as they are on this machine: what each offers, or what is amiss."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from colligate.cli.display import one_line
from colligate.core.strategy import Need, Strategy, check_needs, summarize
from colligate.errors import ColligateError, WeightsUnavailable
from colligate.models import Capability, Role
from colligate.models.names import redact_name, split_adapter
from colligate.models.weights import BUNDLED, PINNED, find_weights
from colligate.session import Session, default_reader
from colligate.settings import Named, Settings

FLAGS = {
    Role.READER: "--model",
    Role.WORKER: "--worker-model",
    Role.SCORER: "--scorer",
    Role.JUDGE: "--judge",
}


@dataclass(frozen=True)
class Chosen:
    """The model of a role. One that is amiss offers nothing; `blocks` if it cannot be opened."""

    role: Role
    named: Named
    offers: frozenset[Capability] = frozenset()
    unsure: frozenset[Capability] = frozenset()
    problem: ColligateError | None = None
    blocks: bool = False

    @property
    def name(self) -> str:
        """As it may be shown; nothing is named where a server does not say what it has."""
        return redact_name(self.named.name) or "unknown"

    @property
    def source(self) -> str:
        """What named it: a flag, a variable, a file, or the default."""
        return self.named.source or FLAGS[self.role]

    def __str__(self) -> str:
        return f"{self.role.value}: {self.name} ({self.source})"


async def chosen_models(settings: Settings, *, ask: bool) -> dict[Role, Chosen]:
    """The model of each role that has one of its own; weights that are missing stay so.

    With `ask`, endpoints are asked what they offer, by a call of one token.
    """
    chosen: dict[Role, Chosen] = {}
    async with Session(settings=settings) as session:
        for role in Role:
            named = settings.of(role)
            if named is None and role is Role.READER:
                try:
                    named = await default_reader()
                except ColligateError as error:
                    unknown = Named("", "OPENAI_BASE_URL")
                    chosen[role] = Chosen(role, unknown, problem=error, blocks=True)
            if named is not None:
                chosen[role] = await _chosen(role, named, session, ask=ask)
    return chosen


async def _chosen(role: Role, named: Named, session: Session, *, ask: bool) -> Chosen:
    weights = weights_of(named.name)
    if weights is not None and find_weights(weights) is None:
        problem: ColligateError = WeightsUnavailable(
            f"{named.name} cannot run yet",
            "its weights are not here",
            f"colligate models pull {weights}",
        )
        return Chosen(role, named, problem=problem, blocks=True)
    try:
        model = await session.open_model(named)
    except ColligateError as error:
        return Chosen(role, named, problem=error, blocks=True)
    if ask:
        try:
            await session.probe(model)
        except ColligateError as error:
            return Chosen(role, named, problem=error)
    return Chosen(role, named, model.capabilities, session.find_unprobed(model))


def weights_of(name: str) -> str | None:
    """The pinned weights behind the name of a model or embedder, None if it has none."""
    base, _ = split_adapter(name)
    behind = {"bundled": BUNDLED, "minilm": "minilm-l6-v2-int8", "static": "wordllama-256"}
    weights = behind.get(base, base.removeprefix("gguf:").removeprefix("hf:"))
    return weights if weights in PINNED else None


def verdict(kind: type[Strategy], chosen: Mapping[Role, Chosen]) -> dict[str, Any]:
    """What a strategy needs, what of it the chosen models meet, and whether it runs with them.

    `runs` and `check_needs` are None where only a server knows, and was not asked.
    """
    needs = check_needs(
        kind.needs,
        {role: one.offers for role, one in chosen.items()},
        {role: one.unsure for role, one in chosen.items()},
    )
    blocked = next((one for one in chosen.values() if one.blocks), None)
    lacking = [need for need in needs if need.required and need.met is not True]
    runs: bool | None = not lacking
    why = ""
    if blocked is not None:
        runs, why = False, str(blocked.problem)
    elif lacking:
        lacked = next((need for need in lacking if need.met is False), lacking[0])
        runs, why = lacked.met, _why(lacked, chosen[lacked.role])
    return {
        "name": kind.name,
        "description": summarize(kind),
        "required": sorted(c.value for c in kind.needs.required),
        "optional": sorted(c.value for c in kind.needs.optional),
        "needs": [
            {
                "capability": need.capability.value,
                "required": need.required,
                "met": need.met,
                "role": need.role.value,
                "model": chosen[need.role].name,
            }
            for need in needs
        ],
        "searches": kind.needs.searches,
        "runs": runs,
        "why_not": why,
    }


def _why(need: Need, asked: Chosen) -> str:
    whose = f"the {need.role.value} {asked.name}"
    if asked.problem is not None:
        return one_line(str(asked.problem))
    if need.met is None:
        return f"only its server knows whether {whose} offers {need.capability.value}"
    return f"{whose} does not offer {need.capability.value}"
