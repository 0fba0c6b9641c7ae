"""`--trace FILE`: the events of a run as JSON lines, each written as it happens."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from colligate.errors import UsageError

if TYPE_CHECKING:
    from colligate.strategies.trace import Event


class TraceFile:
    """A file of events; `at` is seconds since it was opened.

    Raises:
        UsageError: if the file cannot be written.
    """

    def __init__(self, path: Path) -> None:
        try:
            self._file = path.open("w", encoding="utf-8", errors="backslashreplace")
        except OSError as error:
            why = error.strerror or str(error)
            raise UsageError(f"cannot write the trace {path}", why, "name another file") from error
        self._began = time.perf_counter()
        self._lock = threading.Lock()

    def write(self, event: Event) -> None:
        """Add one event. May be called from any thread."""
        at = round(time.perf_counter() - self._began, 4)
        line = json.dumps({"at": at, **event.to_json()}, ensure_ascii=False)
        with self._lock:
            self._file.write(line + "\n")
            self._file.flush()

    def __enter__(self) -> TraceFile:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._file.close()
