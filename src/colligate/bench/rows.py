"""The rows of a run on disk: one for each data set, question and strategy, as it is answered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from colligate.bench.outcome import Outcome
from colligate.errors import MissingPath
from colligate.jobs.files import JsonlReader
from colligate.jobs.job import ResultFile


class Key(NamedTuple):
    """What identifies a row of a run. `question` is the question's id in its data set."""

    dataset: str
    question: str
    strategy: str

    def __str__(self) -> str:
        return f"{self.dataset} {self.question}: {self.strategy}"


@dataclass(frozen=True)
class Row:
    """One strategy's answer to one question, with its metrics.

    `dataset` and `strategy` are the suite's names. `answers` are the right ones, for a person to
    read; `answerable` False means that the documents hold none. `metrics` are by name;
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
        """What identifies the row."""
        return Key(self.dataset, self.question, self.strategy)

    @property
    def error(self) -> str:
        """Why there is no answer; empty if there is one."""
        return self.outcome.error

    def bare(self) -> Row:
        """Return the row without the texts of what was retrieved, which are most of its size."""
        retrieved = tuple(replace(piece, text="") for piece in self.outcome.retrieved)
        return replace(self, outcome=replace(self.outcome, retrieved=retrieved))

    def to_json(self) -> dict[str, Any]:
        """Return the row as a line of the file holds it: `bare`."""
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
        """Return the row that `to_json` gave."""
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


def _parse(line: Mapping[str, Any]) -> tuple[Key, Row]:
    row = Row.from_json(line)
    return row.key, row


ROWS: ResultFile[Key, Row] = ResultFile(
    "rows.jsonl",
    JsonlReader(_parse, "a row", "delete the line: the same command asks its question again"),
    lambda _, row: row.to_json(),
)


def read_rows(folder: Path) -> list[Row]:
    """Read the rows of a run's folder, in the order in which their keys first came. Blocks.

    A last line that is not whole is left out, so a run can be read while it is in progress.

    Raises:
        MissingPath: the folder has no rows.
        FaultyRecord: a line is not a row.
    """
    if not (folder / ROWS.name).is_file():
        why, hint = f"it has no {ROWS.name}", "colligate bench run --out makes one"
        raise MissingPath(f"{folder} is not a run", why, hint)
    return list(ROWS.read(folder).values())
