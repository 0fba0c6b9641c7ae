"""The folder that `--out` names: made where it is not there, and one process's at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from colligate.errors import UsageError


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
        why, mend = f"another process {doing} there", "wait for it, or name another --out"
        raise UsageError(f"{folder} is in use", why, mend) from error
    try:
        yield
    finally:
        lock.release()
