"""What kind of answer a record asks for, told from the gold it brings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from colligate.bench.datasets.records import RecordModel, unique, validate
from colligate.bench.question import QuestionReading, QuestionTask


class ShortAnswers(RecordModel):
    """One reading of an ambiguous question, and its answer with its aliases (ASQA)."""

    question: str
    short_answers: list[str]


class _Gold(RecordModel):
    qa_pairs: list[ShortAnswers] | None = None
    answer_list: list[list[str]] | None = None
    claims: list[str] | None = None
    long_answers: list[str] | None = None


class TaskFields(TypedDict):
    """The fields of a `Question` that depend on its task."""

    task: QuestionTask
    readings: tuple[QuestionReading, ...]
    members: tuple[tuple[str, ...], ...]
    claims: tuple[str, ...]
    long_answers: tuple[str, ...]


def find_task(meta: Mapping[str, Any], answers: Sequence[str], *, judged: bool) -> TaskFields:
    """Return the task and its gold: which of `qa_pairs`, `answer_list` and `claims` is there.

    Raises:
        ValueError: one of them has not the form that it should have.
    """
    gold = validate(_Gold, dict(meta))
    if gold.qa_pairs:
        task = QuestionTask.READINGS
    elif gold.answer_list:
        task = QuestionTask.SET
    elif gold.claims:
        task = QuestionTask.LONG
    else:
        task = QuestionTask.JUDGED if judged else QuestionTask.SHORT
    return TaskFields(
        task=task,
        readings=make_readings(gold.qa_pairs or ()),
        members=tuple(unique(member) for member in gold.answer_list or ()),
        claims=unique(gold.claims or ()),
        long_answers=unique(gold.long_answers or (answers if gold.claims else ())),
    )


def make_readings(pairs: Sequence[ShortAnswers]) -> tuple[QuestionReading, ...]:
    """Return the readings of an ambiguous question."""
    return tuple(QuestionReading(pair.question, unique(pair.short_answers)) for pair in pairs)
