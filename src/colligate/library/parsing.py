"""Parsing in other processes, so that a parser that crashes costs one file and no more.

Plain child processes speaking pickle over their standard streams: `multiprocessing` would
run the caller's main script again in every child, which a three-line script without a main
guard does not survive, and does not say which file a process died on.
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

READER = "colligate.documents.reading:read_file"

# Seconds a parser may think about one file before it is taken for lost.
_PATIENCE = 900.0

# Seconds between two looks of a parser at whether its parent lives.
_WATCH = 0.5


class Parsers:
    """Some parser processes; each is started when it is first needed.

    `reader` names the function that reads a path, as `module:function`.
    """

    def __init__(self, workers: int, reader: str = READER) -> None:
        self._reader = reader
        self._all: list[_Parser] = []
        self._idle: queue.SimpleQueue[_Parser] = queue.SimpleQueue()
        for _ in range(workers):
            parser = _Parser(reader)
            self._all.append(parser)
            self._idle.put(parser)

    def read(self, path: Path) -> Reading:
        """Read one file; blocks while all processes are busy. May be called from any thread.

        Raises:
            ColligateError: what the reader raised; `ReadingError` itself if it crashed, never
                ended, or raised something else.
        """
        parser = self._idle.get()
        try:
            return parser.read(path)
        finally:
            self._idle.put(parser)

    def close(self) -> None:
        """End all processes, also those that are busy: their files fail."""
        for parser in self._all:
            parser.close(for_good=True)


class _Parser:
    """One process, started again after it died."""

    def __init__(self, reader: str) -> None:
        self._reader = reader
        self._process: subprocess.Popen[bytes] | None = None
        self._closed = False
        self._lock = threading.Lock()  # closing comes from another thread than reading

    def read(self, path: Path) -> Reading:
        process = self._started(path)
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
            raise ReadingError(
                f"cannot read {path}",
                f"its parser crashed ({_death(process.wait())})",
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
                with suppress(OSError):  # what was left to write has nobody to read it
                    stream.close()

    def _started(self, path: Path) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._closed:
                raise ReadingError(f"{path} was not read", "the parsers were closed", "try again")
            self._process = self._process or self._start()
            return self._process

    def _start(self) -> subprocess.Popen[bytes]:
        # The child must find what the parent finds, wherever the parent's path came from.
        paths = os.pathsep.join(path or os.curdir for path in sys.path)
        return subprocess.Popen(
            # As a file, since as a module it would load the whole package first; -P keeps its
            # folder off the path.
            [sys.executable, "-P", __file__, self._reader],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=os.environ | {"PYTHONPATH": paths},
        )


def _death(status: int) -> str:
    return f"signal {-status}" if status < 0 else f"status {status}"


def _serve(reader: str, requests: BinaryIO, answers: BinaryIO) -> None:
    """Read the files asked for, one at a time, until the other side goes away."""
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
        return TooLarge(f"cannot read {path}", "the memory does not suffice", "split it")
    except Exception as error:  # a parser of somebody else's may raise anything
        why = f"its parser failed ({type(error).__name__}: {error})"
        return ReadingError(f"cannot read {path}", why, "leave it out, or convert it")


def _end_with(parent: int) -> None:
    """End this process soon after its parent, which may have been killed during a long file."""
    while os.getppid() == parent:
        time.sleep(_WATCH)
    os._exit(1)


def _main() -> None:
    # Ctrl-C in a terminal reaches the whole group; whoever started this process ends it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    # What a parser prints must not be taken for an answer.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    _serve(sys.argv[1], sys.stdin.buffer, answers)


if __name__ == "__main__":
    _main()
