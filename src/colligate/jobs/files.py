"""Files that a process killed at any moment leaves readable.

What is known at once is put down whole (`write_whole`); what comes piece by piece is a line of JSON
each, on the disk before the next is put down (`Growing`).
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

T = TypeVar("T")


def write_whole(file: Path, texts: Iterable[str]) -> None:
    """Put texts into a file, all of them or, where the process is killed, none. Blocks.

    Half a surrogate pair, which a model can write in JSON and no encoding can, becomes "?".

    Raises:
        OSError: it cannot be written.
    """
    fresh = file.with_name(f"{file.name}.new")
    with fresh.open("wb") as stream:
        for text in texts:
            stream.write(text.encode("utf-8", "replace"))
        stream.flush()
        os.fsync(stream.fileno())
    fresh.replace(file)


def sync(path: Path) -> None:
    """See that a file's content, or the names in a folder, are on the disk. Blocks."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def json_line(value: Mapping[str, Any]) -> str:
    """An object as a line of JSON.

    Raises:
        ValueError: a number in it is none.
    """
    return json.dumps(value, ensure_ascii=False, allow_nan=False) + "\n"


@dataclass(frozen=True)
class Lines(Generic[T]):
    """How the lines of a file are read, and what is said of one that cannot be.

    `parse` raises ValueError, KeyError, TypeError or AttributeError of an object that is none.
    `what` is what such a line is called ("no row"), `hint` what to do about it.
    """

    parse: Callable[[Any], T]
    what: str
    hint: str

    def read(self, file: Path) -> Iterator[T]:
        """What stands in a file. A last line that is not whole is passed over.

        Raises:
            FaultyRecord: a line is none of it.
            OSError: the file cannot be read.
        """
        with file.open("rb") as lines:
            yield from (each.value for each in self.places(file, lines))

    def places(self, file: Path, lines: BinaryIO) -> Iterator[_Place[T]]:
        """The same with where each line ends."""
        at = 0
        for number, line in enumerate(lines, 1):
            ended = line.endswith(b"\n")
            try:
                value = self.parse(json.loads(line))
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                if not ended:
                    return
                why = f"{type(error).__name__}: {error}"
                raise FaultyRecord(
                    f"line {number} of {file} is {self.what}", why, self.hint
                ) from error
            at += len(line)
            yield _Place(value, at, ended)


class _Place(NamedTuple, Generic[T]):
    value: T
    after: int  # bytes
    ended: bool  # by a line's end


class Growing:
    """A file of JSON lines, open to put more down. One process has it open at a time.

    `take` is given what stands in it. What a process that was killed left of its last line is cut
    off.

    Raises:
        FaultyRecord: a line is none of it.
        OSError: the file cannot be opened.
    """

    def __init__(self, file: Path, lines: Lines[T], take: Callable[[T], None]) -> None:
        fresh = not file.exists()
        self._file = file.open("a+b")
        try:
            self._file.seek(0)
            last = None
            for last in lines.places(file, self._file):
                take(last.value)
            self._file.truncate(last.after if last else 0)
            if last and not last.ended:
                self._write(b"\n")  # all but its last byte had reached the disk
        except BaseException:
            self._file.close()
            raise
        if fresh:
            sync(file.parent)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._file.close()

    def put(self, value: Mapping[str, Any]) -> None:
        """Put an object down; it is on the disk when this returns. Blocks.

        Raises:
            ValueError: a number in it is none; nothing is written.
            OSError: it cannot be written.
        """
        self._write(json_line(value).encode("utf-8", "replace"))

    def _write(self, line: bytes) -> None:
        self._file.write(line)
        self._file.flush()
        os.fsync(self._file.fileno())


# The folder that `--out` names: made where it is not there, and one process's at a time.


def make(folder: Path) -> None:
    """Make the folder, unless it is there. Blocks.

    Raises:
        UsageError: it cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        in_its_place = isinstance(error, FileExistsError)
        why = "a file is in its place" if in_its_place else error.strerror or str(error)
        what = f"cannot make the folder {folder}"
        raise UsageError(what, why, "name another --out") from error


@contextmanager
def held(folder: Path, doing: str = "works") -> Iterator[None]:
    """The folder, which must be there, for this process alone; `doing` is what another does there.

    Raises:
        UsageError: another has it.
    """
    lock = FileLock(folder / "lock", thread_local=False)
    try:
        lock.acquire(timeout=0)
    except Timeout as error:
        why, hint = f"another process {doing} there", "wait for it, or name another --out"
        raise UsageError(f"{folder} is in use", why, hint) from error
    try:
        yield
    finally:
        lock.release()
