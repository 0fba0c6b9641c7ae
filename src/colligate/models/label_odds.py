"""From the likeliest first tokens of an answer to the odds of a few labels."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from colligate.errors import MalformedOutput, MissingCapability
from colligate.models.base import LabelOdds
from colligate.models.openai_http import Garbled

_NEGLIGIBLE = 0.01  # of the labels' probability: so much may be shared without changing a choice


def require_labels(labels: Sequence[str]) -> None:
    """Raise ValueError unless there are labels, none of them empty or doubled."""
    if not labels or not all(labels):
        raise ValueError("labels must be given, and none of them empty")
    if len(set(labels)) < len(labels):
        raise ValueError("labels must differ from one another")


def first_token(completion: Any) -> list[tuple[str, float]]:
    """The first token's alternatives with their probabilities; none when the server says none.

    Raises:
        Garbled: it is no answer.
    """
    try:
        choice = completion["choices"][0]
    except (LookupError, TypeError):
        raise Garbled("it has no choices") from None
    try:
        entries = choice["logprobs"]["content"][0]["top_logprobs"]
        first = [(str(entry["token"]), math.exp(entry["logprob"])) for entry in entries]
    except (LookupError, TypeError, OverflowError):
        return []
    return first if all(math.isfinite(probability) for _, probability in first) else []


def odds_of(scores: Mapping[str, float]) -> LabelOdds:
    """Odds of labels, each scored by the log-probability of all its tokens.

    `mass` is at most 1 although a label that another begins with is counted in both.
    """
    most = max(scores.values())
    shares = {label: math.exp(score - most) for label, score in scores.items()}
    total = sum(shares.values())
    odds = {label: portion / total for label, portion in shares.items()}
    return LabelOdds(odds, mass=min(1.0, math.exp(most) * total))


def share(
    alternatives: Sequence[tuple[str, float]], labels: Sequence[str], model: str
) -> LabelOdds:
    """Odds of the labels from the first token's likeliest alternatives.

    A token counts for the label it begins or that begins it, case and outer blanks aside. A
    label that is not among the tokens (servers return 5 to 20) cannot have more than the least
    likely of them, nor more than its share of the mass they leave over; it is given that bound.
    `mass` is the sum before scaling, bounds included.

    Raises:
        MissingCapability: tokens that decide the odds begin several of the labels.
        MalformedOutput: none of the labels is among the tokens.
        ValueError: there are no labels, an empty or a doubled one.
    """
    require_labels(labels)
    found = dict.fromkeys(labels, 0.0)
    words = [(token.strip().casefold(), probability) for token, probability in alternatives]
    tokens = {word for word, _ in words}
    undecided, between = 0.0, set[str]()
    for word, probability in words:
        begun = _begun(word, labels, tokens)
        for label in begun:
            found[label] += probability / len(begun)
        if len(begun) > 1:
            undecided += probability
            between.update(begun)
    shown = sum(found.values())
    if shown == 0:
        raise MalformedOutput(
            f"{model} gives none of the labels {', '.join(labels)} as its answer",
            "none is among its likeliest first tokens",
            "use another scorer",
        )
    if undecided > _NEGLIGIBLE * shown:
        raise MissingCapability(
            f"{model} cannot tell the labels {', '.join(sorted(between))} apart",
            "they begin with the same token, and the server gives odds of that one alone",
            "give labels that begin differently, or use a scorer that sees whole labels:"
            " gguf:, hf: or vLLM",
        )
    bounded = tuple(label for label, probability in found.items() if probability == 0)
    left_over = max(0.0, 1 - sum(probability for _, probability in alternatives))
    least = min(probability for _, probability in alternatives)
    for label in bounded:
        found[label] = min(least, left_over / len(bounded))
    total = sum(found.values())
    odds = {label: probability / total for label, probability in found.items()}
    return LabelOdds(odds, mass=min(1.0, total), bounded=bounded)


def _begun(word: str, labels: Sequence[str], tokens: Collection[str]) -> list[str]:
    """The labels a token counts for: for "Yes" also "Ye" and "Yes,", but not "Yesterday"."""
    begun = {}
    for label in labels:
        plain = label.strip().casefold()
        rest = word.removeprefix(plain)
        if plain and word and (plain.startswith(word) or (rest != word and not rest[0].isalnum())):
            begun[label] = plain
    if len(begun) > 1:
        # A label that is a token itself is not written in pieces: "1" then begins no "10".
        begun = {
            label: plain for label, plain in begun.items() if plain == word or plain not in tokens
        } or begun
    return list(begun)
