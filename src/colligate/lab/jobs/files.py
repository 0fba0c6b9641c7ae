"""Files that stay readable if the process is killed at any moment, and the folder's lock."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Generic, TypeVar

from filelock import FileLock, Timeout

from colligate.errors import FaultyRecord, UsageError
from colligate.private import make_private_file, make_private_folder


def write_whole(file: Path, texts: Iterable[str]) -> None:
    """Write texts to a file: all of them or, if the process is killed, none. Blocks.

    Half a surrogate pair, which a model can write in JSON but no encoding can, becomes "?".
    """
    fresh = file.with_name(f"{file.name}.new")
    make_private_file(fresh)
    with fresh.open("wb") as stream:
        for text in texts:
            stream.write(text.encode("utf-8", "replace"))
        stream.flush()
        os.fsync(stream.fileno())
    fresh.replace(file)


def sync_path(path: Path) -> None:
    """Flush a file's content, or the names in a folder, to the disk. Blocks."""
    if os.name == "nt" and path.is_dir():
        return  # Windows opens no folder, and keeps its names in a journal
    handle = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def json_line(value: Mapping[str, Any]) -> str:
    """Return an object as a line of JSON; ValueError for a number that is not finite."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False) + "\n"


Key = TypeVar("Key")
Result = TypeVar("Result")


@dataclass(frozen=True)
class ResultFile(Generic[Key, Result]):
    """The file of a folder with its results, an object of JSON a line.

    The last line of a key counts. `parse` raises ValueError, KeyError, TypeError or AttributeError
    for a wrong object. `what` names a line for the error ("a row"), `hint` says what to do about a
    wrong one.
    """

    name: str
    parse: Callable[[Any], tuple[Key, Result]]
    to_line: Callable[[Key, Result], Mapping[str, Any]]
    what: str
    hint: str

    def read(self, folder: Path) -> dict[Key, Result]:
        """Read the results of a folder; a last line that is not whole is left out. Blocks."""
        return dict(result for result, _ in self.scan(folder))

    def scan(self, folder: Path) -> Iterator[tuple[tuple[Key, Result], bytes]]:
        """Yield the results with their lines; FaultyRecord if one is wrong."""
        file = folder / self.name
        if not file.exists():
            return
        with file.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                try:
                    yield self.parse(json.loads(line)), line
                except (ValueError, KeyError, TypeError, AttributeError) as error:
                    if not line.endswith(b"\n"):
                        return
                    why = f"{type(error).__name__}: {error}"
                    what = f"line {number} of {file} is not {self.what}"
                    raise FaultyRecord(what, why, self.hint) from error

    def open(self, folder: Path, results: dict[Key, Result]) -> BinaryIO:
        """Open the file for `append`, add what it holds to `results`, cut a torn line. Blocks."""
        end, line = 0, b"\n"
        for result, line in self.scan(folder):
            results.update([result])
            end += len(line)
        path = folder / self.name
        is_new = not path.exists()
        make_private_file(path)
        file = path.open("a+b")
        file.truncate(end)
        if not line.endswith(b"\n"):
            file.write(b"\n")  # all but its last byte had reached the disk
        if is_new:
            sync_path(folder)
        return file

    def append(self, file: BinaryIO, key: Key, result: Result) -> None:
        """Write a result; it is on the disk when this returns. Blocks."""
        file.write(json_line(self.to_line(key, result)).encode("utf-8", "replace"))
        file.flush()
        os.fsync(file.fileno())


def make_folder(folder: Path) -> None:
    """Make the folder if it is missing; UsageError if it cannot be made. Blocks."""
    try:
        make_private_folder(folder)
    except OSError as error:
        is_file = isinstance(error, FileExistsError)
        why = "a file is in its place" if is_file else error.strerror or str(error)
        what = f"cannot make the folder {folder}"
        raise UsageError(what, why, "name another --out") from error


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Hold the folder, made if missing, for this process alone; UsageError if another has it."""
    make_folder(folder)
    lock = FileLock(folder / "lock", thread_local=False)
    try:
        lock.acquire(timeout=0)
    except Timeout as error:
        why, hint = "another process works in it", "wait for it, or name another --out"
        raise UsageError(f"{folder} is in use", why, hint) from error
    try:
        yield
    finally:
        lock.release()
