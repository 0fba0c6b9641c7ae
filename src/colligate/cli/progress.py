"""What a person sees on standard error while the work goes on, and the trace file.

In a terminal: bars for long work and one line for what the strategy does, removed at the end.
Elsewhere (a log, a pipe): a line as each phase begins, and one a minute while it lasts; with
`--verbose` a line for each step.
"""

from __future__ import annotations

import json
import math
import os
import sys
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TextIO

import typer
from rich.console import RenderableType
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Column
from rich.text import Text

from colligate.cli import display
from colligate.cli.display import is_terminal, make_console, note, to_one_line, warn
from colligate.core.events import Answered, Asking, Drafted, Event, Noted, Progressed, Writing
from colligate.errors import ColligateError, UsageError
from colligate.private import make_private_file

_SECONDS_BETWEEN_LINES = 60.0
# Steps of a strategy belong to this phase: its bar stays above their line until it is done.
_WITH_STEPS = "reading documents"
# A narrower terminal has no room for bars.
_LEAST_COLUMNS = 80


@contextmanager
def watch_run(trace: Path | None = None, stream: TextIO | None = None) -> Iterator[Watcher]:
    """Yield a watcher that shows events on standard error and writes them to `trace`.

    UsageError if the file cannot be written.
    """
    with ExitStack() as stack:
        file = None
        if trace is not None:
            try:
                make_private_file(trace)
                file = trace.open("w", encoding="utf-8", errors="backslashreplace", buffering=1)
            except OSError as error:
                raise UsageError(*_explain(error, trace)) from error
            stack.callback(_close, file)
        yield stack.enter_context(_open_watcher(stream or sys.stderr, file))


def _close(file: TextIO) -> None:
    with suppress(OSError):  # a write that failed was reported already
        file.close()


def _explain(error: OSError, trace: Path) -> tuple[str, str, str]:
    why = error.strerror or str(error)
    return f"cannot write the trace {trace}", why, "give another file"


def require_question(question: str, paths: Sequence[str] | None) -> None:
    """Refuse bytes that are not text in the terminal's encoding, and a path without a question."""
    if not paths and os.path.exists(question):  # noqa: PTH110 (Path.exists fails on long texts)
        why, hint = "it is a file or folder", f'put the question before it: "QUESTION" {question}'
        raise UsageError(f"{question} is not a question", why, hint)
    try:
        question.encode()
    except UnicodeEncodeError as error:
        why = "its bytes are not valid in this terminal's encoding"
        raise UsageError("the question is not text", why, "write it in UTF-8") from error


class Watcher:
    """Shows events as plain lines: notes, each phase as it begins, and how far it is once a minute.

    All events are written to the trace file, if there is one.
    """

    live = False  # whether a person sees each step

    def __init__(self, file: TextIO | None) -> None:
        self._file = file
        self._began = time.perf_counter()
        self._lock = threading.Lock()
        self.noted: set[str] = set()  # what was shown already
        self._shown: dict[str, float] = {}

    def see(self, event: Event) -> None:
        """Take one event. May be called from any thread."""
        if self._file is not None and not isinstance(event, Writing | Drafted):
            at = round(time.perf_counter() - self._began, 4)
            line = json.dumps({"at": at, **event.to_json()}, ensure_ascii=False)
            try:
                with self._lock:
                    self._file.write(f"{line}\n")
            except OSError as error:
                raise ColligateError(*_explain(error, Path(self._file.name))) from error
        if isinstance(event, Noted):
            if event.text in self.noted:
                return
            self.noted.add(event.text)
        self._show(event)

    def _show(self, event: Event) -> None:
        match event:
            case Noted(text=text, warning=warning):
                (warn if warning else note)(text)
            case _ if display.loudness == "verbose" and not isinstance(event, Progressed):
                if line := event.line():
                    note(f"{time.perf_counter() - self._began:.1f} s: {line}")
            case Progressed(phase=phase) | Asking(model=phase):
                now = time.monotonic()
                if now - self._shown.get(phase, -math.inf) >= _SECONDS_BETWEEN_LINES:
                    self._shown[phase] = now
                    note(event.line())
            case _ if event.lasting:
                note(event.line())

    def paused(self) -> AbstractContextManager[None]:
        """Leave the terminal to what is printed as long as the context lasts."""
        return nullcontext()

    def confirm(self, question: str) -> bool:
        """Ask the person at the terminal; no without one."""
        if not (is_terminal(sys.stdin) and is_terminal(sys.stderr)):
            return False
        with self.paused():
            return typer.confirm(to_one_line(question), err=True)

    def read_line(self, prompt: str) -> str | None:
        """Return the next line of standard input that is not blank; None at its end.

        The prompt is shown, with the keys of the terminal for editing, if a person types.
        """
        typed = is_terminal(sys.stdin) and is_terminal(sys.stdout)
        with self.paused(), suppress(EOFError, KeyboardInterrupt):
            while True:
                line = input(prompt) if typed else sys.stdin.readline()
                if line.strip():
                    return line.strip()
                if not (line or typed):
                    break
        if typed:
            print(file=sys.stderr)  # the shell's prompt begins on a line of its own
        return None

    def warn_rest(self, warnings: Collection[str]) -> None:
        """Show the warnings that no event has shown."""
        for warning in warnings:
            if warning not in self.noted:
                warn(warning)


