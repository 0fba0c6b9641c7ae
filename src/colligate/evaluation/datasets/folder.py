"""A folder of whole documents as a corpus, in any format that colligate reads."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from colligate.documents.document import Document
from colligate.documents.reading import find_files, read
from colligate.documents.reading.source import stem_of
from colligate.documents.tree import Tree
from colligate.errors import UnsupportedFormat, UsageError

T = TypeVar("T")


def called(folder: Path, files: Iterable[tuple[Path, T]]) -> Mapping[str, Sequence[T]]:
    """What stands for each file, by what a question may call it.

    That is its path below the folder; its name, and either without the ending, where no path is
    so. A name of several files has what stands for each.
    """
    paths: defaultdict[str, list[T]] = defaultdict(list)
    shorter: defaultdict[str, list[T]] = defaultdict(list)
    for file, what in files:
        below = file.relative_to(folder) if file.is_relative_to(folder) else Path(file.name)
        paths[below.as_posix()].append(what)
        for name in {file.name, stem_of(file), below.with_name(stem_of(file)).as_posix()}:
            shorter[name].append(what)
    return {**shorter, **paths}


class Folder:
    """The files of a folder, in the order of their paths, by the names a question may give them."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @cached_property
    def files(self) -> tuple[Path, ...]:
        """The files that can be read."""
        return find_files([self.path]).files

    def named(self, name: str) -> Path | None:
        """The file of that path below the folder, or of that name, with or without its ending.

        Raises:
            UsageError: if several are called so.
        """
        fitting = self._called.get(name, ())
        if len(fitting) > 1:
            both = " and ".join(file.relative_to(self.path).as_posix() for file in fitting[:2])
            raise UsageError(
                f"cannot tell which file of {self.path} {name!r} is",
                f"{both} are called so",
                "name it with its folder",
            )
        return fitting[0] if fitting else None

    @cached_property
    def _called(self) -> Mapping[str, Sequence[Path]]:
        return called(self.path, ((file, file) for file in self.files))


def document(file: Path, id_: str) -> Document:
    """The document of a file under an id of our choice.

    Raises:
        ReadingError: if it cannot be read.
    """
    found, *others = read(file).documents
    if others:
        raise UnsupportedFormat(
            f"cannot read {file} as one document",
            f"it holds {len(others) + 1} of them",
            "name it as the corpus",
        )
    return dataclasses.replace(found, id=id_, tree=Tree.from_json(found.tree.to_json(), id_))
