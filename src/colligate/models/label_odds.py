"""From the likeliest first tokens of an answer to the odds of a few labels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from colligate.errors import MalformedOutput


def require_labels(labels: Sequence[str]) -> None:
    """Raise ValueError unless there are labels and none is empty."""
    if not labels or not all(labels):
        raise ValueError("labels must be given, and none of them empty")


def first_token(completion: Any) -> list[tuple[str, float]]:
    """The first token's alternatives with their probabilities; none when the server says none."""
    try:
        content = completion.choices[0].logprobs.content
        first = [(str(entry.token), math.exp(entry.logprob)) for entry in content[0].top_logprobs]
    except (AttributeError, LookupError, TypeError, OverflowError):
        return []
    return first if all(math.isfinite(probability) for _, probability in first) else []


def share(
    alternatives: Sequence[tuple[str, float]], labels: Sequence[str], model: str
) -> dict[str, float]:
    """Odds of the labels, summing to 1, from the first token's likeliest alternatives.

    A token counts for every label it begins (or that begins it), case and outer blanks aside,
    shared equally: labels should differ in their first token. A label that is not among the
    tokens (servers return 5 to 20) cannot have more than the least likely of them, nor more than
    its share of the mass they leave over; it is given that bound. Then all are scaled.

    Raises:
        MalformedOutput: none of the labels is among the tokens.
        ValueError: there are no labels, or an empty one.
    """
    require_labels(labels)
    odds = dict.fromkeys(labels, 0.0)
    for token, probability in alternatives:
        word = token.strip().casefold()
        begun = [
            label
            for label in odds
            if word and (label.casefold().startswith(word) or word.startswith(label.casefold()))
        ]
        for label in begun:
            odds[label] += probability / len(begun)
    absent = [label for label, probability in odds.items() if probability == 0]
    if len(absent) == len(odds):
        raise MalformedOutput(
            f"{model} gives none of the labels {', '.join(labels)} as its answer",
            "none is among its likeliest first tokens",
            "use another scorer",
        )
    left_over = max(0.0, 1 - sum(probability for _, probability in alternatives))
    least = min(probability for _, probability in alternatives)
    for label in absent:
        odds[label] = min(least, left_over / len(absent))
    total = sum(odds.values())
    return {label: probability / total for label, probability in odds.items()}
