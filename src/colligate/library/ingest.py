"""From files to stored documents: compare, parse in child processes, cut passages, store.

A file is skipped if its size and time, or its SHA-256, have not changed. Each file is one
transaction of the catalogue: its new documents appear, pending, at the moment the old ones go.
Documents are stored in the order of their files, whichever is parsed first.
"""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import itertools
import stat
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

from colligate import errors
from colligate.concurrency import in_thread
from colligate.documents import Document, Span
from colligate.documents.chunking import Chunker
from colligate.documents.reading import Limits
from colligate.documents.reading.source import os_error
from colligate.errors import (
    ColligateError,
    CorruptFile,
    EncryptedFile,
    LibraryError,
    NoText,
    UnsupportedFormat,
)
from colligate.library.catalogue import Catalogue, FileRecord, resolve_path
from colligate.library.parsing import ParserPool
from colligate.library.sources import cut_passages
from colligate.plugins import plugins

_RELEASE = version("colligate")

# A file written this shortly before it was compared may be written again within the same tick of
# the clock, so its time proves nothing.
_TICK_NS = 2_000_000_000

# Files parsed before the one being stored, for each process.
_AHEAD = 4

# Seconds of comparing files in a thread before the event loop reports progress again.
_STRETCH = 0.1

# From this many files on, comparing takes long enough to be reported.
_MANY = 100

# Faults of the content itself, which will be the same until the file changes.
_LASTING = (CorruptFile, EncryptedFile, NoText, UnsupportedFormat)


@dataclass
class Ingested:
    """The result of `AsyncLibrary.add`, file by file.

    `document_ids` are the documents of all files that could be read, new or not, in the order of
    the files: the ids for `view`. `problems` are paths without any file, `failed` files that
    cannot be read. `passages` counts those embedded.
    """

    added: list[Path] = field(default_factory=list)
    unchanged: list[Path] = field(default_factory=list)
    updated: list[Path] = field(default_factory=list)
    removed: list[Path] = field(default_factory=list)
    failed: list[tuple[Path, ColligateError]] = field(default_factory=list)
    problems: list[ColligateError] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    document_ids: list[str] = field(default_factory=list)
    passages: int = 0


@dataclass(frozen=True, slots=True)
class Progress:
    """How far `AsyncLibrary.add` is.

    `phase` is "waiting" (for another process, described in `file`), "comparing" (many files with
    their records), "reading" (files), "embedding" (passages; `total` grows while files are still
    read) or "optimising". `file` is the file in work.
    """

    phase: str
    done: int
    total: int
    file: str = ""


ProgressCallback = Callable[[Progress], None]


