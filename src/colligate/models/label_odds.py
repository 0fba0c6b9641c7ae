"""Compute the odds of labels, from their log-probabilities or from the likeliest first tokens."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

from colligate.errors import MalformedOutput, MissingCapability
from colligate.models.base import LabelOdds

_NEGLIGIBLE = 0.01  # share of the labels' probability that may be ambiguous without effect


def require_labels(labels: Sequence[str]) -> None:
    """Raise ValueError if there is no label, or if one is empty or given twice."""
    if not labels or not all(labels):
        raise ValueError("labels must be given, and no label may be empty")
    if len(set(labels)) < len(labels):
        raise ValueError("labels must differ from one another")


def odds_of(scores: Mapping[str, float]) -> LabelOdds:
    """Return the odds of labels, each scored by the log-probability of all its tokens.

    `mass` is at most 1, although a label that another begins with is counted in both.
    """
    most = max(scores.values())
    shares = {label: math.exp(score - most) for label, score in scores.items()}
    total = sum(shares.values())
    odds = {label: portion / total for label, portion in shares.items()}
    return LabelOdds(odds, mass=min(1.0, math.exp(most) * total))


def odds_from_first_token(
    alternatives: Sequence[tuple[str, float]], labels: Sequence[str], model: str
) -> LabelOdds:
    """Return the odds of the labels from the first token's likeliest alternatives.

    A token counts for a label if one of the two begins with the other; case and outer blanks are
    ignored. A label that is not among the tokens (servers return 5 to 20) cannot be likelier than
    the least likely of them, nor have more than its share of the remaining probability; it gets
    that bound. `mass` is the sum before scaling, bounds included.

    Raises:
        MissingCapability: tokens that decide the odds begin several of the labels.
        MalformedOutput: none of the labels is among the tokens.
        ValueError: there are no labels, or one is empty or given twice.
    """
    require_labels(labels)
    found = dict.fromkeys(labels, 0.0)
    words = [(token.strip().casefold(), probability) for token, probability in alternatives]
    tokens = {word for word, _ in words}
    undecided, between = 0.0, set[str]()
    for word, probability in words:
        begun = _labels_begun(word, labels, tokens)
        for label in begun:
            found[label] += probability / len(begun)
        if len(begun) > 1:
            undecided += probability
            between.update(begun)
    total = sum(found.values())
    if total == 0:
        what = f"{model} gives none of the labels {', '.join(labels)} as its answer"
        why = "none is among its likeliest first tokens"
        raise MalformedOutput(what, why, "use another scorer")
    if undecided > _NEGLIGIBLE * total:
        raise MissingCapability(
            f"{model} cannot tell the labels {', '.join(sorted(between))} apart",
            "they begin with the same token, and the server gives odds of the first token only",
            "give labels that begin differently, or a scorer of whole labels: gguf:, hf: or vLLM",
        )
    bounded = tuple(label for label, probability in found.items() if probability == 0)
    left_over = max(0.0, 1 - sum(probability for _, probability in alternatives))
    least = min(probability for _, probability in alternatives)
    for label in bounded:
        found[label] = min(least, left_over / len(bounded))
    total = sum(found.values())
    odds = {label: probability / total for label, probability in found.items()}
    return LabelOdds(odds, mass=min(1.0, total), bounded=bounded)


def _labels_begun(word: str, labels: Sequence[str], tokens: Collection[str]) -> list[str]:
    """Return the labels a token counts for: "Ye" and "Yes," for "Yes", but not "Yesterday"."""
    begun = {}
    for label in labels:
        plain = label.strip().casefold()
        rest = word.removeprefix(plain)
        if plain and word and (plain.startswith(word) or (rest != word and not rest[0].isalnum())):
            begun[label] = plain
    if len(begun) > 1:
        # A label that is one token is not written in pieces: the token "1" does not begin "10".
        begun = {
            label: plain for label, plain in begun.items() if plain == word or plain not in tokens
        } or begun
    return list(begun)
