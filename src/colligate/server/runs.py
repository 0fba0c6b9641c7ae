"""All runs of a server: some under way, others waiting their turn, the last ones kept on disk."""

from __future__ import annotations

import asyncio
import json
import secrets
import threading
import time
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO

from colligate.concurrency import in_thread
from colligate.core.events import Event, Noted
from colligate.core.strategy import Strategy
from colligate.errors import ColligateError
from colligate.library.traces import RUNS_FOLDER, mentions
from colligate.server.errors import Busy, NotHere, problem, problem_of
from colligate.server.libraries import Libraries
from colligate.server.metrics import Metrics
from colligate.server.settings import Serving
from colligate.server.stream import encoded

# Runs on disk: one file of events, a JSON line each, and one file that says how it ended.
#
# Whoever follows a run reads its file, while it grows as well as years later, so nothing of it
# need stay in memory.

_BATCH = 1 << 18  # bytes read at once


@dataclass(frozen=True)
class RunFiles:
    """The files of one run in a library's folder. Methods block, but for a moment only."""

    folder: Path
    id: str

    @property
    def events(self) -> Path:
        """The file of events."""
        return self.folder / f"{self.id}.jsonl"

    @property
    def summary(self) -> Path:
        """The file that says what was asked and how it ended."""
        return self.folder / f"{self.id}.json"

    @property
    def size(self) -> int:
        """Bytes of both."""
        return sum(file.stat().st_size for file in (self.events, self.summary) if file.exists())

    def write_summary(self, said: dict[str, Any]) -> None:
        """Write how things stand, whole or not at all."""
        new = self.summary.with_suffix(".new")
        new.write_bytes(encoded(said))
        new.replace(self.summary)

    def read_summary(self) -> dict[str, Any]:
        """What `write_summary` wrote last."""
        said: dict[str, Any] = json.loads(self.summary.read_bytes())
        return said

    def read_events(self, at: int) -> tuple[list[bytes], int]:
        """Whole lines from an offset on, a batch at most; and the offset behind them."""
        size = _BATCH
        with self.events.open("rb") as file:
            while True:
                file.seek(at)
                read = file.read(size)
                end = read.rfind(b"\n") + 1
                if end or len(read) < size:
                    return read[:end].splitlines(), at + end
                size *= 4  # one line is longer than the batch

    def mention(self, documents: Collection[str]) -> bool:
        """Whether they name one of these documents; true where they were erased already."""
        if not self.events.exists():
            return True
        return any(mentions(file, documents) for file in (self.events, self.summary))

    def delete(self) -> None:
        """Delete both."""
        for file in (self.events, self.summary, self.summary.with_suffix(".new")):
            file.unlink(missing_ok=True)


def found_in(folder: Path) -> list[RunFiles]:
    """The runs kept in a folder; what a crash left half made is deleted."""
    for file in (*folder.glob("*.jsonl"), *folder.glob("*.new")):
        if file.suffix == ".new" or not file.with_suffix(".json").exists():
            file.unlink()
    return [RunFiles(folder, file.stem) for file in folder.glob("*.json")]


# One question asked of the server: its events as they come, and how it ended.

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


