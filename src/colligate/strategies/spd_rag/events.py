"""Events of an SPD-RAG run: the plan, each agent's turns, the levels of the synthesis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from colligate.core.citing import Stated
from colligate.core.events import Event, pluralize
from colligate.documents import Span


@dataclass(frozen=True)
class Planned(Event):
    """The coordinator made its plan; `kept`: it is that of an interrupted run."""

    tasks: tuple[str, ...]
    directive: str
    documents: int
    kept: bool = False

    def line(self) -> str:
        documents = pluralize(self.documents, "document")
        return f"{pluralize(len(self.tasks), 'task')} for each of {documents}"


@dataclass(frozen=True)
class AgentTurn(Event):
    """A document's agent replied: findings in the passages shown last, and its next action.

    `turn` counts the calls, 0 is a search without one. `shown` are the new passages of the search
    that followed, or those of a document that was shown whole.
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
    """A finding and its places in the document."""

    text: str
    spans: tuple[Span, ...]


@dataclass(frozen=True)
class AgentEnded(Event):
    """A document's agent ended. `status` is that of its `Outcome`, `problem` why it failed.

    `dropped` findings have no place in the passages it was shown. `answered` are the numbers of the
    tasks that the findings answer. `kept`: the outcome is that of an interrupted run.
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
    answered: tuple[int, ...] = ()

    def line(self) -> str:
        return f"{self.title}: {self.status}, {pluralize(len(self.findings), 'finding')}"

    @property
    def stage(self) -> Mapping[str, Sequence[str]]:
        return {"found": [self.document] if self.findings else []}


@dataclass(frozen=True)
class Grouped(Event):
    """The texts of a level, counted from 1, were grouped; a text is its place in the level's list.

    `tokens` are those of each text, but of a finding at the first level at least its share of a
    reply; `budget` is the most of a group. `forced`: no two texts fit it together, or the run's
    budget is too small for several calls.
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
    """One group of a level below the last became these findings; `passed_on`: it is unchanged."""

    level: int
    group: int
    findings: tuple[FoundThere, ...]
    passed_on: bool = False

    def line(self) -> str:
        return f"synthesis level {self.level}: {pluralize(len(self.findings), 'finding')}"


def list_found(findings: Sequence[Stated]) -> tuple[FoundThere, ...]:
    """Return findings as events show them."""
    return tuple(
        FoundThere(finding.sentence, tuple(place.span for place in finding.places))
        for finding in findings
    )
