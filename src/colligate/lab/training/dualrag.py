"""Curate samples for DualRAG's three roles from a teacher's runs (Cheng et al. 2025, fine-tuning).

The teacher runs the strategy itself. Each run is stored as a file, right or wrong; samples are
drawn from those with a right answer. Their prompts are rendered by the functions that inference
calls, in a state that the run was in or, if entities are linked anew, would have been in. Their
replies have the form of the schema that inference reads. What the paper's rules, and ours, leave
out is counted by reason.
"""

from __future__ import annotations

import gzip
import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from colligate.concurrency import in_thread
from colligate.core.events import Listener
from colligate.core.parameters import list_parameters, set_parameters
from colligate.core.prompts import Reasoning
from colligate.core.run import Run
from colligate.documents import Document, Span
from colligate.documents.sentences import split_sentences
from colligate.documents.tokens import estimate_tokens
from colligate.errors import UnknownDocument, UsageError
from colligate.lab.bench.metrics.judging import implies
from colligate.lab.bench.question import Question
from colligate.lab.training.curation import CuratedMethod, Curation, CurationContext, open_curation
from colligate.lab.training.samples import Card, CuratedItem, Drawn, Sample
from colligate.lab.training.trajectories import (
    EntityLookup,
    GoldDocument,
    GoldMatch,
    StepState,
    TitleScorer,
    Trajectory,
    TrajectoryStep,
    find_gold_statement,
    match_entities,
    quote_statements,
    read_trajectory,
    replay,
    split_answer_words,
)
from colligate.models import Message, Reranker
from colligate.strategies.dualrag.knowledge import ELSE
from colligate.strategies.dualrag.method import DualRAG
from colligate.strategies.dualrag.prompts import (
    IDENTIFIER_TOKENS,
    REASONER_TOKENS,
    SUMMARY_TOKENS,
    Entities,
    Summary,
    Wanted,
    clean_entities,
    identifier_messages,
    reasoner_messages,
    summarizer_messages,
)

_REPLY_TOKENS = {
    "reasoner": REASONER_TOKENS,
    "identifier": IDENTIFIER_TOKENS,
    "summarizer": SUMMARY_TOKENS,
}
ROLES = tuple(_REPLY_TOKENS)


async def curate_dualrag(request: Curation, on_event: Listener) -> Card:
    """Curate samples for Reasoner, Entity Identifier and Knowledge Summarizer.

    `request.settings` are parameters of the strategy `dualrag`, and `match_over` (`TitleMatching`).

    Raises:
        UsageError: the request is wrong, or the folder was begun with something else.
        BudgetExceeded, EndpointUnreachable: the work ended early; the same call resumes.
        ColligateError: something cannot be opened or read.
    """
    tasks = request.choose_tasks(DualRAG.name, ROLES)
    request.require_questions("the teacher answers questions")
    strategy, matching = _configure(request.settings)
    given = {**asdict(strategy), **asdict(matching)}
    method = CuratedMethod(DualRAG.name, tasks, strategy.needs, (DualRAG,), given)
    async with open_curation(request, on_event, method) as context:
        score_titles, over = matching.scores(context.reranker)

        async def work(question: Question) -> CuratedItem:
            if not question.answerable or not question.answers:
                return CuratedItem(discarded={"a question without a right answer": 1})
            async with context.sources(question) as sources:
                run = context.start_run(sources)
                answer = await strategy.answer(question.text, run)
                steps = await read_trajectory(question.id, question.text, run, answer)
                golds, unseen = await _load_golds(question, run)
            right = await _is_right(question, steps, context, run)
            usage = context.usage_of(run)
            await in_thread(_write_trajectory, request.out, steps, question, right)
            counts = Counter(
                [f"runs, {'right' if right else 'wrong'}", f"runs ended: {steps.stop}"]
            )
            counts["gold documents that are not in view"] += unseen
            if not right:
                return CuratedItem((), {"a run whose answer was not right": 1}, +counts, usage)
            found = await draw_role_samples(
                steps, golds, question.answers, tasks=tasks, score_titles=score_titles, over=over
            )
            found.counts += counts
            return found.item(usage)

        name = context.reranker.name if context.reranker is not None else ""
        match = (_BY_WORDS if score_titles is None else _BY_RERANKER).format(name=name, over=over)
        judged = _CONTAINED if context.judge is None else _JUDGED
        filters = (judged, *(each.format(match=match) for each in _FILTERS))
        calls = 2.0 + 2 * (2 + 2)  # about two rounds of two entities
        return await context.curate(context.questions, work, filters=filters, calls=calls)


