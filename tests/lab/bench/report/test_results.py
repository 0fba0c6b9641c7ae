from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from colligate.lab.bench.figures import make_figures
from colligate.lab.bench.outcome import Outcome, Row
from colligate.lab.bench.significance import bootstrap
from colligate.lab.bench.tables import RunResults, Verdict, classify, format_interval
from support.bench import write_run


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


SUITE = """
title = "S"
datasets = [{ name = "d", file = "d" }]
strategies = [{ name = "a" }, { name = "b" }]
columns = [{ dataset = "d", metric = "em", scale = 100 }]
pictures = [{ kind = "pareto" }, { kind = "by-gold-position" }]
"""


def test_intervals_draw_the_rows_of_one_question_together(tmp_path: Path) -> None:
    keys = [(f"q{at}", name) for at in range(14) for name in "ab"]
    rows = [
        Row(
            "d",
            key,
            name,
            f"{int(key[1:]) % 7}?",
            (),
            Outcome(),
            {"em": em, "tokens": 9.0},
            gold_at=gold,
        )
        for key, name in keys
        for number in [int(key[1:]) % 7]
        for em, gold in [(float(number < 3), number // 4)]
    ]
    results = RunResults(write_run(tmp_path, SUITE, rows))
    values = [float(at % 7 < 3) for at in range(14)]
    low, high = bootstrap(values, 7, clusters=[at % 7 for at in range(14)])
    assert (low, high) != bootstrap(values, 7)

    table = results.table
    cell = table.columns[0].cells["a"]
    assert (cell.low, cell.high) == (100 * low, 100 * high)
    cost, by_place = make_figures(results)
    assert cost.numbers[1][1] == f"42.9 {format_interval(100 * low, 100 * high)}"
    first = [1.0, 1.0, 1.0, 0.0] * 2
    ends = [100 * end for end in bootstrap(first, 7, clusters=[0, 1, 2, 3] * 2)]
    assert by_place.numbers[1][1:] == (f"75.0 {format_interval(*ends)}", "0.0")


def test_the_columns_of_one_scale_are_drawn_side_by_side(tmp_path: Path) -> None:
    suite = SUITE.replace(
        'columns = [{ dataset = "d", metric = "em", scale = 100 }]',
        'columns = [{ dataset = "d", metric = "f1", label = "F1", scale = 100 }, '
        '{ dataset = "d", metric = "em", label = "EM", scale = 100 }, '
        '{ dataset = "d", metric = "tokens" }]',
    ).replace('{ kind = "pareto" }', '{ kind = "columns" }, { kind = "columns", metric = "em" }')
    rows = [
        Row("d", f"q{at}", name, f"{at}?", (), Outcome(), {"em": em, "tokens": 900.0})
        for at in range(8)
        for name, em in [("a", 1.0), ("b", float(at < 4))]
    ]
    results = RunResults(write_run(tmp_path, suite, rows))
    both, one = make_figures(results)[:2]
    head, first, second = both.numbers
    assert list(head) == ["", "EM"], "no F1 was measured, and tokens have another scale"
    assert (first[:2], second[1].split(" ")[0]) == (("a", "100.0"), "50.0")
    assert "[" in second[1], "with the table's interval"
    assert one.numbers == both.numbers
    assert "EM" in both.svg


def test_probabilities_of_answers_are_held_against_what_is_right(tmp_path: Path) -> None:
    suite = SUITE.replace(
        '{ kind = "pareto" }', '{ kind = "reliability" }, { kind = "risk-coverage" }'
    )
    # Ten sure answers, one of them wrong; fifteen doubtful ones, nine wrong; fifteen refusals.
    rated = (
        [(0.9, 1.0)] * 9 + [(0.9, 0.0)] + [(0.4, 1.0)] * 6 + [(0.4, 0.0)] * 9 + [(None, 0.0)] * 15
    )
    rows = [
        Row("d", f"q{at}", "a", f"{at}?", (), Outcome(probability=p), {"right": right})
        for at, (p, right) in enumerate(rated)
    ]
    reliability, curve = make_figures(RunResults(write_run(tmp_path, suite, rows)))[:2]
    head, told = reliability.numbers
    assert head == ("", "40", "90")
    assert [cell.split(" ")[0] for cell in told[1:]] == ["40.0", "90.0"]
    head, told = curve.numbers
    assert head[1:] == ("10", "20", "30", "40", "50", "60", "62.5")
    shares = {at: cell.split(" ")[0] for at, cell in zip(head, told, strict=True)}
    assert (shares["20"], shares["62.5"]) == ("0.0", "40.0")
    assert "questions answered" in curve.svg

    nothing = [replace(row, outcome=Outcome()) for row in rows]
    empty = make_figures(RunResults(write_run(tmp_path / "none", suite, nothing)))[:2]
    assert not any(each.svg for each in empty)


def test_columns_of_a_ratio_and_of_what_is_spent_more_have_intervals(tmp_path: Path) -> None:
    suite = (
        SUITE.replace(
            '{ dataset = "d", metric = "em", scale = 100 }',
            '{ dataset = "d", metric = "em/usd" }, { dataset = "d", metric = "tokens over a" }',
        )
        + 'published = [{ row = "b", values = [5, 70] }]'
    )
    rows = [
        Row("d", f"q{at}", name, f"{at}?", (), Outcome(), {"em": em, "usd": usd, "tokens": tokens})
        for at in range(8)
        for name, em, usd, tokens in [
            ("a", 1.0, 0.25, 100.0 + at),
            ("b", float(at < 4), 0.05 if at < 4 else 0.15, 160.0 + 3 * at),
        ]
    ]
    results = RunResults(write_run(tmp_path, suite, rows))
    ratio, more = results.table.columns

    assert (ratio.higher, more.higher) == (True, False)
    assert [ratio.cells[name].value for name in "ab"] == pytest.approx([4, 5])  # .5 for .1 dollars
    # All right for .25 dollars is the same ratio however the questions are drawn.
    assert (ratio.cells["a"].low, ratio.cells["a"].high) == pytest.approx((4, 4))
    assert ratio.cells["b"].low < 5 < ratio.cells["b"].high
    assert (more.cells["a"].value, more.cells["b"].value) == (0, 67)  # 60 + 2 * 3.5
    assert results.means("d", "b")["tokens over a"] == 67
    printed = results.table.rows[1].printed[""]
    assert [each.value for each in printed if each] == [5, 70]
    assert results.values("d", "b", "tokens over c") == {}
