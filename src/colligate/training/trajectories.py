"""The steps of a run of DualRAG, read from its own events and calls.

Nothing is recorded a second time: the outline is built again from the events by the code that built
it, and the calls themselves say what the model was asked.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from pydantic import BaseModel

from colligate.bench.metrics.answers import remove_marks
from colligate.core.answer import Answer
from colligate.core.events import Asked, Event, to_plain
from colligate.core.run import Run
from colligate.documents import Passage, Span
from colligate.models import Message
from colligate.models.structured import json_schema_of, with_schema
from colligate.strategies.dualrag.events import (
    Gathered,
    Identified,
    Reasoned,
    Stopped,
    Summarised,
)
from colligate.strategies.dualrag.knowledge import ELSE, Fragment, KnowledgeOutline
from colligate.strategies.dualrag.prompts import Summary, summarizer_messages

E = TypeVar("E", bound=Event)

Calls = Collection[tuple[Message, ...]]
"""The messages of every call of a run."""


@dataclass(frozen=True)
class EntityLookup:
    """An entity of a step, its queries, the passages read for it, and what they say of it.

    Without passages nothing was asked: none were found, or all had been read for it before.
    """

    entity: str
    queries: tuple[str, ...]
    passages: tuple[Passage, ...] = ()
    fragments: tuple[Fragment, ...] = ()


@dataclass(frozen=True)
class TrajectoryStep:
    """A round: a thought, and what was looked up for it; nothing if it was enough.

    `readable` and `identified` are False if the reply of the Reasoner, or of the Entity
    Identifier, could not be read and the run used its fallback.
    """

    round: int
    thought: str
    need_retrieve: bool
    facts: tuple[str, ...] = ()
    readable: bool = True
    identified: bool = True
    looked: tuple[EntityLookup, ...] = ()


@dataclass(frozen=True)
class StepState:
    """The knowledge when a step begins; `thoughts` ends with its own, `before` without it.

    `outline` is as the prompts show it, `names` are its entities, `fragments` what it holds.
    """

    outline: str
    names: tuple[str, ...]
    fragments: tuple[Fragment, ...]
    before: tuple[str, ...]
    thoughts: tuple[str, ...]


@dataclass(frozen=True)
class Trajectory:
    """A run from its question to its answer (without citation marks) and the places it `cited`.

    `calls` are what the model was asked on the way.
    """

    id: str
    question: str
    steps: tuple[TrajectoryStep, ...]
    stop: str = ""
    answer: str = ""
    short: str = ""
    found: bool = False
    cited: tuple[Span, ...] = ()
    calls: Calls = frozenset()

    def was_asked(self, messages: Sequence[Message], schema: type[BaseModel]) -> bool:
        """Whether the run made exactly this call for a `schema`."""
        return _was_asked(self.calls, messages, schema)

    def to_json(self) -> dict[str, Any]:
        """Return all but the calls, with the outline that each step began with."""
        states = replay(self.steps)
        steps = [
            {"outline": state.outline, **to_plain(step)}
            for step, state in zip(self.steps, states, strict=True)
        ]
        return {
            "id": self.id,
            "question": self.question,
            "steps": steps,
            "stop": self.stop,
            "answer": self.answer,
            "short": self.short,
            "found": self.found,
            "cited": to_plain(self.cited),
        }


async def read_trajectory(id_: str, question: str, run: Run, answer: Answer) -> Trajectory:
    """Return what the run did for its question, from its events."""
    events = [event for _, event in run.trace.events]
    calls = frozenset(event.messages for event in _of(Asked, events))
    steps: list[TrajectoryStep] = []
    for reasoned in _of(Reasoned, events):
        of_round = [each for each in events if getattr(each, "round", None) == reasoned.round]
        step = TrajectoryStep(
            round=reasoned.round,
            thought=reasoned.thought,
            need_retrieve=reasoned.need_retrieve,
            facts=reasoned.facts,
            readable=reasoned.readable,
            identified=all(each.readable for each in _of(Identified, of_round)),
        )
        *_, state = replay([*steps, step])
        summaries = {each.entity: each for each in _of(Summarised, of_round)}
        looked = [
            await _lookup(question, state.thoughts, each, summaries.get(each.entity), run, calls)
            for each in _of(Gathered, of_round)
        ]
        steps.append(replace(step, looked=tuple(looked)))
    return Trajectory(
        id=id_,
        question=question,
        steps=tuple(steps),
        stop=next((each.reason.value for each in _of(Stopped, events)), ""),
        answer=remove_marks(answer.text) if answer.found else "",
        short=remove_marks(answer.short or "") if answer.found else "",
        found=answer.found,
        cited=tuple(each.span for each in answer.citations) if answer.found else (),
        calls=calls,
    )


def replay(
    steps: Iterable[TrajectoryStep], called: Callable[[str], str | None] = lambda entity: entity
) -> Iterator[StepState]:
    """Yield what is known when each of the steps begins.

    `called` gives an entity another name, under which what is known of both is put together; None
    leaves out what is known of it.
    """
    outline = KnowledgeOutline()
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
            name = called(looked.entity)
            if name is not None and looked.fragments:
                outline.merge(name, looked.fragments, looked.passages)


async def _lookup(
    question: str,
    thoughts: Sequence[str],
    gathered: Gathered,
    summary: Summarised | None,
    run: Run,
    calls: Calls,
) -> EntityLookup:
    """Return an entity with the passages that the call for its summary shows.

    If not all of them fitted the model's window it was asked about the first.
    """
    if summary is None:
        return EntityLookup(gathered.entity, gathered.queries)
    passages = [(await run.document(s.document_id)).passage(s) for s in gathered.unseen]
    while passages:
        messages = summarizer_messages(
            question, thoughts, gathered.entity, gathered.queries, passages
        )
        if _was_asked(calls, messages, Summary):
            break
        passages.pop()
    return EntityLookup(gathered.entity, gathered.queries, tuple(passages), summary.fragments)


def _was_asked(calls: Calls, messages: Sequence[Message], schema: type[BaseModel]) -> bool:
    """Whether there is such a call; a model without structured output has the schema in it."""
    with_it = with_schema(messages, json_schema_of(schema))
    return tuple(messages) in calls or tuple(with_it) in calls


def _of(kind: type[E], events: Iterable[Event]) -> list[E]:
    return [event for event in events if isinstance(event, kind)]