_JUDGED = "A run is used if the judge says that its answer implies a right one."
_CONTAINED = (
    "A run is used if the words of a right answer are in its answer, in their order; for a right "
    "answer yes or no, if its short answer begins with it. No judge was named."
)
_BY_RERANKER = (
    "An entity means the gold document whose title the reranker {name} scores best, above {over:g}"
)
_BY_WORDS = (
    "An entity means the gold document that shares most words with it, if all words of the one "
    "are in the other's title"
)
_FILTERS = (
    "{match}; otherwise the one that most of what is known of it rests on.",
    "Reasoner: if all gold documents are in the outline and more is still wanted, or a thought "
    "came before, the first sample is corrected to the answer of the run, if the outline has all "
    "places that the answer cites; the others are left out.",
    "Identifier: if each entity means a gold document of its own the run is used as it was. "
    "Otherwise entities of no gold document are left out, with what is known of them; several of "
    "one document get the name of the best of them; what is asked for again and brought nothing "
    "new is left out.",
    "Summarizer: of an entity that means a gold document, what was found is kept; if nothing was "
    "found, it is the gold's first named sentence, or the one that says most of what is looked "
    "for, if the passages have it. Of another entity only what rests on a gold document is kept.",
    "A prompt of the Reasoner, or of an Identifier that was used as it was, is one that the "
    "teacher was sent; if its window did not hold the whole outline there is no sample.",
)


# The request.

_SIGMOID = 0.5  # the paper's threshold is 0, of logits


@dataclass(frozen=True)
class TitleMatching:
    """How entities are matched with gold titles, in addition to the strategy's parameters.

    `match_over` is the reranker's score above which a title is meant. Without it a cross-encoder,
    in process or behind a server, decides at 0.5, and other rerankers do not decide.
    """

    match_over: float | None = None

    def scores(self, reranker: Reranker | None) -> tuple[TitleScorer | None, float]:
        """Return the scores that decide, and their threshold; None if words decide."""
        if reranker is None:
            return None, 0.0
        trained = reranker.name.startswith(("cross-encoder:", "http:"))
        if self.match_over is None and not trained:
            return None, 0.0
        return reranker.score, _SIGMOID if self.match_over is None else self.match_over


_TAUGHT = ("summaries=quoted",)
_READ = ("reader_tokens=0",)  # a right answer then shows that the outline suffices


def _configure(settings: Sequence[str]) -> tuple[DualRAG, TitleMatching]:
    own = {each.name for each in list_parameters(TitleMatching)}
    of_matching = [each for each in settings if each.partition("=")[0].strip() in own]
    of_strategy = [each for each in settings if each not in of_matching]
    strategy = set_parameters(DualRAG, [*_TAUGHT, *_READ, *of_strategy])
    taught = set_parameters(DualRAG, _TAUGHT)
    for name in (text.partition("=")[0] for text in _TAUGHT):
        if getattr(strategy, name) != getattr(taught, name):
            why = f"summaries are taught with their quotes: {' '.join(_TAUGHT)}"
            raise UsageError(f"{name} of {DualRAG.name} cannot be set here", why)
    return strategy, set_parameters(TitleMatching, of_matching)


# One question: its gold documents, whether the answer is right, and the stored run.


