"""`colligate index`: add files to the library ahead of the first question."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from colligate.cli import options
from colligate.cli.command import ANSWERED, command
from colligate.cli.display import note, print_json, print_result
from colligate.errors import UsageError

if TYPE_CHECKING:
    from colligate.library.ingest import Ingested

app = typer.Typer(add_completion=False)


@command(app)
async def index_command(
    paths: Annotated[
        list[str], options.argument("Files, folders and https: addresses to add.", "PATH...")
    ],
    *,
    where: options.LibraryOptions,
    kept_in: options.LibraryEngine = None,
    reading: options.AddOptions,
    chunker: options.Chunker = None,
    as_json: options.AsJson = False,
) -> int:
    """Add files to the library ahead of time.

    Unchanged files are not read again. After an interrupt the same command resumes.

    Examples:
        colligate index papers/ --library papers.library
        colligate index https://example.org/rules.html scans/ --ocr
    """
    from colligate.cli.progress import watch_run

    parsed = options.parse_workers(reading.workers)
    if kept_in is not None:
        if where.library is None:
            raise UsageError("--engine needs --library", hint="name the folder")
        from colligate.library.library import AsyncLibrary

        async with AsyncLibrary(where.library, engine=kept_in) as new:
            await new.add([])  # it keeps its engine
    with watch_run() as watcher:
        async with where.engine(reading, chunker=chunker) as engine:
            library = await engine.open_library()
            ingested = await engine.add(paths, workers=parsed, on_event=watcher.see)
    print_ingested(ingested, library.uri, as_json=as_json)
    return ANSWERED


def print_ingested(
    ingested: Ingested,
    library: str,
    *,
    as_json: bool,
    more: Mapping[str, int] | None = None,
    **said: Any,
) -> None:
    """Print how many files were added, updated, unchanged or could not be read, and `more`.

    JSON says what became of them, and what is `said`.
    """
    counts = {
        "added": len(ingested.added),
        "updated": len(ingested.updated),
        "unchanged": len(ingested.unchanged),
        "failed": len(ingested.failed),
        **(more or {}),
    }
    if as_json:
        about = {
            "library": library,
            "passages": ingested.passages,
            "documents": list(ingested.document_ids),
            "failures": [str(error) for _, error in ingested.failed],
            "warnings": list(ingested.warnings),
        }
        print_json({**counts, **about, **said})
        return
    files = ", ".join(f"{count:,} {name}" for name, count in counts.items())
    print_result(f"files: {files}; passages embedded: {ingested.passages:,}")
    note(f"library: {library}")
