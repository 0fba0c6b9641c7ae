"""`colligate sync`: bring the library up to date with its folders, once or as they change."""

from __future__ import annotations

import asyncio
import glob
import os
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from colligate.cli import options
from colligate.cli.command import ANSWERED, FAULT, command
from colligate.cli.display import note, print_json, print_result, shorten_path, to_one_line, warn
from colligate.cli.index import count_files, describe_ingested
from colligate.errors import (
    ColligateError,
    LibraryLocked,
    MissingPath,
    NoDocuments,
    ReadingError,
    UsageError,
)

if TYPE_CHECKING:
    from colligate.core.events import Event, Listener
    from colligate.engine import Engine
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
        typer.Argument(
            metavar="PATH...",
            help="Files, folders, globs and https: addresses. Default: all that were named before.",
            show_default=False,
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
    """
    given = paths or []
    _require(given)
    opened = partial(where.engine, **wanted.given())
    syncer = Syncer(given, opened, options.parse_workers(wanted.workers), wanted.yes, as_json)
    if wanted.watch:
        async with where.open() as library:
            folders = await find_folders(library, given)
        await syncer.watch(library.path, folders)
    else:
        await syncer.run()
    return FAULT if syncer.kept else ANSWERED


def _require(paths: Sequence[str]) -> None:
    """Refuse paths that do not exist: nothing is removed for a typing error."""
    from colligate.library.web import is_address

    for path in paths:
        if not (is_address(path) or os.path.lexists(path) or glob.has_magic(path)):
            hint = "`colligate library remove` removes the documents of what is gone for good"
            raise MissingPath(f"no such file or folder: {path}", "", hint)


async def find_folders(library: AsyncLibrary, paths: Sequence[str] = ()) -> list[Path]:
    """Return the folders to watch among these paths, or among all that were named before."""
    from colligate.library.catalogue import resolve_path
    from colligate.library.web import is_address

    named = [each for each in paths or await library.named() if not is_address(each)]
    folders = [path for path in map(resolve_path, named) if path.is_dir()]
    if not folders:
        hint = "name a folder, or add one with colligate index"
        raise UsageError("there is no folder to watch", "", hint)
    return folders


@dataclass
class Syncer:
    """Brings a library up to date, as often as it is run.

    `paths` are by default all that were named before. `open` gives the engine of a run: between two
    the library is free for other commands. `kept` says whether the documents of missing files were
    kept.
    """

    paths: Sequence[str]
    open: Callable[[], AbstractAsyncContextManager[Engine]]
    workers: int | str | None = None
    yes: bool = False
    as_json: bool = False
    kept: bool = False
    _shown: set[str] = field(default_factory=set)

    async def run(self, *, first: bool = True) -> None:
        """Add, update and remove what has changed, and print it; only the first time ask."""
        from colligate.cli.progress import watch_run

        with watch_run() as watcher:

            async def confirm(asking: str) -> bool:
                return first and await asyncio.to_thread(watcher.confirm, asking)

            async with self.open() as engine:
                ingested = await self.update(engine, watcher.see, confirm)
                library = await engine.open_library()
        self.kept = bool(ingested.kept)
        self._print(ingested, library.uri, summary=first)

    async def update(
        self,
        engine: Engine,
        on_event: Listener,
        confirm: Callable[[str], Awaitable[bool]],
        hint: str = "--yes removes them",
    ) -> Ingested:
        """Add, update and remove what has changed; note each thing once.

        If most files of a folder are gone, `confirm` decides; `hint` says how to remove what is
        kept.
        """
        from colligate.core.events import Noted

        def see(event: Event) -> None:
            if isinstance(event, Noted):
                if event.text in self._shown:
                    return
                self._shown.add(event.text)
            on_event(event)

        async def consent(missing: Missing) -> bool:
            gone, folder = len(missing.files), missing.folder
            if self.yes or 2 * gone <= missing.known:
                return True
            what = f"{gone:,} of {missing.known:,} files of {folder} are gone"
            if await confirm(f"{what}: remove their documents?"):
                return True
            see(Noted(f"{what}: their documents are kept; {hint}", warning=True))
            return False

        library = await engine.open_library()
        named = self.paths or await library.named()
        if not named:
            why = f"no folder was ever added to the library {library.uri}"
            raise NoDocuments("there is nothing to bring up to date", why, "name a folder")
        return await engine.add(named, workers=self.workers, prune=consent, on_event=see)

    async def watch(self, library: Path, folders: Sequence[Path]) -> None:
        """Run now, and again whenever something changes in the folders, until interrupted.

        What changes in the folder of the `library` itself does not count.
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
        first = pending = True
        try:
            async for changes in watching:
                if not (changes or pending):
                    continue
                try:
                    await self.run(first=first)
                    pending = False
                except LibraryLocked as error:  # tried again until it is free
                    self.warn_once(str(error))
                    pending = True
                except (NoDocuments, ReadingError) as error:
                    self.warn_once(str(error))
                    pending = False
                if first:
                    first = False
                    note(f"watching {', '.join(map(str, folders))}; Ctrl-C ends it")
        except WatchfilesRustInternalError as error:  # too many folders for the system, say
            hint = "set WATCHFILES_FORCE_POLLING=1"
            raise ColligateError("cannot watch the folders", str(error), hint) from error
        except asyncio.CancelledError:  # Ctrl-C
            note("no longer watching")

    def warn_once(self, text: str) -> None:
        """Print a warning that was not printed before."""
        if text not in self._shown:
            self._shown.add(text)
            warn(text)

    def _print(self, ingested: Ingested, library: str, *, summary: bool) -> None:
        """Print each change, and with `summary` how many there are."""
        changes = [
            (what, ingested.addresses.get(path, str(path)))
            for what, paths in (
                ("added", ingested.added),
                ("updated", ingested.updated),
                ("removed", ingested.removed),
            )
            for path in paths
        ]
        counts = {**count_files(ingested), "removed": len(ingested.removed)}
        if ingested.kept:
            counts["missing"] = len(ingested.kept)
        if self.as_json:
            if changes or summary:
                said = [{"change": what, "file": file} for what, file in changes]
                print_json({**counts, **describe_ingested(ingested, library), "changes": said})
            return
        for what, file in changes:
            print_result(f"{what:<8} {to_one_line(shorten_path(file))}")
        if summary:
            files = ", ".join(f"{count:,} {name}" for name, count in counts.items())
            print_result(f"files: {files}; passages embedded: {ingested.passages:,}")
            note(f"library: {library}")