async def _load_golds(question: Question, run: Run) -> tuple[list[GoldDocument], int]:
    """Return the gold documents, and how many of them are not in view.

    Those that are not in view have the title that the question gives them.
    """
    titles = {candidate.id: candidate.title for candidate in question.documents}
    golds, unseen = [], 0
    for id_ in question.gold:
        named = [text for document, text in question.gold_texts if document == id_]
        try:
            document = await run.document(id_)
        except UnknownDocument:
            unseen += 1
            golds.append(GoldDocument(id_, titles.get(id_, ""), tuple(named)))
        else:
            named = named or list(_read_supporting_facts(question, document))
            golds.append(GoldDocument(id_, document.title, tuple(named)))
    return golds, unseen


def _read_supporting_facts(question: Question, document: Document) -> Iterator[str]:
    """Yield the sentences of a document that a record in the plain form names by number."""
    facts = question.meta.get("supporting_facts")
    for fact in facts if isinstance(facts, list) else ():
        match fact:
            case [document.title, int(number)]:
                found = split_sentences(document.text, document.language)
                if 0 <= number < len(found):
                    yield document.text[slice(*found[number])]


async def _is_right(
    question: Question, steps: Trajectory, context: CurationContext, run: Run
) -> bool:
    """Whether the answer is right: by the judge if there is one, otherwise by its words."""
    if not steps.found:
        return False
    if context.judge is None:
        return any(contains_answer(steps.answer, steps.short, gold) for gold in question.answers)
    judge = context.judge_of(run)
    return bool(await implies(judge, question.text, steps.answer, question.answers))


def contains_answer(answer: str, short: str, gold: str) -> bool:
    """Whether the words of a right answer are together in the answer or its short form.

    Yes and no are in many sentences: for them the short answer's first word counts.
    """
    wanted, said, cut = map(split_answer_words, (gold, answer, short))
    if not wanted:
        return False
    if wanted in (["yes"], ["no"]):
        return cut[:1] == wanted
    return any(
        words[at : at + len(wanted)] == wanted
        for words in (said, cut)
        for at in range(len(words) - len(wanted) + 1)
    )


_COMPRESSION = 3


def _write_trajectory(out: Path, steps: Trajectory, question: Question, right: bool) -> None:
    """Write a run, whole or not at all. Blocks."""
    record: Mapping[str, Any] = {
        **steps.to_json(),
        "answers": list(question.answers),
        "gold": list(question.gold),
        "right": right,
    }
    name = hashlib.sha256(question.id.encode("utf-8", "replace")).hexdigest()[:16]
    file = out / "trajectories" / f"{name}.json.gz"
    file.parent.mkdir(exist_ok=True)
    fresh = file.with_name(f"{file.name}.new")
    fresh.write_bytes(gzip.compress(json.dumps(record).encode(), _COMPRESSION, mtime=0))
    fresh.replace(file)


# The samples of a run.

_LONGEST_THOUGHT = 800  # characters, as the schema has it
_TOO_MUCH = "more wanted though all gold documents were known"
_REPEATED = "a thought that it had before"
_CORRECTED = (_TOO_MUCH, _REPEATED)


@dataclass(kw_only=True)
class RoleSamples(Drawn):
    """The samples of a trajectory."""

    trajectory: Trajectory

    def add(
        self, task: str, name: str, messages: Sequence[Message], reply: BaseModel, label: str
    ) -> None:
        """Add a sample, unless its reply would be longer than a reply may be."""
        text = json.dumps(reply.model_dump(), ensure_ascii=False)
        if estimate_tokens(text) > _REPLY_TOKENS[task]:
            self.discarded[f"{task}: the reply would be longer than a reply may be"] += 1
            return
        exchange = (*messages, Message("assistant", text))
        run = self.trajectory.id
        self.samples.append(
            Sample(f"{run}/{task}/{name}", task, exchange, {"question": run, "class": label})
        )


