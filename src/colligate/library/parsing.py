"""Parsing in child processes, so that a parser that crashes costs one file only.

This file is also the script of those processes. They speak pickle over their standard streams:
`multiprocessing` would run the caller's main script again in every child, which a script without a
main guard does not survive, and it does not report on which file a process died.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import pkgutil
import queue
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from colligate.documents.reading import Limits
from colligate.errors import ColligateError, ReadingError, TooLarge

_DEFAULT_LIMITS = Limits()
DEFAULT_READER = "colligate.documents.reading:read_file"
Reader = Callable[[Path], object]
_Named = tuple[str, dict[str, Limits]]  # a reader that the child imports, and its options

_WATCH = 0.5  # seconds between a child's checks that its parent is alive
_LOOK = 0.05  # seconds between the parent's checks of a child's time and memory
_SWOLLEN = 450 << 20  # bytes from which a child is ended after its file: it may not give them back
# Bytes of address space that a child may take beyond those it starts with. Its resident memory is
# watched too, but where that cannot be read, or grows too fast, this ends it.
_ADDRESSES = 4 << 30


@dataclass(frozen=True, slots=True)
class ParsedFile:
    """The result of one file: its SHA-256 ("" if unknown), and its documents or the error.

    Both are None for a file with the SHA-256 that was known before, which is not read again.
    `reading` is whatever the function returned that read the file.
    """

    sha256: str
    reading: Any = None
    error: ColligateError | None = None


class ParserPool:
    """Parser processes, each started when it is first needed.

    `reader` names the function that reads a path, as `module:function`. `limits` bound the time and
    memory of a file; with other than the default ones the reader gets them too.
    """

    def __init__(
        self, workers: int, reader: str = DEFAULT_READER, limits: Limits = _DEFAULT_LIMITS
    ) -> None:
        self._reader = (reader, {} if limits == _DEFAULT_LIMITS else {"limits": limits})
        self._all = [_Parser(limits) for _ in range(workers)]
        self._idle: queue.SimpleQueue[_Parser] = queue.SimpleQueue()
        for parser in self._all:
            self._idle.put(parser)

    def read(
        self, path: Path, size: int = 0, known: str = "", reader: Reader | None = None
    ) -> ParsedFile:
        """Read one file; block while all processes are busy. Safe to call from any thread.

        `size` decides how much time and memory it may take. A file whose SHA-256 is `known` is
        not read. `reader`, which must pickle, reads it in place of the pool's own. A reader that
        crashed, or raised anything but a `ColligateError`, is a `ReadingError`.
        """
        parser = self._idle.get()
        try:
            return parser.read(path, size, known, reader or self._reader)
        except ReadingError as error:
            return ParsedFile("", error=error)
        finally:
            self._idle.put(parser)

    def close(self) -> None:
        """End all processes; the files of those that are busy fail."""
        for parser in self._all:
            parser.close(for_good=True)


class _Parser:
    """One process, started again after it died."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._process: subprocess.Popen[bytes] | None = None
        self._closed = False
        self._lock = threading.Lock()  # `close` is called from another thread than `read`

    def read(self, path: Path, size: int, known: str, reader: Reader | _Named) -> ParsedFile:
        process = self._start(path)
        assert process.stdin is not None
        assert process.stdout is not None
        guard = _Guard(process, size, self._limits)
        try:
            pickle.dump((path, known, reader), process.stdin)
            process.stdin.flush()
            outcome = ParsedFile(*pickle.load(process.stdout))
        except (EOFError, OSError, ValueError, pickle.UnpicklingError) as error:
            guard.stop()
            self.close()
            status = process.wait()
            death = f"signal {-status}" if status < 0 else f"status {status}"
            kind = TooLarge if guard.why else ReadingError
            why = guard.why or f"its parser crashed ({death})"
            hint = "leave it out, split it, or convert it to another format"
            raise kind(f"cannot read {path}", why, hint) from error
        finally:
            guard.stop()
        if guard.why or _resident(process.pid) > _SWOLLEN:
            self.close()
        return outcome

    def close(self, *, for_good: bool = False) -> None:
        with self._lock:
            self._closed = self._closed or for_good
            process, self._process = self._process, None
        if process is None:
            return
        _kill(process)
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                with suppress(OSError):  # unwritten bytes have no reader any more
                    stream.close()

    def _start(self, path: Path) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._closed:
                raise ReadingError(f"{path} was not read", "the parsers were closed", "try again")
            if self._process is None:
                self._process = subprocess.Popen(
                    # -P keeps this file's folder off the path.
                    [sys.executable, "-P", __file__],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,  # so that programs it started end with it
                    # The child must find what the parent finds, wherever its path came from.
                    env=os.environ
                    | {"PYTHONPATH": os.pathsep.join(path or os.curdir for path in sys.path)},
                )
            return self._process


