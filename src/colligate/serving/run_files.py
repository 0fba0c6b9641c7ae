"""Runs on disk: one file of events, a JSON line each, and one file that says how it ended.

Whoever follows a run reads its file, while it grows as well as years later, so nothing of it
need stay in memory.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from colligate.library.traces import mentions

_BATCH = 1 << 18  # bytes read at once


def encoded(value: Any) -> bytes:
    """A value as JSON that any client can read, on one line: what is no number becomes null."""
    try:
        return json.dumps(value, allow_nan=False).encode()
    except ValueError:
        return json.dumps(_finite(value)).encode()


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_finite(each) for each in value]
    return value


@dataclass(frozen=True)
class RunFiles:
    """The files of one run in a library's folder. Methods block, but for a moment only."""

    folder: Path
    id: str

    @property
    def events(self) -> Path:
        """The file of events."""
        return self.folder / f"{self.id}.jsonl"

    @property
    def summary(self) -> Path:
        """The file that says what was asked and how it ended."""
        return self.folder / f"{self.id}.json"

    @property
    def size(self) -> int:
        """Bytes of both."""
        return sum(file.stat().st_size for file in (self.events, self.summary) if file.exists())

    def write_summary(self, said: dict[str, Any]) -> None:
        """Write how things stand, whole or not at all."""
        new = self.summary.with_suffix(".new")
        new.write_bytes(encoded(said))
        new.replace(self.summary)

    def read_summary(self) -> dict[str, Any]:
        """What `write_summary` wrote last."""
        said: dict[str, Any] = json.loads(self.summary.read_bytes())
        return said

    def read_events(self, at: int) -> tuple[list[bytes], int]:
        """Whole lines from an offset on, a batch at most; and the offset behind them."""
        size = _BATCH
        with self.events.open("rb") as file:
            while True:
                file.seek(at)
                read = file.read(size)
                end = read.rfind(b"\n") + 1
                if end or len(read) < size:
                    return read[:end].splitlines(), at + end
                size *= 4  # one line is longer than the batch

    def mention(self, documents: Collection[str]) -> bool:
        """Whether they name one of these documents; true where they were erased already."""
        if not self.events.exists():
            return True
        return any(mentions(file, documents) for file in (self.events, self.summary))

    def delete(self) -> None:
        """Delete both."""
        for file in (self.events, self.summary, self.summary.with_suffix(".new")):
            file.unlink(missing_ok=True)


def found_in(folder: Path) -> list[RunFiles]:
    """The runs kept in a folder; what a crash left half made is deleted."""
    for file in (*folder.glob("*.jsonl"), *folder.glob("*.new")):
        if file.suffix == ".new" or not file.with_suffix(".json").exists():
            file.unlink()
    return [RunFiles(folder, file.stem) for file in folder.glob("*.json")]
