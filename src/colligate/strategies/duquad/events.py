"""What a run of DuQUAD shows: its documents, both views, the scores, what the judge is given.

The signals behind the views are `Weighted` events.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from colligate.core.events import Event
from colligate.documents import Span

Agent = Literal["global", "local"]


@dataclass(frozen=True)
class Listed(Event):
    """The documents of the question, numbered from 1 in this order for the whole run.

    `units` is "documents" where they are whole, "passages" where a search found them.
    """

    units: Literal["documents", "passages"]
    spans: tuple[Span, ...]
    titles: tuple[str, ...]


@dataclass(frozen=True)
class Viewed(Event):
    """An agent read documents and named the important ones.

    `shown` is in the order it saw them, `log` what the judge is shown of its reply. `named` is
    False where it named none, and `important` is then what takes its place.
    """

    agent: Agent
    shown: tuple[int, ...]
    log: str
    important: tuple[int, ...]
    named: bool


@dataclass(frozen=True)
class DocumentScore:
    """A candidate's DocScore, the answer it would give, and the sentences shown of it if kept."""

    number: int
    p: float
    answer: str
    kept: bool
    sentences: tuple[Span, ...] = ()


@dataclass(frozen=True)
class Gated(Event):
    """The candidates were scored and held to the threshold.

    `missing` are those that got no score, though asked for twice.
    """

    threshold: float
    scores: tuple[DocumentScore, ...]
    missing: tuple[int, ...] = ()
