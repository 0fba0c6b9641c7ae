"""Events: each step of a run, as it happens.

One stream of events drives the progress display, the trace, the page and the bench. An event
has a `line()` for a person to read, a `stage` and `counts` for the bench, so that a new event needs
no change anywhere else.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

from pydantic_core import to_jsonable_python

from colligate.documents import Passage, Span
from colligate.models import Message, Usage


def pluralize(count: int, thing: str, things: str = "") -> str:
    """Return `1 file` or `2,000 files`; `things` is the plural where it is not `thing` + s."""
    return f"1 {thing}" if count == 1 else f"{count:,} {things or thing + 's'}"


def name_first(texts: Sequence[str], most: int = 3) -> str:
    """Return the first texts, and how many more there are."""
    more = f"; and {len(texts) - most} more" if len(texts) > most else ""
    return "; ".join(texts[:most]) + more


def name_places(passages: Sequence[Passage], most: int = 3) -> str:
    """Return the titles of the first passages, with their pages, each once."""
    named = (p.title if p.page is None else f"{p.title}, page {p.page}" for p in passages)
    return name_first(list(dict.fromkeys(named)), most)


@dataclass(frozen=True)
class Event:
    """One step of a run. Subclasses are named after what happened."""

    def line(self) -> str:
        """Return the step in one short line for a person; empty if there is nothing to show."""
        return ""

    @property
    def lasting(self) -> bool:
        """Whether the line is worth keeping on the terminal after the step has ended."""
        return False

    @property
    def stage(self) -> Mapping[str, Sequence[str]]:
        """The ids of the documents that are left after this step, by the name of the stage."""
        return {}

    @property
    def ratings(self) -> Mapping[str, Mapping[str, float]]:
        """What this step gives documents, by the name of the score and the document's id."""
        return {}

    @property
    def counts(self) -> Mapping[str, float]:
        """Numbers of this step by name, which the bench adds up over a run."""
        return {}

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON: the class's name under `event`, the line if any, then the fields."""
        line = " ".join(self.line().split())
        return {
            "event": type(self).__name__.lower(),
            **({"line": line} if line else {}),
            **{f.name: to_plain(getattr(self, f.name)) for f in fields(self)},
        }


@dataclass(frozen=True)
class Noted(Event):
    """Something a person should know: the model chosen, a file left out, a signal missing."""

    text: str
    warning: bool = False

    def line(self) -> str:
        return self.text


@dataclass(frozen=True)
class Rewritten(Event):
    """A question of a conversation was completed, so that it stands alone."""

    question: str
    alone: str

    def line(self) -> str:
        return f"asked as: {self.alone}"

    lasting = True


_IN_BYTES = frozenset({"pulling", "fetching"})  # phases


@dataclass(frozen=True)
class Progressed(Event):
    """Long work moved on: `done` of `total` (0 if unknown) in a phase, now at `what`."""

    phase: str
    done: int
    total: int
    what: str = ""

    @property
    def amount(self) -> str:
        """How much is done: "3 of 40", "1.5 of 23.0 MB"; empty if the total is unknown."""
        if not self.total:
            return ""
        if self.phase in _IN_BYTES:
            return f"{self.done / 1e6:,.1f} of {self.total / 1e6:,.1f} MB"
        return f"{self.done:,} of {self.total:,}"

    def line(self) -> str:
        return f"{self.phase} {self.what if self.phase in _IN_BYTES else ''} {self.amount}"


@dataclass(frozen=True)
class Retrieved(Event):
    """A search returned these spans, best first."""

    query: str
    spans: tuple[Span, ...]
    scores: tuple[float, ...]
    how: str
    seconds: float

    def line(self) -> str:
        return f"found {pluralize(len(self.spans), 'passage')}"


@dataclass(frozen=True)
class Located(Event):
    """The first search of a run is done: its best passages, before anything is read."""

    passages: tuple[Passage, ...]

    def line(self) -> str:
        return f"located: {name_places(self.passages, 4)}"

    lasting = True


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

    def line(self) -> str:
        passages = pluralize(len(self.spans), "passage")
        return f"compared {passages} with the question ({self.signal})"


@dataclass(frozen=True)
class Assembled(Event):
    """Texts were made for the reader, best first, as the method's paper hands them over.

    The bench takes the measures of passages from them; without this event from the evidence.
    """

    texts: tuple[str, ...]

    def line(self) -> str:
        return f"assembled {pluralize(len(self.texts), 'passage')} for the reader"


