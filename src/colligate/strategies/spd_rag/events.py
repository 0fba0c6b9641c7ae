"""Events of an SPD-RAG run: the plan, each agent's turns, the levels of the synthesis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from colligate.core.answer import Stated
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
    """A document's agent took an action; `shown` are the new passages that its search returned."""

    document: str
    title: str
    turn: int
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
    """A document's agent ended with its report, and the findings in it that have places.

    `status` is that of its `AgentOutcome`, `problem` why it failed. `dropped` lines of the report
    quote what no passage holds. `kept`: the outcome is that of an interrupted run.
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
    report: str = ""

    def line(self) -> str:
        return f"{self.title}: {self.status}, {pluralize(len(self.findings), 'finding')}"

    @property
    def stage(self) -> Mapping[str, Sequence[str]]:
        return {"found": [self.document] if self.findings else []}


@dataclass(frozen=True)
class Grouped(Event):
    """The texts of a level, counted from 1, were grouped; a text is its place in the level's list.

    `tokens` are those of each text, `budget` is B. `forced`: no two texts fit it together, or the
    run's token budget is too small for several calls.
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
    """One group of a level below the last became this text; `passed_on`: it is unchanged."""

    level: int
    group: int
    findings: tuple[FoundThere, ...]
    passed_on: bool = False
    text: str = ""

    def line(self) -> str:
        return f"synthesis level {self.level}: {pluralize(len(self.findings), 'finding')}"


def list_found(findings: Sequence[Stated]) -> tuple[FoundThere, ...]:
    """Return findings as events show them."""
    return tuple(
        FoundThere(finding.sentence, tuple(place.span for place in finding.places))
        for finding in findings
    )
