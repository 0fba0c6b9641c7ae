"""Find the files that paths name: files, and folders, which are walked."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from colligate.documents.reading.decoding import looks_binary
from colligate.documents.reading.formats import Container, known_format, suffix_of
from colligate.documents.reading.source import find_path, os_error, require_regular, require_utf8
from colligate.errors import (
    ColligateError,
    MissingPath,
    NoDocuments,
    ReadingError,
    UnsupportedFormat,
)

_SHOWN = 5  # suffixes of files that were skipped


@dataclass(frozen=True, slots=True)
class FoundFiles:
    """The files to read, in order and each once, and the problems with others."""

    files: tuple[Path, ...]
    problems: tuple[ColligateError, ...] = ()


def find_files(
    paths: Sequence[str | Path],
    without: Sequence[Path] = (),
    *,
    follow_links: bool = False,
    pictures: bool = False,
) -> FoundFiles:
    """Return the files that paths and folders name.

    A file named directly is always included. Folders are walked recursively, in order, without
    hidden entries and the folders `without`; of files with an unknown suffix, those that are
    text are included, and with `pictures` those that OCR reads. A symbolic link in a folder is
    followed if its target is named too, or in a folder that is named; with `follow_links` always.
    """
    named = [real for given in paths if (real := _name_real(given))]
    left_out = {os.path.realpath(folder) for folder in without}
    search = _Search(left_out, follow_links, pictures, named)
    for given in paths:
        _expand(given, search)
    for top, links in search.led_out.items():
        what = f"links that lead out of {top} are not followed: {len(links):,}"
        search.report(ReadingError(what, hint="name what they lead to"))
    if search.skipped:
        suffixes = sorted({suffix_of(path) or "no suffix" for path in search.skipped})
        shown = ", ".join(suffixes[:_SHOWN]) + (", ..." if len(suffixes) > _SHOWN else "")
        what = f"files of unsupported kinds were skipped: {len(search.skipped):,}"
        search.report(UnsupportedFormat(what, shown, "name one directly to see why"))
    return FoundFiles(tuple(search.files.values()), tuple(search.problems.values()))


@dataclass
class _Search:
    """The findings so far, and what is looked for; all texts are real paths."""

    without: set[str]  # folders to leave out
    follow_links: bool
    pictures: bool
    named: Sequence[str]  # what links may lead to, unless all of them are followed
    files: dict[str, Path] = field(default_factory=dict)  # by real path
    problems: dict[str, ColligateError] = field(default_factory=dict)  # by their text
    skipped: dict[Path, None] = field(default_factory=dict)
    led_out: dict[Path, set[Path]] = field(default_factory=dict)  # links, by the folder named

    def may_follow(self, path: Path, top: Path) -> bool:
        """Report whether a path is in what was named; count it as a link out of `top` if not."""
        if self.follow_links or not path.is_symlink():
            return True
        real = os.path.realpath(path)
        if any(real == n or real.startswith(n.rstrip(os.sep) + os.sep) for n in self.named):
            return True
        self.led_out.setdefault(top, set()).add(path)
        return False

    def add(self, file: Path) -> None:
        real = os.path.realpath(file)
        try:
            require_utf8(file, real)
        except ReadingError as error:
            self.report(error)
            return
        # The file itself names a document better than a link to it.
        if real not in self.files or (self.files[real].is_symlink() and not file.is_symlink()):
            self.files[real] = file

    def report(self, problem: ColligateError) -> None:
        self.problems.setdefault(str(problem), problem)


def _name_real(given: str | Path) -> str:
    """Return the real path that is named; "" for none."""
    if given == "":
        return ""
    try:
        return os.path.realpath(find_path(given))
    except (OSError, ValueError):  # it is reported when its files are looked for
        return ""


def _expand(given: str | Path, search: _Search) -> None:
    path = find_path(given)
    try:
        if given == "":  # a variable that was not set must not mean the current folder
            raise ValueError("it is empty")
        if path.is_dir():
            _add_folder(path, search)
        elif path.exists():
            require_regular(path, path.stat())
            search.add(path)
        else:
            raise FileNotFoundError
    except UnsupportedFormat as error:
        search.report(error)
    except OSError as error:
        search.report(os_error(path, error))
    except ValueError as error:  # a NUL in it
        search.report(MissingPath(f"no such path: {given!r}", str(error), "check the path"))


def _add_folder(folder: Path, search: _Search) -> None:
    problems = len(search.problems)
    empty = True
    for file in _walk(folder, search):
        _consider(file, search)
        empty = False
    if empty and len(search.problems) == problems and folder not in search.led_out:
        why = "the folder is empty"
        search.report(NoDocuments(f"no documents in {folder}", why, "name another"))


_HIDDEN = (".", "~$")  # "~$report.docx" exists while Word has report.docx open


def _walk(top: Path, search: _Search) -> Iterator[Path]:
    """Yield all files under a folder, a folder's files before its folders."""
    seen = set(search.without)
    waiting = [top]  # not `os.walk`, which recurses in Python 3.11
    while waiting:
        folder = waiting.pop()
        if (real := os.path.realpath(folder)) in seen:  # a loop of symbolic links
            continue
        seen.add(real)
        try:
            with os.scandir(folder) as entries:
                names = sorted(each.name for each in entries if not each.name.startswith(_HIDDEN))
        except OSError as error:
            search.report(os_error(folder, error))
            continue
        inner = []
        for path in (folder / name for name in names):
            try:
                mode = path.stat().st_mode
            except OSError as error:
                if not isinstance(error, FileNotFoundError):  # what a link leads to is gone
                    search.report(os_error(path, error))
                continue
            if stat.S_ISDIR(mode) and search.may_follow(path, top):
                inner.append(path)
            elif stat.S_ISREG(mode) and search.may_follow(path, top):
                yield path
        waiting += reversed(inner)


_SNIFFED = 8192


def _consider(path: Path, search: _Search) -> None:
    """Take a file of a known format, or any text; count others as skipped."""
    try:
        # An empty file is not opened: one of the kernel may never end.
        known = known_format(path)
        is_read = known and (search.pictures or known.container is not Container.PICTURE)
        if is_read or not path.stat().st_size:
            search.add(path)
            return
        with path.open("rb") as file:
            is_text = not looks_binary(file.read(_SNIFFED))
    except OSError as error:
        search.report(os_error(path, error))
        return
    if is_text:
        search.add(path)
    else:
        search.skipped[path] = None
