"""`colligate index`: add files to the library ahead of the first question."""

from __future__ import annotations

from typing import Annotated

import typer

from colligate.cli import options
from colligate.cli.command import ANSWERED, command
from colligate.cli.display import note, print_json, print_result
from colligate.errors import LibraryLocked

app = typer.Typer(add_completion=False)


@command(app)
async def index_command(
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="PATH...", help="Files, folders and globs to add.", show_default=False
        ),
    ],
    *,
    where: options.LibraryOptions,
    workers: Annotated[
        int | None,
        options.option(
            "How many processes read files. Default: half the cores.",
            options.LIBRARY,
            metavar="N",
            min=1,
        ),
    ] = None,
    follow_links: options.FollowLinks = False,
    as_json: options.AsJson = False,
) -> int:
    """Add files to the library ahead of time.

    Unchanged files are not read again. After an interrupt the same command resumes.
    """
    from colligate.cli.progress import watch_run
    from colligate.cli.remote import find_server

    with watch_run() as watcher:
        async with where.engine(follow_links=follow_links) as engine:
            library = await engine.open_library()
            if server := await find_server(library.path):
                raise LibraryLocked(
                    f"cannot index into the library {library.path}",
                    f"the server at {server.url} holds it",
                    "send the files to the server, or stop it",
                )
            ingested = await engine.add(paths, workers=workers, on_event=watcher.see)
    counts = {
        "added": len(ingested.added),
        "updated": len(ingested.updated),
        "unchanged": len(ingested.unchanged),
        "failed": len(ingested.failed),
    }
    if as_json:
        print_json(
            {
                "library": str(library.path),
                **counts,
                "passages": ingested.passages,
                "documents": list(ingested.document_ids),
                "failures": [str(error) for _, error in ingested.failed],
                "warnings": list(ingested.warnings),
            }
        )
        return ANSWERED
    files = ", ".join(f"{count:,} {name}" for name, count in counts.items())
    print_result(f"files: {files}; passages embedded: {ingested.passages:,}")
    note(f"library: {library.path}")
    return ANSWERED
