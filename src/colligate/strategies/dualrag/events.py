"""Events of a DualRAG run: how the outline grows, round by round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from colligate.core.events import Event, pluralize
from colligate.documents import Span
from colligate.strategies.dualrag.knowledge import Fragment, Stop


@dataclass(frozen=True)
class Reasoned(Event):
    """The Reasoner had a thought. `readable` is False if its reply was used as it was.

    Rounds count from 1 in all these events.
    """

    round: int
    thought: str
    need_retrieve: bool
    readable: bool = True

    def line(self) -> str:
        return f"round {self.round}: {self.thought}"


@dataclass(frozen=True)
class Identified(Event):
    """The entities that will be looked up, and the queries of each.

    `readable` is False if the Entity Identifier's reply could not be read: the thought itself is
    looked up then.
    """

    round: int
    entities: tuple[str, ...]
    queries: tuple[tuple[str, ...], ...]
    readable: bool = True

    def line(self) -> str:
        names = self.entities or [query for row in self.queries for query in row]
        return f"round {self.round}: looking up {', '.join(names)}"

    @property
    def counts(self) -> Mapping[str, float]:
        return {"queries": sum(map(len, self.queries))}

    def to_json(self) -> dict[str, Any]:
        return {**super().to_json(), "links": [{"name": name} for name in self.entities]}


@dataclass(frozen=True)
class Gathered(Event):
    """The passages kept for an entity, best first, and those of them not yet read for it.

    `redundant` queries found nothing that earlier queries of the run had not found.
    """

    round: int
    entity: str
    queries: tuple[str, ...]
    spans: tuple[Span, ...]
    scores: tuple[float, ...]
    how: str
    unseen: tuple[Span, ...]
    redundant: int = 0

    def line(self) -> str:
        return f"reading {pluralize(len(self.unseen), 'passage')} about {self.entity}"

    @property
    def stage(self) -> Mapping[str, Sequence[str]]:
        return {"gathered": [span.document_id for span in self.spans]}

    @property
    def counts(self) -> Mapping[str, float]:
        return {"redundant_queries": self.redundant}


@dataclass(frozen=True)
class Summarised(Event):
    """The new passages of an entity were summarised.

    The model made `said` statements; `fragments` are those that went into the outline.
    """

    round: int
    entity: str
    said: int
    fragments: tuple[Fragment, ...]
    readable: bool = True

    def line(self) -> str:
        said = pluralize(self.said, "statement")
        return f"{self.entity}: {len(self.fragments)} of {said} found in the passages"


@dataclass(frozen=True)
class OutlineEntity:
    """An entity of the outline."""

    name: str
    fragments: tuple[Fragment, ...]


@dataclass(frozen=True)
class Outlined(Event):
    """The outline after a round; `new` are the fragments from words not known before."""

    round: int
    entities: tuple[OutlineEntity, ...]
    new: tuple[Fragment, ...]

    def line(self) -> str:
        fragments = pluralize(sum(len(each.fragments) for each in self.entities), "fragment")
        entities = pluralize(len(self.entities), "entity", "entities")
        return f"the outline has {fragments}, {len(self.new)} new, of {entities}"

    @property
    def stage(self) -> Mapping[str, Sequence[str]]:
        fragments = (each for entity in self.entities for each in entity.fragments)
        return {"outlined": [span.document_id for each in fragments for span in each.spans]}


@dataclass(frozen=True)
class Stopped(Event):
    """The loop ended after so many rounds."""

    rounds: int
    reason: Stop

    def line(self) -> str:
        return f"stopped after {pluralize(self.rounds, 'round')}: {_WHY[self.reason]}"


_WHY = {
    Stop.ENOUGH: "nothing is missing",
    Stop.ROUNDS: "the limit of rounds is reached",
    Stop.BUDGET: "the rest of the token budget is reserved for the answer",
}
