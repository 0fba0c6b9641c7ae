"""The attention that a prompt's last tokens pay to parts of it.

All tokens before them go through the model's fast kernel, which shows no probabilities; they then
go through the plain one, which does, a few at a time. That is exact, and a row costs what one token
costs: never is a matrix of tokens by tokens made for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from threading import Event
from typing import Any

from colligate.errors import MissingCapability
from colligate.models.base import Prompt
from colligate.models.hf.loading import Runtime
from colligate.models.hf.prompts import Prompts

Span = tuple[int, int]

_ROWS = 16  # computed together: what the layers return of them is held at once


def attention(
    runtime: Runtime,
    prompts: Prompts,
    prompt: Prompt,
    spans: Sequence[Span],
    *,
    query: int | None = None,
    layers: tuple[float, float] = (0.0, 1.0),
    adapter: str = "",
    stop: Event | None = None,
) -> list[float]:
    """Mean attention of the query's tokens to a token of each span, as `AttentionModel` says.

    Keys and values of the whole prompt are remembered for prompts that begin alike.

    Raises:
        ValueError: a span lies outside the text, the text or the query is empty, or no layer
            lies between these depths.
        ContextTooSmall: the prompt does not fit the window.
        MissingCapability: the model does not show its attention.
        Stopped: `stop` was set.
    """
    text = prompt if isinstance(prompt, str) else prompt[-1].content if prompt else ""
    if not text:
        raise ValueError("there is no text to attend to")
    for start, end in spans:
        if not 0 <= start <= end <= len(text):
            raise ValueError(f"no span {start}-{end} in a text of {len(text)} characters")
    ids, covered = prompts.question(prompt)
    asking = len(ids) - 1
    if query is not None:
        if not 0 <= query < len(text):
            raise ValueError(f"no query from {query} on in a text of {len(text)} characters")
        asking = next(i for i, (_, end) in enumerate(covered) if end > query)
    row = _row(runtime, ids, asking, layers, adapter, stop)
    return [_mean(row, covered, span) for span in spans]


def _row(
    runtime: Runtime,
    ids: list[int],
    asking: int,
    depth: tuple[float, float],
    adapter: str,
    stop: Event | None,
) -> list[float]:
    """Attention of the tokens from `asking` on to each token: the mean of their rows, sums to 1."""
    runtime.must_fit(len(ids))
    with runtime.working(stop, adapter):
        # Not kept yet: the query's keys are still to come, and two copies would be held.
        cache = runtime.prefill(ids[:asking], adapter=adapter, keep=False)[0] if asking else None
        cache = runtime.cache() if cache is None else cache
        total = runtime.torch.zeros(len(ids), dtype=runtime.torch.float32)
        with runtime.attending("eager"):
            for start in range(asking, len(ids), _ROWS):
                piece = ids[start : start + _ROWS]
                shown = runtime.forward(piece, cache, output_attentions=True).attentions
                total += _sum(runtime, shown, depth, start + len(piece), len(ids))
        runtime.remembered.keep(ids, runtime.layers_of(cache), adapter)
        row: list[float] = (total / (len(ids) - asking)).tolist()
    return row


def _sum(runtime: Runtime, shown: Any, depth: tuple[float, float], end: int, size: int) -> Any:
    """The rows that layers show of the tokens before `end`, averaged over layers and heads, summed.

    A layer's probabilities are [1, heads, rows, tokens]; the sum is [size], float32.
    """
    if not shown or any(layer is None for layer in shown):
        raise MissingCapability(
            f"{runtime.name} gives no attention",
            "its implementation in transformers does not show it",
            "take a model of another architecture",
        )
    first, last = (round(share * len(shown)) for share in depth)
    counted = shown[max(0, first) : max(0, last)]
    if not counted:
        raise ValueError(f"{len(shown)} layers have none between the depths {depth}")
    total = runtime.torch.zeros(size, dtype=runtime.torch.float32)
    for layer in counted:
        seen = layer[0].float().mean(dim=0).sum(dim=0).cpu()
        # A layer that looks back over a window alone may leave out what lies before it.
        total[end - len(seen) : end] += seen
    return total / len(counted)


def _mean(row: Sequence[float], covered: Sequence[Span], span: Span) -> float:
    start, end = span
    inside = [
        mass for mass, (a, b) in zip(row, covered, strict=True) if max(a, start) < min(b, end)
    ]
    return sum(inside) / len(inside) if inside else 0.0
