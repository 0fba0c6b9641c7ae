"""What is reported to a run's trace while models are opened and files are read.

The names that were chosen and where they were named, what is downloaded and read, what is left out.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from colligate.core.events import Noted, Progressed, Trace
from colligate.documents.reading import find_files
from colligate.errors import ColligateError, NoDocuments
from colligate.library.ingest import Ingested, Progress
from colligate.library.library import AsyncLibrary
from colligate.library.web import is_address
from colligate.models.names import find_key, redact_name
from colligate.models.weights import OnProgress
from colligate.settings import Named


def note_name(what: str, named: Named, trace: Trace) -> None:
    """Note what was chosen, where it was named, and a key that is not sent to it."""
    if not named.source:
        return  # the caller named it
    trace.emit(Noted(f"{what}: {redact_name(named.name)} ({named.source})"))
    variable = "COLLIGATE_RERANKER_KEY" if what == "reranker" else "OPENAI_API_KEY"
    if not named.with_key and find_key(variable):
        why = f"only the {named.source} found here names that address"
        hint = f"--config {named.source} trusts the file"
        trace.emit(Noted(f"{variable} is not sent there: {why}; {hint}"))


def report_pull(trace: Trace) -> OnProgress:
    """Return a callback that reports downloaded weights to the trace."""

    def report(done_bytes: int, total_bytes: int, what: str) -> None:
        trace.emit(Progressed("pulling", done_bytes, total_bytes, what))
        if done_bytes == total_bytes:
            trace.emit(Noted(f"fetched {what}"))

    return report


def report_ingestion(trace: Trace) -> Callable[[Progress], None]:
    """Return a callback that reports reading and embedding to the trace."""

    def report(progress: Progress) -> None:
        trace.emit(Progressed(progress.phase, progress.done, progress.total, progress.file))

    return report


async def ingest(
    library: AsyncLibrary, paths: Sequence[str | Path], trace: Trace, **options: Any
) -> Ingested:
    """Read files and folders into a library; the trace reports what was left out, and why.

    `options` are those of `AsyncLibrary.add`. It is an error if nothing could be read, nor removed.
    """
    ingested = await library.add(paths, on_progress=report_ingestion(trace), **options)
    errors = [*ingested.problems, *(error for _, error in ingested.failed)]
    if not (ingested.document_ids or ingested.removed or ingested.kept):
        _raise_nothing_read(errors)
    for line in (*(f"left out: {error}" for error in errors), *ingested.warnings):
        trace.emit(Noted(line, warning=True))
    return ingested


def require_paths(paths: Sequence[str | Path]) -> None:
    """Raise an error if none of the paths exists; ingestion reports the rest."""
    if not any(is_address(path) or os.path.lexists(path) for path in paths):
        found = find_files(paths)
        if not found.files:
            _raise_nothing_read(found.problems)


def _raise_nothing_read(errors: Sequence[ColligateError]) -> NoReturn:
    if len(errors) == 1:
        raise errors[0]
    why = "; ".join(str(error) for error in errors[:3])
    more = f"{len(errors) - 3} more failed" if len(errors) > 3 else ""
    raise NoDocuments("nothing could be read", why, more)
