"""What was made of each item, on disk as it is made.

An item is a question or a document; what it gave is a line of `journal.jsonl`, flushed to the disk
before the next is put down. What a process that was killed left of its last line is cut off; of
several lines of one item the last counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from colligate.jobs.files import Growing, Lines
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


class Journal(Growing):
    """What was made so far, by item, and where more is put down.

    Raises:
        FaultyRecord: a line is none of it.
    """

    def __init__(self, folder: Path) -> None:
        self.made: dict[str, Made] = {}
        super().__init__(folder / FILE, _LINES, self._take)

    def add(self, item: str, made: Made) -> None:
        """Put down what an item gave; it is on the disk when this returns. Blocks.

        Raises:
            OSError: it cannot be written.
        """
        self.put({"item": item, **made.to_json()})
        self._take((item, made))

    def _take(self, entry: tuple[str, Made]) -> None:
        item, made = entry
        self.made[item] = made


def read_journal(folder: Path) -> dict[str, Made]:
    """What was made so far, by item; nothing where there is no journal. Blocks.

    Raises:
        FaultyRecord: a line is none of it.
    """
    file = folder / FILE
    return dict(_LINES.read(file)) if file.is_file() else {}


def _entry(line: Mapping[str, Any]) -> tuple[str, Made]:
    return str(line["item"]), Made.from_json(line)


_LINES = Lines(
    _entry,
    "nothing that was made",
    "take the line out, and the same command does its item again",
)