class _Guard:
    """Kills a process that takes more time or memory than a file of this size may: see `why`."""

    def __init__(self, process: subprocess.Popen[bytes], size: int, limits: Limits) -> None:
        self.why = ""
        self._process = process
        self._seconds, self._memory = limits.seconds(size), limits.memory(size)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        until = time.monotonic() + self._seconds
        while not self._over.wait(_LOOK):
            if time.monotonic() > until:
                self.why = f"reading it took longer than {self._seconds:.0f} s"
            elif _resident(self._process.pid) > self._memory:
                self.why = f"reading it took more than {self._memory >> 20:,} MB of memory"
            if self.why:
                _kill(self._process)
                return


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End a process and the programs that it started."""
    if sys.platform == "win32":
        process.kill()
        return
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _resident(process: int) -> int:
    """Return how many bytes of memory a process holds; 0 where the system does not tell so."""
    return _statm(process, 1)


def _statm(process: int | str, column: int) -> int:
    try:
        pages = Path(f"/proc/{process}/statm").read_text().split()[column]
    except (OSError, IndexError):
        return 0
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


# The child process


def _main() -> None:
    _limit_addresses()
    # Ctrl-C in a terminal reaches the whole group; the parent ends this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_exit_with, args=(os.getppid(),), daemon=True).start()
    # What a parser prints must not be taken for an answer.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    _serve(sys.stdin.buffer, answers)


def _exit_with(parent: int) -> None:
    """End this process soon after its parent, which may be killed during a long file."""
    while os.getppid() == parent:
        time.sleep(_WATCH)
    if sys.platform != "win32" and os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


def _serve(requests: BinaryIO, answers: BinaryIO) -> None:
    """Read the requested files, one at a time, until the parent closes its end."""
    while True:
        try:
            path, known, read = pickle.load(requests)
        except EOFError:
            return
        if isinstance(read, tuple):
            read = partial(_read_by, *read)
        pickle.dump(_answer(read, path, known), answers, protocol=pickle.HIGHEST_PROTOCOL)
        answers.flush()


def _read_by(reader: str, options: dict[str, Limits], path: Path) -> object:
    """Read a file by the reader of this name; if it cannot be imported, the file fails."""
    return pkgutil.resolve_name(reader)(path, **options)


def _limit_addresses() -> None:
    """Let an allocation beyond all reason fail in this process, before the machine suffers."""
    with suppress(ImportError, OSError, ValueError):  # not every system has, or allows, the limit
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_AS)
        most = _statm("self", 0) + _ADDRESSES
        if soft == resource.RLIM_INFINITY or most < soft:
            resource.setrlimit(resource.RLIMIT_AS, (most, hard))


def _answer(read: Reader, path: Path, known: str) -> tuple[str, object, ColligateError | None]:
    """Return the fields of a `ParsedFile`: this script's own class is unknown to the parent."""
    sha256 = ""
    try:
        sha256 = _hash(path)
        if sha256 and sha256 == known:
            return sha256, None, None
        return sha256, read(path), None
    except ColligateError as error:
        return sha256, None, error
    except MemoryError:
        why = "there is not enough memory"
        return sha256, None, TooLarge(f"cannot read {path}", why, "split it")
    except Exception as error:  # a third-party parser may raise anything
        why = f"its parser failed ({type(error).__name__}: {error})"
        hint = "leave it out, or convert it"
        return sha256, None, ReadingError(f"cannot read {path}", why, hint)


def _hash(path: Path) -> str:
    """Return a file's SHA-256; "" for one that readers refuse by its kind or size."""
    with suppress(OSError):  # the reader says what is wrong
        state = path.stat()
        if not state.st_size:  # files of the kernel are empty and may never end
            return hashlib.sha256().hexdigest()
        if stat.S_ISREG(state.st_mode) and state.st_size <= Limits().file_bytes:
            with path.open("rb") as file:
                return hashlib.file_digest(file, "sha256").hexdigest()
    return ""


if __name__ == "__main__":
    _main()
