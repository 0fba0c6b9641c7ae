"""One question asked of the server: its events as they come, and how it ended."""

from __future__ import annotations

import asyncio
import json
import secrets
import threading
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, BinaryIO

from colligate.errors import ColligateError
from colligate.library.blocking import in_thread
from colligate.serving.problems import problem
from colligate.serving.run_files import RunFiles, encoded
from colligate.strategies.strategy import Strategy
from colligate.strategies.trace import Event, Noted

ENDED = frozenset({"done", "failed", "cancelled"})


@dataclass(frozen=True)
class Ask:
    """What is asked, and how: a strategy set up, the documents in view (None: all), the limits."""

    question: str
    strategy: Strategy
    parameters: Mapping[str, Any] = field(default_factory=dict)
    documents: tuple[str, ...] | None = None
    max_tokens_total: int | None = None
    timeout: float | None = None


@dataclass(eq=False)
class Run:
    """A run of the server, under way or kept.

    `state` is "queued", "running", "done", "failed" or "cancelled". Its events are in its file;
    the answer or the problem is in the file of its summary, and here until it is let go.
    """

    library: str
    files: RunFiles
    question: str
    strategy: str
    parameters: Mapping[str, Any]
    documents: tuple[str, ...] | None
    began: str
    state: str = "queued"
    seconds: float = 0.0
    found: bool | None = None
    ended: dict[str, Any] | None = None
    size: int = 0
    removed: frozenset[str] = field(default=frozenset(), repr=False)
    """Documents that were removed while it was under way."""
    task: asyncio.Task[None] | None = field(default=None, repr=False)

    @property
    def id(self) -> str:
        """Random, not to be guessed."""
        return self.files.id

    @property
    def over(self) -> bool:
        """Whether it has ended."""
        return self.state in ENDED

    def to_json(self) -> dict[str, Any]:
        """The run as lists show it."""
        return {
            "id": self.id,
            "library": self.library,
            "question": self.question,
            "strategy": self.strategy,
            "parameters": dict(self.parameters),
            "documents": None if self.documents is None else list(self.documents),
            "state": self.state,
            "began": self.began,
            "seconds": round(self.seconds, 3),
            "found": self.found,
        }

    async def outcome(self) -> dict[str, Any]:
        """`{"answer": ...}` or `{"problem": ...}`, once it has ended; before that nothing."""
        if self.ended is not None:
            return self.ended
        if not self.over:
            return {}
        try:
            said = await in_thread(self.files.read_summary)
        except FileNotFoundError:
            return {"problem": problem(404, "the run was forgotten")}
        return {key: said[key] for key in ("answer", "problem") if key in said}

    def cancel(self) -> None:
        """Stop it, if it has not ended."""
        if self.task is not None and not self.over:
            self.task.cancel()

    async def wait(self) -> None:
        """Until it has ended."""
        if self.task is not None:
            await asyncio.wait([self.task])


class Recorder:
    """Writes a run's events as they come; wakes whoever follows. Lives in one event loop.

    Past `most` bytes a line says that the rest is not recorded.
    """

    def __init__(self, files: RunFiles, most: int) -> None:
        self._files = files
        self._left = most
        self._file: BinaryIO | None = None
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._began = time.perf_counter()
        self._changed = asyncio.Event()

    def open(self, said: dict[str, Any]) -> None:
        """Make the file, and that of the summary, which holds `said` until the run has ended.

        Raises:
            ColligateError: they cannot be made.
        """
        try:
            self._files.folder.mkdir(parents=True, exist_ok=True)
            self._file = self._files.events.open("xb", buffering=0)
            self._files.write_summary(said)
        except OSError as error:
            self.close()
            with suppress(OSError):
                self._files.delete()
            raise _unwritten(error) from error

    def see(self, event: Event) -> None:
        """Record an event of the engine. May be called from any thread.

        Raises:
            ColligateError: it cannot be written, on a full disk for example.
        """
        said = event.to_json()
        if threading.get_ident() == self._thread:
            self.write(said)
        else:
            self._loop.call_soon_threadsafe(self.write, said)

    def write(self, said: dict[str, Any]) -> None:
        """Add a line.

        Raises:
            ColligateError: it cannot be written.
        """
        if self._file is None or self._left <= 0:
            return
        line = encoded({**said, "at": round(time.perf_counter() - self._began, 4)}) + b"\n"
        self._left -= len(line)
        if self._left <= 0:
            full = Noted("this run has more events than are recorded", warning=True)
            line = encoded(full.to_json()) + b"\n"
        try:
            self._file.write(line)
        except OSError as error:
            self.close()
            raise _unwritten(error) from error
        self.wake()

    def wake(self) -> None:
        """Tell whoever follows that there is more, or that the run has ended."""
        self._changed.set()
        self._changed = asyncio.Event()

    def close(self) -> None:
        """Write no more. Safe to call twice."""
        if self._file is not None:
            self._file.close()
            self._file = None

    @property
    def changed(self) -> asyncio.Event:
        """Set when something is added after this was looked at."""
        return self._changed


async def follow(
    run: Run, recorder: Recorder | None, after: int, *, prompts: bool
) -> AsyncIterator[tuple[int, bytes]]:
    """A run's events as JSON, with their numbers, from the one after `after`, until it ends.

    Without `prompts` what models were asked is left out.
    """
    at = number = 0
    while True:
        changed = None if recorder is None or run.over else recorder.changed
        try:
            lines, at = await in_thread(run.files.read_events, at)
        except FileNotFoundError:  # erased with a document; what is under way is stopped for it
            await run.wait()
            return
        for line in lines:
            number += 1
            if number > after:
                yield number, line if prompts else _without_prompt(line)
        if lines:
            continue
        if changed is None:
            return
        await changed.wait()


def _without_prompt(line: bytes) -> bytes:
    if not line.startswith(b'{"event": "asked"'):
        return line
    said = json.loads(line)
    del said["messages"]
    return encoded(said)


def new_run(library: str, folder: Any, ask: Ask) -> Run:
    """A run that has not begun."""
    return Run(
        library=library,
        files=RunFiles(folder, secrets.token_urlsafe(16)),
        question=ask.question,
        strategy=ask.strategy.name,
        parameters=dict(ask.parameters),
        documents=ask.documents,
        began=datetime.now(UTC).isoformat(timespec="milliseconds"),
    )


def _unwritten(error: OSError) -> ColligateError:
    return ColligateError("cannot record the run", error.strerror or str(error), "free some space")
