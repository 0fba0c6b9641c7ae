"""A run's scoring calls: likelihoods, label odds, attention. Strategies call them on `Run`.

The tokens of a call are counted here, with the model's own count, as no backend says what scoring
cost. Text that passes share counts in each of them, though the model may compute it once.
"""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from colligate.errors import MissingCapability
from colligate.models import (
    AttentionModel,
    Capability,
    ChatModel,
    LabelModel,
    LabelOdds,
    LikelihoodModel,
    Message,
    Prompt,
    Role,
    Usage,
)
from colligate.models.cached_chat import recalls
from colligate.strategies.budget import require_room
from colligate.strategies.trace import Asking, Measured

if TYPE_CHECKING:
    from colligate.strategies.run import Run

T = TypeVar("T")


async def likelihoods(run: Run, role: Role, pairs: Sequence[tuple[str, str]]) -> list[list[float]]:
    """As `Run.likelihoods`."""
    model = run.model(role)
    if Capability.LIKELIHOOD not in model.capabilities or not isinstance(model, LikelihoodModel):
        raise _missing("likelihoods", model, role, "gguf:PATH or hf:NAME")
    if not pairs:
        return []
    tokens = await _counts(model, (text for pair in pairs for text in pair))
    costs = [tokens[prefix] + tokens[continuation] for prefix, continuation in pairs]
    require_room(model, max(costs))
    scores, event = await _measured(
        run, "likelihood", role, model, costs, lambda: model.likelihoods(pairs)
    )
    run.emit(event(values=tuple(math.fsum(score) for score in scores)))
    return scores


async def labels(
    run: Run, role: Role, messages: Sequence[Message], labels: Sequence[str], forced: str
) -> LabelOdds:
    """As `Run.labels`."""
    model = run.model(role)
    if Capability.LABELS not in model.capabilities or not isinstance(model, LabelModel):
        raise _missing("label odds", model, role, "gguf:PATH or hf:NAME")
    tokens = await _counts(model, (forced, *labels))
    shared = await model.count_prompt(messages) + tokens[forced]
    sizes = [tokens[label] for label in labels] or [0]
    require_room(model, shared + max(sizes))
    odds, event = await _measured(
        run,
        "labels",
        role,
        model,
        [shared + sizes[0], *sizes[1:]],
        lambda: model.labels(messages, labels, forced=forced),
    )
    run.emit(
        event(
            values=tuple(odds.odds.values()),
            labels=tuple(odds.odds),
            mass=odds.mass,
            bounded=odds.bounded,
        )
    )
    if odds.bounded:
        run.warn(
            f"{model.name} does not say how likely every label is: "
            "one it leaves out is taken to be as likely as it can have been"
        )
    return odds


async def attention(
    run: Run,
    role: Role,
    prompt: Prompt,
    spans: Sequence[tuple[int, int]],
    query: int | None,
    layers: tuple[float, float],
) -> list[float]:
    """As `Run.attention`."""
    model = run.model(role)
    if Capability.ATTENTION not in model.capabilities or not isinstance(model, AttentionModel):
        raise _missing("attention", model, role, "hf:NAME")
    if isinstance(prompt, str):
        tokens = await model.count_tokens(prompt)
    else:
        tokens = await model.count_prompt(prompt)
    require_room(model, tokens)
    values, event = await _measured(
        run,
        "attention",
        role,
        model,
        [tokens],
        lambda: model.attention(prompt, spans, query=query, layers=layers),
    )
    run.emit(event(values=tuple(values)))
    return values


async def _measured(
    run: Run,
    signal: str,
    role: Role,
    model: ChatModel,
    costs: Sequence[int],
    ask: Callable[[], Awaitable[T]],
) -> tuple[T, Callable[..., Measured]]:
    """What `ask` gives, within the budget and metered; and the event, which lacks its values.

    `costs` are the tokens of each pass.
    """
    async with run.purse.hold(sum(costs)):
        run.emit(Asking(role, model.name, signal, sum(costs)))
        began = time.perf_counter()
        with recalls() as remembered:
            result = await ask()
        seconds = time.perf_counter() - began
        known = remembered or [False] * len(costs)
        fresh = [cost for cost, free in zip(costs, known, strict=True) if not free]
        free = [cost for cost, free in zip(costs, known, strict=True) if free]
        usage = Usage(sum(fresh), estimated=True)
        for passes, took, cached in ((fresh, seconds, False), (free, 0.0, True)):
            if passes:
                run.meter.scoring(
                    role,
                    model.name,
                    passes=len(passes),
                    seconds=took,
                    usage=Usage(sum(passes), estimated=True),
                    cached=cached,
                )
    event = partial(
        Measured,
        signal,
        role,
        model.name,
        usage=usage,
        seconds=seconds,
        remembered=len(costs) - len(fresh),
    )
    return result, event


async def _counts(model: ChatModel, texts: Iterable[str]) -> dict[str, int]:
    return {text: await model.count_tokens(text) for text in dict.fromkeys(texts)}


def _missing(what: str, model: ChatModel, role: Role, such_as: str) -> MissingCapability:
    return MissingCapability(
        f"{model.name} gives no {what}",
        f"it is the {role.value} of this run",
        f"take a model that does as {role.value}, such as {such_as}",
    )
