"""From paths to documents in a library, with what went wrong said in the trace."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from colligate.documents.reading import find_files
from colligate.errors import ColligateError, NoDocuments
from colligate.library.ingestion import Ingested, Progress
from colligate.library.library import Library
from colligate.strategies.trace import Noted, Progressed, Trace


def look_for(paths: Sequence[str | Path]) -> None:
    """Raise what is wrong with paths of which none is there; ingestion finds out the rest."""
    if not any(os.path.lexists(path) for path in paths):
        found = find_files(paths)
        if not found.files:
            _nothing_read(found.problems)


async def ingest(
    library: Library,
    paths: Sequence[str | Path],
    trace: Trace,
    *,
    index: bool,
    workers: int | None = None,
) -> Ingested:
    """Read files and folders into a library; what is left out, and why, goes to the trace.

    Raises:
        NoDocuments, ReadingError: nothing could be read.
        LibraryError: what the library could not do.
    """
    ingested = await library.add(
        paths, index=index, workers=workers, on_progress=ingestion_listener(trace)
    )
    errors = [*ingested.problems, *(error for _, error in ingested.failed)]
    if not ingested.document_ids:
        _nothing_read(errors)
    for error in errors:
        trace.emit(Noted(f"left out: {error}", warning=True))
    for warning in ingested.warnings:
        trace.emit(Noted(warning, warning=True))
    return ingested


def ingestion_listener(trace: Trace) -> Callable[[Progress], None]:
    """Shows how far reading and embedding have come."""

    def listen(progress: Progress) -> None:
        trace.emit(Progressed(progress.phase, progress.done, progress.total, progress.file))

    return listen


def _nothing_read(errors: Sequence[ColligateError]) -> NoReturn:
    if len(errors) == 1:
        raise errors[0]  # best said in its own words
    raise NoDocuments(
        "nothing could be read",
        "; ".join(str(error) for error in errors[:3]),
        f"{len(errors) - 3} more failed" if len(errors) > 3 else "",
    )
