"""The steps of a run of DualRAG, and which gold documents its entities mean.

Nothing of a run is recorded twice: the code that built the outline builds it again from the events.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from colligate.core.events import Event, Noted
from colligate.core.prompts import escape
from colligate.core.run import Run
from colligate.documents import Passage, Span
from colligate.strategies.dualrag.knowledge import ELSE, Fragment, Knowledge
from colligate.strategies.dualrag.method import Gathered, Identified, Reasoned, Stopped, Summarised
from colligate.strategies.dualrag.prompts import (
    LONGEST_STATEMENT,
    MOST_STATEMENTS,
    SummaryStatement,
)

E = TypeVar("E", bound=Event)


@dataclass(frozen=True)
class EntityLookup:
    """An entity of a step, its queries, the passages read for it, and what they say about it."""

    entity: str
    queries: tuple[str, ...]
    passages: tuple[Passage, ...] = ()
    fragments: tuple[Fragment, ...] = ()


@dataclass(frozen=True)
class TrajectoryStep:
    """A round: a thought, and what was looked up for it; nothing if it was enough."""

    round: int
    thought: str
    need_retrieve: bool
    readable: bool = True  # the Reasoner's reply; else the run used its fallback
    identified: bool = True  # the same of the Entity Identifier's
    looked: tuple[EntityLookup, ...] = ()


@dataclass(frozen=True)
class StepState:
    """The knowledge at the start of a step: the outline as shown, thoughts, those `before` it."""

    outline: str
    names: tuple[str, ...]
    fragments: tuple[Fragment, ...]
    before: tuple[str, ...]
    thoughts: tuple[str, ...]


@dataclass(frozen=True)
class Trajectory:
    """The rounds of a run, why they ended, and what the run warned of until then."""

    id: str
    question: str
    steps: tuple[TrajectoryStep, ...]
    stop: str = ""
    warnings: tuple[str, ...] = ()


async def read_trajectory(id_: str, question: str, run: Run) -> Trajectory:
    """Read the trajectory of a run from its events."""
    events = [event for _, event in run.trace.events]
    stops = [at for at, event in enumerate(events) if isinstance(event, Stopped)]
    rounds = events[: stops[0]] if stops else events
    steps = []
    for reasoned in _select(Reasoned, rounds):
        of_round = [each for each in rounds if getattr(each, "round", None) == reasoned.round]
        summaries = {each.entity: each for each in _select(Summarised, of_round)}
        looked = []
        for each in _select(Gathered, of_round):
            lookup = EntityLookup(each.entity, each.queries)
            if each.entity in summaries:
                found = [(await run.document(s.document_id)).passage(s) for s in each.unseen]
                fragments = summaries[each.entity].fragments
                lookup = replace(lookup, passages=tuple(found), fragments=fragments)
            looked.append(lookup)
        step = TrajectoryStep(
            round=reasoned.round,
            thought=reasoned.thought,
            need_retrieve=reasoned.need_retrieve,
            readable=reasoned.readable,
            identified=all(each.readable for each in _select(Identified, of_round)),
            looked=tuple(looked),
        )
        steps.append(step)
    return Trajectory(
        id=id_,
        question=question,
        steps=tuple(steps),
        stop=next((each.reason.value for each in _select(Stopped, events)), ""),
        warnings=tuple(each.text for each in _select(Noted, rounds) if each.warning),
    )


def replay(
    steps: Iterable[TrajectoryStep], rename: Callable[[str], str | None] = lambda entity: entity
) -> Iterator[StepState]:
    """Yield the knowledge at the start of each step.

    `rename` returns the name of an entity in the outline: entities of the same name share their
    knowledge, and None leaves an entity out.
    """
    outline = Knowledge("")
    thoughts: list[str] = []
    for step in steps:
        before = tuple(thoughts)
        if step.thought and step.thought not in thoughts:
            thoughts.append(step.thought)
        yield StepState(
            outline=outline.render(),
            names=tuple(name for name in outline.entities if name != ELSE),
            fragments=tuple(f for each in outline.entities.values() for f in each.fragments),
            before=before,
            thoughts=tuple(thoughts),
        )
        for looked in step.looked:
            name = rename(looked.entity)
            if name is not None and looked.fragments:
                outline.merge(name, looked.fragments, looked.passages)


def _select(kind: type[E], events: Iterable[Event]) -> list[E]:
    return [event for event in events if isinstance(event, kind)]


# Which gold document an entity means.
#
# The paper asks a reranker: the gold title with the best score, if that is above 0 (of logits). So
# does this if a cross-encoder is named. Without one a title is meant if the name has all its words.
# If no title is meant, the spans that our outline keeps decide: most of what is known of the entity
# is from one gold document.

TitleScorer = Callable[[str, Sequence[str]], Awaitable[Sequence[float]]]
"""Scores each title for a name, as a reranker does."""

_LEAST_SCORE = 0.5  # of a reranker, in [0, 1]; the paper: 0, of logits
_MOSTLY = 0.5
_QUALIFIED = re.compile(r"\s*\([^()]*\)\s*$")  # "Silver Harbour (film)"


@dataclass(frozen=True)
class GoldDocument:
    """A document with a part of the answer, and the sentences of it that the data set names."""

    id: str
    title: str
    sentences: tuple[str, ...] = ()


@dataclass(frozen=True)
class GoldMatch:
    """The gold document that an entity means. Scores compare within one `how`."""

    gold: GoldDocument
    how: str  # "reranker", "words" or "knowledge"
    score: float


async def match_entities(
    known: Mapping[str, Sequence[Span]],
    golds: Sequence[GoldDocument],
    *,
    score_titles: TitleScorer | None = None,
) -> dict[str, GoldMatch]:
    """Return the gold document of each entity that means one; `known` has its spans."""
    found = {}
    for entity, spans in known.items():
        match = None if entity == ELSE else await _match_name(entity, golds, score_titles)
        match = match or _match_knowledge(spans, golds)
        if match is not None:
            found[entity] = match
    return found


async def _match_name(
    entity: str, golds: Sequence[GoldDocument], score_titles: TitleScorer | None
) -> GoldMatch | None:
    titled = [gold for gold in golds if gold.title]
    if not titled:
        return None
    if score_titles is None:
        how, least, scores = "words", 0.0, [_score_words(entity, gold.title) for gold in titled]
    else:
        how, least = "reranker", _LEAST_SCORE
        scores = list(await score_titles(entity, [gold.title for gold in titled]))
    best = max(range(len(titled)), key=scores.__getitem__)
    return GoldMatch(titled[best], how, scores[best]) if scores[best] > least else None


def _score_words(name: str, title: str) -> float:
    """Return the title's share of a name's words if the name has all of them, otherwise 0."""
    bare = _QUALIFIED.sub("", title) or title
    said, wanted = set(sort_name_words(name)), set(sort_name_words(bare))
    return len(wanted) / len(said) if wanted and wanted <= said else 0.0


def _match_knowledge(spans: Sequence[Span], golds: Sequence[GoldDocument]) -> GoldMatch | None:
    counted = Counter(span.document_id for span in spans)
    shares = [(counted[gold.id] / len(spans), gold) for gold in golds] if spans else []
    share, gold = max(shares, key=lambda pair: pair[0], default=(0.0, None))
    return GoldMatch(gold, "knowledge", share) if gold is not None and share > _MOSTLY else None


# Quotes in a wanted reply: copied word for word from where they are.
def quote_statements(
    fragments: Sequence[Fragment], passages: Sequence[Passage]
) -> list[SummaryStatement]:
    """Return a statement for each fragment; its quote are the sentences that it is from."""
    found = []
    for fragment in fragments:
        for span in fragment.spans:
            for number, passage in enumerate(passages, 1):
                if passage.span.contains(span):
                    start = span.start - passage.span.start
                    quote = passage.text[start : start + len(span)]
                    found.append(_make_statement(number, quote, fragment.text))
                    break
    return found[:MOST_STATEMENTS]


def find_gold_statement(gold: GoldDocument, passages: Sequence[Passage]) -> list[SummaryStatement]:
    """Return the gold's first named sentence that a passage has, if any.

    Blanks and line breaks may differ. What is named may be longer than a passage; it is then the
    passage that is stated, and so is the gold's first one if nothing is named.
    """
    own = [(n, each.text) for n, each in enumerate(passages, 1) if each.document_id == gold.id]
    for words in filter(None, map(str.split, gold.sentences)):
        pattern = re.compile(r"\s+".join(map(re.escape, words)))
        for number, text in own:
            if " ".join(text.split()) in " ".join(words):
                return [_make_statement(number, text, text)]
            if found := pattern.search(text):
                return [_make_statement(number, found[0], found[0])]
    return [] if gold.sentences else [_make_statement(n, text, text) for n, text in own[:1]]


def _make_statement(number: int, quote: str, sentence: str) -> SummaryStatement:
    """Return a statement whose quote is in the prompt, escaped as there."""
    return SummaryStatement(
        passage=number,
        quote=_shorten(escape(quote), LONGEST_STATEMENT),
        sentence=_shorten(" ".join(sentence.split()), LONGEST_STATEMENT),
    )


def _shorten(text: str, longest: int) -> str:
    """Return as many whole words of a text as fit."""
    if len(text) <= longest:
        return text
    return text[: longest + 1].rpartition(" ")[0] or text[:longest]


def sort_name_words(name: str) -> tuple[str, ...]:
    """Return the words of a name sorted, without case and punctuation.

    >>> sort_name_words("Green (album)") == sort_name_words("green album")
    True
    """
    folded = unicodedata.normalize("NFKC", name).casefold()
    return tuple(sorted(re.findall(r"\w+", folded)))
