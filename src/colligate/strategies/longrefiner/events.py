"""Events of a LongRefiner run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from colligate.core.events import Event, pluralize
from colligate.documents import Span


@dataclass(frozen=True)
class Structured(Event):
    """A document has its structure.

    `basis` is "headings", "model" or "chunks". `coverage` is the share of its characters that a
    model's structure brought back, `lost` the pieces that were not found. `kept`: it was stored
    before.
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
    """A node's scores, `score` = `local_score` + scope x `global_score`, and if it was kept."""

    span: Span
    level: str
    title: str
    local_score: float
    global_score: float
    score: float
    kept: bool


@dataclass(frozen=True)
class Weighed(Event):
    """Every node of a document has its scores.

    `selected` are the titles that the model chose from the outline; `scope` is R_q, None if there
    was nothing to choose between.
    """

    document: str
    scope: float | None
    selected: tuple[str, ...]
    nodes: tuple[NodeScore, ...]

    def line(self) -> str:
        return f"weighed {pluralize(len(self.nodes), 'part')} of {self.document}"


@dataclass(frozen=True)
class Selected(Event):
    """The spans that were kept, and their tokens against the budget."""

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
