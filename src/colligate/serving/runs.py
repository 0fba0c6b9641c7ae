"""All runs of a server: some under way, others waiting their turn, the last ones kept on disk."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Collection
from contextlib import suppress
from typing import Any

from colligate.errors import ColligateError
from colligate.library.blocking import in_thread
from colligate.library.traces import RUNS
from colligate.serving.libraries import Libraries
from colligate.serving.metrics import Metrics
from colligate.serving.problems import Busy, NotHere, problem, problem_of
from colligate.serving.run import Ask, Recorder, Run, follow, new_run
from colligate.serving.run_files import RunFiles, found_in
from colligate.serving.settings import Serving


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
            folder = self._libraries.folder(name) / RUNS
            for run in await in_thread(_kept, name, folder):
                self._runs[run.id] = run

    async def begin(self, library: str, ask: Ask) -> Run:
        """Ask a question of a library.

        Raises:
            NotHere: there is no such library.
            Busy: too many wait, or the server is stopping.
            ColligateError: the run cannot be recorded.
        """
        folder = self._libraries.folder(library) / RUNS
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
            return {"problem": problem(503, "the server is stopping", mend="ask when it is back")}
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
