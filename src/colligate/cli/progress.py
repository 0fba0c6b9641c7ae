"""What the person watching sees while the work goes on, on standard error.

In a terminal: bars for long work and one line for what the strategy does, gone when it ends.
Elsewhere (a log, a pipe): a line as each phase begins, and one a minute while it lasts.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol, TextIO

from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Column
from rich.text import Text

from colligate.cli.display import console, counted, is_terminal, note, one_line, warn
from colligate.core.events import Asked, Asking, Measured, Noted, Progressed

if TYPE_CHECKING:
    from colligate.core.events import Event
_SECONDS_BETWEEN_LINES = 60.0
_BYTES = frozenset({"pulling"})
_OF_FILES = frozenset({"comparing", "reading"})
# Steps of a strategy belong to this phase: its bar stays beside their line until it is done.
_WITH_STEPS = "reading documents"
# Narrower than this a terminal has no room for bars.
_ROOM = 80


class Watcher(Protocol):
    """Shows events; `warned` holds the warnings already shown."""

    warned: set[str]

    def see(self, event: Event) -> None:
        """Show one event. May be called from any thread."""
        ...


@contextmanager
def watching(stream: TextIO) -> Iterator[Watcher]:
    """A watcher that fits the stream."""
    if not is_terminal(stream):
        yield Lines()
        return
    out = console(stream)
    columns: list[ProgressColumn] = [SpinnerColumn(), _what(), _Amount(Column(no_wrap=True))]
    if out.width >= _ROOM:
        columns[2:2] = [BarColumn(bar_width=24)]
        columns += [TimeElapsedColumn(), TimeRemainingColumn(elapsed_when_finished=True)]
    progress = Progress(
        *columns,
        console=out,
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    )
    with progress:
        yield Live(progress)


def _what() -> TextColumn:
    column = Column(no_wrap=True, overflow="ellipsis")
    return TextColumn("{task.description}", markup=False, table_column=column)


class Lines:
    """A few plain lines."""

    def __init__(self) -> None:
        self.warned: set[str] = set()
        self._said: dict[str, float] = {}
        self._calls = 0

    def see(self, event: Event) -> None:
        """Say notes, the beginning of each phase, and now and then how far it is."""
        match event:
            case Noted(text=text, warning=warning):
                if warning:
                    self.warned.add(text)
                (warn if warning else note)(text)
            case Progressed():
                self._progressed(event)
            case Asking(model=model, what=what):
                self._calls += 1
                last = self._due(f"asking {model} {what}")
                if last is not None:
                    note(_asking(model, what) + (f", call {self._calls:,}" if last else ""))

    def _due(self, what: str) -> float | None:
        """When this was last said (0.0: never) if it is time to say it now, else None."""
        now = time.monotonic()
        last = self._said.get(what, 0.0)
        if last and now - last < _SECONDS_BETWEEN_LINES:
            return None
        self._said[what] = now
        return last

    def _progressed(self, event: Progressed) -> None:
        last = self._due(event.phase)
        if last is None:
            return
        total = _count(event.phase, event.total) if event.total else ""
        if last:
            note(f"{event.phase}: {_count(event.phase, event.done)} of {total or 'unknown'}")
        elif event.phase in _BYTES:
            note(f"{event.phase} {event.what} ({total or 'unknown size'})")
        elif event.phase in _OF_FILES:
            note(f"{event.phase} {counted(event.total, 'file')}")
        elif event.phase == _WITH_STEPS:
            note(f"reading {counted(event.total, 'document')}")
        else:
            note(f"{event.phase} {event.what}".rstrip())


class Live:
    """Bars for long work, and one line for what the strategy does."""

    def __init__(self, progress: Progress) -> None:
        self.warned: set[str] = set()
        self._progress = progress
        self._phases: dict[str, TaskID] = {}
        self._step = progress.add_task("starting", total=None)
        self._calls = 0
        # The amount needs the rest.
        self._room = min(40, progress.console.width - 20)

    def see(self, event: Event) -> None:
        """Show one event."""
        match event:
            case Noted(text=text, warning=warning):
                self._say(text, warning)
            case Progressed():
                self._progressed(event)
            case Asking(model=model, what=what, prompt_tokens=tokens):
                self._calls += 1
                self._now(f"call {self._calls:,}, {tokens:,} tokens: {_asking(model, what)}")
            case Asked(model=model) | Measured(model=model):
                self._now(f"call {self._calls:,}: {model} replied")
            case _:
                if line := event.line():
                    self._now(line)

    def _say(self, text: str, warning: bool) -> None:
        if warning:
            self.warned.add(text)
            line = Text(f"warning: {one_line(text)}", style="yellow")
        else:
            line = Text(one_line(text), style="dim")
        self._progress.console.print(line)

    def _now(self, text: str) -> None:
        for phase in list(self._phases):
            if phase != _WITH_STEPS or self._is_done(phase):
                self._progress.remove_task(self._phases.pop(phase))
        self._progress.update(self._step, description=one_line(text), visible=True)

    def _is_done(self, phase: str) -> bool:
        tasks = {task.id: task for task in self._progress.tasks}
        return tasks[self._phases[phase]].finished

    def _progressed(self, event: Progressed) -> None:
        self._progress.update(self._step, visible=event.phase == _WITH_STEPS)
        if event.phase not in self._phases:
            self._phases[event.phase] = self._progress.add_task(
                event.phase, total=None, phase=event.phase
            )
        self._progress.update(
            self._phases[event.phase],
            description=_fitting(f"{event.phase} {event.what}", self._room),
            completed=event.done,
            total=event.total or None,
        )


class _Amount(ProgressColumn):
    """`12 of 240`, or megabytes."""

    def render(self, task: Task) -> Text:
        if not task.total:
            return Text("")
        phase = str(task.fields.get("phase", ""))
        done, total = _count(phase, int(task.completed)), _count(phase, int(task.total))
        return Text(f"{done} of {total}", style="progress.download")


def _asking(model: str, what: str) -> str:
    return f"asking {model}" + ("" if what == "chat" else f" for {what}")


def _count(phase: str, amount: int) -> str:
    return f"{amount / 1e6:,.0f} MB" if phase in _BYTES else f"{amount:,}"


def _fitting(text: str, length: int) -> str:
    text = one_line(text)
    return text if len(text) <= length else text[: length - 1] + "…"
