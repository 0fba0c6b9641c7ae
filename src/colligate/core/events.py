"""Events: each step of a run, as it happens.

The same events drive the progress display, the trace, the page and the bench.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from enum import Enum
from typing import Any

from colligate.documents import Span
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
