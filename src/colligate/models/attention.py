"""Attention of a prompt's last tokens to parts of it: what backends share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from colligate.models.base import Prompt
from colligate.models.prompts import Prompts


def read_question(
    prompts: Prompts, prompt: Prompt, spans: Sequence[tuple[int, int]], query: int | None
) -> tuple[list[int], int, Callable[[Sequence[float] | Any], list[float]]]:
    """Return a prompt's tokens, the place of the first query token, and how to sum up a row.

    The last maps the mean attention to each token onto the spans. See `AttentionModel.attention`
    for the parameters and errors.
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
    return ids, first, lambda row: [_average_span(row, covered, span) for span in spans]


def choose_layers(count: int, depths: tuple[float, float]) -> range:
    """Return the layers between two shares of the depth; ValueError if there are none."""
    first, last = (round(share * count) for share in depths)
    layers = range(max(0, first), min(count, max(0, last)))
    if not layers:
        raise ValueError(f"none of the {count} layers is between the depths {depths}")
    return layers


def _average_span(
    row: Sequence[float], covered: Sequence[tuple[int, int]], span: tuple[int, int]
) -> float:
    start, end = span
    inside = [
        float(mass)
        for mass, (a, b) in zip(row, covered, strict=True)
        if max(a, start) < min(b, end)
    ]
    return sum(inside) / len(inside) if inside else 0.0
