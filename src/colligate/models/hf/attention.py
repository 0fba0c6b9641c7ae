"""The attention that a prompt's last tokens pay to parts of it.

A module of its own because it hides how exact attention is read at low cost: all tokens before the
query go through the model's fast kernel, which returns no probabilities; the query's tokens then go
through the eager one, which does, a few at a time. A row costs what one token costs, and a matrix
of tokens by tokens is never made.
"""

from __future__ import annotations

from collections.abc import Sequence
from threading import Event
from typing import Any

from colligate.errors import MissingCapability
from colligate.models.base import Prompt
from colligate.models.hf.prompts import Prompts
from colligate.models.hf.runtime import Runtime

_ROWS = 16  # query tokens computed together: what the layers return for them is in memory at once


def compute_attention(
    runtime: Runtime,
    prompts: Prompts,
    prompt: Prompt,
    spans: Sequence[tuple[int, int]],
    *,
    query: int | None = None,
    layers: tuple[float, float] = (0.0, 1.0),
    adapter: str = "",
    stop: Event | None = None,
) -> list[float]:
    """Compute the mean attention of the query's tokens to a token of each span.

    See `AttentionModel.attention` for the parameters and errors. Keys and values of the whole
    prompt are remembered for prompts with the same prefix.
    """
    text = prompt if isinstance(prompt, str) else prompt[-1].content if prompt else ""
    if not text:
        raise ValueError("there is no text to attend to")
    for start, end in spans:
        if not 0 <= start <= end <= len(text):
            raise ValueError(f"no span {start}-{end} in a text of {len(text)} characters")
    ids, covered = prompts.encode_question(prompt)
    first = len(ids) - 1
    if query is not None:
        if not 0 <= query < len(text):
            raise ValueError(f"no query at {query} in a text of {len(text)} characters")
        first = next(i for i, (_, end) in enumerate(covered) if end > query)
    row = _compute_row(runtime, ids, first, layers, adapter, stop)
    return [_average_span(row, covered, span) for span in spans]


def _compute_row(
    runtime: Runtime,
    ids: list[int],
    first: int,
    depths: tuple[float, float],
    adapter: str,
    stop: Event | None,
) -> list[float]:
    """Compute the mean attention of the tokens from `first` on to each token; it sums to 1."""
    runtime.check_fits(len(ids))
    with runtime.inference(stop, adapter):
        # Not kept yet: the query's keys are missing, and two copies would be in memory.
        cache = runtime.prefill(ids[:first], adapter=adapter, keep=False)[0] if first else None
        cache = runtime.new_cache() if cache is None else cache
        total = runtime.torch.zeros(len(ids), dtype=runtime.torch.float32)
        with runtime.use_attention("eager"):
            for start in range(first, len(ids), _ROWS):
                piece = ids[start : start + _ROWS]
                attentions = runtime.forward(piece, cache, output_attentions=True).attentions
                total += _sum_rows(runtime, attentions, depths, start + len(piece), len(ids))
        runtime.prefixes.store(ids, runtime.layers_of(cache), adapter)
        row: list[float] = (total / (len(ids) - first)).tolist()
    return row


def _sum_rows(
    runtime: Runtime, attentions: Any, depths: tuple[float, float], end: int, size: int
) -> Any:
    """Average the rows of the tokens before `end` over layers and heads, and add them up.

    A layer's probabilities are [1, heads, rows, tokens]; the sum is [size], float32.
    """
    if not attentions or any(layer is None for layer in attentions):
        raise MissingCapability(
            f"{runtime.name} gives no attention",
            "its implementation in transformers does not return it",
            "use a model of another architecture",
        )
    first, last = (round(share * len(attentions)) for share in depths)
    counted = attentions[max(0, first) : max(0, last)]
    if not counted:
        raise ValueError(f"none of the {len(attentions)} layers is between the depths {depths}")
    total = runtime.torch.zeros(size, dtype=runtime.torch.float32)
    for layer in counted:
        row = layer[0].float().mean(dim=0).sum(dim=0).cpu()
        # A layer with a sliding window may leave out the tokens before it.
        total[end - len(row) : end] += row
    return total / len(counted)


def _average_span(
    row: Sequence[float], covered: Sequence[tuple[int, int]], span: tuple[int, int]
) -> float:
    start, end = span
    inside = [
        mass for mass, (a, b) in zip(row, covered, strict=True) if max(a, start) < min(b, end)
    ]
    return sum(inside) / len(inside) if inside else 0.0
