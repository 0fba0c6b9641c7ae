"""What a person sees on standard error while the work goes on, and the trace file.

In a terminal: bars for long work and one line for what the strategy does, removed at the end.
Elsewhere (a log, a pipe): a line as each phase begins, and one a minute while it lasts.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Collection, Coroutine, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, Protocol, TextIO, TypeVar

import typer
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Column
from rich.text import Text

from colligate.cli.command import event_loop
from colligate.cli.display import is_terminal, make_console, note, to_one_line, warn
from colligate.core.events import (
    Asked,
    Asking,
    Event,
    Listener,
    Noted,
    Progressed,
    Writing,
    pluralize,
)
from colligate.errors import ColligateError, UsageError
from colligate.private import make_private_file

T = TypeVar("T")

_SECONDS_BETWEEN_LINES = 60.0
_BYTES = frozenset({"pulling", "fetching"})
_OF_FILES = frozenset({"comparing", "reading"})
# Steps of a strategy belong to this phase: its bar stays above their line until it is done.
_WITH_STEPS = "reading documents"
# A narrower terminal has no room for bars.
_LEAST_COLUMNS = 80
# What the phases that can be resumed keep.
_KEPT = {"answering": "new row", "curating": "item", "evaluating": "sample"}


@contextmanager
def watch_run(trace: Path | None = None, stream: TextIO | None = None) -> Iterator[Watcher]:
    """Yield a watcher that shows events on standard error and writes them to `trace`."""
    with ExitStack() as stack:
        file = stack.enter_context(TraceFile(trace)) if trace else None
        yield Watcher(stack.enter_context(_open_display(stream or sys.stderr)), file)


def run_resumable(work: Callable[[Listener], Coroutine[Any, Any, T]], folder: Path) -> T | None:
    """Run work that keeps what is finished in a folder; return None if it was interrupted."""
    last: Progressed | None = None
    with watch_run() as watcher:

        def see(event: Event) -> None:
            nonlocal last
            if isinstance(event, Progressed) and event.phase in _KEPT:
                last = event
            watcher.see(event)

        try:
            with event_loop() as loop:
                return loop.run(work(see))
        except (KeyboardInterrupt, ColligateError, OSError) as error:
            interrupted = isinstance(error, KeyboardInterrupt)
            if last or interrupted:
                kept = pluralize(last.done, _KEPT[last.phase]) if last else "nothing new"
                note(f"stopped; {kept} in {folder}; the same command resumes")
            if not interrupted:
                raise
            return None


def require_text(question: str) -> None:
    """Refuse a question whose bytes are not text in the terminal's encoding."""
    try:
        question.encode()
    except UnicodeEncodeError as error:
        why = "its bytes are not valid in this terminal's encoding"
        raise UsageError("the question is not text", why, "write it in UTF-8") from error


class Watcher:
    """Shows events and writes them to the trace file, if there is one."""

    def __init__(self, display: Display, trace: TraceFile | None) -> None:
        self._display = display
        self._trace = trace
        self._warned: set[str] = set()
        self._noted: set[str] = set()

    def see(self, event: Event) -> None:
        """Take one event. May be called from any thread."""
        if self._trace is not None and not isinstance(event, Writing):
            self._trace.write(event)
        if isinstance(event, Noted) and event.warning:
            self._warned.add(event.text)
        elif isinstance(event, Noted):
            if event.text in self._noted:
                return
            self._noted.add(event.text)
        self._display.show(event)

    @property
    def live(self) -> bool:
        """Whether a person sees each step."""
        return isinstance(self._display, BarDisplay)

    def paused(self) -> AbstractContextManager[None]:
        """Leave the terminal to what is printed as long as the context lasts."""
        return self._display.paused()

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
            if warning not in self._warned:
                warn(warning)


