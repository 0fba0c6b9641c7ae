"""One process holds a library at a time, and says who it is."""

from __future__ import annotations

import asyncio
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

_POLL = 0.1  # seconds


@dataclass(frozen=True, slots=True)
class Holder:
    """The process that holds a library."""

    pid: int
    command: str
    since: str

    def __str__(self) -> str:
        return f"process {self.pid} ({self.command}) has held it since {self.since}"


def process_holding(library: Path) -> int | None:
    """The process that holds a library just now, None if none does that says who it is."""
    if not (library / "lock").exists():
        return None
    lock = FileLock(library / "lock", thread_local=False)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        holder = _signed(library / "holder.json")
        return None if holder is None else holder.pid
    except OSError:
        return None
    lock.release()
    return None


def _signed(file: Path) -> Holder | None:
    try:
        return Holder(**json.loads(file.read_text("utf-8")))
    except (OSError, ValueError, TypeError):
        return None


class LibraryLock:
    """A lock on a library's folder that ends with the process, however that ends."""

    def __init__(self, library: Path) -> None:
        self._library = library
        # The lock file itself is emptied by whoever tries, so the holder's name stands beside it.
        self._holder = library / "holder.json"
        self._lock = FileLock(library / "lock", thread_local=False)

    @property
    def held(self) -> bool:
        """Whether this object holds the lock."""
        return self._lock.is_locked

    async def acquire(
        self, wait: float = 0.0, on_wait: Callable[[str], None] | None = None
    ) -> None:
        """Take the lock, waiting up to `wait` seconds; `on_wait` is told once for whom.

        Raises:
            LibraryLocked: if another holds it still.
            LibraryError: if the folder cannot be written.
        """
        deadline = time.monotonic() + wait
        told = False
        while not self._try():
            if time.monotonic() >= deadline:
                raise LibraryLocked(
                    f"cannot open the library {self._library}",
                    self._who(),
                    "stop it, wait for it with --wait SECONDS, or name another --library",
                )
            if on_wait is not None and not told:
                on_wait(self._who())
                told = True
            await asyncio.sleep(_POLL)
        try:
            self._sign()
        except OSError as error:
            self.release()
            raise self._refused(error) from error

    def release(self) -> None:
        """Let go. Safe to call when it is not held."""
        if self.held:
            with suppress(OSError):
                self._holder.unlink(missing_ok=True)
            self._lock.release()

    def _try(self) -> bool:
        try:
            self._lock.acquire(timeout=0)
        except Timeout:
            return False
        except OSError as error:
            raise self._refused(error) from error
        return True

    def _refused(self, error: OSError) -> LibraryError:
        return LibraryError(
            f"cannot open the library {self._library}",
            error.strerror or str(error),
            "name a folder you can write with --library",
        )

    def _sign(self) -> None:
        since = datetime.now().astimezone().strftime("%Y-%m-%d %H:%M:%S")
        signed = self._holder.with_suffix(".new")
        signed.write_text(json.dumps(asdict(Holder(os.getpid(), _command(), since))), "utf-8")
        signed.replace(self._holder)

    def _who(self) -> str:
        return str(_signed(self._holder) or "another process holds it")


def _command() -> str:
    """The program and its subcommand; never the rest, which may be a private question."""
    program = Path(sys.argv[0]).name or "python"
    first = sys.argv[1] if len(sys.argv) > 1 else ""
    return f"{program} {first}" if first.isalpha() and first.isascii() else program
