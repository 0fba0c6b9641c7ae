"""ROUGE by the rules of two packages, and MAUVE."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from colligate.lab.bench.metrics.long_answers import (
    area_under_curve,
    mauve,
    rouge_dual,
    rouge_long,
    rouge_of_run,
)
from colligate.lab.bench.outcome import Outcome
from colligate.lab.bench.question import Question, QuestionTask

pytest.importorskip("rouge_score")

# The example of the README of the package rouge, with the F of ROUGE-2 that it gives.
HYPOTHESIS = (
    "the #### transcript is a written version of each day 's cnn student news program use this"
    " transcript to he    lp students with reading comprehension and vocabulary use the weekly"
    " newsquiz to test your knowledge of storie s you     saw on cnn student news"
)
REFERENCE = (
    "this page includes the show transcript use the transcript to help students with reading"
    " comprehension and     vocabulary at the bottom of the page , comment for a chance to be"
    " mentioned on cnn student news . you must be a teac    her or a student age # # or older to"
    " request a mention on the cnn student news roll call . the weekly newsquiz tests     students"
    " ' knowledge of even ts in the news"
)


def test_the_example_of_the_package_rouge() -> None:
    assert rouge_dual(HYPOTHESIS, [REFERENCE])["rouge_2_dual"] == pytest.approx(0.23423422957552154)


@pytest.mark.parametrize(
    ("said", "gold", "rouge_2", "rouge_l"),
    [
        # What rouge 1.0.1 gives: words count once, over sentences, and blanks after a full stop.
        ("a b a b. c d", "a b c. d a", 0.7499999950000001, 0.999999995),
        ("the cat. sat ", "the cat sat. .", 0.799999995, 0.8571428522448981),
        ("The cat", "the cat", 0.0, 0.499999995),
        ("c b a", "a b c", 0.0, 0.3333333283333334),
    ],
)
def test_the_rules_of_the_package_rouge(
    said: str, gold: str, rouge_2: float, rouge_l: float
) -> None:
    found = rouge_dual(said, [gold])
    assert (found["rouge_2_dual"], found["rouge_l_dual"]) == pytest.approx((rouge_2, rouge_l))


def test_a_long_text_breaks_nothing() -> None:
    # The package's recursion fails from about a thousand words on.
    text = " ".join(f"w{i}" for i in range(3000))
    assert rouge_dual(text, ["w1 w2"])["rouge_2_dual"] == pytest.approx(2 / 3000, rel=0.01)


@pytest.mark.parametrize("empty", ["", ".", " . .", "...", "\n"])
def test_a_text_without_words_scores_nothing_and_breaks_nothing(empty: str) -> None:
    assert set(rouge_dual(empty, ["a b"]).values()) == {0}
    assert set(rouge_dual("a b", [empty]).values()) == {0}
    assert set(rouge_long(empty, ["a b"]).values()) == {0}
    assert set(rouge_long("a b", [empty]).values()) == {0}


def test_the_example_of_rouge_score() -> None:
    # Its README: ROUGE-L of precision 0.625 and recall 0.5556.
    gold = "The quick brown fox jumps over the lazy dog"
    found = rouge_long("The quick brown dog jumps on the log.", [gold])
    assert found["rouge_l"] == pytest.approx(2 * 0.625 * (5 / 9) / (0.625 + 5 / 9))


def test_lsum_does_not_mind_the_order_of_sentences() -> None:
    said, gold = "The cats sat. It rained!", "It rains. A cat sat."
    found = rouge_long(said, [gold, "nothing shared"])
    # Stemmed and by sentence: it rain / the cat sat against it rain / a cat sat: 4 of 5 words.
    assert found["rouge_lsum"] == pytest.approx(0.8)
    assert found["rouge_l"] < found["rouge_lsum"]


def test_a_run_has_the_median_of_its_bootstrapped_means() -> None:
    def answered(text: str, **golds: Any) -> tuple[Question, Outcome]:
        question = Question("q", "what?", task=QuestionTask.LONG, **golds)
        return question, Outcome(text, found=bool(text))

    for golds in ({"long_answers": ("a cat sat",)}, {"answers": ("a cat sat",)}):
        run = [answered(text, **golds) for text in ("a cat sat", "", "a cat sat", "")]
        assert rouge_of_run(run)["rouge_lsum_mid"] == pytest.approx(0.5, abs=0.01)
    assert rouge_of_run([]) == {}


# MAUVE


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