class Ingestion:
    """Reads files into a catalogue. One run at a time."""

    def __init__(
        self, catalogue: Catalogue, chunker: Chunker, reader: str, on_progress: ProgressCallback
    ) -> None:
        self._catalogue = catalogue
        self._chunker = chunker
        self._reader = reader
        self._report = on_progress

    async def run(
        self, files: Sequence[Path], workers: int, result: Ingested
    ) -> AsyncIterator[list[int]]:
        """Bring the catalogue up to date, and yield each stored file's documents for the index.

        What happened to each file is added to `result`.
        """
        jobs: list[_Job] = []
        uncompared = deque(files)
        while uncompared:
            if len(files) >= _MANY:
                done = len(files) - len(uncompared)
                self._report(Progress("comparing", done, len(files), str(uncompared[0])))
            jobs += await in_thread(self._compare_some, uncompared, result)
        if not jobs:
            return
        workers = min(workers, len(jobs))
        parsers = ParserPool(workers, self._reader)
        threads = ThreadPoolExecutor(workers, thread_name_prefix="parsing")
        ahead: deque[asyncio.Future[_Parsed]] = deque()
        left = iter(jobs)

        def parse_ahead() -> None:
            loop = asyncio.get_running_loop()
            for job in itertools.islice(left, workers * _AHEAD - len(ahead)):
                ahead.append(loop.run_in_executor(threads, self._parse, parsers, job))

        try:
            for done, job in enumerate(jobs):
                parse_ahead()
                self._report(Progress("reading", done, len(jobs), str(job.path)))
                try:
                    parsed = await ahead.popleft()
                    yield await in_thread(self._store, job, parsed, result)
                except LibraryError:
                    raise  # the library's fault, not the file's
                except ColligateError as error:
                    result.failed.append((job.path, error))
                    await in_thread(self._note_failure, job, error)
            self._report(Progress("reading", len(jobs), len(jobs)))
        finally:
            for future in ahead:
                future.cancel()
            parsers.close()
            await in_thread(threads.shutdown, cancel_futures=True)

    def _compare_some(self, files: deque[Path], result: Ingested) -> list[_Job]:
        """Take the first files and compare them, for as long as `_STRETCH`."""
        until = time.monotonic() + _STRETCH
        jobs = []
        while files and time.monotonic() < until:
            if job := self._compare(files.popleft(), result):
                jobs.append(job)
        return jobs

    def _compare(self, path: Path, result: Ingested) -> _Job | None:
        """Return a job for a file that has to be read."""
        try:
            state = path.stat()
            key = resolve_path(path)
            known = self._catalogue.file(key)
            now = FileRecord(key, state.st_size, state.st_mtime_ns, time.time_ns(), "")
            if known is not None and _is_untouched(known, now):
                return self._skip(path, known, now, result)
            if stat.S_ISREG(state.st_mode) and state.st_size <= Limits().file_bytes:
                with path.open("rb") as file:
                    sha256 = hashlib.file_digest(file, "sha256").hexdigest()
                now = dataclasses.replace(now, sha256=sha256)
        except OSError as error:
            result.failed.append((path, os_error(path, error)))
            return None
        if known is not None and known.sha256 and known.sha256 == now.sha256:
            now = dataclasses.replace(now, warnings=known.warnings, failure=known.failure)
            self._catalogue.note_file(now)
            return self._skip(path, known, now, result)
        return _Job(path, now, known is not None and not known.failure)

    def _skip(
        self, path: Path, known: FileRecord, now: FileRecord, result: Ingested
    ) -> _Job | None:
        """Report an unchanged file; return a job if it failed and there are other readers now."""
        if not known.failure:
            result.unchanged.append(path)
            result.warnings.extend(known.warnings)
            return None
        readers, kind, why, hint = known.failure
        if readers != _describe_readers():
            return _Job(
                path, dataclasses.replace(now, sha256=known.sha256, failure=()), known=False
            )
        result.failed.append((path, getattr(errors, kind)(_cannot_read(path), why, hint)))
        return None

    def _parse(self, parsers: ParserPool, job: _Job) -> _Parsed:
        reading = parsers.read(job.path)
        documents = [(each, cut_passages(each, self._chunker)) for each in reading.documents]
        return _Parsed(documents, reading.warnings)

    def _store(self, job: _Job, parsed: _Parsed, result: Ingested) -> list[int]:
        record = dataclasses.replace(_check_unchanged(job), warnings=parsed.warnings)
        pending = self._catalogue.store(record, parsed.documents)
        (result.updated if job.known else result.added).append(job.path)
        result.warnings.extend(parsed.warnings)
        return pending

    def _note_failure(self, job: _Job, error: ColligateError) -> None:
        """Record that a file cannot be read, so that it is tried again only when it changes."""
        record = _check_unchanged(job)
        if record.sha256 and type(error) in _LASTING and error.what == _cannot_read(job.path):
            failure = (_describe_readers(), type(error).__name__, error.why, error.hint)
            self._catalogue.note_file(dataclasses.replace(record, failure=failure))


@dataclass(frozen=True, slots=True)
class _Job:
    path: Path
    record: FileRecord
    known: bool


@dataclass(frozen=True, slots=True)
class _Parsed:
    documents: list[tuple[Document, list[Span]]]
    warnings: tuple[str, ...]


def _describe_readers() -> str:
    """Return what decides which files can be read: the release, and formats of other packages."""
    return " ".join([_RELEASE, *plugins("formats")])


def _is_untouched(known: FileRecord, now: FileRecord) -> bool:
    return (
        known.sha256 != ""
        and (known.size, known.mtime_ns) == (now.size, now.mtime_ns)
        and known.mtime_ns < known.checked_ns - _TICK_NS
    )


def _check_unchanged(job: _Job) -> FileRecord:
    """Return the record of a file that has been read, without its hash if it changed meanwhile."""
    with suppress(OSError):
        state = job.path.stat()
        if (state.st_size, state.st_mtime_ns) == (job.record.size, job.record.mtime_ns):
            return job.record
    return dataclasses.replace(job.record, sha256="")


def _cannot_read(path: Path) -> str:
    return f"cannot read {path}"


def record_chunker(catalogue: Catalogue, chunker: Chunker) -> None:
    """Record how a library's documents are cut; raise `LibraryError` if they were cut otherwise."""
    name = _describe(chunker)
    recorded = catalogue.meta("chunker")
    if recorded not in (None, name) and catalogue.numbers():
        raise LibraryError(
            "cannot add to the library",
            f"its passages were cut by {recorded}, not by {name}",
            "use the same chunker, or another --library",
        )
    if recorded != name:
        catalogue.set_meta(chunker=name)


def _describe(part: object) -> str:
    """Return a chunker, or a part of it, in words that are the same in every process."""
    if dataclasses.is_dataclass(part):
        fields = [f"{f.name}={_describe(getattr(part, f.name))}" for f in dataclasses.fields(part)]
        return f"{type(part).__qualname__}({', '.join(fields)})"
    if callable(part):
        return str(getattr(part, "__qualname__", type(part).__qualname__))
    return repr(part)
