"""One process at a time writes Lance tables in a folder, and leaves its name for the others."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path

from filelock import FileLock, Timeout

from colligate.errors import LibraryError, LibraryLocked
from colligate.library.schema import disk_full

_LOCK = "lock"
# Whoever tries to take the lock empties its file, so the holder's name is in another one.
_HOLDER = "holder.json"
_NEW = "holder.new"
OWN_FILES = (_LOCK, _HOLDER, _NEW)

_POLL = 0.1  # seconds


class LibraryLock:
    """A lock on a library's folder; it ends with the process, even if that is killed."""

    def __init__(self, library: Path) -> None:
        self._library = library
        self._lock = FileLock(library / _LOCK, thread_local=False)

    @property
    def held(self) -> bool:
        """Whether this object holds the lock."""
        return self._lock.is_locked

    async def acquire(
        self, wait: float = 0.0, on_wait: Callable[[str], None] | None = None
    ) -> None:
        """Take the lock, waiting up to `wait` seconds.

        `on_wait` is called once, with a description of the process that has to be waited for.

        Raises:
            LibraryLocked: another process still holds the lock.
            LibraryError: the folder cannot be written.
        """
        deadline = time.monotonic() + wait
        while not self._try():
            holder = str(_read_holder(self._library) or "another process is using it")
            if time.monotonic() >= deadline:
                raise LibraryLocked(
                    f"cannot open the library {self._library}",
                    holder,
                    "stop it, wait for it with --wait SECONDS, or name another --library",
                )
            if on_wait is not None:
                on_wait(holder)
                on_wait = None
            await asyncio.sleep(_POLL)
        try:
            self._sign()
        except OSError as error:
            self.release()
            raise self._refuse(error) from error

    def release(self) -> None:
        """Release the lock. Safe to call when it is not held."""
        if self.held:
            with suppress(OSError):
                (self._library / _HOLDER).unlink(missing_ok=True)
            self._lock.release()

    def _try(self) -> bool:
        try:
            self._lock.acquire(timeout=0)
        except Timeout:
            return False
        except OSError as error:
            raise self._refuse(error) from error
        return True

    def _sign(self) -> None:
        since = datetime.now().astimezone().strftime("%Y-%m-%d %H:%M:%S")
        new = self._library / _NEW
        new.write_text(json.dumps(asdict(Holder(os.getpid(), _command(), since))), "utf-8")
        new.replace(self._library / _HOLDER)

    def _refuse(self, error: OSError) -> LibraryError:
        if error.errno == errno.ENOSPC:
            return disk_full(f"cannot open the library {self._library}")
        return LibraryError(
            f"cannot open the library {self._library}",
            error.strerror or str(error),
            "name a folder you can write with --library",
        )


@dataclass(frozen=True, slots=True)
class Holder:
    """The process that holds a library."""

    pid: int
    command: str
    since: str

    def __str__(self) -> str:
        return f"{self.command} (process {self.pid}) has been using it since {self.since}"


def find_holder(library: Path) -> Holder | None:
    """Return the process that holds a library now; None if it is free or unknown."""
    if not (library / _LOCK).exists():
        return None
    lock = FileLock(library / _LOCK, thread_local=False)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        return _read_holder(library)
    except OSError:
        return None
    lock.release()
    return None


def _read_holder(library: Path) -> Holder | None:
    try:
        return Holder(**json.loads((library / _HOLDER).read_text("utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def _command() -> str:
    """Return the program and its subcommand; never the rest, which may be a private question."""
    program = Path(sys.argv[0]).name or "python"
    first = sys.argv[1] if len(sys.argv) > 1 else ""
    return f"{program} {first}" if first.isalpha() and first.isascii() else program
