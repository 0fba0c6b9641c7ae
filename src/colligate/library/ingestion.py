"""From files to stored documents: find, compare, parse in other processes, chunk, store.

A file is skipped when its size and time, or else its SHA-256, are what they were. Each file
is one transaction of the catalogue: its new documents appear, pending, at the moment the old
ones go. Documents are stored in the order of their files, whoever finishes parsing first.
"""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import itertools
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from colligate.documents import Document, Span
from colligate.documents.chunking import Chunker
from colligate.documents.reading.files import os_error
from colligate.errors import ColligateError, CorruptFile, LibraryError
from colligate.library.catalogue import Catalogue
from colligate.library.parsing import Parsers
from colligate.library.passages import passages_of
from colligate.library.rows import FileRecord

# A file written this shortly before it was looked at may be written again within the same
# tick of the clock, so its time proves nothing.
_TICK_NS = 2_000_000_000

# Files parsed ahead of the one being stored, for each process.
_AHEAD = 4

# From so many files on, comparing them takes long enough to be told of.
_MANY = 100


@dataclass(frozen=True, slots=True)
class Progress:
    """How far `Library.add` is.

    `phase` is "waiting" (for another process, named in `file`), "comparing" (many files with
    what is known of them), "reading" (files), "embedding" (passages; `total` grows while files
    are still read) or "optimising". `file` is the file or what else is worked on.
    """

    phase: str
    done: int
    total: int
    file: str = ""


OnProgress = Callable[[Progress], None]


@dataclass
class Ingested:
    """What became of the files that were added.

    `document_ids` are the documents of all files that could be read, new or not, in the order
    of the files: what to `view`. `problems` are paths that led to no file, `failed` files
    that cannot be read. `passages` counts those embedded.
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
class _Job:
    path: Path
    record: FileRecord
    known: bool


@dataclass(frozen=True, slots=True)
class _Parsed:
    documents: list[tuple[Document, list[Span]]]
    warnings: tuple[str, ...]


class Ingestion:
    """Reads files into a catalogue. One run at a time."""

    def __init__(
        self, catalogue: Catalogue, chunker: Chunker, reader: str, on_progress: OnProgress
    ) -> None:
        self._catalogue = catalogue
        self._chunker = chunker
        self._reader = reader
        self._tell = on_progress

    async def run(
        self, files: Sequence[Path], workers: int, result: Ingested
    ) -> AsyncIterator[list[int]]:
        """Bring the catalogue up to date; yields each stored file's documents to be indexed.

        What happened to each file goes into `result`.
        """
        jobs = []
        for done, path in enumerate(files):
            if len(files) >= _MANY:
                self._tell(Progress("comparing", done, len(files), str(path)))
            if job := await asyncio.to_thread(self._compare, path, result):
                jobs.append(job)
        if not jobs:
            return
        workers = min(workers, len(jobs))
        parsers = Parsers(workers, self._reader)
        threads = ThreadPoolExecutor(workers, thread_name_prefix="parsing")
        ahead: deque[asyncio.Future[_Parsed]] = deque()
        left = iter(jobs)

        def parse_ahead() -> None:
            loop = asyncio.get_running_loop()
            for job in itertools.islice(left, workers * _AHEAD - len(ahead)):
                ahead.append(loop.run_in_executor(threads, self._parse, parsers, job.path))

        try:
            for done, job in enumerate(jobs):
                parse_ahead()
                self._tell(Progress("reading", done, len(jobs), str(job.path)))
                try:
                    parsed = await ahead.popleft()
                    yield await asyncio.to_thread(self._store, job, parsed, result)
                except LibraryError:
                    raise  # the library's fault, not the file's
                except ColligateError as error:
                    result.failed.append((job.path, error))
            self._tell(Progress("reading", len(jobs), len(jobs)))
        finally:
            for future in ahead:
                future.cancel()
            parsers.close()
            threads.shutdown(wait=True, cancel_futures=True)

    def _compare(self, path: Path, result: Ingested) -> _Job | None:
        """What has to be done for a file: nothing if it is as it was."""
        try:
            key = str(path.resolve())
            known = self._catalogue.file(key)
            state = path.stat()
            now = FileRecord(key, state.st_size, state.st_mtime_ns, time.time_ns(), "")
            if known is not None and _untouched(known, now):
                self._unchanged(path, known, result)
                return None
            now = dataclasses.replace(now, sha256=_sha256(path))
        except OSError as error:
            result.failed.append((path, os_error(path, error)))
            return None
        if known is not None and known.sha256 == now.sha256:
            self._catalogue.touch(now)
            self._unchanged(path, known, result)
            return None
        return _Job(path, now, known is not None)

    def _unchanged(self, path: Path, known: FileRecord, result: Ingested) -> None:
        result.unchanged.append(path)
        result.warnings.extend(known.warnings)

    def _parse(self, parsers: Parsers, path: Path) -> _Parsed:
        reading = parsers.read(path)
        documents = [(each, passages_of(each, self._chunker)) for each in reading.documents]
        return _Parsed(documents, reading.warnings)

    def _store(self, job: _Job, parsed: _Parsed, result: Ingested) -> list[int]:
        record = dataclasses.replace(job.record, warnings=parsed.warnings)
        try:
            self._catalogue.store(record, parsed.documents)
        except UnicodeEncodeError as error:
            why = "its text holds half a surrogate pair, which is no character"
            raise CorruptFile(f"cannot read {job.path}", why, "save it as UTF-8") from error
        (result.updated if job.known else result.added).append(job.path)
        result.warnings.extend(parsed.warnings)
        return self._catalogue.pending_of(record.path)


def hold_to_chunker(catalogue: Catalogue, chunker: Chunker) -> None:
    """Record how a library's documents are cut into passages.

    Raises:
        LibraryError: if its documents were cut otherwise.
    """
    if dataclasses.is_dataclass(chunker):
        name = repr(chunker)
    else:
        name = str(getattr(chunker, "__qualname__", type(chunker).__qualname__))
    recorded = catalogue.meta("chunker")
    if recorded not in (None, name) and catalogue.numbers():
        raise LibraryError(
            "cannot add to the library",
            f"its passages were cut by {recorded}, not by {name}",
            "use the same chunker, or another --library",
        )
    if recorded != name:
        catalogue.set_meta(chunker=name)


def _untouched(known: FileRecord, now: FileRecord) -> bool:
    return (
        known.sha256 != ""
        and (known.size, known.mtime_ns) == (now.size, now.mtime_ns)
        and known.mtime_ns < known.checked_ns - _TICK_NS
    )


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
