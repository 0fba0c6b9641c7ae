"""Numbers of a model instead of words: likelihoods, label odds and attention.

No backend reports what they cost, so tokens are counted here with the model's own count; text that
several passes share counts in each, though it may be computed once.
"""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, TypeVar

from colligate.core.budget import TokenBudget, require_room
from colligate.core.events import Asking, Event, Measured
from colligate.errors import MissingCapability
from colligate.models import Capability, ChatModel, LabelOdds, Message, Role, Usage
from colligate.models.metering import Meter

Value = TypeVar("Value")

_NUMBERS = {
    Capability.LIKELIHOOD: "likelihoods",
    Capability.LABELS: "label odds",
    Capability.ATTENTION: "attention",
}


class Scoring:
    """The calls of a run that give numbers; each checks window and budget, and is metered."""

    meter: Meter
    tokens: TokenBudget
    model: Callable[[Role], ChatModel]
    emit: Callable[[Event], None]
    warn: Callable[[str], None]

    async def likelihoods(
        self, pairs: Sequence[tuple[str, str]], *, role: Role = Role.SCORER
    ) -> list[list[float]]:
        """Return the natural log-probability of each token of each continuation after its prefix.

        Pairs are (prefix, continuation), both literal text; see `LikelihoodModel.likelihoods`.
        """
        model = self._require(role, Capability.LIKELIHOOD)
        if not pairs:
            return []
        tokens = await _count(model, (text for pair in pairs for text in pair))
        costs = [tokens[prefix] + tokens[continuation] for prefix, continuation in pairs]
        require_room(model, max(costs))
        sums: list[list[float]] = await self._measure(
            Capability.LIKELIHOOD, role, costs, lambda: model.likelihoods(pairs)
        )
        return sums

    async def labels(
        self,
        messages: Sequence[Message],
        labels: Sequence[str],
        *,
        forced: str = "",
        role: Role = Role.SCORER,
    ) -> LabelOdds:
        """Return the odds of each label as the beginning of the reply, after `forced`.

        See `LabelModel.labels`.
        """
        model = self._require(role, Capability.LABELS)
        tokens = await _count(model, (forced, *labels))
        shared = await model.count_prompt(messages) + tokens[forced]
        sizes = [tokens[label] for label in labels] or [0]
        require_room(model, shared + max(sizes))
        costs = [shared + sizes[0], *sizes[1:]]
        odds: LabelOdds = await self._measure(
            Capability.LABELS, role, costs, lambda: model.labels(messages, labels, forced=forced)
        )
        if odds.bounded:
            self.warn(
                f"{model.name} does not report the odds of every label: "
                "for a missing one the highest possible value is used"
            )
        return odds

    async def attention(
        self, text: str, spans: Sequence[tuple[int, int]], *, role: Role = Role.SCORER
    ) -> list[float]:
        """Return the mean attention of the text's last token to each span.

        See `AttentionModel.attention`.
        """
        model = self._require(role, Capability.ATTENTION)
        tokens = await model.count_tokens(text)
        require_room(model, tokens)
        values: list[float] = await self._measure(
            Capability.ATTENTION, role, [tokens], lambda: model.attention(text, spans)
        )
        return values

    def _require(self, role: Role, capability: Capability) -> Any:
        """Return the model of a role, which must have a capability."""
        model = self.model(role)
        if capability not in model.capabilities:
            what = f"{model.name} gives no {_NUMBERS[capability]}"
            hint = f"use a model that does, such as bundled, gguf:PATH or hf:NAME, as {role.value}"
            raise MissingCapability(what, f"it is the {role.value} of this run", hint)
        return model

    async def _measure(
        self,
        signal: Capability,
        role: Role,
        costs: Sequence[int],
        ask: Callable[[], Awaitable[Value]],
    ) -> Value:
        """Return what `ask` gives, within the budget, metered and traced.

        `costs` are the tokens of each pass.
        """
        name = self.model(role).name
        async with self.tokens.hold(sum(costs)):
            self.emit(Asking(role, name, signal.value, sum(costs)))
            began = time.perf_counter()
            result = await ask()
            seconds = time.perf_counter() - began
            cached = bool(getattr(result, "cached", False))  # as `CachedChat` says
            usage = Usage(sum(costs))
            took = 0.0 if cached else seconds
            self.meter.scoring(
                role, name, passes=len(costs), seconds=took, usage=usage, cached=cached
            )
        paid, numbers = Usage() if cached else usage, _describe(result)
        self.emit(Measured(signal.value, role, name, usage=paid, seconds=seconds, **numbers))
        return result


def _describe(result: Any) -> dict[str, Any]:
    """Return the fields of `Measured` that hold the numbers of a result."""
    if isinstance(result, LabelOdds):
        return {
            "values": tuple(result.odds.values()),
            "labels": tuple(result.odds),
            "mass": result.mass,
            "bounded": result.bounded,
        }
    # A likelihood is a number for each token of the continuation.
    return {"values": tuple(math.fsum(v) if isinstance(v, list) else v for v in result)}


async def _count(model: ChatModel, texts: Iterable[str]) -> dict[str, int]:
    return {text: await model.count_tokens(text) for text in dict.fromkeys(texts)}
