"""Which files are meant: files named, folders walked, globs."""

from __future__ import annotations

import glob
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from colligate.documents.reading.decoding import looks_binary
from colligate.documents.reading.files import os_error, require_regular
from colligate.documents.reading.formats import FORMATS, suffix_of
from colligate.errors import (
    ColligateError,
    MissingPath,
    NoDocuments,
    ReadingError,
    UnsupportedFormat,
)

_SNIFFED = 8192
_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Found:
    """The files to read, in order and each once, and what stood in the way of others."""

    files: tuple[Path, ...]
    problems: tuple[ColligateError, ...] = ()


@dataclass
class _Search:
    """What has been found so far."""

    files: dict[str, Path] = field(default_factory=dict)  # by real path
    folders: set[str] = field(default_factory=set)  # real paths walked
    problems: list[ColligateError] = field(default_factory=list)
    skipped: list[Path] = field(default_factory=list)

    def add(self, file: Path) -> None:
        real = os.path.realpath(file)
        try:
            real.encode()
        except UnicodeEncodeError:
            # No catalogue and no other program could name it.
            self.problems.append(
                ReadingError(f"cannot read {file}", "its path is not UTF-8", "rename it")
            )
            return
        # The file itself names a document better than a link to it.
        if real not in self.files or (self.files[real].is_symlink() and not file.is_symlink()):
            self.files[real] = file


def find_files(paths: Sequence[str | Path]) -> Found:
    """The files that paths, folders and globs name.

    A file named directly is always in, whatever it is. Folders are walked recursively, in order,
    without hidden entries; of files with an unknown suffix those that are text are in.
    """
    search = _Search()
    for given in paths:
        _expand(given, search)
    if search.skipped:
        search.problems.append(_unsupported(search.skipped))
    return Found(tuple(search.files.values()), tuple(search.problems))


def _expand(given: str | Path, search: _Search) -> None:
    path = Path(given).expanduser()
    try:
        if path.is_dir():
            if not _walk(path, search):
                search.problems.append(
                    NoDocuments(f"no documents in {path}", "the folder is empty", "name another")
                )
        elif path.exists():
            require_regular(path, path.stat())
            search.add(path)
        elif glob.has_magic(str(path)):
            _glob(path, search)
        else:
            raise FileNotFoundError
    except UnsupportedFormat as error:
        search.problems.append(error)
    except OSError as error:
        search.problems.append(os_error(path, error))
    except ValueError as error:  # a NUL in it
        search.problems.append(
            MissingPath(f"no such path: {given!r}", str(error), "check the path")
        )


def _glob(pattern: Path, search: _Search) -> None:
    matches = sorted(glob.glob(str(pattern), recursive=True))  # noqa: PTH207 (takes absolute patterns too)
    if not matches:
        search.problems.append(
            MissingPath(f"nothing matches {pattern}", "", "check the pattern and quote it")
        )
    for match in map(Path, matches):
        # "docs/**" names each folder and all it holds: the folder's files come by themselves.
        if match.is_file():
            search.add(match)
        elif match.is_dir() and pattern.name != "**":
            _walk(match, search)


def _walk(top: Path, search: _Search) -> bool:
    """Take in all under a folder, a folder's files before its folders; whether there was any."""
    met_any = False
    waiting = [top]
    while waiting:
        folder = waiting.pop()
        real = os.path.realpath(folder)
        if real in search.folders:  # given twice, or a loop of symbolic links
            met_any = True
            continue
        search.folders.add(real)
        try:
            with os.scandir(folder) as entries:
                visible = [entry for entry in entries if not entry.name.startswith(".")]
        except OSError as error:
            search.problems.append(os_error(folder, error))
            met_any = True
            continue
        visible.sort(key=lambda entry: entry.name)
        folders = []
        for entry in visible:
            path = folder / entry.name
            try:
                if entry.is_dir():
                    folders.append(path)
                elif entry.is_file():
                    _consider(path, search)
                    met_any = True
            except OSError as error:  # a symbolic link to itself
                search.problems.append(os_error(path, error))
        waiting += reversed(folders)
    return met_any


def _consider(path: Path, search: _Search) -> None:
    if suffix_of(path) in FORMATS:
        search.add(path)
        return
    try:
        with path.open("rb") as file:
            is_text = not looks_binary(file.read(_SNIFFED))
    except OSError as error:
        search.problems.append(os_error(path, error))
        return
    if is_text:
        search.add(path)
    else:
        search.skipped.append(path)


def _unsupported(skipped: Sequence[Path]) -> UnsupportedFormat:
    suffixes = sorted({suffix_of(path) or "no suffix" for path in skipped})
    shown = ", ".join(suffixes[:_SHOWN]) + (", ..." if len(suffixes) > _SHOWN else "")
    count = len(skipped)
    return UnsupportedFormat(
        f"skipped {count:,} {'file' if count == 1 else 'files'} of unsupported kinds",
        shown,
        "name one directly to see why",
    )
