"""One process at a time writes Lance tables in a folder."""

from __future__ import annotations

import asyncio
import errno
import time
from collections.abc import Callable
from pathlib import Path

from filelock import FileLock, Timeout

from colligate.errors import LibraryError, LibraryLocked
from colligate.library.schema import disk_full

LOCK_FILE = "lock"

_POLL = 0.1  # seconds
_OTHER = "another process is writing it"


class LibraryLock:
    """A lock on a library's folder; it ends with the process, even if that is killed."""

    def __init__(self, library: Path) -> None:
        self._library = library
        self._lock = FileLock(library / LOCK_FILE, thread_local=False)

    @property
    def held(self) -> bool:
        """Whether this object holds the lock."""
        return self._lock.is_locked

    async def acquire(
        self, wait: float = 0.0, on_wait: Callable[[str], None] | None = None
    ) -> None:
        """Take the lock, waiting up to `wait` seconds; `on_wait` is told once for whom.

        Raises:
            LibraryLocked: another process still holds the lock.
            LibraryError: the folder cannot be written.
        """
        deadline = time.monotonic() + wait
        while not self._try():
            if time.monotonic() >= deadline:
                raise LibraryLocked(
                    f"cannot open the library {self._library}",
                    _OTHER,
                    "stop it, wait for it with --wait SECONDS, or name another --library",
                )
            if on_wait is not None:
                on_wait(_OTHER)
                on_wait = None
            await asyncio.sleep(_POLL)

    def release(self) -> None:
        """Release the lock. Safe to call when it is not held."""
        if self.held:
            self._lock.release()

    def _try(self) -> bool:
        what = f"cannot open the library {self._library}"
        try:
            self._lock.acquire(timeout=0)
        except Timeout:
            return False
        except OSError as error:
            if error.errno == errno.ENOSPC:
                raise disk_full(what) from error
            hint = "name a folder you can write with --library"
            raise LibraryError(what, error.strerror or str(error), hint) from error
        return True


def is_locked(library: Path) -> bool:
    """Return whether a process holds the lock of a library now."""
    if not (library / LOCK_FILE).exists():
        return False
    lock = FileLock(library / LOCK_FILE, thread_local=False)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        return True
    except OSError:
        return False
    lock.release()
    return False
