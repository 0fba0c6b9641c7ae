from __future__ import annotations

import numpy as np
import pytest

from colligate.lab.bench.metrics.long_answers import area_under_curve, mauve


@pytest.mark.parametrize(
    ("right", "given", "area"),
    [
        # What the authors' mauve-text 0.4.0 makes of the same histograms.
        ([0.7, 0.3], [0.4, 0.6], 0.8998920296771844),
        ([0.1, 0.2, 0.7], [0.3, 0.3, 0.4], 0.8783600860214514),
        ([1.0, 0.0], [0.0, 1.0], 0.0040720962619612555),
        ([0.5, 0.5], [0.5, 0.5], 1.0),  # by definition: nothing tells them apart
    ],
)
def test_the_area_under_the_curve(right: list[float], given: list[float], area: float) -> None:
    assert area_under_curve(np.array(right), np.array(given)) == pytest.approx(area, abs=1e-9)


def test_the_same_texts_are_as_near_as_can_be_and_others_far() -> None:
    features = np.random.default_rng(0).normal(size=(60, 16))
    assert mauve(features, features) == pytest.approx(1)
    apart = np.random.default_rng(1).normal(size=(60, 16)) + 9
    assert mauve(features, apart) < 0.05


def test_some_overlap_is_in_between_and_repeats_itself() -> None:
    generator = np.random.default_rng(0)
    centres = generator.normal(size=(2, 8)) * 9
    right = centres[np.repeat([0, 1], 10)] + generator.normal(size=(20, 8)) * 0.01
    given = centres[np.repeat([0, 1], [2, 18])] + generator.normal(size=(20, 8)) * 0.01
    # Two clusters, as many as the default makes of 20 texts: halves against a tenth.
    expected = area_under_curve(np.array([0.5, 0.5]), np.array([0.1, 0.9]))
    assert mauve(right, given) == pytest.approx(expected)
    assert mauve(right, given) == mauve(right, given)
