from __future__ import annotations

import pytest

from colligate.bench.outcome import Outcome, Row
from colligate.bench.results import Verdict, classify


@pytest.mark.parametrize(
    ("metric", "value", "expected"),
    [
        ("loong_spd", 100.0, Verdict.RIGHT),
        ("loong_spd", 60.0, Verdict.PARTLY),
        ("loong_official", 1.0, Verdict.PARTLY),  # of 100: the lowest mark there is
        ("loong_spd", 0.0, Verdict.WRONG),
        ("loong_spd_perfect", 1.0, Verdict.RIGHT),
        ("containment", 1.0, Verdict.RIGHT),
        ("str_em", 0.5, Verdict.PARTLY),
    ],
)
def test_marks_of_a_judge_are_of_a_hundred(metric: str, value: float, expected: Verdict) -> None:
    row = Row("d", "q", "s", "?", (), Outcome("x", found=True), {metric: value})
    assert classify(row, metric) is expected
