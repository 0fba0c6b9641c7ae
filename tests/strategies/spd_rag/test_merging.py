import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from colligate.strategies.spd_rag.synthesis import build_merge_tree, group_by_tokens, group_texts

COUNTS = st.lists(st.integers(0, 900), min_size=1, max_size=60)


@st.composite
def texts(draw):
    """Vectors, some equal and some zero, with a token count each."""
    tokens = draw(COUNTS)
    row = st.lists(st.sampled_from([-1.0, 0.0, 0.5, 2.0]), min_size=3, max_size=3)
    return np.array([draw(row) for _ in tokens], dtype=np.float32), tokens


@given(texts(), st.integers(1, 2000))
def test_there_are_fewer_groups_than_texts_and_none_of_several_exceeds_the_budget(made, budget):
    vectors, tokens = made
    groups = group_texts(vectors, tokens, budget)
    assert sorted(text for group in groups for text in group) == list(range(len(tokens)))
    assert len(groups) < max(2, len(tokens))  # so that the levels end
    if len(groups) > 1:
        assert all(len(g) == 1 or sum(tokens[i] for i in g) <= budget for g in groups)
    elif len(tokens) > 1 and sum(tokens) > budget:  # forced: the nearest two do not fit
        left, right = build_merge_tree(vectors)[0]
        assert tokens[left] + tokens[right] > budget


def test_the_nearest_texts_are_put_together_first():
    east, north = [1.0, 0.0], [0.0, 1.0]
    vectors = [east, north, [0.99, 0.1], [0.1, 0.99]]
    assert build_merge_tree(vectors)[0] in ((0, 2), (1, 3))
    assert group_texts(vectors, [10, 10, 10, 10], 20) == ((0, 2), (1, 3))


def test_average_linkage_is_by_the_mean_distance_of_all_pairs():
    # By single linkage 2 would join the first group, by its nearest member.
    angles = np.radians([0, 20, 45, 66])
    vectors = np.column_stack([np.cos(angles), np.sin(angles)])
    assert build_merge_tree(vectors) == [(0, 1), (2, 3), (4, 5)]


def test_a_refused_merge_blocks_all_that_are_built_on_it():
    tree = [(0, 1), (3, 2)]  # the second joins the refused first with a text that is short
    assert group_by_tokens([60, 60, 1], tree, 100) == ((0,), (1,), (2,))
    assert group_by_tokens([50, 50, 1], tree, 100) == ((0, 1), (2,))
    assert group_by_tokens([50, 49, 1], tree, 100) == ((0, 1, 2),)


def test_thousands_of_texts_are_grouped_in_bounded_memory():
    vectors = np.random.default_rng(1).random((5000, 64), dtype=np.float32)
    tracemalloc.start()
    found = group_texts(vectors, [10] * 5000, 100)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 40_000_000  # all distances at once are 100 MB
    assert sorted(i for group in found for i in group) == list(range(5000))


@pytest.mark.parametrize("count", [0, 1])
def test_one_text_is_one_group_and_none_is_none(count):
    assert group_texts(np.ones((count, 4)), [7] * count, 5) == ((0,),) * count


def test_zero_vectors_and_equal_ones_break_nothing():
    vectors = [[0.0, 0.0], [0.0, 0.0], [1.0, 0.0], [1.0, 0.0]]
    assert build_merge_tree(vectors)[0] == (2, 3)
    assert group_texts(vectors, [10] * 4, 25) == ((0, 1), (2, 3))
