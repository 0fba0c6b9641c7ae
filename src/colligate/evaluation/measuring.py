"""The metrics of a row, group by group: one that cannot be taken costs no other, nor the row."""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Mapping, Sequence

from colligate.errors import ColligateError
from colligate.evaluation.metrics.backends import Backends
from colligate.evaluation.metrics.catalogue import GROUPS, measured
from colligate.evaluation.outcome import Outcome
from colligate.evaluation.question import Question, Task


async def measured_groups(
    groups: Sequence[str], question: Question, outcome: Outcome, backends: Backends
) -> AsyncGenerator[tuple[str, Mapping[str, float], str]]:
    """Each group with its metrics, or why they could not be taken; those that ask models last."""
    for group in sorted(groups, key=lambda name: GROUPS[name].asking is not None):
        try:
            taken = await measured([group], question, outcome, backends)
        except ColligateError as error:
            yield group, {}, f"{type(error).__name__}: {error}"
        except Exception as error:  # the packages behind some metrics may raise anything
            yield group, {}, f"internal error: {type(error).__name__}: {error}"
        else:
            finite = {name: value for name, value in taken.items() if math.isfinite(value)}
            yield group, finite, ""


def right_answers(question: Question) -> tuple[str, ...]:
    """What a person reads as the right answers, whatever the kind of question."""
    if question.task is Task.READINGS:
        return tuple(reading.answers[0] for reading in question.readings if reading.answers)
    if question.task is Task.SET:
        return tuple(member[0] for member in question.members if member)
    return question.answers or question.long_answers or question.claims
