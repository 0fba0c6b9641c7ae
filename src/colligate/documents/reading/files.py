"""The bytes of one file, whole and unchanged while they were read."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from colligate.documents.reading.limits import Limits
from colligate.errors import (
    ColligateError,
    FileChanged,
    MissingPath,
    NoText,
    NotPermitted,
    ReadingError,
    TooLarge,
    UnsupportedFormat,
)

_ATTEMPTS = 2


def load(path: Path, limits: Limits) -> bytes:
    """All bytes of a file.

    Raises:
        MissingPath: if there is no such file.
        ReadingError: `UnsupportedFormat` if it is not a regular file, `NotPermitted`, `NoText` if
            it is empty, `TooLarge`, or `FileChanged` if it changed in both of two attempts.
    """
    for _ in range(_ATTEMPTS):
        try:
            before = path.stat()
            _check(path, before, limits)
            data = _bytes(path, limits.file_bytes)
            after = path.stat()
        except OSError as error:
            raise os_error(path, error) from error
        if _version(before) == _version(after) and len(data) == after.st_size:
            if not data:
                raise NoText(f"cannot read {path}", "it is empty (0 bytes)", "leave it out")
            return data
    raise FileChanged(f"cannot read {path}", "it changes while it is read", "try again later")


def os_error(path: Path, error: OSError) -> ColligateError:
    """What the operating system said about a path, as one of ours."""
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return MissingPath(f"no such file or folder: {path}", "", "check the path")
    if isinstance(error, PermissionError):
        return NotPermitted(f"cannot read {path}", "permission denied", "give yourself read access")
    return ReadingError(f"cannot read {path}", error.strerror or str(error), "check the path")


def require_regular(path: Path, state: os.stat_result) -> None:
    """Refuse what is no file of a certain length.

    Raises:
        UnsupportedFormat: if it is a folder, a pipe, a device, a socket.
    """
    if stat.S_ISDIR(state.st_mode):
        raise UnsupportedFormat(f"cannot read {path}", "it is a folder", "name a file")
    if not stat.S_ISREG(state.st_mode):
        # A pipe or a device may never end.
        raise UnsupportedFormat(f"cannot read {path}", "it is not a regular file", "name a file")


def _bytes(path: Path, most: int) -> bytes:
    with path.open("rb") as file:
        # One byte beyond the limit, so a file that grows meanwhile cannot fill the memory.
        return file.read(most + 1)


def _check(path: Path, state: os.stat_result, limits: Limits) -> None:
    require_regular(path, state)
    if state.st_size > limits.file_bytes:
        raise TooLarge(
            f"cannot read {path}",
            f"it has {state.st_size:,} bytes and the limit is {limits.file_bytes:,}",
            "split it",
        )


def _version(state: os.stat_result) -> tuple[int, int, int, int]:
    return state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns
