"""Curate samples for DualRAG's three roles from a teacher's runs (Cheng et al. 2025, fine-tuning).

The teacher runs the strategy itself; samples are drawn from the runs with a right answer. Their
prompts are rendered by the functions that inference calls, in a state that the run was in or, if
entities are linked anew, would have been in. Their replies have the form of the schema that
inference reads. What the paper's rules, and ours, leave out is counted by reason.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict

from pydantic import BaseModel

from colligate.core.answer import Answer
from colligate.core.events import Listener
from colligate.core.parameters import set_parameters
from colligate.core.prompts import Reasoning
from colligate.core.run import Run
from colligate.documents import Span
from colligate.documents.tokens import estimate_tokens
from colligate.errors import UnknownDocument, UsageError
from colligate.lab.bench.metrics.answers import remove_citation_marks
from colligate.lab.bench.metrics.every_answer import is_right
from colligate.lab.bench.metrics.judging import implies
from colligate.lab.bench.question import Question
from colligate.lab.training import trajectories
from colligate.lab.training.curation import CuratedMethod, Curation, CurationContext, open_curation
from colligate.lab.training.samples import Card, CuratedItem, Sample
from colligate.lab.training.scores import STEPS
from colligate.lab.training.trajectories import GoldDocument, GoldMatch, Trajectory
from colligate.models import Message
from colligate.strategies.dualrag.knowledge import ELSE
from colligate.strategies.dualrag.method import DualRAG
from colligate.strategies.dualrag.prompts import (
    Entities,
    Summary,
    Wanted,
    clean_entities,
    identifier_messages,
    reasoner_messages,
    summarizer_messages,
)

ROLES = ("reasoner", "identifier", "summarizer")


async def curate_dualrag(request: Curation, on_event: Listener) -> Card:
    """Curate samples for the three roles; `request.settings` are of the strategy `dualrag`."""
    tasks = request.choose_tasks(DualRAG.name, ROLES)
    request.require_questions("the teacher answers questions")
    strategy = _configure(request.settings)
    method = CuratedMethod(DualRAG.name, tasks, strategy.needs, (DualRAG,), asdict(strategy))
    async with open_curation(request, on_event, method) as context:
        reranker = context.reranker  # without one whose scores have a known middle, words decide
        trained = reranker is not None and reranker.name.startswith(("cross-encoder:", "http:"))
        score_titles = reranker.score if reranker is not None and trained else None

        async def work(question: Question) -> CuratedItem:
            if not question.answerable or not question.answers:
                return CuratedItem.without("a question without a right answer")
            async with context.sources(question) as sources:
                run = context.start_run(sources)
                answer = await strategy.answer(question.text, run)
                found = await trajectories.read_trajectory(question.id, question.text, run)
                golds = await _load_golds(question, run)
            right = answer.found and await _is_right(question, answer, context, run)
            usage = context.usage_of(run)
            if not right:
                made = CuratedItem.without("a run whose answer was not right")
            elif found.warnings:  # then prompts were cut, or replies could not be read
                made = CuratedItem.without(f"a run that warned: {found.warnings[0]}")
            else:
                made = await draw_role_samples(found, golds, tasks=tasks, score_titles=score_titles)
            made.usage = usage
            return made

        return await context.curate({each.id: each for each in context.questions}, work)


_READ = ("reader_tokens=0",)  # a right answer then shows that the outline suffices


def _configure(settings: Sequence[str]) -> DualRAG:
    taught = set_parameters(DualRAG, ["summaries=quoted"])
    strategy = set_parameters(DualRAG, ["summaries=quoted", *_READ, *settings])
    if strategy.summaries != taught.summaries:
        why = "summaries are taught with their quotes"
        raise UsageError(f"summaries of {DualRAG.name} cannot be set here", why)
    return strategy


# One question: its gold documents, and whether the answer is right.
async def _load_golds(question: Question, run: Run) -> list[GoldDocument]:
    """Return the gold documents; one that is not in view has the title that the question gives."""
    titles = {candidate.id: candidate.title for candidate in question.documents}
    golds = []
    for id_ in question.gold:
        named = tuple(text for document, text in question.gold_texts if document == id_)
        try:
            document = await run.document(id_)
        except UnknownDocument:
            golds.append(GoldDocument(id_, titles.get(id_, ""), named))
        else:
            golds.append(GoldDocument(id_, document.title, named))
    return golds


async def _is_right(question: Question, answer: Answer, context: CurationContext, run: Run) -> bool:
    """Whether the answer is right: by the judge if there is one, otherwise by its words."""
    said, short = map(remove_citation_marks, (answer.text, answer.short or ""))
    if context.judge is None:
        return is_right(short or said, question.answers)
    return bool(await implies(context.judge_of(run), question.text, said, question.answers))


# The samples of a run.

_LONGEST_THOUGHT = 800  # characters, as the schema has it


def _add_sample(
    made: CuratedItem,
    id_: tuple[str, str, str],
    messages: Sequence[Message],
    reply: BaseModel,
    label: str,
) -> None:
    """Add a sample of run, task and place, unless its reply would be longer than one may be."""
    run, task, _ = id_
    text = json.dumps(reply.model_dump(), ensure_ascii=False)
    if estimate_tokens(text) > (STEPS[task].tokens or 0):
        made.discarded[f"{task}: the reply would be longer than a reply may be"] += 1
        return
    exchange = (*messages, Message("assistant", text))
    made.samples.append(Sample("/".join(id_), task, exchange, {"question": run, "class": label}))


async def draw_role_samples(
    trajectory: Trajectory,
    golds: Sequence[GoldDocument],
    *,
    tasks: Collection[str] = ROLES,
    score_titles: trajectories.TitleScorer | None = None,
) -> CuratedItem:
    """Draw samples for each of the `tasks` from a trajectory with a right answer.

    Without gold documents only the Reasoner is taught: which entities were the right ones to look
    for is then unknown. `score_titles` is that of `match_entities`.
    """
    found = CuratedItem()
    if "reasoner" in tasks:
        _draw_reasoner(trajectory, golds, found)
    if not golds:
        found.discarded["identifier and summarizer: no gold document is named"] += 1
        return found
    spans = _collect_spans(trajectory.steps)
    match = await trajectories.match_entities(spans, golds, score_titles=score_titles)
    if "identifier" in tasks:
        _draw_identifier(trajectory, match, found)
    if "summarizer" in tasks:
        _draw_summarizer(trajectory, golds, match, found)
    return found


def _draw_reasoner(
    trajectory: Trajectory, golds: Sequence[GoldDocument], found: CuratedItem
) -> None:
    """(question, outline, thoughts before) -> thought and verdict, for each step.

    By the paper's rule, as it is meant, there is no sample if all gold documents are in the outline
    and more is still wanted. Nor is there one of a repeated thought: small teachers repeat
    themselves instead of saying that they know enough.
    """
    run, steps = trajectory.id, trajectory.steps
    for step, state in zip(steps, trajectories.replay(steps), strict=True):
        messages = reasoner_messages(trajectory.question, state.outline, state.before)
        known = {span.document_id for each in state.fragments for span in each.spans}
        all_known = bool(golds) and all(gold.id in known for gold in golds)
        faults = {
            "its reply could not be read": not step.readable,
            "no thought": not step.thought,
            "a thought that it had before": step.thought in state.before,
            "more wanted though all gold documents were known": step.need_retrieve and all_known,
            "a thought too long for the schema": len(step.thought) > _LONGEST_THOUGHT,
        }
        if why := next((why for why, applies in faults.items() if applies), ""):
            found.discarded[f"reasoner: {why}"] += 1
            continue
        reply = Reasoning(thought=step.thought, need_retrieve=step.need_retrieve)
        label = "retrieve" if step.need_retrieve else "enough"
        _add_sample(found, (run, "reasoner", f"{step.round}"), messages, reply, label)


def _draw_identifier(
    trajectory: Trajectory, match: Mapping[str, GoldMatch], found: CuratedItem
) -> None:
    """(question, outline, thoughts, entities) -> entities and queries, for each step with lookups.

    If every entity means a gold document of its own, the run is used as it was. Otherwise it is
    linked anew: an entity that means no gold is left out, with what is known of it; several that
    mean one gold get the name of the best of them, and their knowledge is put together. If an
    entity is known and asked for again, a request that brought nothing new is left out.
    """
    run, steps = trajectory.id, trajectory.steps
    called = _name_by_gold(_collect_spans(steps), match)
    linked = any(name != entity for entity, name in called.items())
    for step, state in zip(steps, trajectories.replay(steps, called.get), strict=True):
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
        elif not asked:
            found.discarded["identifier: no entity of a gold document that was missing"] += 1
        else:
            # Cleaned as inference cleans them, which then has nothing to do.
            clean = clean_entities([Wanted(entity=e, keywords=q) for e, q in asked.items()], "")
            entities = [Wanted(entity=name, keywords=list(queries)) for name, queries in clean]
            label = "linked" if linked else "as it was"
            reply = Entities(entities=entities)
            _add_sample(found, (run, "identifier", f"{step.round}"), messages, reply, label)


def _name_by_gold(
    entities: Collection[str], match: Mapping[str, GoldMatch]
) -> dict[str, str | None]:
    """Map each entity to the best one that means the same gold; None without a gold."""

    def best_first(entity: str) -> tuple[bool, bool, float]:
        return entity == ELSE, match[entity].how == "knowledge", -match[entity].score

    best: dict[str, str] = {}
    for entity in sorted((each for each in entities if each in match), key=best_first):
        best.setdefault(match[entity].gold.id, entity)
    return {e: best[match[e].gold.id] if e in match else None for e in entities}


def _brought_new(looked: trajectories.EntityLookup, state: trajectories.StepState) -> bool:
    """Whether a lookup found spans that the outline did not have."""
    known = [span for each in state.fragments for span in each.spans]
    spans = [span for each in looked.fragments for span in each.spans]
    return not all(any(old.contains(span) for old in known) for span in spans)


def _draw_summarizer(
    trajectory: Trajectory,
    golds: Sequence[GoldDocument],
    match: Mapping[str, GoldMatch],
    found: CuratedItem,
) -> None:
    """(question, thoughts, entity, queries, passages) -> statements, for each entity read for.

    Findings about an entity that means a gold document are kept. If there are none although the
    passages have the gold, the reply is what the gold says; otherwise it is nothing. Of an
    entity that means no gold only findings from a gold document are kept.
    """
    run, steps = trajectory.id, trajectory.steps
    ids = {gold.id for gold in golds}
    for step, state in zip(steps, trajectories.replay(steps), strict=True):
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
                said, label = trajectories.quote_statements(kept, looked.passages), "as it was"
                if not said:  # an empty reply would teach that there is nothing
                    found.discarded["summarizer: nothing to quote for what was found"] += 1
                    continue
            elif meant is None:
                said, label = [], "nothing, of no gold"
            else:
                said = trajectories.find_gold_statement(meant.gold, looked.passages)
                label = "repaired" if said else "nothing, of a gold"
            messages = summarizer_messages(
                trajectory.question,
                state.thoughts,
                (looked.entity, looked.queries),
                looked.passages,
            )
            id_ = (run, "summarizer", f"{step.round}.{number}")
            _add_sample(found, id_, messages, Summary(statements=said), label)


def _collect_spans(steps: Sequence[trajectories.TrajectoryStep]) -> dict[str, list[Span]]:
    """Return the entities that were looked up, each with the spans from which it is known."""
    spans: dict[str, list[Span]] = defaultdict(list)
    for step in steps:
        for looked in step.looked:
            spans[looked.entity] += [s for each in looked.fragments for s in each.spans]
    return spans