class TraceFile:
    """The events of a run as JSON lines; `at` is seconds since the file was opened."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            make_private_file(path)
            self._file = path.open("w", encoding="utf-8", errors="backslashreplace")
        except OSError as error:
            raise UsageError(*self._explain(error)) from error
        self._began = time.perf_counter()
        self._lock = threading.Lock()

    def write(self, event: Event) -> None:
        """Add one event."""
        at = round(time.perf_counter() - self._began, 4)
        line = json.dumps({"at": at, **event.to_json()}, ensure_ascii=False)
        try:
            with self._lock:
                self._file.write(line + "\n")
                self._file.flush()
        except OSError as error:
            raise ColligateError(*self._explain(error)) from error

    def __enter__(self) -> TraceFile:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):  # a write that failed was reported already
            self._file.close()

    def _explain(self, error: OSError) -> tuple[str, str, str]:
        why = error.strerror or str(error)
        return f"cannot write the trace {self._path}", why, "give another file"


class Display(Protocol):
    """Shows events, from any thread."""

    def show(self, event: Event) -> None:
        """Show one event."""

    def paused(self) -> AbstractContextManager[None]:
        """Leave the terminal to a question as long as the context lasts."""


@contextmanager
def _open_display(stream: TextIO) -> Iterator[Display]:
    """Yield the display that fits the stream."""
    if not is_terminal(stream):
        yield LineDisplay()
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
    with Progress(
        *columns, console=console, transient=True, redirect_stdout=False, redirect_stderr=False
    ) as progress:
        yield BarDisplay(progress)


class LineDisplay:
    """A few plain lines: notes, the start of each phase, and once a minute how far it is."""

    def __init__(self) -> None:
        self._shown: dict[str, float] = {}
        self._calls = 0

    def show(self, event: Event) -> None:
        match event:
            case Noted(text=text, warning=warning):
                (warn if warning else note)(text)
            case _ if event.lasting:
                note(event.line())
            case Progressed():
                self._show_progress(event)
            case Asking(model=model, what=what):
                self._calls += what == "chat"
                last = self._find_due(f"asking {model} {what}")
                if last is not None:
                    call = f", call {self._calls:,}" if last and what == "chat" else ""
                    note(_format_asking(model, what) + call)

    def paused(self) -> AbstractContextManager[None]:
        """Nothing is moving."""
        return nullcontext()

    def _find_due(self, what: str) -> float | None:
        """Return when this was last shown (0.0: never) if it is due again, otherwise None."""
        now = time.monotonic()
        last = self._shown.get(what, 0.0)
        if last and now - last < _SECONDS_BETWEEN_LINES:
            return None
        self._shown[what] = now
        return last

    def _show_progress(self, event: Progressed) -> None:
        last = self._find_due(event.phase)
        if last is None:
            return
        total = _format_amount(event.phase, event.total) if event.total else ""
        if last:
            done = _format_amount(event.phase, event.done)
            note(f"{event.phase}: {done} of {total or 'unknown'}")
        elif event.phase in _BYTES:
            note(f"{event.phase} {event.what} ({total or 'unknown size'})")
        elif event.phase in _OF_FILES:
            note(f"{event.phase} {pluralize(event.total, 'file')}")
        elif event.phase == _WITH_STEPS:
            note(f"reading {pluralize(event.total, 'document')}")
        else:
            note(f"{event.phase} {event.what}".rstrip())


class BarDisplay:
    """Bars for long work, and one line for what the strategy does."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._phases: dict[str, TaskID] = {}
        self._step = progress.add_task("starting", total=None, amount="")
        self._calls = 0
        # The amount needs the rest of the line.
        self._room = min(40, progress.console.width - 20)

    def show(self, event: Event) -> None:
        match event:
            case Noted(text=text, warning=warning):
                line = to_one_line(f"warning: {text}" if warning else text)
                self._progress.console.print(Text(line, style="yellow" if warning else "dim"))
            case _ if event.lasting:
                self._progress.console.print(Text(to_one_line(event.line()), style="dim"))
            case Progressed():
                self._show_progress(event)
            case Asking(model=model, what=what, prompt_tokens=tokens):
                self._calls += what == "chat"
                call = f"call {self._calls:,}, " if what == "chat" else ""
                asking = _format_asking(model, what)
                self._show_step(f"{call}{tokens:,} tokens: {asking}")
            case Writing(model=model, tokens=tokens):
                written = f"{model} has written about {pluralize(tokens, 'token')}"
                self._show_step(f"call {self._calls:,}: {written}")
            case Asked(model=model):
                self._show_step(f"call {self._calls:,}: {model} replied")
            case _:
                if line := event.line():
                    self._show_step(line)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Remove the bars for a while."""
        self._progress.stop()
        try:
            yield
        finally:
            self._progress.start()

    def _show_step(self, text: str) -> None:
        tasks = {task.id: task for task in self._progress.tasks}
        for phase in list(self._phases):
            if phase != _WITH_STEPS or tasks[self._phases[phase]].finished:
                self._progress.remove_task(self._phases.pop(phase))
        self._progress.update(self._step, description=to_one_line(text), visible=True)

    def _show_progress(self, event: Progressed) -> None:
        self._progress.update(self._step, visible=event.phase == _WITH_STEPS)
        if event.phase not in self._phases:
            self._phases[event.phase] = self._progress.add_task(event.phase, total=None, amount="")
        description = to_one_line(f"{event.phase} {event.what}")
        if len(description) > self._room:
            description = description[: self._room - 1] + "…"
        done, total = (_format_amount(event.phase, n) for n in (event.done, event.total))
        self._progress.update(
            self._phases[event.phase],
            description=description,
            amount=f"{done} of {total}" if event.total else "",
            completed=event.done,
            total=event.total or None,
        )


def _format_asking(model: str, what: str) -> str:
    return f"asking {model}" if what == "chat" else f"{model} is judging"


def _format_amount(phase: str, amount: int) -> str:
    if phase not in _BYTES:
        return f"{amount:,}"
    return f"{amount / 1e6:,.0f} MB" if amount >= 1e6 else f"{amount / 1e3:,.0f} kB"
