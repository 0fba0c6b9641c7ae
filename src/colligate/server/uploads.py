"""Files that arrive over HTTP: stored in the library's folder, then read into the library.

An upload is a job: its files wait their turn, are read, and what no document comes from is
deleted. Files that a server could not read, for want of time, of a disk or of weights, are read by
the next one.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import secrets
import shutil
import unicodedata
from collections import defaultdict
from collections.abc import AsyncIterator, Collection
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from pydantic import Field
from typing_extensions import TypedDict

from colligate.concurrency import in_thread
from colligate.errors import ColligateError
from colligate.library.ingest import Progress
from colligate.library.store import FILES_FOLDER
from colligate.private import make_private_file, make_private_folder
from colligate.server.errors import Busy, NotHere, problem_of
from colligate.server.libraries import Libraries
from colligate.server.metrics import Metrics
from colligate.server.work import Work, WorkState, finish

_log = logging.getLogger(__name__)
_KEPT = 200  # jobs that have ended


class UploadJobs:
    """All uploads; those of one library are read one after another. At most `limit` are open."""

    def __init__(self, libraries: Libraries, limit: int, metrics: Metrics) -> None:
        self._libraries = libraries
        self._limit = limit
        self._metrics = metrics
        self._jobs: dict[str, UploadJob] = {}
        self._turns: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._storing: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._closing = False

    def open(self, library: str) -> UploadJob:
        """Return a job whose files are still to be stored; `Busy` if too many are open."""
        if self._closing:
            raise Busy("the server is stopping", "", "try again when it is back")
        if len(self._unfinished()) >= self._limit:
            raise Busy("too many files are waiting to be read", "", "try again later")
        job = UploadJob(library=library)
        self._jobs[job.id] = job
        ended = [each.id for each in self._jobs.values() if each.ended]
        for old in ended[: max(0, len(ended) - _KEPT)]:
            del self._jobs[old]
        return job

    async def store(self, job: UploadJob, file: BinaryIO, name: str | None) -> None:
        """Keep one of its files in the library's folder."""
        folder = self._libraries.folder(job.library)
        async with self._storing[job.library]:
            job.add(await in_thread(store_file, file, name, folder))

    def start(self, job: UploadJob) -> None:
        """Read its files into the library."""
        job.begin(self._read(job), lambda: job.update(state="cancelled", unread=self._closing))

    async def discard(self, job: UploadJob) -> None:
        """Forget a job that was not started, and delete the files stored for it."""
        del self._jobs[job.id]
        await self._tidy(job)

    def get(self, job_id: str) -> UploadJob:
        """Return a job; `NotHere` if there is none of this id whose library the caller sees."""
        job = self._jobs.get(job_id)
        if job is None or not self._libraries.is_whole(job.library):
            raise NotHere("no such job", "jobs that ended long ago are forgotten")
        return job

    async def cancel(self, library: str) -> None:
        """Stop a library's jobs and wait for their end."""
        await finish(self._unfinished(library))

    async def aclose(self, grace: float = 0.0) -> None:
        """Accept no more jobs; the open ones have `grace` seconds to finish."""
        self._closing = True
        await finish(self._unfinished(), grace)

    async def resume(self, library: str) -> None:
        """Read the files that an earlier server accepted and did not read before it ended."""
        folder = self._libraries.folder(library)
        wanted = await self._find_wanted(library)
        if files := await in_thread(find_unread, folder, wanted):
            job = UploadJob(library=library)
            for file in files:
                job.add(file)
            self._jobs[job.id] = job
            self.start(job)

    def unread(self, library: str) -> int:
        """Return the number of files of a library that wait to be read, or are being read.

        A caller who sees only folders of it learns of none: no file that is sent gets there.
        """
        if not self._libraries.is_whole(library):
            return 0
        return sum(len(job.files) for job in self._unfinished(library))

    def _unfinished(self, library: str | None = None) -> list[UploadJob]:
        return [
            job for job in self._jobs.values() if not job.ended and library in (None, job.library)
        ]

    async def _read(self, job: UploadJob) -> None:
        state: WorkState = "failed"
        try:
            async with self._turns[job.library]:
                job.update(state="running")
                library = await self._libraries.open_library(job.library)
                ingested = await library.add(job.paths, on_progress=job.show_progress)
            job.unread = False
            job.problems += [_file_problem(path.name, error) for path, error in ingested.failed]
            job.problems += [_file_problem("", error) for error in ingested.problems]
            job.documents = list(ingested.document_ids)
            state = "done" if job.documents else "failed"
        except asyncio.CancelledError:
            state = "cancelled"
            job.unread = self._closing
        except Exception as error:  # whatever a reader or the index raises is shown in the job
            problem = problem_of(error)
            hint = problem.get("hint", "")
            job.problems.append({"file": "", "why": problem["detail"], "hint": hint})
        try:
            if not job.unread:  # otherwise its files are read at the next start
                await self._tidy(job)
        except (ColligateError, OSError) as error:
            _log.warning("files of %s were not tidied: %s", job.library, error)
        finally:
            self._metrics.jobs.labels(state).inc()
            job.update(state=state)

    async def _tidy(self, job: UploadJob) -> None:
        """Delete the files of a job that no document comes from and no other job is to read."""
        async with self._storing[job.library]:
            wanted = await self._find_wanted(job.library, without=job)
            await in_thread(delete_files, job.paths, wanted)

    async def _find_wanted(self, library: str, without: UploadJob | None = None) -> set[str]:
        """Return the files that documents come from or jobs are to read."""
        opened = await self._libraries.open_library(library)
        jobs = [job for job in self._jobs.values() if job.library == library and job.unread]
        return {info.source for info in await opened.documents()} | {
            str(path) for job in jobs if job is not without for path in job.paths
        }


