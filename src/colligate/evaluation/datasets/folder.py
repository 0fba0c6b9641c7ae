"""A folder of whole documents as a corpus, in any format that colligate reads."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from functools import cached_property
from pathlib import Path

from colligate.documents.document import Document
from colligate.documents.reading import find_files, read
from colligate.documents.reading.source import stem_of
from colligate.documents.tree import Tree
from colligate.errors import UnsupportedFormat, UsageError


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
        fitting = self._by_path.get(name) or self._by_name.get(name, [])
        if len(fitting) > 1:
            both = " and ".join(file.relative_to(self.path).as_posix() for file in fitting[:2])
            raise UsageError(
                f"cannot tell which file of {self.path} {name!r} is",
                f"{both} are called so",
                "name it with its folder",
            )
        return fitting[0] if fitting else None

    @cached_property
    def _by_path(self) -> dict[str, list[Path]]:
        return {file.relative_to(self.path).as_posix(): [file] for file in self.files}

    @cached_property
    def _by_name(self) -> dict[str, list[Path]]:
        found: defaultdict[str, list[Path]] = defaultdict(list)
        for file in self.files:
            below = file.relative_to(self.path)
            for name in {file.name, stem_of(file), below.with_name(stem_of(file)).as_posix()}:
                found[name].append(file)
        return found


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
