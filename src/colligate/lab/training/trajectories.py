"""The steps of a run of DualRAG, read from its own events and calls.

Nothing is recorded twice: the code that built the outline builds it again from the events, and the
calls show what the model was asked.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from pydantic import BaseModel

from colligate.core.answer import Answer
from colligate.core.events import Asked, Event, to_plain
from colligate.core.run import Run
from colligate.documents import Passage, Span
from colligate.lab.bench.metrics.answers import remove_citation_marks
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
    """An entity of a step, its queries, the passages read for it, and what they say about it.

    Without passages nothing was asked: none were found, or all had been read for it earlier.
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
    readable: bool = True
    identified: bool = True
    looked: tuple[EntityLookup, ...] = ()


@dataclass(frozen=True)
class StepState:
    """The knowledge at the start of a step; `thoughts` include its own, `before` do not.

    `outline` is as the prompts show it, with its entities (`names`) and `fragments`.
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
    """Read the trajectory of a run from its events."""
    events = [event for _, event in run.trace.events]
    calls = frozenset(event.messages for event in _select(Asked, events))
    steps: list[TrajectoryStep] = []
    for reasoned in _select(Reasoned, events):
        of_round = [each for each in events if getattr(each, "round", None) == reasoned.round]
        step = TrajectoryStep(
            round=reasoned.round,
            thought=reasoned.thought,
            need_retrieve=reasoned.need_retrieve,
            readable=reasoned.readable,
            identified=all(each.readable for each in _select(Identified, of_round)),
        )
        *_, state = replay([*steps, step])
        summaries = {each.entity: each for each in _select(Summarised, of_round)}
        looked = [
            await _lookup(question, state.thoughts, each, summaries.get(each.entity), run, calls)
            for each in _select(Gathered, of_round)
        ]
        steps.append(replace(step, looked=tuple(looked)))
    return Trajectory(
        id=id_,
        question=question,
        steps=tuple(steps),
        stop=next((each.reason.value for each in _select(Stopped, events)), ""),
        answer=remove_citation_marks(answer.text) if answer.found else "",
        short=remove_citation_marks(answer.short or "") if answer.found else "",
        found=answer.found,
        cited=tuple(each.span for each in answer.citations) if answer.found else (),
        calls=calls,
    )


def replay(
    steps: Iterable[TrajectoryStep], rename: Callable[[str], str | None] = lambda entity: entity
) -> Iterator[StepState]:
    """Yield the knowledge at the start of each step.

    `rename` returns the name of an entity in the outline: entities of the same name share their
    knowledge, and None leaves an entity out.
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
            name = rename(looked.entity)
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
            question, thoughts, (gathered.entity, gathered.queries), passages
        )
        if _was_asked(calls, messages, Summary):
            break
        passages.pop()
    return EntityLookup(gathered.entity, gathered.queries, tuple(passages), summary.fragments)


def _was_asked(calls: Calls, messages: Sequence[Message], schema: type[BaseModel]) -> bool:
    """Whether such a call was made; for a model without structured output it has the schema."""
    with_it = with_schema(messages, json_schema_of(schema))
    return tuple(messages) in calls or tuple(with_it) in calls


def _select(kind: type[E], events: Iterable[Event]) -> list[E]:
    return [event for event in events if isinstance(event, kind)]
