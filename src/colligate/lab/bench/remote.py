"""Questions answered by other machines: what a run gives them and gets back."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from colligate.lab.bench.outcome import Outcome
from colligate.lab.bench.participants import ModelNames
from colligate.lab.bench.plan import Plan, SuiteEntry
from colligate.lab.bench.question import Question
from colligate.lab.bench.suites import Dataset

RemoteAnswer = tuple[Outcome, list[dict[str, Any]], int]
"""An answer from a worker: the outcome, its events as JSON, and the tokens that it spent."""


@dataclass(frozen=True)
class Opening:
    """What each worker opens: the models, for the strategies of a plan, and the corpora.

    `data` and `indexes` are folders that every machine has under the same path. Without corpora
    nothing is read from them.
    """

    names: ModelNames
    plan: Plan
    data: Path
    indexes: Path
    timeout: float | None
    traces: bool


class Answerers(Protocol):
    """Workers that answer questions: an entry point of `colligate.answerers` opens them.

    It is an async context manager of (cluster, number of workers, `Opening`).
    """

    async def answer(self, dataset: Dataset, question: Question, entry: SuiteEntry) -> RemoteAnswer:
        """Return the answer of a worker that has nothing to do, as soon as there is one."""