class Screen(Progress):
    """Bars, and below them the answer as it is written: its last lines, if not all fit."""

    draft = Text()

    def get_renderables(self) -> Iterable[RenderableType]:
        yield from super().get_renderables()
        if self.draft:
            lines = self.draft.wrap(self.console, self.console.width)
            yield Text("\n").join(lines[-max(1, self.console.height - 4) :])


class BarWatcher(Watcher):
    """Bars for long work, one line for what the strategy does, and the answer as it is written."""

    live = True

    def __init__(self, file: TextIO | None, progress: Screen) -> None:
        super().__init__(file)
        self._drafted: list[Drafted] = []
        self._progress = progress
        self._phase = ""
        self._bar = progress.add_task("", total=None, amount="", visible=False)
        self._step = progress.add_task("starting", total=None, amount="")
        # The amount needs the rest of the line.
        self._room = min(40, progress.console.width - 20)

    def _show(self, event: Event) -> None:
        line = to_one_line(event.line())
        if isinstance(event, Answered):
            self._show_draft(Drafted(0, ""))
        if isinstance(event, Progressed):
            self._show_progress(event)
        elif isinstance(event, Drafted):
            self._show_draft(event)
        elif isinstance(event, Noted) and event.warning:
            self._progress.console.print(Text(f"warning: {line}", style="yellow"))
        elif isinstance(event, Noted) or event.lasting:
            self._progress.console.print(Text(line, style="dim"))
        elif line:
            self._show_step(line)

    @contextmanager
    def paused(self) -> Iterator[None]:
        self._progress.stop()
        try:
            yield
        finally:
            self._progress.start()

    def _show_step(self, line: str) -> None:
        done = self._progress.tasks[self._bar].finished
        self._progress.update(self._bar, visible=self._phase == _WITH_STEPS and not done)
        self._progress.update(self._step, description=line, visible=True)

    def _show_draft(self, event: Drafted) -> None:
        if event.text:
            self._drafted[event.index : event.index + 1] = [event]
        else:
            del self._drafted[event.index :]
        draft = Text()
        for each in self._drafted:
            draft.append(to_one_line(each.text), "strike" if each.state == "struck" else "")
            draft.append(f" {to_one_line(each.grounds)} ", "dim")
        self._progress.draft = draft

    def _show_progress(self, event: Progressed) -> None:
        if event.phase != self._phase:
            self._phase = event.phase
            self._progress.reset(self._bar)
        self._progress.update(self._step, visible=event.phase == _WITH_STEPS)
        description = to_one_line(f"{event.phase} {event.what}")
        if len(description) > self._room:
            description = description[: self._room - 1] + "…"
        self._progress.update(
            self._bar,
            description=description,
            amount=event.amount,
            completed=event.done,
            total=event.total or None,
            visible=True,
        )


@contextmanager
def _open_watcher(stream: TextIO, file: TextIO | None) -> Iterator[Watcher]:
    if display.loudness != "normal" or not is_terminal(stream):
        yield Watcher(file)
        return
    console = make_console(stream)
    step = Column(no_wrap=True, overflow="ellipsis")
    columns: list[ProgressColumn] = [
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False, table_column=step),
        TextColumn("{task.fields[amount]}", "progress.download", table_column=Column(no_wrap=True)),
    ]
    if console.width >= _LEAST_COLUMNS:
        columns[2:2] = [BarColumn(bar_width=24)]
        columns += [TimeElapsedColumn(), TimeRemainingColumn(elapsed_when_finished=True)]
    with Screen(
        *columns, console=console, transient=True, redirect_stdout=False, redirect_stderr=False
    ) as progress:
        yield BarWatcher(file, progress)
