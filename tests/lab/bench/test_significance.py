from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from colligate.lab.bench.significance import bootstrap, correct_for_many, paired_bootstrap


def decided(wins: int, losses: int, questions: int = 1000) -> tuple[list[float], list[float]]:
    """Right and wrong answers of two systems that differ in so many questions."""
    rest = questions - wins - losses
    return [1.0] * wins + [0.0] * losses + [1.0] * rest, [0.0] * wins + [1.0] * losses + [
        1.0
    ] * rest


@pytest.mark.parametrize(
    ("wins", "losses", "low", "high", "p", "stars"),
    [
        # DuQUAD's Table 7, 1,000 questions each: wins and losses that give the mean and interval.
        (122, 97, -0.004, 0.054, 0.094, ""),  # MuSiQue, FiM: +2.5
        (93, 59, 0.010, 0.058, 0.007, "**"),  # HotpotQA, SBERT: +3.4
        (100, 65, 0.010, 0.060, 0.008, "**"),  # HotpotQA, OpenAI: +3.5
        (102, 69, 0.007, 0.058, 0.014, "*"),  # HotpotQA, FiM: +3.3
        (170, 90, 0.053, 0.107, 0.000, "***"),  # MuSiQue, Vanilla: +8.0
    ],
)
def test_the_table_of_duquad_comes_out_of_intervals_and_p_together(
    wins: int, losses: int, low: float, high: float, p: float, stars: str
) -> None:
    first, second = decided(wins, losses)
    found = paired_bootstrap(first, second, seed=1)
    assert found.mean == pytest.approx((wins - losses) / 1000)
    assert found.low == pytest.approx(low, abs=0.006)
    assert found.high == pytest.approx(high, abs=0.006)
    # One-sided values would be half of these.
    assert found.p == pytest.approx(p, rel=0.4, abs=0.001)
    assert found.stars == stars
    assert found.questions == 1000


@pytest.mark.parametrize(
    ("wins", "losses", "questions", "p", "stars"),
    [
        # McNemar's exact test: twice the share of the binomial's tail at one half.
        (5, 0, 5, 2 / 2**5, ""),
        (6, 0, 6, 2 / 2**6, "*"),
        (4, 0, 36, 2 / 2**4, ""),
        (5, 0, 20, 2 / 2**5, ""),
        (7, 1, 12, 18 / 2**8, ""),
        (8, 0, 12, 2 / 2**8, "**"),
        (12, 0, 40, 2 / 2**12, "***"),
    ],
)
def test_at_few_questions_p_is_that_of_the_exact_test(
    wins: int, losses: int, questions: int, p: float, stars: str
) -> None:
    found = paired_bootstrap(*decided(wins, losses, questions), seed=1)
    assert found.p == pytest.approx(p)
    assert found.stars == stars


@given(
    st.lists(st.floats(-100, 100), min_size=1, max_size=5),
    st.integers(0, 200),
    st.integers(0, 9),
)
def test_fewer_than_six_pairs_that_differ_have_no_stars(
    differences: list[float], alike: int, seed: int
) -> None:
    first = [*differences, *[1.0] * alike]
    second = [*[0.0] * len(differences), *[1.0] * alike]
    found = paired_bootstrap(first, second, seed=seed, resamples=200)
    assert found.p >= 2 / 2**5
    assert found.stars == ""


def test_holm_multiplies_the_smallest_p_most_and_keeps_the_order() -> None:
    made = [replace(paired_bootstrap([1], [0], seed=1), p=p) for p in (0.03, 0.01, 0.02, 0.5)]
    found = correct_for_many(made, 6)
    assert [each.corrected for each in found] == pytest.approx([0.12, 0.06, 0.1, 1.0])
    assert [each.p for each in found] == [0.03, 0.01, 0.02, 0.5]
    close = correct_for_many([replace(made[0], p=p) for p in (0.02, 0.021)], 2)
    assert [each.corrected for each in close] == pytest.approx([0.04, 0.04])  # never falling
    assert correct_for_many(made[1:2], 1)[0].stars == "*"
    assert correct_for_many([], 0) == []


