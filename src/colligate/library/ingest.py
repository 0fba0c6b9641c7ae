"""From files to stored documents: compare, parse in child processes, cut passages, store.

A file is skipped if its size and time, or its SHA-256, have not changed. Each file is one
transaction of the catalogue: its new documents appear, pending, at the moment the old ones go.
Documents are stored in the order of their files, but a slow file is overtaken.
"""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import os
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import TypedDict

from colligate import errors
from colligate.concurrency import in_thread
from colligate.documents import Document, Span
from colligate.documents.chunking import STRUCTURAL, Chunker, parse_chunker
from colligate.documents.reading import Limits, Reading
from colligate.documents.reading.formats import installed_readers
from colligate.documents.reading.pdf.docling import DOCLING, require_reader
from colligate.documents.reading.pdf.ocr import NO_TEXT, find_language_data
from colligate.documents.reading.source import os_error
from colligate.errors import ColligateError, LibraryError, ReadingError, UsageError
from colligate.library.catalogue import Catalogue, resolve_path
from colligate.library.parsing import DEFAULT_READER, ParserPool
from colligate.library.protocols import Cluster, FileRecord, ReadFile
from colligate.library.sources import cut_passages
from colligate.library.web import fetch, find_fetched, parse_address

_RELEASE = version("colligate")

# A file written this shortly before it was compared may be written again within the same tick of
# the clock, so its time proves nothing.
_TICK_NS = 2_000_000_000

# Each parser process may hold a large file in memory.
_MAX_WORKERS = 8
_DOCLING_CORES = 4  # that each docling uses

_AHEAD = 4  # files parsed before the one being stored, for each process
_LATE = 10.0  # seconds after which a file is overtaken by those behind it
_TOGETHER = 100  # files that are compared before the event loop reports progress again

# Faults of the content itself, which will be the same until the file changes.
_LASTING = (errors.CorruptFile, errors.EncryptedFile, errors.NoText, errors.UnsupportedFormat)


class ReadOptions(TypedDict, total=False):
    """How a library reads files.

    `chunker` names what cuts documents into passages: "structural" (the default of a new library),
    "words:100", "tokens:1000/250". All documents of a library are cut alike; by default
    as those that it has. `reader` is the function that reads a file, as `module:function`; it runs
    in other processes. `follow_links` follows symbolic links that lead out of the folders to add.
    `ocr` reads scanned PDFs and pictures by OCR, in these languages ("eng", "eng+deu"). `pdf` is
    what reads new and changed PDFs: "liteparse" (the default), or the program "docling".
    """

    chunker: str | None
    reader: str
    follow_links: bool
    ocr: str
    pdf: str


def require_readers(options: ReadOptions) -> None:
    """Raise a `ColligateError` if what reads the files is not on this machine."""
    if languages := options.get("ocr"):
        find_language_data(languages)
    require_reader(options.get("pdf", ""))


@dataclass
class Ingested:
    """The result of `AsyncLibrary.add`, file by file.

    `document_ids` are the documents of all files that could be read, new or not, in the order of
    the files: the ids for `view`. `kept` are missing files whose documents were kept, `problems`
    paths without any file, `failed` files that cannot be read. `passages` counts those embedded.
    `addresses` are the web addresses of files that were fetched.
    """

    added: list[Path] = field(default_factory=list)
    unchanged: list[Path] = field(default_factory=list)
    updated: list[Path] = field(default_factory=list)
    removed: list[Path] = field(default_factory=list)
    kept: list[Path] = field(default_factory=list)
    failed: list[tuple[Path, ColligateError]] = field(default_factory=list)
    problems: list[ColligateError] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    document_ids: list[str] = field(default_factory=list)
    passages: int = 0
    addresses: dict[Path, str] = field(default_factory=dict)

    def name_addresses(self) -> None:
        """Let warnings and errors name the address of a fetched file instead of the file."""
        for path, address in self.addresses.items():
            self.warnings = [text.replace(str(path), address) for text in self.warnings]
            for place, (failed, error) in enumerate(self.failed):
                if failed == path:
                    what = error.what.replace(str(path), address)
                    self.failed[place] = (path, type(error)(what, error.why, error.hint))


@dataclass(frozen=True, slots=True)
class Progress:
    """How far `AsyncLibrary.add` is.

    `phase` is "fetching" (bytes of a web address), "comparing" (many files with their records),
    "reading" (files), "pulling" (bytes of an embedder), "embedding" (passages; `total` grows while
    files are still read) or "optimising". `file` is the file in work.
    """

    phase: str
    done: int
    total: int
    file: str = ""


ProgressCallback = Callable[[Progress], None]


