import math

import pytest

from colligate.core.relevance import bm25_scores


def test_the_formula_by_hand():
    texts = [["cat", "cat", "dog"], ["dog"], ["cow", "cow"]]
    idf = math.log(1 + (3 - 1 + 0.5) / (1 + 0.5))
    first = idf * 2 * 2.5 / (2 + 1.5 * (1 - 0.75 + 0.75 * 3 / 2))
    assert bm25_scores(["cat"], texts) == pytest.approx([first, 0, 0])


def test_a_word_of_the_question_counts_once():
    texts = [["cat", "dog"], ["dog"]]
    assert bm25_scores(["cat", "cat"], texts) == bm25_scores(["cat"], texts)


def test_a_word_that_stands_everywhere_still_speaks_for_a_text():
    low, high = bm25_scores(["dog"], [["dog", "cat", "cow"], ["dog", "dog", "cow"]])
    assert 0 < low < high


@pytest.mark.parametrize("texts", [[], [[], []]])
def test_nothing_scores_nothing(texts):
    assert bm25_scores(["cat"], texts) == [0.0] * len(texts)
