"""The attention that a prompt's last token pays to parts of it.

All tokens but the last go through the model's fast kernel, which shows no probabilities; the last
one then goes alone through the plain one, which does. That is exact, and the row costs what one
token costs: never is a matrix of tokens by tokens made for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from threading import Event
from typing import Any

from colligate.errors import MissingCapability
from colligate.models.hf.prompts import Prompts
from colligate.models.hf.runtime import Runtime
from colligate.models.protocols import Prompt

Span = tuple[int, int]


def attention(
    runtime: Runtime,
    prompts: Prompts,
    prompt: Prompt,
    spans: Sequence[Span],
    *,
    adapter: str = "",
    stop: Event | None = None,
) -> list[float]:
    """Mean attention of the last token to a token of each span, as `AttentionModel` says.

    Keys and values of the whole prompt are remembered for prompts that begin alike.

    Raises:
        ValueError: a span lies outside the text, or the text is empty.
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
    row = _row(runtime, ids, adapter, stop)
    return [_mean(row, covered, span) for span in spans]


def _row(runtime: Runtime, ids: list[int], adapter: str, stop: Event | None) -> list[float]:
    """Attention of the last token to each token, over all layers and heads; sums to 1."""
    runtime.must_fit(len(ids))
    *before, last = ids
    with runtime.working(stop, adapter):
        # Not kept yet: the query's keys are still to come, and two copies would be held.
        cache = runtime.prefill(before, adapter=adapter, keep=False)[0] if before else None
        cache = runtime.cache() if cache is None else cache
        with runtime.attending("eager"):
            layers = runtime.forward([last], cache, output_attentions=True).attentions
        runtime.remembered.keep(ids, runtime.layers_of(cache), adapter)
        if not layers or any(layer is None for layer in layers):
            raise MissingCapability(
                f"{runtime.name} gives no attention",
                "its implementation in transformers does not show it",
                "take a model of another architecture",
            )
        total = runtime.torch.zeros(len(ids), dtype=runtime.torch.float32)
        for layer in layers:
            seen = _over_heads(layer)
            # A layer that looks back over a window alone may leave out what lies before it.
            total[len(ids) - len(seen) :] += seen
        row: list[float] = (total / len(layers)).tolist()
    return row


def _over_heads(layer: Any) -> Any:
    """A layer's probabilities [1, heads, 1, tokens] averaged: [tokens], float32."""
    return layer[0, :, -1].float().mean(dim=0).cpu()


def _mean(row: Sequence[float], covered: Sequence[Span], span: Span) -> float:
    start, end = span
    inside = [
        mass for mass, (a, b) in zip(row, covered, strict=True) if max(a, start) < min(b, end)
    ]
    return sum(inside) / len(inside) if inside else 0.0
