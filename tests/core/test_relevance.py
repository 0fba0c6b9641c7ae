import math

import pytest

from colligate.core.relevance import score_bm25


def test_the_formula_by_hand():
    texts = [["cat", "cat", "dog"], ["dog"], ["cow", "cow"]]
    idf = math.log(1 + (3 - 1 + 0.5) / (1 + 0.5))
    first = idf * 2 * 2.5 / (2 + 1.5 * (1 - 0.75 + 0.75 * 3 / 2))
    assert score_bm25(["cat"], texts) == pytest.approx([first, 0, 0])


def test_a_word_of_the_question_counts_once():
    texts = [["cat", "dog"], ["dog"]]
    assert score_bm25(["cat", "cat"], texts) == score_bm25(["cat"], texts)


def test_a_word_that_stands_everywhere_still_speaks_for_a_text():
    low, high = score_bm25(["dog"], [["dog", "cat", "cow"], ["dog", "dog", "cow"]])
    assert 0 < low < high


@pytest.mark.parametrize("texts", [[], [[], []]])
def test_nothing_scores_nothing(texts):
    assert score_bm25(["cat"], texts) == [0.0] * len(texts)
