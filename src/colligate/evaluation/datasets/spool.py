"""Texts kept on disk by name while a process needs them."""

from __future__ import annotations

import tempfile
import threading
import weakref


class Spool:
    """Bytes by name in a nameless temporary file, which goes with the object. Thread-safe."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the object)
        weakref.finalize(self, self._file.close)
        self._places: dict[str, tuple[int, int]] = {}
        self._lock = threading.Lock()

    def __contains__(self, name: str) -> bool:
        return name in self._places

    def put(self, name: str, data: bytes) -> None:
        """Keep the bytes under a name; what was there before is out of reach."""
        with self._lock:
            start = self._file.seek(0, 2)
            self._file.write(data)
            self._places[name] = (start, len(data))

    def get(self, name: str) -> bytes:
        """The bytes of a name that is there."""
        with self._lock:
            start, length = self._places[name]
            self._file.seek(start)
            return self._file.read(length)
