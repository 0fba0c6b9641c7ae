from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colligate.library.ranking import standardise
from colligate.strategies.duquad import Signal, contrast
from colligate.strategies.duquad.signals import add_up

WEIGHTS = {Signal.SIMILARITY: 0.5, Signal.LIKELIHOOD: 1.0, Signal.ATTENTION: 0.5}

numbers = st.floats(-100, 100).map(lambda x: round(x, 3))


def test_contrast_is_to_both_neighbours_inside_and_to_one_at_the_ends():
    # z of (1, 2, 6) has mean 3 and deviation sqrt(14/3).
    sigma = math.sqrt(14 / 3)
    expected = [-1 / sigma, (-1 - (-2 + 3) / 2) / sigma, 4 / sigma]
    assert contrast([1, 2, 6]) == pytest.approx(expected)


def test_a_passage_alone_and_equal_attention_have_no_contrast():
    assert contrast([]) == []
    assert contrast([0.3]) == [0.0]
    assert contrast([0.1, 0.1, 0.1]) == [0.0, 0.0, 0.0]


@given(st.lists(numbers, min_size=2, max_size=30), st.floats(0.5, 20), numbers)
def test_contrast_does_not_depend_on_scale_or_level(attention, scale, level):
    other = [scale * a + level for a in attention]
    assert contrast(other) == pytest.approx(contrast(attention), abs=1e-4)


@given(st.lists(numbers, min_size=1, max_size=30))
def test_standard_scores_have_mean_0_and_deviation_1_or_are_all_0(values):
    z = standardise(values)
    assert z.mean() == pytest.approx(0, abs=1e-9)
    assert z.std() == pytest.approx(1) or not z.any()


def test_the_structural_fusion_score_by_hand():
    signals = dict(zip(WEIGHTS, ([0.9, 0.1], [-1.0, -2.0], [0.5, -0.5]), strict=True))
    scores = add_up(signals, WEIGHTS)
    share = lambda d: 1 / (1 + math.exp(-d))  # noqa: E731 (of the larger of two that differ by d)
    first = 0.5 * share(0.8) + 1.0 * share(1.0) + 0.5 * share(1.0)
    assert scores == pytest.approx([first, 2.0 - first])
