"""Comparing strategies: over common questions, whatever either side lacks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from colligate.errors import UsageError
from colligate.lab.bench.compare import compare_runs
from colligate.lab.bench.outcome import Outcome, Row
from support.bench import write_run

Values = Mapping[tuple[str, str, str], Mapping[str, float]]


SUITE = """
title = "S"
datasets = [{ name = "d", file = "d" }, { name = "e", file = "e" }]
strategies = [{ name = "a" }, { name = "b" }]
"""


def run(folder: Path, values: Values, suite: str = SUITE) -> Path:
    """A run whose rows have these metrics, by data set, question and strategy."""
    rows = [
        Row(*key, question_text=key[1], answers=(), outcome=Outcome(), metrics=metrics)
        for key, metrics in values.items()
    ]
    return write_run(folder, suite, rows)


def of(strategy: str, *em: float, dataset: str = "d") -> Values:
    return {(dataset, f"q{at}", strategy): {"em": value} for at, value in enumerate(em)}


def test_other_questions_under_the_same_ids_are_not_compared(tmp_path: Path) -> None:
    def asked(about: str, em: float) -> Path:
        rows = [
            Row("d", f"{at}", "a", f"How old is {about} {at}?", (), Outcome(), {"em": em})
            for at in range(8)
        ]
        return write_run(tmp_path / about, SUITE, rows)

    with pytest.raises(
        UsageError, match="no question has a metric of right and wrong answers on both"
    ):
        compare_runs(asked("cat", 1.0), asked("dog", 0.0))


def test_the_metric_that_says_most_is_taken_unless_others_are_named(tmp_path: Path) -> None:
    metrics = {"tokens": 5.0, "f1": 0.5, "containment": 1.0}
    made = run(tmp_path / "run", {("d", "q", s): metrics for s in ("a", "b")})

    assert [each.metric for each in compare_runs(made)] == ["containment"]
    table = SUITE + 'columns = [{ dataset = "d", metric = "em" }, { dataset = "d", metric = "f1" }]'
    printed = run(tmp_path / "printed", {("d", "q", s): metrics for s in ("a", "b")}, table)
    assert [each.metric for each in compare_runs(printed)] == ["f1"]  # no em was measured
    named = compare_runs(made, metrics=["tokens", "f1"])
    assert [each.metric for each in named] == ["tokens", "f1"]


def test_rows_of_one_question_are_drawn_together(tmp_path: Path) -> None:
    twice = [("d", f"q{at}", name) for at in range(12) for name in "ab"]
    rows = [
        Row(*key, f"{int(key[1][1:]) % 6}?", ("y",), Outcome(), {"em": float(key[2] == "a")})
        for key in twice
    ]

    [found] = compare_runs(write_run(tmp_path / "twice", SUITE, rows))
    assert (found.difference.p, found.difference.questions) == (2 / 2**6, 12)

    # The same words with another right answer are another question, of other documents.
    others = [replace(row, answers=(row.question,)) for row in rows]
    [found] = compare_runs(write_run(tmp_path / "others", SUITE, others))
    assert found.difference.p == 2 / 2**12


@pytest.mark.parametrize(
    ("first", "second", "strategies", "said"),
    [
        ({**of("a", 1), **of("b", 1)}, None, ["a"], "expected the names of two strategies, got a"),
        ({**of("alpha", 1), **of("b", 1)}, None, ["alhpa", "b"], "has no rows of 'alhpa'"),
        (of("a", 1), None, [], "expected the names of two strategies, got a; or name another run"),
        (of("a", 1), of("b", 1), [], "have no strategy in common"),
        (of("a", 1), of("a", 1, dataset="e"), [], "no question has a metric of right and wrong"),
        (
            {("d", "q0", name): {"tokens": 5.0} for name in "ab"},
            None,
            [],
            "name one with --metric, such as tokens",
        ),
    ],
)
def test_what_cannot_be_compared_is_said(
    tmp_path: Path, first: Values, second: Values | None, strategies: list[str], said: str
) -> None:
    other = run(tmp_path / "other", second) if second else None
    with pytest.raises(UsageError, match=said):
        compare_runs(run(tmp_path / "one", first), other, strategies=strategies)
