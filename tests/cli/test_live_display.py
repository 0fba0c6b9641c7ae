"""What a person sees in a terminal."""

import io
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from colligate.cli.progress import LineDisplay, watch_run
from colligate.core import Event
from colligate.core.events import Writing
from colligate.documents import Span
from colligate.strategies.longrefiner.events import NodeScore, Selected, Structured, Weighed
from colligate.strategies.rdr2.events import Routed
from colligate.strategies.rdr2.router import Action, Tag

_STYLES = re.compile(r"\x1b\[[0-9;]*m")
_MOVES = re.compile(r"\x1b\[[0-9;?]*[A-Za-ln-z]")


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


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Callable[[Event], str]:
    """What a terminal shows of an event."""
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "100")

    def shown(event: Event) -> str:
        stream = _Terminal()
        with watch_run(stream=stream) as watcher:
            watcher.see(event)
        return stream.getvalue()

    return shown


def test_what_is_written_so_far_is_on_the_line_and_not_in_the_trace(
    terminal: Any, tmp_path: Path, capsys: Any
) -> None:
    writing = Writing("reader", "bundled", 1234)
    screen = _MOVES.sub("", _STYLES.sub("", terminal(writing)))
    assert "bundled has written about 1,234 tokens" in screen
    with watch_run(tmp_path / "trace.jsonl", io.StringIO()) as watcher:
        watcher.see(writing)
    assert capsys.readouterr().err == (tmp_path / "trace.jsonl").read_text() == ""


def test_events_that_are_not_shown_are_ignored(capsys: Any) -> None:
    LineDisplay().show(Event())
    with watch_run(stream=io.StringIO()) as watcher:
        watcher.see(Event())
    assert capsys.readouterr().err == ""


def test_each_step_of_routing_and_refining_is_one_line(terminal: Any) -> None:
    span = Span("d", 0, 4)
    score = NodeScore(span, "section", "T", 0.1, 0.2, 0.3, True)
    answer = Action(Tag.ANSWER, 3)
    steps = {
        Routed("d", 0, None, (), "", (), "refused", (), (), ()): "routing d: refused",
        Routed("d", 1, 2, (), "", (), "routed", (answer,), (), ()): "routing d: 1 action",
        Structured("d\x1b[2J", "model", 12): "structured d␛[2J: 12 parts from model",
        Weighed("d", 0.5, (), (score, score)): "weighed 2 parts of d",
        Selected((span,), 1900, 2048, 3): "kept 1,900 of 2,048 tokens from 3 documents",
    }
    for event, line in steps.items():
        screen = _MOVES.sub("", _STYLES.sub("", terminal(event)))
        assert line in screen
        assert "\n" not in screen.split(line)[0].rpartition("\r")[2]
