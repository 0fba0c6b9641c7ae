from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colligate.core.prompts import build_attention_prompt
from colligate.documents import Passage, Span
from colligate.library.ranking import standardise
from colligate.strategies.duquad import Signal, contrast
from colligate.strategies.duquad.signals import (
    add_up,
    likelihood_pair,
    share_weights,
)

WEIGHTS = {Signal.SIMILARITY: 0.5, Signal.LIKELIHOOD: 1.0, Signal.ATTENTION: 0.5}

numbers = st.floats(-100, 100).map(lambda x: round(x, 3))


def passage(name: str, title: str, text: str) -> Passage:
    return Passage(Span(name, 0, len(text)), text, title)


PASSAGES = [passage("a", "Ada", "Ada wrote notes."), passage("b", "Bob", "Bob sang.")]


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


def test_a_signal_that_is_missing_gives_its_weight_to_the_others():
    weights = share_weights(WEIGHTS, [Signal.ATTENTION])
    assert weights == pytest.approx({Signal.SIMILARITY: 2 / 3, Signal.LIKELIHOOD: 4 / 3})
    there = {Signal.SIMILARITY: [0.9, 0.1], Signal.LIKELIHOOD: [-1.0, -2.0]}
    assert sum(add_up(there, weights)) == pytest.approx(2.0)
    assert share_weights(WEIGHTS, list(Signal)) == {}


def test_the_attention_prompt_has_the_question_at_both_ends_and_the_texts_at_the_spans():
    text, spans = build_attention_prompt(" Who sang? ", PASSAGES)
    assert text.startswith("Question: Who sang?\n")
    assert text.endswith("Question: Who sang?")
    assert [text[a:b] for a, b in spans] == ["Ada\nAda wrote notes.", "Bob\nBob sang."]


def test_the_likelihood_is_of_the_question_after_the_passage():
    prefix, continuation = likelihood_pair("Who sang?", PASSAGES[1])
    assert continuation == "Who sang?"
    assert prefix.startswith("Bob\nBob sang.")
