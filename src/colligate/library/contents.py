"""Which documents of a catalogue are meant: by id, by file, by folder."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from colligate.errors import UnknownDocument
from colligate.library.catalogue import Catalogue


def ids_of(catalogue: Catalogue, files: Sequence[Path]) -> list[str]:
    """The ids of the documents of these files, in order and each once."""
    ids: dict[str, None] = {}
    for path in files:
        ids.update(dict.fromkeys(catalogue.documents_of(real(path))))
    return list(ids)


def prune(catalogue: Catalogue, paths: Sequence[Path | str]) -> list[Path]:
    """Forget the files read from these folders before that are gone; returns them."""
    gone = []
    for folder in map(real, paths):
        if folder.is_dir():
            gone += [path for path in _under(catalogue, folder) if _is_gone(path)]
    for path in gone:
        catalogue.forget_file(path)
    return gone


def take_out(catalogue: Catalogue, ids_or_paths: Sequence[str | Path]) -> None:
    """Make documents leave: those named by id, and those of the files and folders named.

    Raises:
        UnknownDocument: if one of them is neither; nothing has changed then.
    """
    known = catalogue.numbers()
    numbers: list[int] = []
    files: list[Path] = []
    for meant in ids_or_paths:
        if str(meant) in known:
            numbers.append(known[str(meant)])
            continue
        path = real(meant)
        found = [path] if catalogue.file(path) else _under(catalogue, path)
        if not found:
            raise UnknownDocument(
                f"cannot remove {meant}",
                "the library has no document and no file of this name",
                "see `colligate library list`",
            )
        files += found
    catalogue.leave(numbers)
    for path in files:
        catalogue.forget_file(path)


def real(path: Path | str) -> Path:
    """Where a file really stands, as the catalogue knows it."""
    try:
        return Path(os.path.realpath(os.path.expanduser(path)))  # noqa: PTH111 (pathlib may refuse)
    except ValueError:  # no file is named so
        return Path(path)


def _is_gone(path: Path) -> bool:
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:  # out of reach is not gone
        return False
    return False


def _under(catalogue: Catalogue, folder: Path) -> list[Path]:
    return [path for path in catalogue.files() if folder in path.parents]