async def draw_role_samples(
    trajectory: Trajectory,
    golds: Sequence[GoldDocument],
    answers: Sequence[str],
    *,
    tasks: Collection[str] = ROLES,
    score_titles: TitleScorer | None = None,
    over: float = 0.0,
) -> RoleSamples:
    """Draw samples for each of the `tasks` from a trajectory with a right answer.

    Without gold documents only the Reasoner is taught: which entities were the right ones to look
    for is then unknown. `score_titles` and `over` are those of `match_entities`.
    """
    found = RoleSamples(trajectory=trajectory)
    if "reasoner" in tasks:
        _ReasonerSamples(golds, found).draw()
    if not golds:
        found.discarded["identifier and summarizer: no gold document is named"] += 1
        return found
    spans = _collect_spans(trajectory.steps)
    match = await match_entities(spans, golds, score_titles=score_titles, over=over)
    for entity in spans:
        how = match[entity].how if entity in match else "none"
        found.counts[f"entities, gold by {how}"] += 1
    if "identifier" in tasks:
        _draw_identifier(match, found)
    if "summarizer" in tasks:
        _draw_summarizer(golds, match, answers, found)
    return found


@dataclass
class _ReasonerSamples:
    """(question, outline, thoughts before) -> thought and verdict, for each step.

    By the paper's rule, as it is meant: if all gold documents are in the outline and more is still
    wanted, the sample is not used as it is. Neither is a repeated thought: small teachers repeat
    themselves instead of saying that they know enough. The first of either is corrected if the
    outline has every place that the answer cites: the thought is then the answer, which was judged
    right, and nothing is missing. Otherwise it is left out.
    """

    golds: Sequence[GoldDocument]
    found: RoleSamples

    @property
    def trajectory(self) -> Trajectory:
        return self.found.trajectory

    def draw(self) -> None:
        steps = self.trajectory.steps
        corrected = False
        for step, state in zip(steps, replay(steps), strict=True):
            why = self._find_fault(step, state) or self._find_mistake(step, state)
            if why in _CORRECTED:
                why = why if corrected else self._correct(step, state, why)
                corrected = corrected or not why
            elif not why:
                label = "retrieve" if step.need_retrieve else "enough"
                why = self._add(step, state, step.thought, step.need_retrieve, label)
            if why:
                self.found.discarded[f"reasoner: {why}"] += 1

    def _find_fault(self, step: TrajectoryStep, state: StepState) -> str:
        if not step.readable:
            return "its reply could not be read"
        prompt = reasoner_messages(self.trajectory.question, state.outline, state.before)
        if not self.trajectory.was_asked(prompt, Reasoning):
            return "it was not shown the whole outline"
        return "" if step.thought else "no thought"

    def _find_mistake(self, step: TrajectoryStep, state: StepState) -> str:
        if step.thought in state.before:
            return _REPEATED
        return _TOO_MUCH if step.need_retrieve and self._all_known(state) else ""

    def _correct(self, step: TrajectoryStep, state: StepState, why: str) -> str:
        cited = self.trajectory.cited
        spans = [span for each in state.fragments for span in each.spans]
        if not cited or not all(any(place.overlaps(s) for s in spans) for place in cited):
            return why
        return self._add(step, state, self.trajectory.answer, False, "enough, corrected")

    def _add(
        self, step: TrajectoryStep, state: StepState, thought: str, need: bool, label: str
    ) -> str:
        """Add a sample, or return why there is none."""
        if len(thought) > _LONGEST_THOUGHT:
            return "a thought too long for the schema"
        reply = Reasoning(thought=thought, need_retrieve=need)
        messages = reasoner_messages(self.trajectory.question, state.outline, state.before)
        self.found.add("reasoner", f"{step.round}", messages, reply, label)
        return ""

    def _all_known(self, state: StepState) -> bool:
        known = {span.document_id for each in state.fragments for span in each.spans}
        return bool(self.golds) and all(gold.id in known for gold in self.golds)


