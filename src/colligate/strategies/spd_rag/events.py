"""What happens in a run of SPD-RAG: the plan, each agent's turns, the levels of the synthesis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from colligate.core.citing import Stated
from colligate.core.events import Event, pluralize
from colligate.documents import Span


@dataclass(frozen=True)
class Planned(Event):
    """The coordinator's plan stands; `kept`: it is that of a run that was interrupted."""

    tasks: tuple[str, ...]
    directive: str
    documents: int
    kept: bool = False

    def line(self) -> str:
        documents = pluralize(self.documents, "document")
        return f"{pluralize(len(self.tasks), 'task')} for each of {documents}"


@dataclass(frozen=True)
class AgentTurn(Event):
    """A document's agent replied: what it found in the passages shown last, and what it does next.

    `turn` counts from 1. `shown` are the passages that its search then brought which it had not
    seen.
    """

    document: str
    title: str
    turn: int
    findings: tuple[str, ...]
    action: str
    query: str
    shown: tuple[Span, ...] = ()

    def line(self) -> str:
        if self.action == "search":
            return f"searching {self.title}: {self.query}"
        return f"done with {self.title}"

    @property
    def stage(self) -> Mapping[str, Sequence[str]]:
        return {"read": [self.document] if self.shown else []}


@dataclass(frozen=True)
class FoundThere:
    """A finding and the places in its document that say it."""

    text: str
    spans: tuple[Span, ...]


@dataclass(frozen=True)
class AgentEnded(Event):
    """A document's agent is done. `status` is that of its `Outcome`, `problem` why it failed.

    `dropped` findings stand nowhere in the passages it was shown. `kept`: the outcome is that of a
    run that was interrupted.
    """

    document: str
    title: str
    status: str
    findings: tuple[FoundThere, ...]
    relevance: float
    searches: int
    turns: int
    dropped: int
    problem: str = ""
    kept: bool = False

    def line(self) -> str:
        return f"{self.title}: {self.status}, {pluralize(len(self.findings), 'finding')}"

    @property
    def stage(self) -> Mapping[str, Sequence[str]]:
        return {"found": [self.document] if self.findings else []}


@dataclass(frozen=True)
class Grouped(Event):
    """What is synthesised together at a level, counted from 1: places in the level's list.

    `tokens` are those of each text, `budget` what a group may have. `forced`: no two texts fit
    it together, or the run's budget is too small for several calls.
    """

    level: int
    groups: tuple[tuple[int, ...], ...]
    tokens: tuple[int, ...]
    budget: int
    forced: bool = False

    def line(self) -> str:
        texts = pluralize(sum(map(len, self.groups)), "text")
        groups = pluralize(len(self.groups), "group")
        return f"synthesis level {self.level}: {texts} in {groups}"


@dataclass(frozen=True)
class Synthesised(Event):
    """One group of a level below the last became these findings, or went on as it was."""

    level: int
    group: int
    findings: tuple[FoundThere, ...]
    passed_on: bool = False

    def line(self) -> str:
        return f"synthesis level {self.level}: {pluralize(len(self.findings), 'finding')}"


def places_of(findings: Sequence[Stated]) -> tuple[FoundThere, ...]:
    """Findings as events show them."""
    return tuple(
        FoundThere(finding.sentence, tuple(place.span for place in finding.places))
        for finding in findings
    )
