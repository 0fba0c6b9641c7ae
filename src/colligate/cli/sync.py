"""`colligate sync`: bring the library up to date with its folders, once or as they change."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from colligate.cli import options
from colligate.cli.command import ANSWERED, FAULT, command
from colligate.cli.display import note, print_result, shorten_path, to_one_line, warn
from colligate.cli.index import print_ingested
from colligate.errors import (
    ColligateError,
    LibraryError,
    LibraryLocked,
    MissingPath,
    NoDocuments,
    ReadingError,
    UsageError,
)

if TYPE_CHECKING:
    from colligate.library.ingest import Ingested
    from colligate.library.library import AsyncLibrary
    from colligate.library.named import Missing

app = typer.Typer(add_completion=False)

_LOOK_MS = 500  # between looks for changes; those of one moment are taken together


@dataclass(frozen=True)
class SyncOptions(options.AddOptions):
    """How often the library is brought up to date, and what is asked first."""

    watch: Annotated[
        bool,
        options.option(
            "Keep running, and sync when files change, until Ctrl-C.", options.LIBRARY, "--watch"
        ),
    ] = False
    yes: Annotated[
        bool,
        options.option(
            "Remove documents without being asked, also when most files of a folder are gone.",
            options.LIBRARY,
            "--yes",
        ),
    ] = False


@command(app)
async def sync_command(
    paths: Annotated[
        list[str] | None,
        options.argument(
            "Files, folders and https: addresses. Default: all that were named before.", "PATH..."
        ),
    ] = None,
    *,
    where: options.LibraryOptions,
    wanted: SyncOptions,
    as_json: options.AsJson = False,
) -> int:
    """Bring the library up to date with its folders, and say what has changed.

    New and changed files are read, the documents of files that are gone are removed. If more than
    half of a folder's files are gone, you are asked first, since a disk may not be mounted.

    Exit status: 0 up to date, 1 documents of missing files were kept, 2 wrong usage.

    Examples:
        colligate sync --library papers.library
        colligate sync papers/ --watch
    """
    from colligate.cli.progress import watch_run
    from colligate.core.events import Noted

    given = paths or []
    _require(given)
    workers = options.parse_workers(wanted.workers)
    kept, first = False, True
    said: set[str] = set()

    async def sync() -> None:
        nonlocal kept, first
        # Between two runs the library is closed, and free for other commands.
        with watch_run() as watcher:
            watcher.noted = said  # each sync finds the same files that cannot be read

            async def prune(missing: Missing) -> bool:
                gone, folder = len(missing.files), missing.folder
                what = f"{gone:,} of {missing.known:,} files of {folder} are gone"
                if wanted.yes or 2 * gone <= missing.known:
                    return True
                asking = f"{what}: remove their documents?"
                if first and await asyncio.to_thread(watcher.confirm, asking):
                    return True
                hint = "`colligate sync --yes` removes them"
                watcher.see(Noted(f"{what}: their documents are kept; {hint}", warning=True))
                return False

            async with where.engine(wanted) as engine:
                library = await engine.open_library()
                named = given or await library.named()
                if not named:
                    why = f"no folder was ever added to the library {library.uri}"
                    raise NoDocuments("there is nothing to bring up to date", why, "name a folder")
                ingested = await engine.add(
                    named, workers=workers, prune=prune, on_event=watcher.see
                )
        kept = bool(ingested.kept)
        _print(ingested, library.uri, as_json=as_json, summary=first)
        first = False

    if wanted.watch:
        async with where.open() as library:
            folders = await _find_folders(library, given)
        note(f"watching {', '.join(map(str, folders))}; Ctrl-C ends it")
        await _watch(library.path, folders, sync)
    else:
        await sync()
    return FAULT if kept else ANSWERED


def _require(paths: Sequence[str]) -> None:
    """Refuse paths that do not exist: nothing is removed for a typing error."""
    from colligate.library.web import is_address

    for path in paths:
        if not (is_address(path) or os.path.lexists(path)):
            hint = "`colligate library remove` removes the documents of what is gone for good"
            raise MissingPath(f"no such file or folder: {path}", "", hint)


async def _find_folders(library: AsyncLibrary, paths: Sequence[str]) -> list[Path]:
    """Return the folders to watch among these paths, or among all that were named before."""
    from colligate.library.catalogue import resolve_path
    from colligate.library.web import is_address

    named = [each for each in paths or await library.named() if not is_address(each)]
    folders = [path for path in map(resolve_path, named) if path.is_dir()]
    if not folders:
        hint = "name a folder, or add one with colligate index"
        raise UsageError("there is no folder to watch", "", hint)
    return folders


async def _watch(
    library: Path, folders: Sequence[Path], update: Callable[[], Awaitable[None]]
) -> None:
    """Update now, and whenever something changes in the folders, until interrupted.

    What changes in the folder of the `library` itself does not count. While another process holds
    the library, the update is tried again and again.
    """
    from watchfiles import awatch
    from watchfiles._rust_notify import WatchfilesRustInternalError

    from colligate.library.catalogue import resolve_path

    own = resolve_path(library)
    watching = awatch(
        *folders,
        watch_filter=lambda _, path: not Path(path).is_relative_to(own),
        rust_timeout=_LOOK_MS,
        yield_on_timeout=True,
        ignore_permission_denied=True,
    )
    due, last = True, ""
    try:
        async for changes in watching:
            if not (changes or due):
                continue
            try:
                await update()
                due, last = False, ""
            except (LibraryError, NoDocuments, ReadingError) as error:
                due = isinstance(error, LibraryLocked)
                if str(error) != last:
                    warn(last := str(error))
    except WatchfilesRustInternalError as error:  # too many folders for the system, say
        hint = "set WATCHFILES_FORCE_POLLING=1"
        raise ColligateError("cannot watch the folders", str(error), hint) from error
    except asyncio.CancelledError:  # Ctrl-C
        note("no longer watching")


def _print(ingested: Ingested, library: str, *, as_json: bool, summary: bool) -> None:
    """Print each change, and with `summary` how many there are."""
    changes = [
        (what, ingested.addresses.get(path, str(path)))
        for what in ("added", "updated", "removed")
        for path in getattr(ingested, what)
    ]
    if not as_json:
        for what, file in changes:
            print_result(f"{what:<8} {to_one_line(shorten_path(file))}")
    if summary or (as_json and changes):
        more = {"removed": len(ingested.removed)}
        if ingested.kept:
            more["missing"] = len(ingested.kept)
        said = [{"change": what, "file": file} for what, file in changes]
        print_ingested(ingested, library, as_json=as_json, more=more, changes=said)