def _draw_identifier(match: Mapping[str, GoldMatch], found: RoleSamples) -> None:
    """(question, outline, thoughts, entities) -> entities and queries, for each step with lookups.

    If every entity means a gold document of its own, the run is used as it was. Otherwise it is
    linked anew: an entity that means no gold is left out, with what is known of it; several that
    mean one gold get the name of the best of them, and their knowledge is put together. If an
    entity is known and asked for again, a request that brought nothing new is left out.
    """
    trajectory, steps = found.trajectory, found.trajectory.steps
    called = _name_by_gold(_collect_spans(steps), match)
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
            again = linked and name in state.names and not _brought_new(looked, state)
            if name is not None and name != ELSE and not again:
                asked.setdefault(name, []).extend(looked.queries)
        if not step.identified:
            found.discarded["identifier: its reply could not be read"] += 1
        elif not linked and not trajectory.was_asked(messages, Entities):
            found.discarded["identifier: it was not shown the whole outline"] += 1
        elif not asked:
            found.discarded["identifier: no entity of a gold document that was missing"] += 1
        else:
            # Cleaned as inference cleans them, which then has nothing to do.
            clean = clean_entities([Wanted(entity=e, keywords=q) for e, q in asked.items()], "")
            entities = [Wanted(entity=name, keywords=list(queries)) for name, queries in clean]
            label = "linked" if linked else "as it was"
            reply = Entities(entities=entities)
            found.add("identifier", f"{step.round}", messages, reply, label)


def _name_by_gold(
    entities: Collection[str], match: Mapping[str, GoldMatch]
) -> dict[str, str | None]:
    """Map each entity to the best one that means the same gold; None without a gold."""

    def best_first(entity: str) -> tuple[bool, bool, float]:
        by_name, score = match[entity].rank
        return entity == ELSE, not by_name, -score

    best: dict[str, str] = {}
    for entity in sorted((each for each in entities if each in match), key=best_first):
        best.setdefault(match[entity].gold.id, entity)
    return {e: best[match[e].gold.id] if e in match else None for e in entities}


def _brought_new(looked: EntityLookup, state: StepState) -> bool:
    """Whether a lookup found spans that the outline did not have."""
    known = [span for each in state.fragments for span in each.spans]
    spans = [span for each in looked.fragments for span in each.spans]
    return not all(any(old.contains(span) for old in known) for span in spans)


def _draw_summarizer(
    golds: Sequence[GoldDocument],
    match: Mapping[str, GoldMatch],
    answers: Sequence[str],
    found: RoleSamples,
) -> None:
    """(question, thoughts, entity, queries, passages) -> statements, for each entity read for.

    Findings about an entity that means a gold document are kept. If there are none although the
    passages have the gold, the reply is a sentence of the gold; otherwise it is nothing. Of an
    entity that means no gold only findings from a gold document are kept.
    """
    trajectory, steps = found.trajectory, found.trajectory.steps
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
                said, label = quote_statements(kept, looked.passages), "as it was"
                if not said:  # an empty reply would teach that there is nothing
                    found.discarded["summarizer: nothing to quote for what was found"] += 1
                    continue
            elif meant is None:
                said, label = [], "nothing, of no gold"
            else:
                claim = " ".join([*looked.queries, *answers])
                said = find_gold_statement(meant.gold, looked.passages, claim)
                label = "repaired" if said else "nothing, of a gold"
            messages = summarizer_messages(
                trajectory.question,
                state.thoughts,
                (looked.entity, looked.queries),
                looked.passages,
            )
            name = f"{step.round}.{number}"
            found.add("summarizer", name, messages, Summary(statements=said), label)


def _collect_spans(steps: Sequence[TrajectoryStep]) -> dict[str, list[Span]]:
    """Return the entities that were looked up, each with the spans from which it is known."""
    spans: dict[str, list[Span]] = defaultdict(list)
    for step in steps:
        for looked in step.looked:
            spans[looked.entity] += [s for each in looked.fragments for s in each.spans]
    return spans
