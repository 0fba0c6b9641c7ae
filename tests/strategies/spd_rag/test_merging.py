from __future__ import annotations

import random
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from colligate.strategies.spd_rag.synthesis import (
    build_merge_tree,
    group_by_tokens,
    group_texts,
)

COUNTS = st.lists(st.integers(0, 900), min_size=1, max_size=60)


@st.composite
def texts(draw):
    """Vectors, some equal and some zero, with a token count each."""
    tokens = draw(COUNTS)
    row = st.lists(st.sampled_from([-1.0, 0.0, 0.5, 2.0]), min_size=3, max_size=3)
    return np.array([draw(row) for _ in tokens], dtype=np.float32), tokens


@given(texts(), st.integers(1, 2000))
def test_every_text_is_in_one_group_and_no_group_of_several_exceeds_the_budget(made, budget):
    vectors, tokens = made
    found = group_texts(vectors, tokens, budget)
    members = [text for group in found.groups for text in group]
    assert sorted(members) == list(range(len(tokens)))
    for group in found.groups:
        assert len(group) == 1 or found.forced or sum(tokens[i] for i in group) <= budget
    assert list(map(min, found.groups)) == sorted(map(min, found.groups))


@given(texts(), st.integers(1, 2000))
def test_there_are_always_fewer_groups_so_that_levels_end(made, budget):
    vectors, tokens = made
    found = group_texts(vectors, tokens, budget)
    assert len(found.groups) < max(2, len(tokens))
    assert not found.forced or len(found.groups) == 1


@given(texts(), st.integers(1, 2000))
def test_a_group_is_forced_only_where_no_two_neighbours_of_the_tree_fit(made, budget):
    vectors, tokens = made
    found = group_texts(vectors, tokens, budget)
    (*pair,) = build_merge_tree(vectors)[:1]
    if found.forced:
        left, right = pair[0]
        assert tokens[left] + tokens[right] > budget


def test_the_nearest_texts_are_put_together_first():
    east, north = [1.0, 0.0], [0.0, 1.0]
    vectors = [east, north, [0.99, 0.1], [0.1, 0.99]]
    assert build_merge_tree(vectors)[0] in ((0, 2), (1, 3))
    assert group_texts(vectors, [10, 10, 10, 10], 20).groups == ((0, 2), (1, 3))


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


def test_where_no_two_fit_together_all_are_forced_into_one_group():
    found = group_texts([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], [80, 90, 70], 100)
    assert found.groups == ((0, 1, 2),)
    assert found.forced


def test_a_text_longer_than_the_budget_stays_by_itself():
    found = group_texts([[0.0, 1.0], [1.0, 0.0], [1.0, 0.1]], [500, 10, 20], 100)
    assert found.groups == ((0,), (1, 2))
    assert not found.forced


def test_thousands_of_texts_are_grouped_in_bounded_memory_and_still_by_likeness():
    chance = random.Random(1)
    kinds = [chance.randrange(4) for _ in range(5000)]
    vectors = np.eye(4, 64, dtype=np.float32)[kinds]
    vectors += 0.01 * np.random.default_rng(1).random(vectors.shape, dtype=np.float32)
    tracemalloc.start()
    found = group_texts(vectors, [10] * 5000, 100)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 40_000_000  # all distances at once are 100 MB
    assert sorted(i for group in found.groups for i in group) == list(range(5000))
    alike = sum(len({kinds[i] for i in group}) == 1 for group in found.groups)
    assert alike > 0.95 * len(found.groups)


@pytest.mark.parametrize("count", [0, 1])
def test_one_text_is_one_group_and_none_is_none(count):
    assert group_texts(np.ones((count, 4)), [7] * count, 5).groups == ((0,),) * count


def test_zero_vectors_and_equal_ones_break_nothing():
    vectors = [[0.0, 0.0], [0.0, 0.0], [1.0, 0.0], [1.0, 0.0]]
    assert build_merge_tree(vectors)[0] == (2, 3)
    assert group_texts(vectors, [10] * 4, 25).groups == ((0, 1), (2, 3))