@dataclass(frozen=True)
class Pruned(Event):
    """Spans were left out, and why."""

    spans: tuple[Span, ...]
    reason: str

    def line(self) -> str:
        return f"left out {pluralize(len(self.spans), 'passage')}: {self.reason}"


@dataclass(frozen=True)
class Asking(Event):
    """A model is about to be asked for a `what`: "chat", "likelihood", "labels", "attention".

    `prompt_tokens` are all that it has to read, including what its cache already holds.
    """

    role: str
    model: str
    what: str
    prompt_tokens: int

    def line(self) -> str:
        whom = f"the {self.role} {self.model}"
        return f"asking {whom}" if self.what == "chat" else f"{whom} is judging"


@dataclass(frozen=True)
class Writing(Event):
    """A model is writing: about so many tokens of its reply so far. Once a second at most, and only
    where a person watches the run (`Run.live`)."""

    role: str
    model: str
    tokens: int

    def line(self) -> str:
        return f"the {self.role} {self.model} has written {pluralize(self.tokens, 'token')}"


@dataclass(frozen=True)
class Drafted(Event):
    """A sentence of the reader's reply, as far as it is written; only while a person watches.

    Once it is whole, its citations are confirmed, or it is struck out; `index` counts from 0. One
    without text withdraws that sentence and those after it: another reply is asked for.
    """

    index: int
    text: str
    state: Literal["writing", "confirmed", "struck"] = "writing"
    passages: tuple[Passage, ...] = ()
    why: str = ""

    @property
    def grounds(self) -> str:
        """Where it stands, or why it is struck out, in brackets; nothing while it is written."""
        said = f"struck out: {self.why}" if self.why else name_places(self.passages)
        return f"({said})" if said else ""

    def line(self) -> str:
        return f"written: {self.text} {self.grounds}".strip() if self.text else ""


@dataclass(frozen=True)
class Asked(Event):
    """A model was asked and replied."""

    role: str
    model: str
    messages: tuple[Message, ...]
    reply: str
    usage: Usage
    seconds: float

    def line(self) -> str:
        return f"the {self.role} {self.model} replied"


@dataclass(frozen=True)
class Measured(Event):
    """A model gave numbers instead of words.

    `values` has one number for each thing measured: the sum of a pair's log-probabilities (nats),
    the odds of each of `labels`, the attention to a span. `mass` is the probability that the labels
    had together; for labels in `bounded` only an upper bound is known. `usage` is nothing where the
    values came from a cache.
    """

    signal: str
    role: str
    model: str
    values: tuple[float, ...]
    usage: Usage
    seconds: float
    labels: tuple[str, ...] = ()
    mass: float | None = None
    bounded: tuple[str, ...] = ()

    def line(self) -> str:
        return f"the {self.role} {self.model} has judged"


@dataclass(frozen=True)
class Said(Event):
    """The reader's reply before its citations were checked: its sentences, its short answer."""

    text: str
    short: str = ""


@dataclass(frozen=True)
class Answered(Event):
    """The run has an answer: what it cites, and which statements were dropped."""

    found: bool
    text: str
    citations: tuple[Span, ...]
    dropped: tuple[str, ...] = ()

    def line(self) -> str:
        if not self.found:
            return "not in these documents"
        return f"answered with {pluralize(len(self.citations), 'citation')}"


Listener = Callable[[Event], None]


class Trace:
    """The events of one run, in order, each with the seconds since the run began.

    With `keep` False `events` holds notes only: listeners have seen the others, and the prompts of
    thousands of calls take memory.
    """

    def __init__(self, listeners: Sequence[Listener] = (), *, keep: bool = True) -> None:
        self.events: list[tuple[float, Event]] = []
        self._keep = keep
        self._listeners = tuple(listeners)
        self._began = time.perf_counter()

    @property
    def seconds(self) -> float:
        """The seconds since the run began."""
        return time.perf_counter() - self._began

    def emit(self, event: Event) -> None:
        if self._keep or isinstance(event, Noted):
            self.events.append((self.seconds, event))
        for listener in self._listeners:
            listener(event)

    def listen(self, listener: Listener) -> None:
        self._listeners += (listener,)

    def to_json(self) -> list[dict[str, Any]]:
        """Return all events kept so far; `at` is seconds since the run began."""
        return [{"at": round(at, 4), **event.to_json()} for at, event in self.events]


def to_plain(value: Any) -> Any:
    """Return a dataclass, enum, mapping or sequence as plain JSON values."""
    return to_jsonable_python(value)
