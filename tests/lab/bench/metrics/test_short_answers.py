from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colligate.lab.bench.metrics.answers import normalise_dual
from colligate.lab.bench.metrics.catalogue import measure
from colligate.lab.bench.metrics.short_answers import (
    containment,
    containment_first_line,
    exact_match,
    f1_alce,
    f1_flashrag,
    word_overlap,
)
from colligate.lab.bench.outcome import Outcome
from colligate.lab.bench.question import Question


def test_an_exact_match_is_any_gold_after_normalising() -> None:
    assert exact_match("The Beatles!", ["rolling stones", "beatles"]) == 1
    assert exact_match("Beatles band", ["beatles"]) == 0
    assert exact_match("A", ["the"]) == 1  # both normalise to nothing, as in SQuAD's script
    assert exact_match("", ["the"]) == 0  # a refusal is never right
    assert exact_match("x", []) == 0


def test_containment_is_of_characters_and_an_empty_gold_is_nowhere() -> None:
    assert containment("It was a party.", ["art"]) == 1
    assert containment("It was a party.", ["The art"]) == 1
    assert containment("anything", ["The", "..."]) == 0
    assert containment("The", ["a"]) == 1  # an exact match
    assert containment("", ["x"]) == 0


def test_lost_in_the_middle_reads_one_line() -> None:
    # best_subspan_em of its published script: the prediction is cut at the first line break.
    text = "I do not know.\nIt may be Paris."
    assert containment(text, ["Paris"]) == 1
    assert containment_first_line(text, ["Paris"]) == 0
    assert containment_first_line("\nParis", ["Paris"]) == 0
    assert containment_first_line("Paris\nor London", ["paris"]) == 1


def test_f1_counts_words_as_often_as_both_have_them() -> None:
    # said: to be or not to be (6 words), gold: to be to be to (5): 4 shared.
    found = word_overlap("to be or not to be", ["to be to be to"])
    assert (found.precision, found.recall) == (4 / 6, 4 / 5)
    assert found.f1 == pytest.approx(8 / 11)


def test_flashrag_gives_nothing_for_yes_beside_other_words() -> None:
    assert f1_flashrag("yes it is", ["yes"]) == 0
    assert f1_flashrag("yes", ["yes it is"]) == 0
    assert word_overlap("yes it is", ["yes"]).f1 == 0.5
    assert f1_flashrag("Yes.", ["yes"]) == 1
    assert f1_flashrag("no", ["yes", "no"]) == 1
    assert f1_flashrag("blue sky", ["blue"]) == pytest.approx(2 / 3)


def test_alce_calls_nothing_right_where_nothing_is_right() -> None:
    assert f1_alce("", [""]) == 1
    assert f1_alce("the", ["a"]) == 1
    assert f1_alce("", ["x"]) == f1_alce("x", [""]) == 0
    assert f1_alce("x y", ["x"]) == pytest.approx(2 / 3)


async def test_the_words_that_containment_looks_at_are_counted() -> None:
    outcome = Outcome("It was written in Lund, by Ann Lee. [1]", "Ann Lee", found=True)
    found = await measure(["short", "dual"], Question("q", "?", ("Ann",)), outcome)
    names = ("answer_words", "answer_words_raw", "answer_words_dual_short", "answer_words_dual_max")
    assert [found[name] for name in names] == [2, 8, 2, 8]
    refused = await measure(["short"], Question("q", "?", ("Ann",)), Outcome())
    assert refused["answer_words"] == refused["answer_words_raw"] == 0


words = st.lists(st.sampled_from("one two three the a yes no Party art".split()), max_size=6)


@given(words, st.lists(words, min_size=1, max_size=3))
def test_scores_lie_in_order(said: list[str], golds: list[list[str]]) -> None:
    text, wanted = " ".join(said), [" ".join(gold) for gold in golds]
    found = word_overlap(text, wanted)
    for score in (found.precision, found.recall, found.f1, f1_flashrag(text, wanted)):
        assert 0 <= score <= 1
    assert f1_flashrag(text, wanted) <= found.f1
    assert max(found.precision, found.recall) >= found.f1 - 1e-9
    if normalise_dual(text) and exact_match(text, wanted):
        assert containment(text, wanted) == found.f1 == 1


@given(words, words, st.lists(words, min_size=1, max_size=3))
async def test_accuracy_is_never_below_exact_match(
    whole: list[str], short: list[str], golds: list[list[str]]
) -> None:
    question = Question("q", "?", tuple(" ".join(gold) for gold in golds))
    outcome = Outcome(" ".join(whole), " ".join(short), True)
    found = await measure(["short", "dual"], question, outcome)
    for accuracy, exact in (
        ("containment", "em"),
        ("containment_raw", "em"),
        ("containment_raw", "em_raw"),
        ("containment_dual", "em_dual"),
        ("containment_dual_raw", "em_dual"),
        ("containment_dual_max", "em_dual_max"),
    ):
        assert found[accuracy] >= found[exact], (accuracy, exact)