class Ingestion:
    """Reads files into a catalogue; blocks while it is made. One run at a time."""

    def __init__(
        self,
        catalogue: Catalogue,
        options: ReadOptions,
        on_progress: ProgressCallback,
        cluster: Cluster | None = None,
    ) -> None:
        self._catalogue = catalogue
        self._chunker = choose_chunker(catalogue, options.get("chunker"))
        self._reader = options.get("reader", DEFAULT_READER)
        self._limits = Limits(ocr=options.get("ocr", ""), pdf=options.get("pdf", ""))
        self._cluster = cluster  # which reads in the place of processes here
        readers = [_RELEASE, *installed_readers(), self._limits.ocr, self._limits.pdf]
        self._readers = " ".join(filter(None, readers))
        self._report = on_progress

    async def fetch(self, named: Iterable[Path | str], library: Path, result: Ingested) -> None:
        """Fetch web addresses; what cannot be fetched is read as it was before, if it was."""

        def tell(done: int, total: int, address: str) -> None:
            self._report(Progress("fetching", done, total, address))

        for given in named:
            try:
                address = parse_address(given)
                path = await fetch(address, library, tell)
            except UsageError as error:
                result.problems.append(error)
                continue
            except ReadingError as error:
                kept = await in_thread(find_fetched, library, address)
                if kept is None:
                    result.problems.append(error)
                    continue
                result.warnings.append(f"{error}; what was fetched before is read")
                path = kept
            result.addresses[resolve_path(path)] = address

    async def run(
        self, files: Sequence[Path], result: Ingested, workers: int | None
    ) -> AsyncGenerator[list[int], None]:
        """Bring the catalogue up to date, and yield the stored files' documents for the index; what
        happened to each file is added to `result`."""
        jobs: list[_Job] = []
        for at in range(0, len(files), _TOGETHER):
            if len(files) >= _TOGETHER:
                self._report(Progress("comparing", at, len(files), str(files[at])))
            jobs += await in_thread(self._compare_all, files[at : at + _TOGETHER], result)
        if not jobs:
            return
        if self._cluster:
            workers = min(self._cluster.count, len(jobs))
            parsers = self._cluster.parsers(self._reader, self._limits)
        else:
            cores = _DOCLING_CORES if self._limits.pdf == DOCLING else 1
            most = max(1, min((os.cpu_count() or 1) // cores, _MAX_WORKERS))
            workers = min(workers or most, len(jobs))
            parsers = ParserPool(workers, self._reader, self._limits)
        threads = ThreadPoolExecutor(workers, thread_name_prefix="parsing")
        ahead: dict[asyncio.Future[_Parsed], _Job] = {}  # in the order in which they are stored
        late: set[asyncio.Future[_Parsed]] = set()
        left, loop = iter(jobs), asyncio.get_running_loop()
        try:
            done = 0
            while done < len(jobs):
                for job in itertools.islice(left, workers * _AHEAD - len(ahead)):
                    ahead[loop.run_in_executor(threads, self._parse, parsers, job)] = job
                first, job = next(iter(ahead.items()))
                self._report(Progress("reading", done, len(jobs), str(job.path)))
                if first in late:
                    await asyncio.wait(ahead, return_when=asyncio.FIRST_COMPLETED)
                else:
                    await asyncio.wait([first], timeout=_LATE)
                    late.add(first)
                if not first.done() and any(each.done() for each in ahead):  # they overtake it
                    ahead[first] = ahead.pop(first)
                ready = list(itertools.takewhile(asyncio.Future.done, ahead))
                for at, each in enumerate(ready[1:], done + 1):
                    self._report(Progress("reading", at, len(jobs), str(ahead[each].path)))
                done += len(ready)
                if ready:
                    late.difference_update(ready)
                    group = [(ahead.pop(each), each.result()) for each in ready]
                    yield await in_thread(self._finish, group, result)
            self._report(Progress("reading", len(jobs), len(jobs)))
        finally:
            for future in ahead:
                future.cancel()
            parsers.close()
            await in_thread(threads.shutdown, cancel_futures=True)

    def _compare_all(self, files: Sequence[Path], result: Ingested) -> list[_Job]:
        return [job for path in files if (job := self._compare(path, result))]

    def _compare(self, path: Path, result: Ingested) -> _Job | None:
        """Return a job for a file that has to be read, or at least hashed."""
        try:
            state = path.stat()
            key = resolve_path(path)
        except OSError as error:
            result.failed.append((path, os_error(path, error)))
            return None
        now = FileRecord(key, state.st_size, state.st_mtime_ns, time.time_ns(), "")
        known = self._catalogue.file(key)
        job = _Job(path, now, known, known is not None and self._is_outdated(known))
        if job.known is None or job.is_outdated or not _is_untouched(job.known, now):
            return job
        self._skip(job, result)
        return None

    def _is_outdated(self, known: FileRecord) -> bool:
        if known.failure:
            return bool(known.failure[0] != self._readers)
        return bool(self._limits.ocr) and any(NO_TEXT in warning for warning in known.warnings)

    def _skip(self, job: _Job, result: Ingested) -> None:
        """Report an unchanged file."""
        assert job.known is not None
        if not job.known.failure:
            result.unchanged.append(job.path)
            result.warnings.extend(job.known.warnings)
            return
        _, kind, why, hint = job.known.failure
        error = getattr(errors, kind)(_cannot_read(job.path), why, hint)
        result.failed.append((job.path, error))

    def _parse(self, parsers: ParserPool, job: _Job) -> _Parsed:
        known = "" if job.known is None or job.is_outdated else job.known.sha256
        outcome = parsers.read(job.path, job.record.size, known)
        read: Reading | None = outcome.reading
        if read is None:
            return _Parsed(outcome.sha256, error=outcome.error)
        try:
            documents = [(each, cut_passages(each, self._chunker)) for each in read.documents]
        except ColligateError as error:
            return _Parsed(outcome.sha256, error=error)
        return _Parsed(outcome.sha256, documents, read.warnings)

    def _finish(self, group: Sequence[tuple[_Job, _Parsed]], result: Ingested) -> list[int]:
        """Record the results of files; return their documents that are to be indexed."""
        stored = [each for job, parsed in group if (each := self._take(job, parsed, result))]
        return self._catalogue.store(stored) if stored else []

    def _take(self, job: _Job, parsed: _Parsed, result: Ingested) -> ReadFile | None:
        """Return what is to be stored of a file; record one that failed, or is the same."""
        sha256 = parsed.sha256 if _is_unchanged(job) else ""
        record = dataclasses.replace(job.record, sha256=sha256, warnings=parsed.warnings)
        if (error := parsed.error) is not None:
            result.failed.append((job.path, error))
            # It is tried again only when it changes.
            if record.sha256 and type(error) in _LASTING and error.what == _cannot_read(job.path):
                failure = (self._readers, type(error).__name__, error.why, error.hint)
                self._catalogue.note_file(dataclasses.replace(record, failure=failure))
            return None
        if parsed.documents is None:
            known = job.known
            assert known is not None
            same = dataclasses.replace(record, warnings=known.warnings, failure=known.failure)
            self._catalogue.note_file(same)
            self._skip(job, result)
            return None
        documents = parsed.documents
        if address := result.addresses.get(job.path):
            documents = [(dataclasses.replace(d, source=address), spans) for d, spans in documents]
        was_read = job.known is not None and not job.known.failure
        (result.updated if was_read else result.added).append(job.path)
        result.warnings.extend(parsed.warnings)
        return record, documents


@dataclass(frozen=True, slots=True)
class _Job:
    """A file as it is now, without its hash, and as it was recorded before."""

    path: Path
    record: FileRecord
    known: FileRecord | None
    is_outdated: bool  # it could not be read whole then, and there are other readers now


@dataclass(frozen=True, slots=True)
class _Parsed:
    """The result of a file: its documents, an error, or neither for an unchanged file."""

    sha256: str
    documents: list[tuple[Document, list[Span]]] | None = None
    warnings: tuple[str, ...] = ()
    error: ColligateError | None = None


def _is_untouched(known: FileRecord, now: FileRecord) -> bool:
    same = (known.size, known.mtime_ns) == (now.size, now.mtime_ns)
    return known.sha256 != "" and same and known.mtime_ns < known.checked_ns - _TICK_NS


def _is_unchanged(job: _Job) -> bool:
    """Report whether a file is still as it was before it was read."""
    with suppress(OSError):
        state = job.path.stat()
        return (state.st_size, state.st_mtime_ns) == (job.record.size, job.record.mtime_ns)
    return False


def _cannot_read(path: Path) -> str:
    return f"cannot read {path}"


def choose_chunker(catalogue: Catalogue, given: str | None) -> Chunker:
    """Return and record what cuts a library's documents: `given`, else what cut those it has."""
    recorded = catalogue.meta("chunker")
    used = recorded if catalogue.numbers() else None
    chunker = parse_chunker(given or used or STRUCTURAL)
    if used not in (None, chunker.name):
        why = f"its passages were cut by {used}, not by {chunker.name}"
        hint = "leave out --chunker, or give another --library"
        raise LibraryError("cannot add to the library", why, hint)
    if recorded != chunker.name:
        catalogue.set_meta(chunker=chunker.name)
    return chunker
