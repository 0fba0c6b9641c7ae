"""What a person sees in a terminal while the work lasts."""

import functools
import io
import re
from collections.abc import Callable

import pytest

from colligate.cli import progress
from colligate.cli.progress import watch_run
from colligate.core.events import (
    Answered,
    Asked,
    Asking,
    Drafted,
    Event,
    Noted,
    Progressed,
    Writing,
)
from colligate.documents import Passage, Span
from colligate.models import Usage

_STYLES = re.compile(r"\x1b\[[0-9;]*m")
_MOVES = re.compile(r"\x1b\[[0-9;?]*[A-Za-ln-z]")
_CODES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def test_the_work_is_shown_then_answer_and_citations(colligate, asked, openai_server, folder):
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
    assert openai_server.requests[-1]["stream"], "its tokens are counted as they come"


@pytest.mark.parametrize("given", [[], ["--no-color"]])
def test_a_narrow_terminal_without_colour(colligate, asked, folder, given):
    if not given:
        colligate.environment["NO_COLOR"] = "1"
    status, screen = colligate.in_terminal(*asked(folder), *given, width=30)
    assert status == 0, screen
    codes = [c for style in _STYLES.findall(screen) for c in style[2:-1].split(";") if c]
    assert [c for c in codes if 30 <= int(c) <= 49 or 90 <= int(c) <= 107] == []
    answer = _MOVES.sub("", _STYLES.sub("", screen.split("\x1b[?25h")[-1]))
    assert "The tower was built in 1871." in answer
    assert max(len(line) for line in answer.splitlines() if "tokens" not in line) <= 30


def test_in_a_log_a_phase_and_a_model_are_said_once(ask, folder, capsys):
    said = ask(folder).stderr.splitlines()
    assert sum(line.startswith("asking the reader openai:reader@") for line in said) == 1
    with watch_run(stream=io.StringIO()) as watcher:
        for done in range(5):
            watcher.see(Progressed("reading documents", done, 5, f"Title {done}"))
        watcher.see(Noted("a note"))
        watcher.see(Event())
    assert capsys.readouterr().err.splitlines() == ["reading documents 0 of 5", "a note"]


@pytest.mark.parametrize("first", [True, False])
def test_a_quiet_command_says_only_what_went_wrong(colligate, asked, folder, first):
    (folder / "broken.docx").write_bytes(b"no document")
    words = asked(folder)
    status, screen = colligate.in_terminal(*(["-q", *words] if first else [*words, "--quiet"]))
    assert status == 0, screen
    warning, answer, *_ = _STYLES.sub("", screen).splitlines()
    assert warning.startswith("warning: ")
    assert answer == "The tower was built in 1871. [1]"
    assert "tokens" not in screen
    assert not _MOVES.search(_STYLES.sub("", screen)), "no progress"
    assert "unknown strategy" in colligate.here("-q", *words, "--strategy", "none").stderr
    assert colligate.here(*words).stderr.count("\n") > 2, "the next one is not quiet"


def test_a_verbose_command_says_each_step(ask, openai_server, folder):
    said = ask(folder, "-v").stderr
    steps = re.findall(r"^\d+\.\d s: (.+)$", said, re.M)
    assert "found 3 passages" in steps
    replies = [step for step in steps if step.endswith("replied")]
    assert len(replies) == len(openai_server.requests)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """The lines that a terminal of 100 columns shows once these events are past."""
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "100")
    # A frame is drawn when the test says so, and at no other moment.
    drawn_once = functools.partial(progress.Screen, auto_refresh=False)
    monkeypatch.setattr(progress, "Screen", drawn_once)

    def shown(*events: Event) -> list[str]:
        stream = Terminal()
        with watch_run(stream=stream) as watcher:
            for event in events:
                watcher.see(event)
            stream.truncate(stream.seek(0))
            watcher._progress.refresh()  # type: ignore[attr-defined]
            frame = stream.getvalue()
        return [line.strip() for line in _CODES.sub("", frame).splitlines() if line.strip()]

    return shown


def test_what_is_written_so_far_is_on_the_line_and_not_in_the_trace(terminal, tmp_path, capsys):
    writing = Writing("reader", "bundled", 1234)
    [step] = terminal(writing)
    assert "the reader bundled has written 1,234 tokens" in step
    with watch_run(tmp_path / "trace.jsonl", io.StringIO()) as watcher:
        watcher.see(writing)
    assert capsys.readouterr().err == (tmp_path / "trace.jsonl").read_text() == ""


def test_what_a_model_says_drives_no_terminal(terminal):
    [line] = terminal(Asking("reader", "It is\x1b[2J\x07 high,\nand old", "chat", 9))
    assert "It is␛[2J␇ high, and old" in line


def test_the_answer_is_shown_while_it_is_written_with_what_is_struck_out(terminal):
    place = Passage(Span("d", 0, 9), "It was built.", "The tower", page=3)
    draft = [
        Drafted(0, "It was built in 1871.", "confirmed", (place, place)),
        Drafted(1, "It is \x1b[2Jhigh."),
        Drafted(1, "It is \x1b[2Jhigh.", "struck", why="no single passage has its quote"),
        Drafted(2, "The lamp"),
    ]
    _, *shown = terminal(*draft)
    assert " ".join(shown) == (
        "It was built in 1871. (The tower, page 3) It is ␛[2Jhigh. "
        "(struck out: no single passage has its quote) The lamp"
    )
    _, *shown = terminal(*draft, Drafted(1, ""))  # another reply is asked for
    assert shown == ["It was built in 1871. (The tower, page 3)"]
    _, *shown = terminal(*draft, *(Drafted(at, f"Line {at}. " * 9) for at in range(3, 99)))
    assert len(shown) <= 25
    assert shown[-1].endswith("Line 98.")
    assert len(terminal(*draft, Answered(True, "It was built in 1871. [1]", ()))) == 1


def test_the_bar_of_documents_stays_while_their_agents_work(terminal):
    calls = [Asking("worker", "m", "chat", 900), Asked("worker", "m", (), "{}", Usage(900, 9), 0.1)]
    bar, step = terminal(Progressed("reading documents", 12, 40, "The lease"), *calls)
    assert "the worker m replied" in step
    assert "reading documents The lease" in bar
    assert "12 of 40" in bar
    [step] = terminal(Progressed("reading documents", 40, 40, "The last"), *calls)
    assert "the worker m replied" in step