class FileProblem(TypedDict):
    """A file that could not be read, why, and what to do about it."""

    file: str
    why: str
    hint: str


class UploadJob(Work):
    """Files on their way into a library; `phase`, `done` and `total` are those of its progress."""

    phase: str = ""
    done: int = 0
    total: int = 0
    files: list[str] = Field(default_factory=list)
    problems: list[FileProblem] = Field(default_factory=list)
    documents: list[str] = Field(default_factory=list)
    # Not shown. The next server reads the files of a job that is `unread`.
    paths: list[Path] = Field(default_factory=list, exclude=True)
    unread: bool = Field(default=True, exclude=True)

    def add(self, path: Path) -> None:
        if path not in self.paths:
            self.paths.append(path)
            self.files.append(path.name)

    def update(self, **changes: Any) -> None:
        """Change fields, and wake whoever follows."""
        for name, value in changes.items():
            setattr(self, name, value)
        self.wake()

    def show_progress(self, progress: Progress) -> None:
        self.update(phase=progress.phase, done=progress.done, total=progress.total)

    async def follow(self) -> AsyncIterator[dict[str, Any]]:
        """Yield the job as it is, and again whenever it changes, until it has ended."""
        while True:
            changed, ended = self.changed, self.ended
            yield self.model_dump()
            if ended:
                return
            await changed.wait()


def _file_problem(name: str, error: ColligateError) -> FileProblem:
    return {"file": name, "why": error.why or error.what, "hint": error.hint}


# Files in the library's folder. All functions block.

_MAX_NAME = 180  # bytes; file systems take 255
_MAX_SUFFIX = 20
_PIECE = 1 << 20
_FORBIDDEN = frozenset('<>:"|?*')  # Windows cannot store them


def store_file(file: BinaryIO, given: str | None, library: Path) -> Path:
    """Keep a file in a library's folder, under its own name in a folder named by its digest.

    The same bytes under the same name are stored once.
    """
    folder = library / FILES_FOLDER
    make_private_folder(folder)
    partial = folder / f"{secrets.token_hex(8)}.part"
    digest = hashlib.sha256()
    try:
        make_private_file(partial, fresh=True)
        with partial.open("wb") as into:
            while piece := file.read(_PIECE):
                digest.update(piece)
                into.write(piece)
        place = folder / digest.hexdigest()[:24]
        make_private_folder(place)
        stored = place / safe_name(given)
        if not stored.exists():  # it may be read at this moment
            partial.replace(stored)
    finally:
        partial.unlink(missing_ok=True)
    return stored


def safe_name(given: str | None) -> str:
    r"""Return a safe file name for any given one: no folders, no control characters.

    >>> safe_name("../../etc/passwd"), safe_name("C:\\Reports\\Q3.pdf"), safe_name("..")
    ('passwd', 'Q3.pdf', 'file')
    >>> safe_name("Годовой отчёт (2023).docx"), safe_name(None), len(safe_name("x" * 400 + ".pdf"))
    ('Годовой отчёт (2023).docx', 'file', 184)
    """
    last = (given or "").replace("\\", "/").rstrip("/").rpartition("/")[2]
    plain = "".join(
        "_" if c in _FORBIDDEN else c
        for c in unicodedata.normalize("NFC", last)
        if unicodedata.category(c)[0] != "C"  # control, formatting, surrogates, unassigned
    )
    plain = " ".join(plain.split()).lstrip(". ~").rstrip(". ")
    stem, dot, suffix = plain.rpartition(".")
    if not dot or len(suffix.encode()) > _MAX_SUFFIX:
        stem, suffix = plain, ""
    stem = stem.encode()[:_MAX_NAME].decode(errors="ignore").rstrip(". ")
    return (f"{stem or 'file'}.{suffix}" if suffix else stem) or "file"


def find_unread(library: Path, known: Collection[str]) -> list[Path]:
    """Return the stored files of a library that are not `known`; delete those half stored."""
    folder = library / FILES_FOLDER
    for partial in folder.glob("*.part"):
        partial.unlink()
    read = set(map(_within, known))
    return [file for file in sorted(folder.glob("*/*")) if _within(file) not in read]


def delete_files(files: Collection[Path], wanted: Collection[str]) -> None:
    """Delete stored files whose paths are not `wanted`."""
    keep = set(map(_within, wanted))
    for file in files:
        if _within(file) not in keep:
            file.unlink(missing_ok=True)
            with suppress(OSError):  # another file of this content is in its folder
                file.parent.rmdir()


def _within(file: Path | str) -> tuple[str, ...]:
    """Return folder and name of a stored file: its source may be relative to another folder."""
    return Path(file).parts[-2:]


def free_space(library: Path) -> int:
    """Return the bytes free on the disk of a library's folder, which may not exist yet."""
    place = library
    while not place.exists():
        place = place.parent
    return shutil.disk_usage(place).free
