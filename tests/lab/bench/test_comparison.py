"""Comparing strategies: over common questions, whatever either side lacks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from colligate.errors import UsageError
from colligate.lab.bench.compare import compare_runs
from colligate.lab.bench.outcome import Outcome, Row
from colligate.lab.bench.significance import paired_bootstrap
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


def test_pairs_are_of_one_question_whatever_the_order_of_rows(tmp_path: Path) -> None:
    first = {("d", "q1", "a"): {"em": 1.0}, ("d", "q0", "a"): {"em": 0.0}}
    made = run(tmp_path / "run", {**first, **of("b", 0.0, 0.0)})

    [found] = compare_runs(made, strategies=["a", "b"])

    assert found.means == (0.5, 0.0)
    assert found.difference == paired_bootstrap([1.0, 0.0], [0.0, 0.0], 7)
    assert found.missing == (0, 0)


def test_questions_of_one_side_are_counted_and_left_out_of_both_means(tmp_path: Path) -> None:
    made = run(tmp_path / "run", {**of("a", 1, 1, 0, 0), **of("b", 0, 1)})

    [found] = compare_runs(made)

    assert found.means == (1.0, 0.5)
    assert (found.difference.questions, found.missing) == (2, (0, 2))


def test_other_questions_under_the_same_ids_are_not_compared(tmp_path: Path) -> None:
    def asked(about: str, em: float) -> Path:
        rows = [
            Row("d", f"{at}", "a", f"How old is {about} {at}?", (), Outcome(), {"em": em})
            for at in range(8)
        ]
        return write_run(tmp_path / about, SUITE, rows)

    with pytest.raises(UsageError, match="no question was asked on both sides"):
        compare_runs(asked("cat", 1.0), asked("dog", 0.0))


def test_two_runs_are_compared_strategy_by_strategy_and_data_set_by_data_set(
    tmp_path: Path,
) -> None:
    one = run(tmp_path / "one", {**of("a", 1), **of("a", 1, dataset="e"), **of("b", 1)})
    two = run(tmp_path / "two", {**of("a", 0), **of("a", 1, dataset="e"), **of("c", 1)})

    found = compare_runs(one, two)

    assert [(each.dataset, each.first, each.second) for each in found] == [
        ("d", "one: a", "two: a"),
        ("e", "one: a", "two: a"),
    ]
    assert [each.difference.mean for each in found] == [1.0, 0.0]


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


def test_what_there_is_not_is_said(tmp_path: Path) -> None:
    made = run(tmp_path / "run", {**of("alpha", 1), **of("beta", 1, dataset="e")})

    with pytest.raises(UsageError, match="did you mean alpha"):
        compare_runs(made, strategies=["alhpa", "beta"])
    with pytest.raises(UsageError, match="no question was asked on both sides"):
        compare_runs(made)
    with pytest.raises(UsageError, match="expected the names of two strategies, got 1"):
        compare_runs(made, strategies=["alpha"])


def test_why_there_is_nothing_to_compare_is_said(tmp_path: Path) -> None:
    one = run(tmp_path / "one", of("a", 1))
    other = run(tmp_path / "other", of("b", 1))
    elsewhere = run(tmp_path / "elsewhere", of("a", 1, dataset="e"))
    costs = {("d", "q0", name): {"tokens": 5.0} for name in ("a", "b")}
    unanswered = run(tmp_path / "unanswered", costs)
    for arguments, said in [
        ((one,), "has no strategies to compare: it has rows of a alone; name another run"),
        ((one, other), "have no strategy in common"),
        ((one, elsewhere), "no question was asked on both sides"),
        ((unanswered,), "was measured on both sides; name one with --metric, such as tokens"),
    ]:
        with pytest.raises(UsageError, match=said):
            compare_runs(*arguments)
    with pytest.raises(UsageError, match="got 1"):
        compare_runs(run(tmp_path / "two", {**of("a", 1), **of("b", 1)}), strategies=["a", "a"])
    assert [each.means for each in compare_runs(unanswered, metrics=["tokens"])] == [(5.0, 5.0)]
