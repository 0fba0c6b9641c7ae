"""The rows of a run on disk: one for each data set, question and strategy, as it is answered.

A row is a line of `rows.jsonl`, flushed to the disk before the next is begun. What a process that
was killed left of its last line is cut off; of several rows with one key the last counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from colligate.bench.outcome import Outcome
from colligate.errors import MissingPath
from colligate.jobs.files import Growing, Lines

FILE = "rows.jsonl"


class Key(NamedTuple):
    """What tells rows of a run apart. `question` is the question's id in its data set."""

    dataset: str
    question: str
    strategy: str


@dataclass(frozen=True)
class Row:
    """What one strategy made of one question, and how it was measured.

    `dataset` and `strategy` are called as in the suite. `answers` are the right ones, as a person
    may read them; `answerable` False says that the documents hold none. `metrics` are by name;
    `unmeasured` says, by group of metrics, why some are missing (a judge that did not reply).
    `trace` is the file of the answer's events below the run's folder. `began` is in UTC;
    `attempt` counts from 1, and only a failed row is tried again. The passages `retrieved` of the
    outcome come without their text.
    """

    dataset: str
    question: str
    strategy: str
    question_text: str
    answers: tuple[str, ...]
    outcome: Outcome
    metrics: Mapping[str, float]
    gold_at: int | None = None
    answerable: bool = True
    unmeasured: Mapping[str, str] = field(default_factory=dict)
    trace: str | None = None
    began: str = ""
    attempt: int = 1

    @property
    def key(self) -> Key:
        """What tells it apart from the run's other rows."""
        return Key(self.dataset, self.question, self.strategy)

    def bare(self) -> Row:
        """Without the texts of what was retrieved, which are by far the most of it."""
        retrieved = tuple(replace(piece, text="") for piece in self.outcome.retrieved)
        return replace(self, outcome=replace(self.outcome, retrieved=retrieved))

    def to_json(self) -> dict[str, Any]:
        """The row as a line of the file holds it: `bare`."""
        return {
            "dataset": self.dataset,
            "question": self.question,
            "strategy": self.strategy,
            "gold_at": self.gold_at,
            "question_text": self.question_text,
            "answers": list(self.answers),
            "answerable": self.answerable,
            "outcome": self.bare().outcome.to_json(),
            "metrics": dict(self.metrics),
            "unmeasured": dict(self.unmeasured),
            "trace": self.trace,
            "began": self.began,
            "attempt": self.attempt,
        }

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> Row:
        """The row that `to_json` gave.

        Raises:
            KeyError, TypeError, ValueError: it is none.
        """
        gold_at = row["gold_at"]
        return cls(
            dataset=str(row["dataset"]),
            question=str(row["question"]),
            strategy=str(row["strategy"]),
            question_text=str(row["question_text"]),
            answers=tuple(row["answers"]),
            outcome=Outcome.from_json(row["outcome"]),
            metrics={name: float(value) for name, value in row["metrics"].items()},
            gold_at=None if gold_at is None else int(gold_at),
            answerable=bool(row["answerable"]),
            unmeasured=dict(row["unmeasured"]),
            trace=row["trace"],
            began=str(row["began"]),
            attempt=int(row["attempt"]),
        )


def read_rows(directory: Path) -> list[Row]:
    """The rows of a run's folder, in the order in which their keys first came.

    A last line that is not whole is passed over, so a run may be read while it goes on.

    Raises:
        MissingPath: there are none there.
        FaultyRecord: a line is no row.
    """
    file = directory / FILE
    if not file.is_file():
        why = f"it has no {FILE}"
        raise MissingPath(f"{directory} is no run", why, "colligate bench run --out makes one")
    return list({row.key: row for row in _LINES.read(file)}.values())


class RowFile(Growing):
    """The rows of a run, and where more are put down. One process has it open at a time.

    Raises:
        FaultyRecord: a line is no row.
    """

    def __init__(self, directory: Path) -> None:
        self.rows: dict[Key, Row] = {}
        super().__init__(directory / FILE, _LINES, self._take)

    def add(self, row: Row) -> None:
        """Put a row down; it is on the disk when this returns. Blocks.

        Raises:
            OSError: it cannot be written.
        """
        self.put(row.to_json())
        self._take(row.bare())  # a long run holds all of its rows

    def _take(self, row: Row) -> None:
        self.rows[row.key] = row


_LINES = Lines(
    Row.from_json, "no row", "take the line out, and the same command asks its question again"
)
