"""Reading files that came by HTTP into a library, one set of files after another."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import defaultdict
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from colligate.concurrency import in_thread
from colligate.errors import ColligateError
from colligate.library.ingest import Progress
from colligate.server import uploads
from colligate.server.errors import Busy, NotHere, problem_of
from colligate.server.libraries import Libraries
from colligate.server.metrics import Metrics

_log = logging.getLogger(__name__)
_KEPT = 200  # jobs that have ended


@dataclass(eq=False)
class Job:
    """One request's files on their way into a library.

    `state` is "queued", "running", "done", "failed" or "cancelled"; `phase`, `done` and `total`
    are those of `library.ingestion.Progress`.
    """

    library: str
    files: list[Path] = field(default_factory=list)
    id: str = field(default_factory=lambda: secrets.token_urlsafe(16))
    state: str = "queued"
    phase: str = ""
    done: int = 0
    total: int = 0
    problems: list[dict[str, str]] = field(default_factory=list)
    documents: list[str] = field(default_factory=list)
    _task: asyncio.Task[None] | None = field(default=None, repr=False)
    _changed: asyncio.Event = field(default_factory=asyncio.Event, repr=False)

    @property
    def ended(self) -> bool:
        """Whether nothing more will happen."""
        return self.state in ("done", "failed", "cancelled")

    def to_json(self) -> dict[str, Any]:
        """The job as the API shows it."""
        return {
            "id": self.id,
            "library": self.library,
            "state": self.state,
            "phase": self.phase,
            "done": self.done,
            "total": self.total,
            "files": [file.name for file in self.files],
            "problems": list(self.problems),
            "documents": list(self.documents),
        }

    def update(self, **changes: Any) -> None:
        """Change fields, and wake whoever follows."""
        for name, value in changes.items():
            setattr(self, name, value)
        self._changed.set()
        self._changed = asyncio.Event()

    def progress(self, progress: Progress) -> None:
        """What ingestion says."""
        self.update(phase=progress.phase, done=progress.done, total=progress.total)

    async def follow(self) -> AsyncIterator[dict[str, Any]]:
        """The job as it is, and again whenever it has changed, until it has ended."""
        while True:
            changed = self._changed
            yield self.to_json()
            if self.ended:
                return
            await changed.wait()

    def cancel(self) -> None:
        """Stop it; files that were stored by then stay."""
        if self._task is not None and not self.ended:
            self._task.cancel()

    async def wait(self) -> None:
        """Until it has ended."""
        if self._task is not None:
            await asyncio.wait([self._task])


class Jobs:
    """All jobs; those of one library one after another. At most `most` are under way."""

    def __init__(self, libraries: Libraries, most: int, metrics: Metrics) -> None:
        self._libraries = libraries
        self._most = most
        self._metrics = metrics
        self._jobs: dict[str, Job] = {}
        self._turns: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._storing: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._closing = False

    def open(self, library: str) -> Job:
        """A job whose files are still to be stored; it counts as under way.

        Raises:
            Busy: too many are, or the server is stopping.
        """
        if self._closing:
            raise Busy("the server is stopping", "", "try again when it is back")
        if len(self.under_way()) >= self._most:
            raise Busy("too many files are waiting to be read", "", "try again later")
        job = Job(library)
        self._jobs[job.id] = job
        ended = [each.id for each in self._jobs.values() if each.ended]
        for old in ended[: max(0, len(ended) - _KEPT)]:
            del self._jobs[old]
        return job

    async def store(self, job: Job, file: BinaryIO, name: str | None) -> None:
        """Keep one of its files in the library's folder."""
        folder = self._libraries.folder(job.library)
        async with self._storing[job.library]:
            path = await in_thread(uploads.store, file, name, folder)
            if path not in job.files:
                job.files.append(path)

    def start(self, job: Job) -> None:
        """Read its files into the library."""
        job._task = asyncio.create_task(self._carry_out(job), name=f"job {job.id}")
        # A task that is cancelled before its first step does nothing, not even end its job.
        job._task.add_done_callback(lambda _: _never_began(job))

    async def drop(self, job: Job) -> None:
        """Forget a job that was not started, and the files stored for it."""
        self._jobs.pop(job.id, None)
        await self.tidy(job.library)

    def job(self, job_id: str) -> Job:
        """A job.

        Raises:
            NotHere: there is none of this id.
        """
        if job_id not in self._jobs:
            raise NotHere("no such job", "jobs that ended long ago are forgotten")
        return self._jobs[job_id]

    def under_way(self, library: str | None = None) -> list[Job]:
        """The jobs that have not ended, of one library or all."""
        return [
            job for job in self._jobs.values() if not job.ended and library in (None, job.library)
        ]

    async def cancel(self, library: str) -> None:
        """Stop a library's jobs and wait for their end."""
        for job in reversed(self.under_way(library)):
            job.cancel()
        if tasks := self._tasks(library):
            await asyncio.wait(tasks)

    async def aclose(self, grace: float = 0.0) -> None:
        """Begin no more; what is under way has `grace` seconds to end."""
        self._closing = True
        tasks = self._tasks()
        if tasks and grace:
            await asyncio.wait(tasks, timeout=grace)
        for job in self.under_way():
            job.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _tasks(self, library: str | None = None) -> list[asyncio.Task[None]]:
        """The tasks at work, also those whose job has ended and that are tidying up."""
        return [
            job._task
            for job in self._jobs.values()
            if library in (None, job.library) and job._task is not None and not job._task.done()
        ]

    async def tidy(self, library: str) -> None:
        """Delete the stored files that no document comes from and no job is reading."""
        async with self._storing[library]:
            opened = await self._libraries.library(library)
            wanted = {info.source for info in await opened.documents()}
            wanted.update(str(file) for job in self.under_way(library) for file in job.files)
            await in_thread(uploads.sweep, self._libraries.folder(library), wanted)

    async def _carry_out(self, job: Job) -> None:
        state = "failed"
        try:
            async with self._turns[job.library]:
                job.update(state="running")
                library = await self._libraries.library(job.library)
                ingested = await library.add(job.files, on_progress=job.progress)
            job.problems += [_said(path.name, error) for path, error in ingested.failed]
            job.problems += [_said("", error) for error in ingested.problems]
            job.documents = list(ingested.document_ids)
            state = "done" if job.documents else "failed"
        except asyncio.CancelledError:
            state = "cancelled"
        except Exception as error:  # whatever a reader or the index may raise ends up in the job
            said = problem_of(error)
            job.problems.append({"file": "", "why": said["detail"], "hint": said.get("hint", "")})
        job.update(state=state)
        self._metrics.jobs.labels(state).inc()
        try:
            await self.tidy(job.library)
        except (ColligateError, OSError) as error:
            _log.warning("files of %s were not tidied: %s", job.library, error)


def _never_began(job: Job) -> None:
    if not job.ended:
        job.update(state="cancelled")


def _said(name: str, error: ColligateError) -> dict[str, str]:
    return {"file": name, "why": error.why or error.what, "hint": error.hint}
