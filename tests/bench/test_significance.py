from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from colligate.bench.significance import bootstrap, paired_bootstrap


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


def test_the_same_answers_differ_in_nothing() -> None:
    found = paired_bootstrap([1, 0, 1], [1, 0, 1], seed=1)
    assert (found.mean, found.low, found.high, found.p, found.stars) == (0, 0, 0, 1.0, "")


def test_too_few_pairs_have_no_stars_whatever_they_are() -> None:
    five, six = (paired_bootstrap([1] * n, [0] * n, seed=1) for n in (5, 6))
    assert (five.enough, five.stars) == (False, "")
    assert (six.enough, six.stars) == (True, "***")


def test_p_is_never_below_one_sample() -> None:
    assert paired_bootstrap([1] * 50, [0] * 50, seed=1, resamples=500).p == 1 / 500


def test_samples_without_a_difference_count_half() -> None:
    # One question of two differs: a quarter of samples has no difference and none contradicts.
    assert paired_bootstrap([1, 0], [0, 0], seed=1).p == pytest.approx(0.25, abs=0.02)


def test_rounding_in_the_last_bits_is_no_difference() -> None:
    tenths = [0.1, 0.2, 0.3]
    assert paired_bootstrap(tenths, [0.3, 0.1, 0.2], seed=1).mean == pytest.approx(0)
    assert paired_bootstrap(tenths, [0.3, 0.1, 0.2], seed=1).p == 1.0


def test_rounding_is_told_from_a_difference_at_any_size() -> None:
    tokens = np.random.default_rng(0).random(500) * 1e6
    assert paired_bootstrap(tokens, np.roll(tokens, 1), seed=1).p == pytest.approx(1.0, abs=0.05)
    tiny = paired_bootstrap([3e-14, 2e-14, 4e-14], [0, 0, 0], seed=1)
    assert (tiny.p, tiny.low > 0) == (1 / 10_000, True)


def test_a_seed_gives_the_same_numbers_and_another_does_not() -> None:
    values = np.random.default_rng(0).random(40)
    assert bootstrap(values, 7) == bootstrap(values, 7) != bootstrap(values, 8)


@given(st.lists(st.floats(-5, 5, width=32), min_size=1, max_size=30), st.integers(0, 9))
def test_an_interval_is_ordered_and_inside_the_values(values: list[float], seed: int) -> None:
    low, high = bootstrap(values, seed, resamples=200)
    assert min(values) - 1e-9 <= low <= high <= max(values) + 1e-9


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=30))
def test_turning_a_difference_round_turns_its_interval_round(
    pairs: list[tuple[float, float]],
) -> None:
    first, second = [a for a, _ in pairs], [b for _, b in pairs]
    one, other = (
        paired_bootstrap(*sides, seed=1, resamples=200)
        for sides in ((first, second), (second, first))
    )
    assert one.mean == pytest.approx(-other.mean)
    assert one.low == pytest.approx(-other.high)
    assert one.p == pytest.approx(other.p)


def test_pieces_are_the_same_draws_as_one_piece() -> None:
    values = np.random.default_rng(0).random(3000)  # more than one piece of 10,000 samples
    drawn = np.random.default_rng(5).integers(3000, size=(2000, 3000))
    expected = np.percentile(values[drawn].mean(axis=1), [2.5, 97.5])
    assert bootstrap(values, 5, resamples=2000) == pytest.approx(tuple(expected))


def test_ten_thousand_questions_take_no_great_memory() -> None:
    first, second = np.random.default_rng(0).random((2, 10_000))
    tracemalloc.start()
    try:
        paired_bootstrap(first, second, seed=1)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 100_000_000


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


def test_sides_that_do_not_pair_are_refused() -> None:
    with pytest.raises(ValueError, match="2 values cannot be paired with 1"):
        paired_bootstrap([1, 0], [1], seed=1)
    with pytest.raises(ValueError, match="2 values and 1 strata"):
        bootstrap([1, 0], 1, strata=["a"])
