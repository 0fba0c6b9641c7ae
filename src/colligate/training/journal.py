"""What was made of each item, on disk as it is made.

An item is a question or a document; what it gave is a line of `journal.jsonl`, flushed to the disk
before the next is put down. What a process that was killed left of its last line is cut off; of
several lines of one item the last counts.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

from colligate.errors import FaultyRecord
from colligate.training.samples import Sample

FILE = "journal.jsonl"


@dataclass(frozen=True)
class Made:
    """What one item gave.

    `discarded` says how many samples were left out, by reason; `counts` is what else the data
    card adds up. `usage` is a `UsageReport` as JSON. `error` is why the item gave nothing, kind
    first; such an item can be tried again.
    """

    samples: tuple[Sample, ...] = ()
    discarded: Mapping[str, int] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    usage: Mapping[str, Any] = field(default_factory=dict)
    error: str = ""

    @classmethod
    def failed(cls, kind: str, why: str) -> Made:
        """What an item gave whose work broke."""
        return cls(discarded={kind: 1}, error=f"{kind}: {why}")

    def to_json(self) -> dict[str, Any]:
        """As the journal holds it."""
        return {
            "samples": [sample.to_json() for sample in self.samples],
            "discarded": dict(self.discarded),
            "counts": dict(self.counts),
            "usage": dict(self.usage),
            "error": self.error,
        }

    @classmethod
    def from_json(cls, made: Mapping[str, Any]) -> Made:
        """What `to_json` gave.

        Raises:
            KeyError, TypeError, ValueError, AttributeError: it is none.
        """
        return cls(
            samples=tuple(Sample.from_json(sample) for sample in made["samples"]),
            discarded={str(why): int(n) for why, n in made["discarded"].items()},
            counts={str(what): int(n) for what, n in made["counts"].items()},
            usage=dict(made["usage"]),
            error=str(made["error"]),
        )


class Journal:
    """What was made so far, by item, and where more is put down.

    Raises:
        FaultyRecord: a line is none of it.
    """

    def __init__(self, folder: Path) -> None:
        file = folder / FILE
        fresh = not file.exists()
        self._file = file.open("a+b")
        try:
            self._file.seek(0)
            self.made: dict[str, Made] = {}
            end, whole = 0, True
            for item, made, after, ends in _entries(file, self._file):
                self.made[item] = made
                end, whole = after, ends
            self._file.truncate(end)
            if not whole:
                self._write(b"\n")  # all but its last byte had reached the disk
        except BaseException:
            self._file.close()
            raise
        if fresh:
            _sync_folder(folder)

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._file.close()

    def add(self, item: str, made: Made) -> None:
        """Put down what an item gave; it is on the disk when this returns. Blocks.

        Raises:
            OSError: it cannot be written.
        """
        entry = {"item": item, **made.to_json()}
        line = json.dumps(entry, ensure_ascii=False, allow_nan=False) + "\n"
        # Half a surrogate pair, which a model can write in JSON, has no bytes.
        self._write(line.encode("utf-8", "replace"))
        self.made[item] = made

    def _write(self, line: bytes) -> None:
        self._file.write(line)
        self._file.flush()
        os.fsync(self._file.fileno())


def read_journal(folder: Path) -> dict[str, Made]:
    """What was made so far, by item; nothing where there is no journal. Blocks.

    Raises:
        FaultyRecord: a line is none of it.
    """
    file = folder / FILE
    if not file.is_file():
        return {}
    with file.open("rb") as lines:
        return {item: made for item, made, _, _ in _entries(file, lines)}


def _entries(file: Path, lines: BinaryIO) -> Iterator[tuple[str, Made, int, bool]]:
    """Item and what it gave, with the place after each and whether its line ends there.

    A torn last line is left out.
    """
    at = 0
    for number, line in enumerate(lines, 1):
        whole = line.endswith(b"\n")
        try:
            entry = json.loads(line)
            item, made = str(entry["item"]), Made.from_json(entry)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            if not whole:
                return
            why = f"{type(error).__name__}: {error}"
            mend = "take the line out, and the same command does its item again"
            what = f"line {number} of {file} is nothing that was made"
            raise FaultyRecord(what, why, mend) from error
        at += len(line)
        yield item, made, at, whole


def _sync_folder(folder: Path) -> None:
    """A new file's name must reach the disk as well as what is in it."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
