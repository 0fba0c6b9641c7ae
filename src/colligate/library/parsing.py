"""Parsing in child processes, so that a parser that crashes costs one file only.

This file is also the script of those processes. They speak pickle over their standard streams:
`multiprocessing` would run the caller's main script again in every child, which a script without a
main guard does not survive, and it does not report on which file a process died.
"""

from __future__ import annotations

import os
import pickle
import pkgutil
import queue
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from colligate.documents.reading import Reading
from colligate.errors import ColligateError, ReadingError, TooLarge

DEFAULT_READER = "colligate.documents.reading:read_file"

# Seconds for one file, after which its parser counts as stuck.
_PATIENCE = 900.0

# Seconds between a child's checks that its parent is alive.
_WATCH = 0.5


class ParserPool:
    """Parser processes, each started when it is first needed.

    `reader` names the function that reads a path, as `module:function`.
    """

    def __init__(self, workers: int, reader: str = DEFAULT_READER) -> None:
        self._all = [_Parser(reader) for _ in range(workers)]
        self._idle: queue.SimpleQueue[_Parser] = queue.SimpleQueue()
        for parser in self._all:
            self._idle.put(parser)

    def read(self, path: Path) -> Reading:
        """Read one file; block while all processes are busy. Safe to call from any thread.

        Raises the reader's `ColligateError`, or a `ReadingError` if the reader crashed, got stuck
        or raised anything else.
        """
        parser = self._idle.get()
        try:
            return parser.read(path)
        finally:
            self._idle.put(parser)

    def close(self) -> None:
        """End all processes; the files of those that are busy fail."""
        for parser in self._all:
            parser.close(for_good=True)


class _Parser:
    """One process, started again after it died."""

    def __init__(self, reader: str) -> None:
        self._reader = reader
        self._process: subprocess.Popen[bytes] | None = None
        self._closed = False
        self._lock = threading.Lock()  # `close` is called from another thread than `read`

    def read(self, path: Path) -> Reading:
        process = self._start(path)
        assert process.stdin is not None
        assert process.stdout is not None
        alarm = threading.Timer(_PATIENCE, process.kill)
        alarm.daemon = True
        alarm.start()
        try:
            pickle.dump(path, process.stdin)
            process.stdin.flush()
            answer = pickle.load(process.stdout)
        except (EOFError, OSError, ValueError, pickle.UnpicklingError) as error:
            self.close()
            status = process.wait()
            death = f"signal {-status}" if status < 0 else f"status {status}"
            raise ReadingError(
                f"cannot read {path}",
                f"its parser crashed ({death})",
                "leave it out, or convert it to another format",
            ) from error
        finally:
            alarm.cancel()
        if isinstance(answer, ColligateError):
            raise answer
        assert isinstance(answer, Reading)
        return answer

    def close(self, *, for_good: bool = False) -> None:
        with self._lock:
            self._closed = self._closed or for_good
            process, self._process = self._process, None
        if process is None:
            return
        process.kill()
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
                    [sys.executable, "-P", __file__, self._reader],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    # The child must find what the parent finds, wherever its path came from.
                    env=os.environ
                    | {"PYTHONPATH": os.pathsep.join(path or os.curdir for path in sys.path)},
                )
            return self._process


# The child process


def _main() -> None:
    # Ctrl-C in a terminal reaches the whole group; the parent ends this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_exit_with, args=(os.getppid(),), daemon=True).start()
    # What a parser prints must not be taken for an answer.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    _serve(sys.argv[1], sys.stdin.buffer, answers)


def _exit_with(parent: int) -> None:
    """End this process soon after its parent, which may be killed during a long file."""
    while os.getppid() == parent:
        time.sleep(_WATCH)
    os._exit(1)


def _serve(reader: str, requests: BinaryIO, answers: BinaryIO) -> None:
    """Read the requested files, one at a time, until the parent closes its end."""
    read = pkgutil.resolve_name(reader)
    while True:
        try:
            path = pickle.load(requests)
        except EOFError:
            return
        pickle.dump(_answer(read, path), answers, protocol=pickle.HIGHEST_PROTOCOL)
        answers.flush()


def _answer(read: object, path: Path) -> object:
    try:
        return read(path)  # type: ignore[operator]
    except ColligateError as error:
        return error
    except MemoryError:
        return TooLarge(f"cannot read {path}", "there is not enough memory", "split it")
    except Exception as error:  # a third-party parser may raise anything
        why = f"its parser failed ({type(error).__name__}: {error})"
        return ReadingError(f"cannot read {path}", why, "leave it out, or convert it")


if __name__ == "__main__":
    _main()
