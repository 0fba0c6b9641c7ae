"""Parser processes that one test leaves to the next: starting one takes a quarter of a second."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from colligate.library import parsing

_Parser = parsing._Parser
_MOST = 4
# Settings that no reader looks at, and that differ from test to test.
_UNSEEN = ("AWS_", "COLLIGATE_", "OPENAI_", "PYTEST_", "XDG_")


class _Left:
    """Idle processes, each with the surroundings that it was started in."""

    def __init__(self) -> None:
        self._all: list[tuple[Any, subprocess.Popen[bytes]]] = []
        self._lock = threading.Lock()

    def put(self, surroundings: Any, process: subprocess.Popen[bytes]) -> None:
        with self._lock:
            self._all.append((surroundings, process))
        self.end_all_but(_MOST)

    def take(self, surroundings: Any) -> subprocess.Popen[bytes] | None:
        with self._lock:
            for each in self._all:
                if each[0] == surroundings and each[1].poll() is None:
                    self._all.remove(each)
                    return each[1]
        return None

    def ids(self) -> set[str]:
        with self._lock:
            return {str(process.pid) for _, process in self._all}

    def end_all_but(self, newest: int = 0) -> None:
        with self._lock:
            ended = self._all[: len(self._all) - newest]
            del self._all[: len(ended)]
        for _, process in ended:
            process.kill()
            process.communicate()


left = _Left()


class _LeavingParser(_Parser):
    """Leaves its process to another parser in the same surroundings, if it is closed while idle."""

    _surroundings: Any = None
    _busy = False

    def read(self, *arguments: Any) -> Any:
        self._busy = True  # before it has a process: one that reads is ended
        try:
            return super().read(*arguments)
        finally:
            self._busy = False

    def close(self, *, for_good: bool = False) -> None:
        with self._lock:
            process, leaves = self._process, self._surroundings and for_good and not self._busy
            if process and leaves:
                self._closed, self._process = True, None
                left.put(self._surroundings, process)
        super().close(for_good=for_good)

    def _start(self, path: Path) -> subprocess.Popen[bytes]:
        with self._lock:
            new = not self._closed and self._process is None
            if new:
                seen = {k: v for k, v in os.environ.items() if not k.startswith(_UNSEEN)}
                self._surroundings = (seen, list(sys.path), Path.cwd())
                self._process = left.take(self._surroundings)
        return super()._start(path)


@contextmanager
def left_to_the_next() -> Iterator[None]:
    """Parsers of this process leave theirs to the next ones; at the end all are ended."""
    with mock.patch.object(parsing, "_Parser", _LeavingParser):
        yield
    left.end_all_but()
