"""Files that stay readable if the process is killed at any moment, and the folder's lock.

A file whose content is known at once is written whole (`write_whole`). Results that come one by one
are lines of JSON, each flushed to the disk before the next is written (`JsonlWriter`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Generic, NamedTuple, Self, TypeVar

from filelock import FileLock, Timeout

from colligate.errors import FaultyRecord, UsageError
from colligate.private import make_private_file, make_private_folder

T = TypeVar("T")


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


@dataclass(frozen=True)
class JsonlReader(Generic[T]):
    """Reads a file of JSON lines, also one whose last line was cut off.

    `parse` raises ValueError, KeyError, TypeError or AttributeError for a wrong object. `what`
    names a line for the error ("a row"), `hint` says what to do about a wrong one.
    """

    parse: Callable[[Any], T]
    what: str
    hint: str

    def read(self, file: Path) -> Iterator[T]:
        """Yield the lines of a file; a last line that is not whole is left out.

        FaultyRecord if a line is wrong.
        """
        with file.open("rb") as lines:
            yield from (each.value for each in self.scan(file, lines))

    def scan(self, file: Path, lines: BinaryIO) -> Iterator[_Line[T]]:
        """Yield the lines with the place where each ends."""
        at = 0
        for number, line in enumerate(lines, 1):
            ended = line.endswith(b"\n")
            try:
                value = self.parse(json.loads(line))
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                if not ended:
                    return
                why = f"{type(error).__name__}: {error}"
                what = f"line {number} of {file} is not {self.what}"
                raise FaultyRecord(what, why, self.hint) from error
            at += len(line)
            yield _Line(value, at, ended)


class _Line(NamedTuple, Generic[T]):
    value: T
    end: int  # bytes from the start of the file
    ended: bool  # with a line break


class JsonlWriter:
    """A file of JSON lines that is open for appending, in one process at a time.

    `take` receives the lines that are already there. The part of a last line that a killed process
    left is cut off.
    """

    def __init__(self, file: Path, reader: JsonlReader[T], take: Callable[[T], None]) -> None:
        is_new = not file.exists()
        make_private_file(file)
        self._file = file.open("a+b")
        try:
            self._file.seek(0)
            last = None
            for last in reader.scan(file, self._file):
                take(last.value)
            self._file.truncate(last.end if last else 0)
            if last and not last.ended:
                self._write(b"\n")  # all but its last byte had reached the disk
        except BaseException:
            self._file.close()
            raise
        if is_new:
            sync_path(file.parent)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._file.close()

    def append(self, value: Mapping[str, Any]) -> None:
        """Write an object; it is on the disk when this returns. Blocks."""
        self._write(json_line(value).encode("utf-8", "replace"))

    def _write(self, line: bytes) -> None:
        self._file.write(line)
        self._file.flush()
        os.fsync(self._file.fileno())


# The folder that `--out` names.


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
    """Hold the folder, made if it is missing, for this process alone.

    Raises:
        UsageError: another process holds it, or it cannot be made.
    """
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
