"""Events of a DuQUAD run: its documents, both views, the scores.

The signals behind the local view are a `Weighted` event (`signals.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from colligate.core.events import Event, pluralize
from colligate.documents import Span

Agent = Literal["global", "local"]


@dataclass(frozen=True)
class Listed(Event):
    """The documents of the question, numbered from 1 in this order for the whole run.

    `units` is "documents" if they are whole, "passages" if a search found them.
    """

    units: Literal["documents", "passages"]
    spans: tuple[Span, ...]
    titles: tuple[str, ...]

    def line(self) -> str:
        return f"comparing {pluralize(len(self.spans), self.units.removesuffix('s'))}"


@dataclass(frozen=True)
class Viewed(Event):
    """An agent read documents and named the important ones.

    `shown` are their numbers in the order it saw them and `documents` their ids; `log` is its
    reply. `named` is False if it named none: `important` is then the replacement.
    """

    agent: Agent
    shown: tuple[int, ...]
    log: str
    important: tuple[int, ...]
    named: bool
    documents: tuple[str, ...] = ()

    def line(self) -> str:
        named = ", ".join(f"#{number}" for number in self.important) or "none"
        return (
            f"the {self.agent} agent read {pluralize(len(self.shown), 'document')}, named {named}"
        )

    @property
    def stage(self) -> Mapping[str, Sequence[str]]:
        ids = dict(zip(self.shown, self.documents, strict=False))
        named = [ids[number] for number in self.important if number in ids]
        return {self.agent: self.documents, "named": named}


@dataclass(frozen=True)
class DocumentScore:
    """A candidate's DocScore, the answer it would give, and the sentences shown if it was kept."""

    number: int
    p: float
    answer: str
    kept: bool
    sentences: tuple[Span, ...] = ()
    document: str = ""


@dataclass(frozen=True)
class Gated(Event):
    """The candidates were scored and compared with the threshold.

    `missing` are those that got no score, though the model was asked twice.
    """

    threshold: float
    scores: tuple[DocumentScore, ...]
    missing: tuple[int, ...] = ()

    def line(self) -> str:
        kept = sum(score.kept for score in self.scores)
        total = pluralize(len(self.scores), "candidate")
        return f"{kept} of {total} scored {self.threshold:g} or more"

    @property
    def stage(self) -> Mapping[str, Sequence[str]]:
        return {"kept": [score.document for score in self.scores if score.kept]}

    @property
    def ratings(self) -> Mapping[str, Mapping[str, float]]:
        return {"docscore": {score.document: score.p for score in self.scores}}
