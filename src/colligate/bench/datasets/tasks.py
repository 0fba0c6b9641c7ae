"""What kind of answer a record asks for, told from the gold it brings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from colligate.bench.datasets.reading import Shape, distinct, understood
from colligate.bench.question import Reading, Task


class Pair(Shape):
    """One reading of an ambiguous question (ASQA)."""

    question: str
    short_answers: list[str]


class _Gold(Shape):
    """The fields that some data set has for its gold."""

    qa_pairs: list[Pair] | None = None
    answer_list: list[list[str]] | None = None
    claims: list[str] | None = None
    long_answers: list[str] | None = None


class Asked(TypedDict):
    """The fields of a `Question` that depend on its task."""

    task: Task
    readings: tuple[Reading, ...]
    members: tuple[tuple[str, ...], ...]
    claims: tuple[str, ...]
    long_answers: tuple[str, ...]


def asked(meta: Mapping[str, Any], answers: Sequence[str], *, judged: bool = False) -> Asked:
    """The task and its gold, by which of `qa_pairs`, `answer_list` and `claims` there is.

    Raises:
        ValueError: if one of them is not as it should be.
    """
    gold = understood(_Gold, dict(meta))
    return Asked(
        task=_task(gold, judged=judged),
        readings=readings(gold.qa_pairs or ()),
        members=tuple(distinct(member) for member in gold.answer_list or ()),
        claims=distinct(gold.claims or ()),
        long_answers=distinct(gold.long_answers or (answers if gold.claims else ())),
    )


def readings(pairs: Sequence[Pair]) -> tuple[Reading, ...]:
    """The readings of an ambiguous question."""
    return tuple(Reading(pair.question, distinct(pair.short_answers)) for pair in pairs)


def _task(gold: _Gold, *, judged: bool) -> Task:
    if gold.qa_pairs:
        return Task.READINGS
    if gold.answer_list:
        return Task.SET
    if gold.claims:
        return Task.LONG
    return Task.JUDGED if judged else Task.SHORT
