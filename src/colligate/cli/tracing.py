"""`--trace FILE`: the events of a run as JSON lines, each written as it happens."""

from __future__ import annotations

import json
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from colligate.errors import ColligateError, UsageError

if TYPE_CHECKING:
    from colligate.core.events import Event


class TraceFile:
    """A file of events; `at` is seconds since it was opened.

    Raises:
        UsageError: if the file cannot be written.
    """

    def __init__(self, path: Path) -> None:
        try:
            self._file = path.open("w", encoding="utf-8", errors="backslashreplace")
        except OSError as error:
            raise UsageError(*_said(path, error)) from error
        self._path = path
        self._began = time.perf_counter()
        self._lock = threading.Lock()

    def write(self, event: Event) -> None:
        """Add one event. May be called from any thread.

        Raises:
            ColligateError: if it cannot be written, on a full disk for example.
        """
        at = round(time.perf_counter() - self._began, 4)
        line = json.dumps({"at": at, **event.to_json()}, ensure_ascii=False)
        try:
            with self._lock:
                self._file.write(line + "\n")
                self._file.flush()
        except OSError as error:
            raise ColligateError(*_said(self._path, error)) from error

    def __enter__(self) -> TraceFile:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with suppress(OSError):  # what a failed write left behind, which has been said
            self._file.close()


def _said(path: Path, error: OSError) -> tuple[str, str, str]:
    return f"cannot write the trace {path}", error.strerror or str(error), "name another file"
