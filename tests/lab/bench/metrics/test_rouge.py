from __future__ import annotations

from typing import Any

import pytest

from colligate.lab.bench.metrics.long_answers import rouge_dual, rouge_long, rouge_of_run
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
