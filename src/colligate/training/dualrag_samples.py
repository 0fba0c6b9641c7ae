"""Samples for DualRAG's three roles out of one trajectory (Cheng et al. 2025, fine-tuning).

The prompts are rendered by the functions that inference calls, in a state that the run was in or,
where its entities are linked anew, would have been in. The replies are in the form of the schema
that inference reads. What the paper's rules, and ours, take out is counted by its reason.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from pydantic import BaseModel

from colligate.core.citing import Statement
from colligate.core.prompts import Reasoning, escape
from colligate.core.support import NEAR, split_content_words, support
from colligate.documents import Passage, Span
from colligate.documents.languages import detect_language
from colligate.documents.sentences import split_sentences
from colligate.documents.tokens import estimate_tokens
from colligate.models import Message
from colligate.strategies.dualrag.knowledge import ELSE, NOTHING, Fragment, sort_name_words
from colligate.strategies.dualrag.prompts import (
    IDENTIFIER_TOKENS,
    REASONER_TOKENS,
    SUMMARY_TOKENS,
    Entities,
    FactsFirst,
    Summary,
    Wanted,
    clean_entities,
    identifier_messages,
    reasoner_messages,
    reasoner_schema,
    summarizer_messages,
)
from colligate.training.samples import Sample
from colligate.training.trajectories import (
    EntityLookup,
    StepState,
    Trajectory,
    TrajectoryStep,
    replay,
)

# Which gold document an entity of a DualRAG trajectory means.
#
# The paper asks a reranker: the gold title with the best score, where that is over nought (of
# logits). So does this, where a cross-encoder is named. Without one a title is meant when all
# words
# of the shorter of the two stand in the longer, and the same numbers. Where no title is meant,
# the
# spans that our outline keeps tell: what is known of the entity rests mostly on one gold
# document.

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
    return max(
        _contained(set(sort_name_words(name)), set(sort_name_words(each))) for each in (title, bare)
    )


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


# Facts in a reply that is to be learnt: copied from where they stand, word for word.

# What the schemas of the Reasoner and the Knowledge Summarizer allow.
_LONGEST_FACT, _LONGEST_QUOTE = 300, 600  # characters
_MOST_FACTS, _MOST_STATEMENTS = 6, 8


def copied(facts: Sequence[str], fragments: Sequence[Fragment]) -> list[str]:
    """The facts as the outline has them: what says nearly the same becomes the outline's words.

    Those that it does not have are left out.
    """
    shown = [escape(each.text) for each in fragments]
    found = []
    for fact in facts:
        text = " ".join(fact.split())
        if not text:
            continue
        if not any(text in each for each in shown):
            near = max(shown, key=lambda each: support(fact, each).whole, default="")
            if not near or not support(fact, near).enough(NEAR):
                continue
            text = near
        found.append(_cut(text, _LONGEST_FACT))
    return list(dict.fromkeys(found))[:_MOST_FACTS]


def statements(fragments: Sequence[Fragment], passages: Sequence[Passage]) -> list[Statement]:
    """What the fragments say, each with the sentences of the passages it rests on as its quote."""
    found = []
    for fragment in fragments:
        for span in fragment.spans:
            for number, passage in enumerate(passages, 1):
                if passage.span.contains(span):
                    start = span.start - passage.span.start
                    quote = passage.text[start : start + len(span)]
                    found.append(_statement(number, quote, fragment.text))
                    break
    return found[:_MOST_STATEMENTS]


def gold_statement(gold: Gold, passages: Sequence[Passage], claim: str) -> list[Statement]:
    """The gold's first named sentence that a passage has; empty where none has one.

    Of a gold without named sentences it is that sentence of its passages which shares most
    content words with the `claim`.
    """
    if gold.sentences:
        for sentence in gold.sentences:
            for number, passage in enumerate(passages, 1):
                if passage.document_id == gold.id and sentence in passage.text:
                    return [_statement(number, sentence, sentence)]
        return []
    wanted = set(split_content_words(claim))
    best: Statement | None = None
    most = 0
    for number, sentence in _sentences(gold, passages):
        shared = len(wanted.intersection(split_content_words(sentence)))
        if shared > most:
            best, most = _statement(number, sentence, sentence), shared
    return [best] if best is not None else []


def _sentences(gold: Gold, passages: Sequence[Passage]) -> Iterator[tuple[int, str]]:
    for number, passage in enumerate(passages, 1):
        if passage.document_id == gold.id:
            for start, end in split_sentences(passage.text, detect_language(passage.text)):
                yield number, passage.text[start:end]


def _statement(number: int, quote: str, sentence: str) -> Statement:
    """A statement whose quote stands in the prompt as it stands here."""
    return Statement(
        passage=number,
        quote=_cut(escape(quote), _LONGEST_QUOTE),
        sentence=_cut(" ".join(sentence.split()), _LONGEST_QUOTE),
    )


def _cut(text: str, longest: int) -> str:
    """The text as far as whole words of it have room."""
    if len(text) <= longest:
        return text
    cut = text[: longest + 1].rpartition(" ")[0]
    return cut or text[:longest]


_REPLY_TOKENS = {
    "reasoner": REASONER_TOKENS,
    "identifier": IDENTIFIER_TOKENS,
    "summarizer": SUMMARY_TOKENS,
}
TASKS = tuple(_REPLY_TOKENS)

_LONGEST_THOUGHT = 800  # characters, as the schema has it
_TOO_MUCH = "more wanted though all gold documents were known"
_REPEATED = "a thought that it had before"
_CORRECTED = (_TOO_MUCH, _REPEATED)


@dataclass
class Drawn:
    """The samples of a trajectory, why others were not made, and what was counted on the way."""

    samples: list[Sample] = field(default_factory=list)
    discarded: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)


async def drawn(
    trajectory: Trajectory,
    golds: Sequence[Gold],
    answers: Sequence[str],
    *,
    tasks: Collection[str] = TASKS,
    scored: Scored | None = None,
    over: float = 0.0,
) -> Drawn:
    """The samples for each of the `tasks` of a trajectory that came to a right answer.

    Without golds only the Reasoner is taught: which entities were the right ones to look for
    nobody can say then. `scored` and `over` are those of `gold_entities.matches`.
    """
    found = Drawn()
    if "reasoner" in tasks:
        _Reasoner(trajectory, golds, found).draw()
    if not golds:
        found.discarded["identifier and summarizer: no gold document is named"] += 1
        return found
    rests = _rests(trajectory.steps)
    match = await matches(rests, golds, scored=scored, over=over)
    for entity in rests:
        how = match[entity].how if entity in match else "none"
        found.counts[f"entities, gold by {how}"] += 1
    if "identifier" in tasks:
        _identifier(trajectory, match, found)
    if "summarizer" in tasks:
        _summarizer(trajectory, golds, match, answers, found)
    return found


@dataclass
class _Reasoner:
    """(question, outline, thoughts before) -> thought and verdict, for each step.

    By the paper's rule, as it is meant: where all gold documents are in the outline and more is
    wanted all the same, the sample is not used as it is. Nor is a thought that came before: small
    teachers rather repeat themselves than say that they know enough. The first of either is
    corrected where the outline has every place that the answer cites: the thought is then the
    answer, which was judged right, and nothing is missing. Otherwise it is left out.
    """

    trajectory: Trajectory
    golds: Sequence[Gold]
    found: Drawn

    def draw(self) -> None:
        steps = self.trajectory.steps
        corrected = False
        for step, state in zip(steps, replay(steps), strict=True):
            why = self._unusable(step, state) or self._wrong(step, state)
            if why in _CORRECTED:
                why = why if corrected else self._correct(step, state, why)
                corrected = corrected or not why
            elif not why:
                label = "retrieve" if step.need_retrieve else "enough"
                why = self._put(step, state, step.facts, step.thought, step.need_retrieve, label)
            if why:
                self.found.discarded[f"reasoner: {why}"] += 1

    def _unusable(self, step: TrajectoryStep, state: StepState) -> str:
        if not step.readable:
            return "its reply could not be read"
        prompt = reasoner_messages(self.trajectory.question, state.outline, state.before)
        if not self.trajectory.was_asked(prompt, reasoner_schema(state.outline)):
            return "it was not shown the whole outline"
        if not step.thought:
            return "no thought"
        if state.outline == NOTHING and not step.need_retrieve:
            return "nothing missing before anything was found"
        return ""

    def _wrong(self, step: TrajectoryStep, state: StepState) -> str:
        if step.thought in state.before:
            return _REPEATED
        return _TOO_MUCH if step.need_retrieve and self._all_known(state) else ""

    def _correct(self, step: TrajectoryStep, state: StepState, why: str) -> str:
        cited = self.trajectory.cited
        telling = [
            each.text
            for each in state.fragments
            if any(place.overlaps(span) for place in cited for span in each.spans)
        ]
        spans = [span for each in state.fragments for span in each.spans]
        if not cited or not all(any(place.overlaps(s) for s in spans) for place in cited):
            return why
        return self._put(step, state, telling, self.trajectory.answer, False, "enough, corrected")

    def _put(
        self,
        step: TrajectoryStep,
        state: StepState,
        facts: Sequence[str],
        thought: str,
        need: bool,
        label: str,
    ) -> str:
        """Add a sample, or say why there is none."""
        if len(thought) > _LONGEST_THOUGHT:
            return "a thought too long for the schema"
        reply: Reasoning | FactsFirst
        if reasoner_schema(state.outline) is Reasoning:
            reply = Reasoning(thought=thought, need_retrieve=need)
        else:
            facts = copied(facts, state.fragments)
            if not facts:
                return "no fact that the outline has"
            reply = FactsFirst(facts=list(facts), thought=thought, need_retrieve=need)
        messages = reasoner_messages(self.trajectory.question, state.outline, state.before)
        _add(self.found, self.trajectory, "reasoner", f"{step.round}", messages, reply, label)
        return ""

    def _all_known(self, state: StepState) -> bool:
        known = {span.document_id for each in state.fragments for span in each.spans}
        return bool(self.golds) and all(gold.id in known for gold in self.golds)


def _identifier(trajectory: Trajectory, match: Mapping[str, Match], found: Drawn) -> None:
    """(question, outline, thoughts, entities) -> entities and queries, for each step that looked.

    Where every entity means a gold of its own the run is used as it was. Else it is linked anew:
    what means no gold is left out, with what is known of it; of several entities that mean one
    gold all are called as the best of them, and their knowledge stands together. Of one that is
    known and asked for again, a request that brought nothing new is left out.
    """
    steps = trajectory.steps
    called = _names(_rests(steps), match)
    linked = any(name != entity for entity, name in called.items())
    for step, state in zip(steps, replay(steps, called.get), strict=True):
        if not step.looked:
            continue
        messages = identifier_messages(
            trajectory.question, state.outline, state.thoughts, state.names
        )
        asked: dict[str, list[str]] = {}
        for looked in step.looked:
            name = called[looked.entity]
            again = linked and name in state.names and not _brought(looked, state)
            if name is not None and name != ELSE and not again:
                asked.setdefault(name, []).extend(looked.queries)
        if not step.identified:
            found.discarded["identifier: its reply could not be read"] += 1
        elif not linked and not trajectory.was_asked(messages, Entities):
            found.discarded["identifier: it was not shown the whole outline"] += 1
        elif not asked:
            found.discarded["identifier: no entity of a gold document that was missing"] += 1
        else:
            # As inference cleans them, which then has nothing to do.
            clean = clean_entities([Wanted(entity=e, keywords=q) for e, q in asked.items()], "")
            entities = [Wanted(entity=name, keywords=list(queries)) for name, queries in clean]
            label = "linked" if linked else "as it was"
            reply = Entities(entities=entities)
            _add(found, trajectory, "identifier", f"{step.round}", messages, reply, label)


def _names(entities: Collection[str], match: Mapping[str, Match]) -> dict[str, str | None]:
    """What each entity is called: as the best that means the same gold; None without a gold."""

    def best_first(entity: str) -> tuple[bool, bool, float]:
        by_name, score = match[entity].rank
        return entity == ELSE, not by_name, -score

    best: dict[str, str] = {}
    for entity in sorted((each for each in entities if each in match), key=best_first):
        best.setdefault(match[entity].gold.id, entity)
    return {e: best[match[e].gold.id] if e in match else None for e in entities}


def _brought(looked: EntityLookup, state: StepState) -> bool:
    """Whether what was found rests on words that the outline did not rest on."""
    known = [span for each in state.fragments for span in each.spans]
    spans = [span for each in looked.fragments for span in each.spans]
    return not all(any(old.contains(span) for old in known) for span in spans)


def _summarizer(
    trajectory: Trajectory,
    golds: Sequence[Gold],
    match: Mapping[str, Match],
    answers: Sequence[str],
    found: Drawn,
) -> None:
    """(question, thoughts, entity, queries, passages) -> statements, for each entity read for.

    What was found of an entity that means a gold stays. Where nothing was found of it though the
    gold is among the passages, the reply is what the gold says; else it is nothing. Of an entity
    that means no gold only that stays which rests on one all the same.
    """
    steps = trajectory.steps
    ids = {gold.id for gold in golds}
    for step, state in zip(steps, replay(steps), strict=True):
        for number, looked in enumerate(step.looked, 1):
            if not looked.passages:
                continue
            meant = match.get(looked.entity)
            kept = [
                each
                for each in looked.fragments
                if meant is not None or any(span.document_id in ids for span in each.spans)
            ]
            if kept:
                said, label = statements(kept, looked.passages), "as it was"
                if not said:  # no reply at all would teach that there is nothing
                    found.discarded["summarizer: nothing to quote for what was found"] += 1
                    continue
            elif meant is None:
                said, label = [], "nothing, of no gold"
            else:
                claim = " ".join([*looked.queries, *answers])
                said = gold_statement(meant.gold, looked.passages, claim)
                label = "repaired" if said else "nothing, of a gold"
            messages = summarizer_messages(
                trajectory.question,
                state.thoughts,
                looked.entity,
                looked.queries,
                looked.passages,
            )
            name = f"{step.round}.{number}"
            _add(found, trajectory, "summarizer", name, messages, Summary(statements=said), label)


def _add(
    found: Drawn,
    trajectory: Trajectory,
    task: str,
    name: str,
    messages: Sequence[Message],
    reply: BaseModel,
    label: str,
) -> None:
    text = json.dumps(reply.model_dump(), ensure_ascii=False)
    if estimate_tokens(text) > _REPLY_TOKENS[task]:
        found.discarded[f"{task}: the reply would be longer than a reply may be"] += 1
        return
    found.samples.append(
        Sample(
            id=f"{trajectory.id}/{task}/{name}",
            task=task,
            messages=(*messages, Message("assistant", text)),
            meta={"question": trajectory.id, "class": label},
        )
    )


def _rests(steps: Sequence[TrajectoryStep]) -> dict[str, list[Span]]:
    """The entities that were looked for, each with the spans that its knowledge rests on."""
    rests: dict[str, list[Span]] = defaultdict(list)
    for step in steps:
        for looked in step.looked:
            rests[looked.entity] += [s for each in looked.fragments for s in each.spans]
    return rests
