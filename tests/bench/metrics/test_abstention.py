from __future__ import annotations

import pytest

from colligate.bench.metrics.cost import abstention_measures
from colligate.bench.outcome import Outcome
from colligate.bench.question import Question


@pytest.mark.parametrize(
    ("answerable", "outcome", "expected"),
    [
        (True, Outcome("x", found=True), {"wrong_refusal": 0, "failed": 0}),
        (True, Outcome(), {"wrong_refusal": 1, "failed": 0}),
        (True, Outcome(error="broke"), {"wrong_refusal": 0, "failed": 1}),
        (False, Outcome("x", found=True), {"right_refusal": 0, "failed": 0}),
        (False, Outcome(), {"right_refusal": 1, "failed": 0}),
        (False, Outcome(error="broke"), {"right_refusal": 0, "failed": 1}),
    ],
)
def test_refusals_are_right_or_wrong_and_what_broke_is_neither(
    answerable: bool, outcome: Outcome, expected: dict[str, float]
) -> None:
    answers = ("Ann",) if answerable else ()
    question = Question("q", "who?", answers, answerable=answerable)
    assert abstention_measures(question, outcome) == expected


def test_without_any_gold_nobody_knows_whether_a_refusal_is_wrong() -> None:
    assert abstention_measures(Question("q", "who?"), Outcome()) == {"failed": 0}
    assert "wrong_refusal" in abstention_measures(Question("q", "who?", gold=("g",)), Outcome())
