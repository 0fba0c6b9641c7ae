"""`colligate sync`: bring the library up to date with its folders, once or as they change."""

from __future__ import annotations

import asyncio
import glob
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from colligate.cli import options
from colligate.cli.command import ANSWERED, FAULT, command
from colligate.cli.display import note, print_json, print_result, shorten_path, to_one_line, warn
from colligate.cli.index import count_files, describe, open_to_change
from colligate.errors import (
    ColligateError,
    LibraryLocked,
    MissingPath,
    NoDocuments,
    ReadingError,
    UsageError,
)

if TYPE_CHECKING:
    from colligate.core.events import Event
    from colligate.library.catalogue import Missing
    from colligate.library.ingest import Ingested

app = typer.Typer(add_completion=False)

_LOOK_MS = 500  # between looks for changes; those of one moment are taken together


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
    watch: Annotated[
        bool, options.option("Go on until Ctrl-C, as files change.", options.LIBRARY, "--watch")
    ] = False,
    yes: Annotated[
        bool,
        options.option(
            "Remove documents without being asked, also when most files of a folder are gone.",
            options.LIBRARY,
            "--yes",
        ),
    ] = False,
    where: options.LibraryOptions,
    workers: options.Workers = None,
    follow_links: options.FollowLinks = False,
    ocr: options.Ocr = False,
    as_json: options.AsJson = False,
) -> int:
    """Bring the library up to date with its folders, and say what has changed.

    New and changed files are read, the documents of files that are gone are removed. If more than
    half of a folder's files are gone, a person is asked, since a disk may not be mounted.

    Exit status: 0 up to date, 1 documents of missing files were kept, 2 wrong usage.
    """
    given = paths or []
    _require(given)
    syncer = Syncer(given, where, workers, follow_links, ocr, yes, as_json)
    if watch:
        await syncer.watch()
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


@dataclass
class Syncer:
    """Brings a library up to date, as often as it is run.

    Between two runs the library is free for other commands. `kept` says whether the documents of
    missing files were kept.
    """

    paths: Sequence[str]
    where: options.LibraryOptions
    workers: int | None
    follow_links: bool
    ocr: bool
    yes: bool
    as_json: bool
    kept: bool = False
    _shown: set[str] = field(default_factory=set)

    async def run(self, *, first: bool = True) -> None:
        """Add, update and remove what has changed, and print it; only the first time ask."""
        from colligate.cli.progress import watch_run
        from colligate.core.events import Noted

        with watch_run() as watcher:

            def see(event: Event) -> None:
                if isinstance(event, Noted):
                    if event.text in self._shown:
                        return
                    self._shown.add(event.text)
                watcher.see(event)

            async def consent(missing: Missing) -> bool:
                gone, folder = len(missing.files), missing.folder
                if self.yes or 2 * gone <= missing.known:
                    return True
                what = f"{gone:,} of {missing.known:,} files of {folder} are gone"
                asking = f"{what}: remove their documents?"
                if first and await asyncio.to_thread(watcher.confirm, asking):
                    return True
                see(Noted(f"{what}: their documents are kept; --yes removes them", warning=True))
                return False

            async with open_to_change(
                self.where, follow_links=self.follow_links, ocr=self.ocr
            ) as engine:
                library = await engine.open_library()
                named = self.paths or await library.named()
                if not named:
                    why = f"no folder was ever added to the library {library.path}"
                    raise NoDocuments("there is nothing to bring up to date", why, "name a folder")
                ingested = await engine.add(
                    named, workers=self.workers, prune=consent, on_event=see
                )
        self.kept = bool(ingested.kept)
        self._print(ingested, library.path, summary=first)

    async def watch(self) -> None:
        """Run now, and again whenever something changes in the folders, until interrupted."""
        from watchfiles import awatch
        from watchfiles._rust_notify import WatchfilesRustInternalError

        library, folders = await self._find_folders()
        watching = awatch(
            *folders,
            watch_filter=lambda _, path: not Path(path).is_relative_to(library),
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
                    self._warn_once(str(error))
                    pending = True
                except (NoDocuments, ReadingError) as error:
                    self._warn_once(str(error))
                    pending = False
                if first:
                    first = False
                    note(f"watching {', '.join(map(str, folders))}; Ctrl-C ends it")
        except WatchfilesRustInternalError as error:  # too many folders for the system, say
            hint = "set WATCHFILES_FORCE_POLLING=1"
            raise ColligateError("cannot watch the folders", str(error), hint) from error
        except asyncio.CancelledError:  # Ctrl-C
            note("no longer watching")

    async def _find_folders(self) -> tuple[Path, list[Path]]:
        """Return the library's folder, and the folders to watch."""
        from colligate.library.catalogue import resolve_path
        from colligate.library.web import is_address

        async with self.where.open() as library:
            named = [each for each in self.paths or await library.named() if not is_address(each)]
            own = resolve_path(library.path)
        folders = [path for path in map(resolve_path, named) if path.is_dir()]
        if not folders:
            raise UsageError("there is no folder to watch", "", "name a folder")
        return own, folders

    def _warn_once(self, text: str) -> None:
        if text not in self._shown:
            self._shown.add(text)
            warn(text)

    def _print(self, ingested: Ingested, library: Path, *, summary: bool) -> None:
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
                print_json({**counts, **describe(ingested, library), "changes": said})
            return
        for what, file in changes:
            print_result(f"{what:<8} {to_one_line(shorten_path(file))}")
        if summary:
            files = ", ".join(f"{count:,} {name}" for name, count in counts.items())
            print_result(f"files: {files}; passages embedded: {ingested.passages:,}")
            note(f"library: {library}")
