"""The rows of a run on disk: one for each data set, question and strategy, as it is answered.

A row is a line of `rows.jsonl`, flushed to the disk before the next is begun. What a process that
was killed left of its last line is cut off; of several rows with one key the last counts.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, NamedTuple

from colligate.errors import FaultyRecord, MissingPath
from colligate.evaluation.outcome import Outcome

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
    with file.open("rb") as lines:
        return list({row.key: row for row, _ in _rows(file, lines)}.values())


class RowFile:
    """The rows of a run, and where more are put down. One process has it open at a time.

    Raises:
        FaultyRecord: a line is no row.
    """

    def __init__(self, directory: Path) -> None:
        file = directory / FILE
        fresh = not file.exists()
        self._file = file.open("a+b")
        try:
            self._file.seek(0)
            end = 0
            self.rows: dict[Key, Row] = {}
            for row, after in _rows(file, self._file):
                self.rows[row.key] = row
                end = after
            self._file.truncate(end)
            if end and not self._ends_in_newline(end):
                self._write(b"\n")  # all but its last byte had reached the disk
        except BaseException:
            self._file.close()
            raise
        if fresh:
            _sync_folder(directory)

    def __enter__(self) -> RowFile:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._file.close()

    def add(self, row: Row) -> None:
        """Put a row down; it is on the disk when this returns. Blocks.

        Raises:
            OSError: it cannot be written.
        """
        line = json.dumps(row.to_json(), ensure_ascii=False, allow_nan=False) + "\n"
        # Half a surrogate pair, which a model can write in JSON, has no bytes.
        self._write(line.encode("utf-8", "replace"))
        self.rows[row.key] = row.bare()  # a long run holds all of its rows

    def _write(self, line: bytes) -> None:
        self._file.write(line)
        self._file.flush()
        os.fsync(self._file.fileno())

    def _ends_in_newline(self, end: int) -> bool:
        self._file.seek(end - 1)
        return self._file.read(1) == b"\n"


def _rows(file: Path, lines: BinaryIO) -> Iterator[tuple[Row, int]]:
    """The rows of a file with the place after each; a torn last line is left out."""
    at = 0
    for number, line in enumerate(lines, 1):
        try:
            row = Row.from_json(json.loads(line))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            if not line.endswith(b"\n"):
                return
            why = f"{type(error).__name__}: {error}"
            mend = "take the line out, and the same command asks its question again"
            raise FaultyRecord(f"line {number} of {file} is no row", why, mend) from error
        at += len(line)
        yield row, at


def _sync_folder(directory: Path) -> None:
    """A new file's name must reach the disk as well as what is in it."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
