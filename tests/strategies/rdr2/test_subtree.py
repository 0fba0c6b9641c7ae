from __future__ import annotations

import re
from collections.abc import Collection

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colligate.strategies.rdr2.tree import StructureTree, build_structure_tree, build_subtree
from support.documents import make

TEXT = """# Park

A theme park.

## History

### Construction

Built in a year.

Opened in 1961.

## Records

Of all rides.

- Tallest coaster: Titan
  - at 245 feet
    - with a long tunnel
  - in 2001
- Tallest swing

## Later

Still open.
"""
# -1 Park, 0 Introduction, 1 A theme park., 2 History, 3 Construction, 4 Built, 5 Opened, 6 Records,
# 7 Of all rides., 8 coaster, 9 feet, 10 tunnel, 11 2001, 12 swing, 13 Later, 14 Still open.
HEADINGS = {-1, 0, 2, 3, 6, 13}


def made(text: str = TEXT, title: str = "Park") -> StructureTree:
    return build_structure_tree(make(text, title))


TREE = made()
WORDS = " ".join(f"word{i}" for i in range(500))


@pytest.mark.parametrize(
    ("highlighted", "options", "visible"),
    [
        # 7 and 12 are beside 8, which 9 hangs on, but not beside 9.
        ([9], {}, HEADINGS | {8, 9, 10, 11}),
        ([12], {}, HEADINGS | {7, 8, 9, 10, 11, 12}),  # what hangs on content beside
        ([], {}, HEADINGS),
        ([-1], {}, HEADINGS),
        ([10, 4], {"structure": False}, {-1, 2, 3, 4, 6, 8, 9, 10}),
        ([4, 5, 6, 7], {"structure": False}, {-1, 2, 3, 4, 5, 6, 7}),
        ([4, 9], {"content": False}, HEADINGS),
        ([4], {"structure": False, "content": False}, {-1, 2, 3}),
        ([9], {"beside": False}, HEADINGS | {8, 9}),
    ],
)
def test_what_is_visible(
    highlighted: list[int], options: dict[str, bool], visible: set[int]
) -> None:
    shown = build_subtree(TREE, highlighted, **options)
    assert shown.visible == visible
    assert shown.highlighted == tuple(sorted(highlighted))


def by_the_book(tree: StructureTree, highlighted: Collection[int]) -> set[int]:
    """Algorithm 1 of the paper, word for word."""
    nodes = tree.nodes
    visible = {i for i in nodes if nodes[i].structure}

    def light(node: int) -> None:
        visible.add(node)
        for child in nodes[node].children:
            if not nodes[child].structure:
                light(child)

    for found in highlighted:
        parent = nodes[found].parent
        siblings = [found] if parent is None else list(nodes[parent].children)
        for sibling in siblings:
            if not nodes[sibling].structure:
                light(sibling)
        above = parent
        while above is not None and not nodes[above].structure:
            visible.add(above)
            above = nodes[above].parent
    return visible


@st.composite
def trees(draw: st.DrawFn) -> StructureTree:
    pieces = st.sampled_from(
        ["## B", "### C", "#### D", "text", "longer text of several words, 1961", "- a\n  - b\n- c"]
    )
    return made("# Park\n\n" + "\n\n".join(draw(st.lists(pieces, max_size=15))))


_LINE = re.compile(r"(\t*)(-?\d+): (.*)")


@given(trees(), st.data())
def test_without_a_limit_all_is_shown_that_the_algorithm_shows(
    tree: StructureTree, data: st.DataObject
) -> None:
    highlighted = data.draw(st.sets(st.sampled_from(sorted(tree.nodes))))
    shown = build_subtree(tree, highlighted)
    assert shown.visible == by_the_book(tree, highlighted)
    parsed = [match.groups() for match in map(_LINE.fullmatch, shown.text.split("\n")) if match]
    assert parsed == [
        ("\t" * tree.nodes[i].depth, str(i), tree.nodes[i].text) for i in sorted(shown.visible)
    ]