def test_a_p_is_the_share_of_all_sign_flips_that_differ_as_much() -> None:
    differences = [3.0, 1.0, 1.5, -0.5, 2.0, 0.25]
    flips = [
        sum(d * s for d, s in zip(differences, signs, strict=True))
        for signs in product((1, -1), repeat=6)
    ]
    p = sum(abs(flip) >= sum(differences) for flip in flips) / len(flips)
    found = paired_bootstrap(differences, [0] * 6, seed=1)
    assert found.p == pytest.approx(p)
    # Drawn ones agree with all of them.
    many = np.random.default_rng(1).normal(0.4, 1, 30)
    assert paired_bootstrap(many, [0] * 30, seed=1).p == pytest.approx(
        paired_bootstrap(many, [0] * 30, seed=2).p, abs=0.01
    )


def test_a_cluster_of_one_changes_nothing_and_whole_clusters_are_drawn() -> None:
    generator = np.random.default_rng(3)
    first, second = generator.random((2, 30))
    alone = paired_bootstrap(first, second, seed=1, clusters=list(range(30)))
    assert alone == paired_bootstrap(first, second, seed=1)
    # Three questions of ten samples each: their means are all that can be drawn.
    values, clusters = np.repeat([0.0, 1.0, 5.0], 10), np.repeat(["a", "b", "c"], 10).tolist()
    assert bootstrap(values, 1, clusters=clusters) == pytest.approx((0.0, 5.0))
    paired = paired_bootstrap(values, np.zeros(30), 1, clusters=clusters)
    assert (paired.low, paired.high) == pytest.approx((0.0, 5.0))
    # A large cluster weighs as much as its values.
    values, clusters = [0.0] * 9 + [1.0], ["a"] * 9 + ["b"]
    assert bootstrap(values, 1, clusters=clusters) == pytest.approx((0.0, 1.0))


def test_a_question_that_two_data_sets_ask_is_drawn_for_both() -> None:
    # Each question is right in one of the two: whatever is drawn, half is right.
    right = (np.random.default_rng(0).random(20) < 0.5).astype(float)
    values, questions = [*right, *(1 - right)], [*range(20), *range(20)]
    strata = ["x"] * 20 + ["y"] * 20
    assert bootstrap(values, 1, strata=strata, clusters=questions) == (0.5, 0.5)
    low, high = bootstrap(values, 1, strata=strata)
    assert low < 0.5 < high


def test_p_is_never_below_one_sample() -> None:
    assert paired_bootstrap([1] * 50, [0] * 50, seed=1, resamples=500).p == 1 / 500


def test_rounding_is_told_from_a_difference_at_any_size() -> None:
    tokens = np.random.default_rng(0).random(500) * 1e6
    assert paired_bootstrap(tokens, np.roll(tokens, 1), seed=1).p == pytest.approx(1.0, abs=0.05)
    tiny = paired_bootstrap([3e-14, 2e-14, 4e-14], [0, 0, 0], seed=1)
    assert (tiny.p, tiny.low > 0) == (2 / 2**3, True)


def test_an_interval_holds_95_of_100_means() -> None:
    values = np.random.default_rng(3).normal(size=400)
    values = (values - values.mean()) / values.std()
    found = paired_bootstrap(values, np.zeros(400), seed=1)
    assert (found.low, found.high) == pytest.approx((-1.96 / 20, 1.96 / 20), rel=0.04)
    assert bootstrap(values, 1) == (found.low, found.high)


@given(st.lists(st.floats(-5, 5, width=32), min_size=1, max_size=30), st.integers(0, 9))
def test_an_interval_is_ordered_and_inside_the_values(values: list[float], seed: int) -> None:
    low, high = bootstrap(values, seed, resamples=200)
    assert min(values) - 1e-9 <= low <= high <= max(values) + 1e-9


def test_strata_keep_their_sizes() -> None:
    # All of the spread is between the strata, so none is left.
    values = [0.0] * 10 + [1.0] * 30
    assert bootstrap(values, 1, strata=["a"] * 10 + ["b"] * 30) == (0.75, 0.75)
    low, high = bootstrap(values, 1)
    assert low < 0.75 < high
    found = paired_bootstrap(values, [0.5] * 40, 1, strata=["a"] * 10 + ["b"] * 30)
    assert (found.mean, found.low, found.high) == (0.25, 0.25, 0.25)


@pytest.mark.parametrize("values", [[], [[1.0, 2.0]], [float("nan")], [1.0, float("inf")]])
def test_values_that_are_no_row_of_numbers_are_refused(values: list[float]) -> None:
    with pytest.raises(ValueError, match=r"."):
        bootstrap(values, 1)
