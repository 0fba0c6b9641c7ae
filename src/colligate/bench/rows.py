"""The rows of a run on disk: one for each data set, question and strategy, as it is answered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from colligate.bench.outcome import Outcome
from colligate.errors import MissingPath
from colligate.jobs.files import JsonlReader
from colligate.jobs.job import ResultFile, parse_known


class Key(NamedTuple):
    """The key of a row in its run. `question` is the question's id in its data set."""

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
        return Key(self.dataset, self.question, self.strategy)

    @property
    def error(self) -> str:
        """The reason why there is no answer; empty if there is one."""
        return self.outcome.error

    def bare(self) -> Row:
        """Return the row without the texts of what was retrieved, which are most of its size."""
        retrieved = tuple(replace(piece, text="") for piece in self.outcome.retrieved)
        return replace(self, outcome=replace(self.outcome, retrieved=retrieved))

    def to_json(self) -> dict[str, Any]:
        """Return the row as a line of the file holds it: `bare`."""
        return asdict(self.bare())

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> Row:
        """Return the row that `to_json` gave; fields that another version wrote are left out."""
        answers, outcome = tuple(row["answers"]), Outcome.from_json(row["outcome"])
        return parse_known(cls, {**row, "answers": answers, "outcome": outcome})


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
