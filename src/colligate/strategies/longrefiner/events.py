"""Events of a LongRefiner run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from colligate.core.events import Event, pluralize
from colligate.documents import Span


@dataclass(frozen=True)
class Structured(Event):
    """A document's structure stands (LongRefiner): where it comes from, and how much it covers.

    `basis` is "headings", "model" or "chunks"; `coverage` the share of its characters that a
    model's structure brought back, `lost` the pieces that it did not; `kept`, known from before.
    """

    document: str
    basis: str
    nodes: int
    coverage: float = 1.0
    lost: tuple[str, ...] = ()
    kept: bool = False

    def line(self) -> str:
        return f"structured {self.document}: {pluralize(self.nodes, 'part')} from {self.basis}"

    @property
    def stage(self) -> Mapping[str, Sequence[str]]:
        return {"refined": [self.document]}


@dataclass(frozen=True)
class NodeScore:
    """A node's scores: `score` = `local_score` + scope x `global_score`; whether it was kept."""

    span: Span
    level: str
    title: str
    local_score: float
    global_score: float
    score: float
    kept: bool


@dataclass(frozen=True)
class Weighed(Event):
    """Every node of a document has its scores (LongRefiner).

    `selected` are the titles that the model found helpful in the outline; `scope` is None where
    there was none to choose between.
    """

    document: str
    scope: float | None
    selected: tuple[str, ...]
    nodes: tuple[NodeScore, ...]

    def line(self) -> str:
        return f"weighed {pluralize(len(self.nodes), 'part')} of {self.document}"


@dataclass(frozen=True)
class Selected(Event):
    """What was kept of the documents in view, and its tokens against the budget."""

    spans: tuple[Span, ...]
    tokens: int
    budget: int
    documents: int

    def line(self) -> str:
        kept = f"kept {self.tokens:,} of {self.budget:,} tokens"
        return f"{kept} from {pluralize(self.documents, 'document')}"

    @property
    def stage(self) -> Mapping[str, Sequence[str]]:
        return {"selected": [span.document_id for span in self.spans]}