class Runs:
    """Begins runs, keeps to the limits, remembers the last.

    At most `serving.runs` are under way at once; the others wait in the order they came and are
    told their place (an event `queued`).
    """

    def __init__(self, libraries: Libraries, serving: Serving, metrics: Metrics) -> None:
        self._libraries = libraries
        self._serving = serving
        self._metrics = metrics
        self._runs: dict[str, Run] = {}
        self._recorders: dict[str, Recorder] = {}
        self._waiting: dict[str, asyncio.Future[None]] = {}
        self._running = 0
        self._closing = False

    async def load(self) -> None:
        """Find the runs kept on disk. What was under way when the server ended, was cancelled."""
        for name in self._libraries.names():
            folder = self._libraries.folder(name) / RUNS_FOLDER
            for run in await in_thread(_kept, name, folder):
                self._runs[run.id] = run

    async def begin(self, library: str, ask: Ask) -> Run:
        """Ask a question of a library.

        Raises:
            NotHere: there is no such library.
            Busy: too many wait, or the server is stopping.
            ColligateError: the run cannot be recorded.
        """
        folder = self._libraries.folder(library) / RUNS_FOLDER
        if self._closing:
            raise Busy("the server is stopping", "", "ask again when it is back")
        if self._running >= self._serving.runs and len(self._waiting) >= self._serving.waiting:
            why = f"{self._running} questions are being answered and {len(self._waiting)} wait"
            raise Busy("too many questions at once", why, "ask again later")
        run = new_run(library, folder, ask)
        recorder = Recorder(run.files, self._serving.run_bytes)
        recorder.open(run.to_json())
        self._runs[run.id], self._recorders[run.id] = run, recorder
        # Its place is taken here and not in its task: of requests that come in the same moment
        # none may be let in on what another is about to take.
        turn = self._take_place(run)
        work = self._carry_out(run, ask, recorder, turn)
        run.task = asyncio.create_task(work, name=f"run {run.id}")
        run.task.add_done_callback(lambda _: self._never_began(run, recorder, turn))
        return run

    def run(self, run_id: str) -> Run:
        """A run.

        Raises:
            NotHere: there is none of this id, or no more.
        """
        if run_id not in self._runs:
            raise NotHere("no such run", "old runs are forgotten")
        return self._runs[run_id]

    def of(self, library: str) -> list[Run]:
        """A library's runs, the newest first."""
        return [run for run in reversed(self._runs.values()) if run.library == library]

    def follow(
        self, run: Run, after: int = 0, *, prompts: bool = False
    ) -> AsyncIterator[tuple[int, bytes]]:
        """A run's events with their numbers, as they come; see `run.follow`."""
        return follow(run, self._recorders.get(run.id), after, prompts=prompts)

    async def forget(self, run: Run) -> None:
        """Delete a run, stopped first if it is under way."""
        run.cancel()
        await run.wait()
        await self._delete(run)

    async def forget_library(self, library: str) -> None:
        """Delete all runs of a library."""
        for run in self.of(library):
            await self.forget(run)

    async def forget_documents(self, library: str, documents: Collection[str]) -> None:
        """Delete the runs that looked at one of these documents: they hold parts of its text.

        One under way that did not look at them so far is looked at again when it ends.
        """
        for run in self.of(library):
            if not run.over:
                run.removed |= frozenset(documents)
            if await in_thread(run.files.mention, documents):
                await self.forget(run)

    async def aclose(self, grace: float = 0.0) -> None:
        """Begin no more. Those waiting are cancelled; those under way have `grace` seconds."""
        self._closing = True
        waiting = set(self._waiting)
        under_way = [run for run in self._runs.values() if not run.over and run.task is not None]
        for run in under_way:
            if run.id in waiting:
                run.cancel()
        tasks = [run.task for run in under_way if run.task is not None]
        if tasks and grace:
            await asyncio.wait(tasks, timeout=grace)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _delete(self, run: Run) -> None:
        if self._runs.pop(run.id, None) is not None:
            await in_thread(run.files.delete)

    async def _carry_out(
        self, run: Run, ask: Ask, recorder: Recorder, turn: asyncio.Future[None]
    ) -> None:
        began = None
        try:
            try:
                await turn
            except asyncio.CancelledError:
                self._give_up(run, turn)
                raise
            began = time.perf_counter()
            run.state = "running"
            try:
                answer = await self._libraries.engine(run.library).ask(
                    ask.question,
                    strategy=ask.strategy,
                    documents=ask.documents,
                    max_tokens_total=ask.max_tokens_total,
                    timeout=ask.timeout,
                    on_event=recorder.see,
                )
            finally:
                self._leave()
            run.seconds = time.perf_counter() - began
            said = answer.to_json() | {"run": run.id, "seconds": round(run.seconds, 3)}
            run.found, state, ended = answer.found, "done", {"answer": said}
            self._metrics.spent(said["usage"])
        except asyncio.CancelledError:
            state, ended = "cancelled", self._cancelled()
        except Exception as error:  # whatever a strategy of another package may raise
            state, ended = "failed", {"problem": problem_of(error)}
        if began is not None:
            run.seconds = time.perf_counter() - began
            self._metrics.run_seconds.labels(run.strategy).observe(run.seconds)
        self._metrics.runs.labels(run.strategy, state).inc()
        self._end(run, recorder, state, ended)
        if run.removed:
            shown: bool = await in_thread(run.files.mention, run.removed)
            if shown:
                await self._delete(run)

    def _cancelled(self) -> dict[str, Any]:
        if self._closing:
            return {"problem": problem(503, "the server is stopping", hint="ask when it is back")}
        return {"problem": problem(409, "the run was cancelled")}

    def _never_began(self, run: Run, recorder: Recorder, turn: asyncio.Future[None]) -> None:
        """A task that is cancelled before its first step does nothing, not even end its run."""
        if not run.over:
            self._give_up(run, turn)
            self._end(run, recorder, "cancelled", self._cancelled())

    def _end(self, run: Run, recorder: Recorder, state: str, ended: dict[str, Any]) -> None:
        """Without a pause: a run that is over is so in memory and on disk."""
        run.state, run.ended = state, ended
        recorder.close()
        del self._recorders[run.id]
        with suppress(OSError):  # a full disk; whoever waits has the answer from memory
            run.files.write_summary(run.to_json() | ended)
            run.size = run.files.size
        recorder.wake()
        self._forget_old(run.library)

    def _take_place(self, run: Run) -> asyncio.Future[None]:
        """What is done as soon as the run may begin, which may be at once."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._running < self._serving.runs:
            self._running += 1
            self._metrics.running.set(self._running)
            turn.set_result(None)
        else:
            self._waiting[run.id] = turn
            self._tell_places(len(self._waiting))
        return turn

    def _give_up(self, run: Run, turn: asyncio.Future[None]) -> None:
        """A run will not begin: the place that it has, or had in the queue, is another's."""
        if turn.done() and not turn.cancelled():
            self._leave()  # its turn had come in the same moment
        else:
            self._waiting.pop(run.id, None)
            self._tell_places()

    def _leave(self) -> None:
        """Hand the place over to the run that has waited longest."""
        while self._waiting:
            turn = self._waiting.pop(next(iter(self._waiting)))
            if not turn.done():
                turn.set_result(None)
                self._tell_places()
                return
        self._running -= 1
        self._metrics.running.set(self._running)

    def _tell_places(self, first: int = 1) -> None:
        """Tell those who wait where they stand, from a place on."""
        self._metrics.waiting.set(len(self._waiting))
        for place, run_id in enumerate(self._waiting, start=1):
            if place >= first:
                with suppress(ColligateError):  # it cannot be recorded: it will fail by itself
                    self._recorders[run_id].write({"event": "queued", "place": place})

    def _forget_old(self, library: str) -> None:
        """Keep to the number and the bytes of runs kept; answers in memory go as well."""
        over = [run for run in self.of(library) if run.over]
        total = 0
        for number, run in enumerate(over):
            total += run.size
            if number >= self._serving.kept_runs or (total > self._serving.kept_bytes and number):
                del self._runs[run.id]
                with suppress(OSError):
                    run.files.delete()
            elif run.size and number:
                run.ended = None


def _kept(library: str, folder: Any) -> list[Run]:
    """The runs in a folder, the oldest first."""
    runs = []
    for files in found_in(folder):
        try:
            runs.append(_read(library, files))
        except (ValueError, KeyError, TypeError):
            files.delete()  # half written when the machine stopped
    return sorted(runs, key=lambda run: run.began)


def _read(library: str, files: RunFiles) -> Run:
    said = files.read_summary()
    run = Run(
        library=library,
        files=files,
        question=said["question"],
        strategy=said["strategy"],
        parameters=said["parameters"],
        documents=None if said["documents"] is None else tuple(said["documents"]),
        began=said["began"],
        state=said["state"],
        seconds=said["seconds"],
        found=said["found"],
    )
    if not run.over:
        run.state = "cancelled"
        files.events.touch()
        ended = {"problem": problem(503, "the server ended while it was under way")}
        files.write_summary(run.to_json() | ended)
    run.size = files.size
    return run
