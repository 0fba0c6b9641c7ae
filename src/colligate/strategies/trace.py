"""What happens during a run, as it happens.

Each step is an event. The same events drive the progress display, the JSON trace and, later,
the web page and the tracing exporter, so an event says everything a reader of the trace needs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from enum import Enum
from typing import Any

from colligate.documents import Span
from colligate.evidence.router import Action, Expelled
from colligate.models import Message, Usage
from colligate.models.structured import Stage


@dataclass(frozen=True)
class Event:
    """One step; subclasses say which."""

    def to_json(self) -> dict[str, Any]:
        """The event as plain JSON: its name under `event`, then its fields."""
        return {
            "event": type(self).__name__.lower(),
            **{f.name: plain(getattr(self, f.name)) for f in fields(self)},
        }


@dataclass(frozen=True)
class Noted(Event):
    """Something a person should know: the model taken, a file left out, a signal missing."""

    text: str
    warning: bool = False


@dataclass(frozen=True)
class Progressed(Event):
    """Long work moved on: `done` of `total` (0 when unknown) in a phase, at `what`."""

    phase: str
    done: int
    total: int
    what: str = ""


@dataclass(frozen=True)
class Retrieved(Event):
    """A search returned these spans, best first."""

    query: str
    spans: tuple[Span, ...]
    scores: tuple[float, ...]
    how: str
    seconds: float


@dataclass(frozen=True)
class Opened(Event):
    """A document is read that no search has found so far."""

    document: str


@dataclass(frozen=True)
class Scored(Event):
    """A signal gave each span a score."""

    signal: str
    spans: tuple[Span, ...]
    scores: tuple[float, ...]
    seconds: float = 0.0


@dataclass(frozen=True)
class Pruned(Event):
    """Spans were left out, and why."""

    spans: tuple[Span, ...]
    reason: str


@dataclass(frozen=True)
class Asking(Event):
    """A model is about to be asked for a `what`: "chat", "likelihood", "labels", "attention".

    `prompt_tokens` are all it has to read, before what it computed already is left out.
    """

    role: str
    model: str
    what: str
    prompt_tokens: int


@dataclass(frozen=True)
class Asked(Event):
    """A model was asked and replied."""

    role: str
    model: str
    messages: tuple[Message, ...]
    reply: str
    usage: Usage
    seconds: float


@dataclass(frozen=True)
class Measured(Event):
    """A model gave numbers in place of words.

    `values` has one for each thing measured: the sum of a pair's log-probabilities (nats), the
    odds of each of `labels`, the attention to a span. `mass` is the probability that the labels
    had together, `bounded` are labels with the most they can have had. `remembered` of the values
    were known before and cost nothing; `usage` is what the others cost.
    """

    signal: str
    role: str
    model: str
    values: tuple[float, ...]
    usage: Usage
    seconds: float
    remembered: int = 0
    labels: tuple[str, ...] = ()
    mass: float | None = None
    bounded: tuple[str, ...] = ()


@dataclass(frozen=True)
class Parsed(Event):
    """Answers that had to be a `schema`, counted by what became of each (`structured.Stage`)."""

    schema: str
    stages: Mapping[Stage, int]


@dataclass(frozen=True)
class Routed(Event):
    """A router saw a subtree of a document and chose (RDR2).

    `round` is 0 for a subtree of the search, else it counts the document's expansions, and
    `expanded` is the heading opened. `lit` are the nodes it was made from, `shown` its text,
    `omitted` the nodes left out of it for its length. `verdict` is "routed", "refused", or
    "collapsed" where nothing could be made of the reply. `cut` where its end is missing.
    """

    document: str
    round: int
    expanded: int | None
    lit: tuple[int, ...]
    shown: str
    omitted: tuple[int, ...]
    verdict: str
    actions: tuple[Action, ...]
    expelled: tuple[Expelled, ...]
    dropped: tuple[str, ...]
    cut: bool = False


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


@dataclass(frozen=True)
class Selected(Event):
    """What was kept of the documents in view, and its tokens against the budget."""

    spans: tuple[Span, ...]
    tokens: int
    budget: int
    documents: int


@dataclass(frozen=True)
class Answered(Event):
    """The answer stands: what was cited, and what was dropped on the way."""

    found: bool
    text: str
    citations: tuple[Span, ...]
    dropped: tuple[str, ...] = ()


Listener = Callable[[Event], None]


class Trace:
    """The events of one run, in order, each with its time since the run began.

    With `keep` False `events` holds only what was noted: the listeners have seen the others, and
    the prompts of thousands of calls take memory.
    """

    def __init__(self, listeners: Sequence[Listener] = (), *, keep: bool = True) -> None:
        self.events: list[tuple[float, Event]] = []
        self._keep = keep
        self._listeners = tuple(listeners)
        self._began = time.perf_counter()

    def emit(self, event: Event) -> None:
        """Record an event and tell whoever listens."""
        if self._keep or isinstance(event, Noted):
            self.events.append((time.perf_counter() - self._began, event))
        for listener in self._listeners:
            listener(event)

    def to_json(self) -> list[dict[str, Any]]:
        """All events kept so far; `at` is seconds since the run began."""
        return [{"at": round(at, 4), **event.to_json()} for at, event in self.events]


def plain(value: Any) -> Any:
    """A dataclass, enum, mapping or sequence as plain JSON values."""
    if isinstance(value, Enum):
        return value.value
    if hasattr(value, "__dataclass_fields__"):
        return {f.name: plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(v) for v in value]
    return value
