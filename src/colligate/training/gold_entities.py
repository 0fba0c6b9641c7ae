"""Which gold document an entity of a DualRAG trajectory means.

The paper asks a reranker: the gold title with the best score, where that is over nought (of
logits). So does this, where a cross-encoder is named. Without one a title is meant when all words
of the shorter of the two stand in the longer, and the same numbers. Where no title is meant, the
spans that our outline keeps tell: what is known of the entity rests mostly on one gold document.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from colligate.documents import Span
from colligate.evidence.entity_linking import ELSE, words_of

Scored = Callable[[str, Sequence[str]], Awaitable[Sequence[float]]]
"""A reranker's score of each title for a name."""

_MOSTLY = 0.5
_ROMAN = re.compile(r"[IVX]+")
_QUALIFIED = re.compile(r"\s*\([^()]*\)\s*$")  # "Silver Harbour (film)"


@dataclass(frozen=True)
class Gold:
    """A document that holds a part of the answer, and those sentences of it that are named."""

    id: str
    title: str
    sentences: tuple[str, ...] = ()


@dataclass(frozen=True)
class Match:
    """The gold that an entity means. Scores compare within one `how`."""

    gold: Gold
    how: Literal["reranker", "words", "knowledge"]
    score: float

    @property
    def rank(self) -> tuple[bool, float]:
        """The greater, the better: by its name before by what is known of it."""
        return self.how != "knowledge", self.score


async def matches(
    known: Mapping[str, Sequence[Span]],
    golds: Sequence[Gold],
    *,
    scored: Scored | None = None,
    over: float = 0.0,
) -> dict[str, Match]:
    """The gold of each entity that means one; `known` are the spans its knowledge rests on.

    `scored` is a reranker's, whose best title counts where its score is above `over`.
    """
    found = {}
    for entity, spans in known.items():
        match = None if entity == ELSE else await _by_name(entity, golds, scored, over)
        match = match or _by_knowledge(spans, golds)
        if match is not None:
            found[entity] = match
    return found


async def _by_name(
    entity: str, golds: Sequence[Gold], scored: Scored | None, over: float
) -> Match | None:
    titled = [gold for gold in golds if gold.title]
    if not titled:
        return None
    how: Literal["reranker", "words"]
    if scored is None:
        how, over, scores = "words", 0.0, [_shared(entity, gold.title) for gold in titled]
    else:
        how, scores = "reranker", list(await scored(entity, [gold.title for gold in titled]))
    best = max(range(len(titled)), key=scores.__getitem__)
    return Match(titled[best], how, scores[best]) if scores[best] > over else None


def _shared(name: str, title: str) -> float:
    """F1 of the words of name and title if one has all of the other's, else 0.

    What a title says in brackets at its end only counts where the name has brackets too. Numbers
    tell apart: those of the name must stand in the title, those of the title before its brackets
    in the name.
    """
    bare = title if _QUALIFIED.search(name) else _QUALIFIED.sub("", title) or title
    if not _numbers(bare) <= _numbers(name) <= _numbers(title):
        return 0.0
    return max(_contained(set(words_of(name)), set(words_of(each))) for each in (title, bare))


def _contained(one: set[str], other: set[str]) -> float:
    if not one or not other or not (one <= other or other <= one):
        return 0.0
    return 2 * min(len(one), len(other)) / (len(one) + len(other))


def _numbers(text: str) -> set[str]:
    """Its numbers, also Roman ones; a lone I, V or X among them."""
    return {w for w in re.findall(r"\w+", text) if any(map(str.isdigit, w)) or _ROMAN.fullmatch(w)}


def _by_knowledge(spans: Sequence[Span], golds: Sequence[Gold]) -> Match | None:
    counted = Counter(span.document_id for span in spans)
    shares = [(counted[gold.id] / len(spans), gold) for gold in golds] if spans else []
    share, gold = max(shares, key=lambda pair: pair[0], default=(0.0, None))
    return Match(gold, "knowledge", share) if gold is not None and share > _MOSTLY else None
