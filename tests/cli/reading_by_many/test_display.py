"""What a person sees of the three strategies while they work."""

from __future__ import annotations

import functools
import io
import re
from collections.abc import Callable
from typing import Any

import pytest

from colligate.cli import progress
from colligate.cli.progress import LineDisplay, watch_run
from colligate.core import Event
from colligate.core.events import Asked, Asking, Measured, Progressed, Scored
from colligate.documents import Span
from colligate.models import Usage
from colligate.strategies.auto.events import Classified, Escalated
from colligate.strategies.dualrag.events import (
    Gathered,
    Identified,
    Outlined,
    OutlineEntity,
    Reasoned,
    Stopped,
)
from colligate.strategies.dualrag.knowledge import Fragment, Link, Stop
from colligate.strategies.duquad.events import DocumentScore, Gated, Listed, Viewed
from colligate.strategies.spd_rag.events import (
    AgentEnded,
    AgentTurn,
    FoundThere,
    Grouped,
    Planned,
    Synthesised,
)

_CODES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
SPAN = Span("d", 0, 4)
FRAGMENT = Fragment("It is high.", (SPAN,))
OUTLINE = (OutlineEntity("The tower", (FRAGMENT, FRAGMENT)),)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """The lines that a terminal of 100 columns shows once these events are past."""
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "100")
    # A frame is drawn when the test says so, and at no other moment.
    drawn_once = functools.partial(progress.Progress, auto_refresh=False)
    monkeypatch.setattr(progress, "Progress", drawn_once)

    def shown(*events: Event) -> list[str]:
        stream = Terminal()
        with watch_run(stream=stream) as watcher:
            for event in events:
                watcher.see(event)
            stream.truncate(stream.seek(0))
            watcher._display._progress.refresh()  # type: ignore[attr-defined]
            frame = stream.getvalue()
        return [line.strip() for line in _CODES.sub("", frame).splitlines() if line.strip()]

    return shown


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (Listed("documents", (SPAN,), ("T",)), "comparing 1 document"),
        (Listed("passages", (SPAN, SPAN), ("T", "U")), "comparing 2 passages"),
        (
            Viewed("global", (1, 2, 3), "...", (2, 3), True),
            "the global agent read 3 documents, named #2, #3",
        ),
        (
            Gated(0.4, (DocumentScore(1, 0.9, "a", True), DocumentScore(2, 0.1, "", False))),
            "1 of 2 candidates scored 0.4 or more",
        ),
        (Reasoned(1, "The height is missing.", True), "round 1: The height is missing."),
        (
            Identified(2, (Link("a", "Ada", "new"), Link("b", "Bea", "exact")), (("q",), ("r",))),
            "round 2: looking up Ada, Bea",
        ),
        (
            Gathered(1, "Ada", ("q",), (SPAN, SPAN), (1.0, 0.5), "fused", (SPAN,)),
            "reading 1 passage about Ada",
        ),
        (
            Outlined(1, OUTLINE, (FRAGMENT,)),
            "the outline has 2 fragments, 1 new, of 1 entity",
        ),
        (Stopped(2, Stop.ENOUGH), "stopped after 2 rounds: nothing is missing"),
        (Planned(("a", "b"), "", 40), "2 tasks for each of 40 documents"),
        (AgentTurn("d", "T", 1, "search", "rain in March"), "searching T: rain in March"),
        (AgentTurn("d", "T", 2, "finalize", ""), "done with T"),
        (
            AgentEnded("d", "T", "read", (FoundThere("a", (SPAN,)),), 0.9, 1, 2, 0),
            "T: read, 1 finding",
        ),
        (
            Grouped(1, ((0, 2), (1,)), (9, 9, 9), 20),
            "synthesis level 1: 3 texts in 2 groups",
        ),
        (Synthesised(1, 0, (FoundThere("a", (SPAN,)),)), "synthesis level 1: 1 finding"),
        (
            Classified({"fact": 0.2, "steps": 0.14, "each": 0.66, "overview": 0.0}),
            "the question seems to need one fact from each of many documents (66%)",
        ),
        (
            Escalated("several steps", "dualrag"),
            "several steps: looking up one step after the other (dualrag)",
        ),
        (Escalated("nothing found", "read on"), "nothing found: reading the next passages"),
        (Scored("minilm", (SPAN,), (0.5,)), "compared 1 passage with the question (minilm)"),
        (Event(), ""),
    ],
)
def test_each_step_is_one_line(event: Event, line: str) -> None:
    assert event.line() == line


def test_what_a_model_says_drives_no_terminal(terminal: Any) -> None:
    thought = "It is\x1b[2J\x07 high,\nand old"
    [line] = terminal(Reasoned(1, thought, True))
    assert "round 1: It is␛[2J␇ high, and old" in line


def test_the_bar_of_documents_stays_while_their_agents_work(terminal: Any) -> None:
    calls = [
        Asking("worker", "m", "chat", 900),
        Asked("worker", "m", (), "{}", Usage(900, 9), 0.1),
    ]
    step, bar = terminal(Progressed("reading documents", 12, 40, "The lease"), *calls)
    assert "call 1: m replied" in step
    assert "reading documents The lease" in bar
    assert "12 of 40" in bar
    [step] = terminal(Progressed("reading documents", 40, 40, "The last"), *calls)
    assert "call 1: m replied" in step


def test_only_calls_that_write_are_counted_as_calls(terminal: Any) -> None:
    judged = Measured("labels", "scorer", "m", (0.5,), Usage(900), 0.1)
    [step] = terminal(Asking("scorer", "m", "labels", 900))
    assert "900 tokens: m is judging" in step
    [step] = terminal(judged, Asking("reader", "m", "chat", 900))
    assert "call 1, 900 tokens: asking m" in step


def test_in_a_log_the_documents_are_counted_once(capsys: Any) -> None:
    lines = LineDisplay()
    for done in range(5):
        lines.show(Progressed("reading documents", done, 5, f"Title {done}"))
    assert capsys.readouterr().err.splitlines() == ["reading 5 documents"]
