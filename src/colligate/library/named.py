"""Documents by the files, folders and web addresses that they were read from."""

from __future__ import annotations

import json
import shutil
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from colligate.documents.reading.source import compose
from colligate.errors import UnknownDocument
from colligate.library.catalogue import Catalogue, resolve_path
from colligate.library.web import folder_of, is_address, parse_address


def list_document_ids(catalogue: Catalogue, files: Sequence[Path]) -> list[str]:
    """Return the ids of the documents of these files, in order and each once."""
    ids = (id_ for path in files for id_ in catalogue.documents_of(resolve_path(path)))
    return list(dict.fromkeys(ids))


@dataclass(frozen=True, slots=True)
class Missing:
    """Recorded files of a folder that no longer exist; `known` counts all that are recorded."""

    folder: Path
    files: tuple[Path, ...]
    known: int


def find_missing(catalogue: Catalogue, paths: Sequence[Path | str]) -> list[Missing]:
    """Return the recorded files that are missing in these folders, or were named themselves. A
    folder that does not exist may be on a disk that is not mounted: nothing counts as missing."""
    named: dict[Path, set[Path]] = {}
    for path in map(resolve_path, paths):
        if path.is_dir():
            named.setdefault(path, set()).update(_files_under(catalogue, path))
        elif path.parent.is_dir() and catalogue.file(path):
            named.setdefault(path.parent, set()).add(path)
    found = []
    for folder, files in named.items():
        if missing := tuple(sorted(filter(_is_missing, files))):
            found.append(Missing(folder, missing, len(files)))
    return found


def list_only_copies(
    catalogue: Catalogue, files: Iterable[Path], gone: Collection[Path]
) -> list[Path]:
    """Return those of these files that have a document that only files of `gone` have."""

    def is_only_copy(path: Path) -> bool:
        numbers = catalogue.numbers(catalogue.documents_of(path)).values()
        copies = ([file.path for file in catalogue.files_of(number)] for number in numbers)
        return any(all(copy in gone for copy in each) for each in copies)

    return [path for path in files if is_only_copy(path)]


def forget_missing(catalogue: Catalogue, files: Iterable[Path]) -> list[Path]:
    """Forget those of these files that do not exist, and return them."""
    missing = [path for path in dict.fromkeys(files) if _is_missing(path)]
    for path in missing:
        catalogue.forget_file(path)
    return missing


_FOLDERS = "folders"  # that were named: files may appear in them later


def record_folders(catalogue: Catalogue, paths: Iterable[Path | str]) -> None:
    """Record those of the paths that are folders."""
    known = _list_folders(catalogue)
    found = [path for path in map(resolve_path, paths) if path.is_dir()]
    if new := [path for path in found if path not in known]:
        _write_folders(catalogue, [*known, *new])


def list_named(catalogue: Catalogue, library: Path) -> list[Path]:
    """Return the folders that were named, and the recorded files that are in none. The library's
    own files are left out, and folders that are gone with all their documents."""
    files = catalogue.files()
    above = {parent for path in files for parent in path.parents}
    folders = [path for path in _list_folders(catalogue) if path in above or path.is_dir()]
    own = {library, *folders}
    return [*folders, *(path for path in files if own.isdisjoint(path.parents))]


def _list_folders(catalogue: Catalogue) -> list[Path]:
    return [Path(each) for each in json.loads(catalogue.meta(_FOLDERS) or "[]")]


def _write_folders(catalogue: Catalogue, folders: Iterable[Path]) -> None:
    catalogue.set_meta(**{_FOLDERS: json.dumps(list(dict.fromkeys(map(str, folders))))})


def remove_named(catalogue: Catalogue, ids_or_paths: Sequence[str | Path], library: Path) -> None:
    """Remove documents by their ids, files, folders and web addresses; none if one is unknown."""
    known = catalogue.numbers()
    numbers: list[int] = []
    files: list[Path] = []
    folders: list[Path] = []
    addressed: list[Path] = []
    for name in ids_or_paths:
        if str(name) in known:
            numbers.append(known[str(name)])
            continue
        if is_address(name):
            path = resolve_path(folder_of(library, parse_address(name)))
            addressed.append(path)
        else:
            path = resolve_path(name)
            folders.append(path)
        found = [path] if catalogue.file(path) else _files_under(catalogue, path)
        if not found:
            why = "the library has no document and no file of this name"
            raise UnknownDocument(f"cannot remove {name}", why, "see `colligate library list`")
        files += found
    catalogue.remove(numbers)
    for path in files:
        catalogue.forget_file(path)
    named = _list_folders(catalogue)
    if gone := {each for each in named if not {each, *each.parents}.isdisjoint(folders)}:
        _write_folders(catalogue, [each for each in named if each not in gone])
    for folder in addressed:
        shutil.rmtree(folder, ignore_errors=True)


def _is_missing(path: Path) -> bool:
    try:
        path.stat()
    except OSError as error:  # a file that is only out of reach may still exist
        return isinstance(error, FileNotFoundError | NotADirectoryError)
    return False


def _files_under(catalogue: Catalogue, folder: Path) -> list[Path]:
    """Return the files in a folder, or the one of this name, in whatever form Unicode has it."""
    wanted, files = compose(folder), catalogue.files()
    return [path for path in files if wanted in ((own := compose(path)), *own.parents)]
