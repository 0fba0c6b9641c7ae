from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colligate.documents import Document
from colligate.documents.markdown import markdown_tree
from colligate.strategies.longrefiner.method import (
    GSMode,
    combined,
    global_scores,
    local_scores,
    min_max,
)
from colligate.strategies.longrefiner.tree import Article, article

# 0 abstract, 1-2 its paragraphs; 3 section A, 4 its own paragraph, 5 sub-section B with 6 and 7,
# 8 sub-section C with 9; 10 section D with 11.
TEXT = """one two

three four

# A

five six

## B

seven eight

nine ten

## C

eleven

# D

twelve
"""
ABSTRACT, A, B, C, D = 0, 3, 5, 8, 10


def made() -> Article:
    found = article(Document("d", "T", TEXT, markdown_tree(TEXT, "d")), least_words=2, most_words=9)
    assert [node.title for node in found.nodes if node.children] == ["abstract", "A", "B", "C", "D"]
    assert found.leaves == (1, 2, 4, 6, 7, 9, 11)
    return found


def test_an_inner_node_scores_the_mean_of_its_children() -> None:
    scores = local_scores(made(), [1.0, 2.0, 6.0, 3.0, 5.0, -1.0, 8.0])
    assert scores == [1.5, 1.0, 2.0, 3.0, 6.0, 4.0, 3.0, 5.0, -1.0, -1.0, 8.0, 8.0]


def test_each_paragraph_needs_a_score() -> None:
    with pytest.raises(ValueError, match="zip"):
        local_scores(made(), [1.0, 2.0])


def test_min_max_is_over_the_whole_pool() -> None:
    assert min_max([[2.0, 4.0], [], [6.0]]) == [[0.0, 0.5], [], [1.0]]
    assert min_max([[-1.0, -1.0], [-1.0]]) == [[0.0, 0.0], [0.0]]
    assert min_max([[], []]) == [[], []]
    assert min_max([]) == []


@given(
    st.lists(st.lists(st.floats(-1e6, 1e6), max_size=5), max_size=5).filter(lambda rows: any(rows))
)
def test_min_max_keeps_the_order_and_lies_between_0_and_1(rows: list[list[float]]) -> None:
    pool = [score for row in rows for score in row]
    moved = [score for row in min_max(rows) for score in row]
    assert min(moved) == 0.0
    assert max(moved) == (1.0 if max(pool) > min(pool) else 0.0)
    order = sorted(range(len(pool)), key=pool.__getitem__)
    assert all(moved[one] <= moved[other] for one, other in pairwise(order))


def test_a_selected_section_shares_its_weight_all_the_way_down() -> None:
    third, half = 1 / 3, 1 / 2
    assert global_scores(made(), {A}) == pytest.approx(
        [0, 0, 0, 1, third, third, third * half, third * half, third, third, 0, 0]
    )


def test_a_selected_sub_section_does_not_lift_its_section() -> None:
    assert global_scores(made(), {C}) == [0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0]


def test_a_selected_node_keeps_its_own_weight_beside_what_it_inherits() -> None:
    third, half = 1 / 3, 1 / 2
    assert global_scores(made(), {A, B}) == pytest.approx(
        [0, 0, 0, 1, third, 1, half, half, third, third, 0, 0]
    )


def test_a_selected_abstract_shares_its_weight() -> None:
    assert global_scores(made(), {ABSTRACT})[:4] == [1, 0.5, 0.5, 0]


def test_the_codes_mode_goes_one_step_and_divides_by_one_more() -> None:
    third = 1 / 3  # two sub-sections, two paragraphs
    assert global_scores(made(), {A}, GSMode.CODE) == pytest.approx(
        [0, 0, 0, 1, third, third, 0, 0, third, 0, 0, 0]
    )
    assert global_scores(made(), {A, B}, GSMode.CODE) == pytest.approx(
        [0, 0, 0, 1, third, 1 + third, third, third, third, 0, 0, 0]
    )
    assert global_scores(made(), {D}, GSMode.CODE)[D:] == [1, 1]  # no sub-sections: 1 / (0 + 1)
    assert global_scores(made(), {C}, GSMode.CODE)[C : C + 2] == [1, 0.5]
    assert global_scores(made(), {ABSTRACT}, GSMode.CODE) == [1, *[0] * 11]


@pytest.mark.parametrize("mode", list(GSMode))
def test_nothing_selected_is_nothing_gained(mode: GSMode) -> None:
    assert global_scores(made(), (), mode) == [0] * 12


def test_the_scope_weighs_the_global_score() -> None:
    assert combined([0.5, 1.0], 0.25, [1.0, 0.0]) == [0.75, 1.0]
