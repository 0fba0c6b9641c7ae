"""What a person sees in a terminal while the work lasts."""

import functools
import io
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from colligate.cli import progress
from colligate.cli.progress import LineDisplay, watch_run
from colligate.core import Event
from colligate.core.answer import Place, Stated
from colligate.core.events import Asked, Asking, Measured, Progressed, Scored, Writing
from colligate.documents import Span
from colligate.models import Usage
from colligate.strategies.auto.method import Classified, Escalated
from colligate.strategies.dualrag.knowledge import Fragment, Stop
from colligate.strategies.dualrag.method import (
    Gathered,
    Identified,
    Outlined,
    OutlineEntity,
    Reasoned,
    Stopped,
)
from colligate.strategies.duquad.method import DocumentScore, Gated, Listed, Viewed
from colligate.strategies.longrefiner.method import NodeScore, Selected, Weighed
from colligate.strategies.longrefiner.structuring import Structured
from colligate.strategies.rdr2.router import Routed
from colligate.strategies.spd_rag.agent import AgentEnded, AgentTurn, Status
from colligate.strategies.spd_rag.method import Planned
from colligate.strategies.spd_rag.synthesis import Grouped, Synthesised

_STYLES = re.compile(r"\x1b\[[0-9;]*m")
_MOVES = re.compile(r"\x1b\[[0-9;?]*[A-Za-ln-z]")
_CODES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def test_the_work_is_shown_while_it_lasts_then_answer_and_citations(
    colligate: Any, asked: Callable[..., Any], folder: Path
) -> None:
    status, screen = colligate.in_terminal(*asked(folder))
    assert status == 0, screen
    assert _STYLES.search(screen)
    assert _MOVES.search(screen), "the progress is drawn over"
    plain = _MOVES.sub("", _STYLES.sub("", screen))
    assert "reading" in plain
    assert "The tower was built in 1871. [1]" in plain
    assert "[1] The lighthouse › Building" in plain
    # The cursor is back.
    assert screen.rfind("\x1b[?25h") > screen.rfind("\x1b[?25l")


def test_a_narrow_terminal_without_colour(
    colligate: Any, asked: Callable[..., Any], folder: Path
) -> None:
    colligate.environment["NO_COLOR"] = "1"
    status, screen = colligate.in_terminal(*asked(folder), width=30)
    assert status == 0, screen
    codes = [c for style in _STYLES.findall(screen) for c in style[2:-1].split(";") if c]
    assert [c for c in codes if 30 <= int(c) <= 49 or 90 <= int(c) <= 107] == []
    progress = _MOVES.sub("", _STYLES.sub("", screen.split("\x1b[?25h")[0]))
    assert re.search(r"reading +2 of 2\n", progress), "what and how much stand on one line"
    answer = _MOVES.sub("", _STYLES.sub("", screen.split("\x1b[?25h")[-1]))
    assert "The tower was built in 1871." in answer
    assert max(len(line) for line in answer.splitlines() if "tokens" not in line) <= 30


def test_the_model_asked_is_said_before_it_replies(
    colligate: Any, asked: Callable[..., Any], ask: Any, openai_server: Any, folder: Path
) -> None:
    named = f"asking openai:reader@{openai_server.url}"
    assert ask(folder).stderr.splitlines().count(named) == 1
    assert "stream" not in openai_server.requests[-1]
    openai_server.hold()
    openai_server.arrived.clear()

    def release() -> None:
        openai_server.arrived.wait(60)
        time.sleep(1)  # in which the screen is drawn
        openai_server.release()

    releasing = threading.Thread(target=release)
    releasing.start()
    _, screen = colligate.in_terminal(*asked(folder))
    releasing.join()
    assert re.search(r"call 1, \d+ tokens: asking openai:reader@", _MOVES.sub("", screen))
    assert openai_server.requests[-1]["stream"], "its tokens are counted as they come"


SPAN = Span("d", 0, 4)
SCORE = NodeScore(SPAN, "section", "T", 0.1, 0.2, 0.3, True)
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


def test_what_is_written_so_far_is_on_the_line_and_not_in_the_trace(
    terminal: Any, tmp_path: Path, capsys: Any
) -> None:
    writing = Writing("reader", "bundled", 1234)
    [step] = terminal(writing)
    assert "bundled has written about 1,234 tokens" in step
    with watch_run(tmp_path / "trace.jsonl", io.StringIO()) as watcher:
        watcher.see(writing)
    assert capsys.readouterr().err == (tmp_path / "trace.jsonl").read_text() == ""


def test_events_that_are_not_shown_are_ignored(capsys: Any) -> None:
    LineDisplay().show(Event())
    with watch_run(stream=io.StringIO()) as watcher:
        watcher.see(Event())
    assert capsys.readouterr().err == ""


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
            Identified(2, ("Ada", "Bea"), (("q",), ("r",))),
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
            AgentEnded("d", "T", Status.READ, "", 0.9, (Stated("a", (Place(SPAN, "exact"),)),)),
            "T: read, 1 finding",
        ),
        (
            Grouped(1, ((0, 2), (1,)), (9, 9, 9), 20),
            "synthesis level 1: 3 texts in 2 groups",
        ),
        (
            Synthesised(1, 0, (Stated("a", (Place(SPAN, "exact"),)),)),
            "synthesis level 1: 1 finding",
        ),
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
        (Routed("d", 0, None, (), "", "refused", (), (), ()), "routing d: refused"),
        (Structured("d", "model", 12), "structured d: 12 parts from model"),
        (Weighed("d", 0.5, (), (SCORE, SCORE)), "weighed 2 parts of d"),
        (Selected((SPAN,), 1900, 2048, 3), "kept 1,900 of 2,048 tokens from 3 documents"),
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
