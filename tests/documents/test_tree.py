from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from colligate.documents import Basis, Kind, Node, Span, Structure, Tree, TreeBuilder, flat_tree
from colligate.documents.markdown import markdown_tree
from colligate.errors import SpanError

TEXT = """lead

# One

own text

## Two

- item
  - nested

| a |
|---|
| b |

# Three
"""


@st.composite
def trees(draw: st.DrawFn) -> Tree:
    """Any tree: children nest in order inside their parent, with gaps between them."""
    builder = TreeBuilder("d")
    length = draw(st.integers(1, 60))
    root = builder.add(Kind.ROOT, 0, length, None)

    def grow(parent: int, start: int, end: int, level: int) -> None:
        while start < end and draw(st.booleans()):
            first = draw(st.integers(start, end - 1))
            last = draw(st.integers(first + 1, end))
            if draw(st.booleans()):
                heading = (first, draw(st.integers(first + 1, last)))
                title = draw(st.text(max_size=3))
                child = builder.add(
                    Kind.SECTION, first, last, parent, level=level, title=title, heading=heading
                )
                grow(child, heading[1], last, level + 1)
            else:
                child = builder.add(Kind.LIST_ITEM, first, last, parent)
                if first + 1 < last:
                    grow(child, first + 1, last, level + 1)
            start = last

    grow(root, 0, length, 1)
    confidence = draw(st.floats(0, 1))
    return builder.build(Structure(confidence, draw(st.sampled_from(Basis)), "note"))


@settings(max_examples=100, deadline=None)
@given(trees())
def test_children_nest_in_order(tree: Tree) -> None:
    for node in tree:
        children = tree.children(node)
        assert all(child.parent == node.id for child in children)
        assert all(node.span.contains(child.span) for child in children)
        assert all(a.span.end <= b.span.start for a, b in pairwise(children))


@settings(max_examples=100, deadline=None)
@given(trees())
def test_ancestors_and_descendants_agree(tree: Tree) -> None:
    for node in tree:
        below = tree.descendants(node)
        assert below == [other for other in tree if node in tree.ancestors(other)]
        assert [other.id for other in below] == sorted(other.id for other in below)


@settings(max_examples=100, deadline=None)
@given(trees())
def test_the_node_at_a_place_is_the_innermost(tree: Tree) -> None:
    for place in range(len(tree.root.span)):
        holding = [n for n in tree if n.span.start <= place < n.span.end]
        assert tree.node_at(place) == holding[-1]
    with pytest.raises(SpanError):
        tree.node_at(len(tree.root.span))
    with pytest.raises(SpanError):
        tree.node_at(-1)


@settings(max_examples=100, deadline=None)
@given(trees())
def test_storing_a_tree_loses_nothing(tree: Tree) -> None:
    assert Tree.from_json(json.loads(json.dumps(tree.to_json())), "d") == tree


def test_a_heading_path_leaves_synthetic_sections_out() -> None:
    tree = markdown_tree(TEXT, "d")

    def path(words: str) -> tuple[str, ...]:
        start = TEXT.index(words)
        return tree.section_path(Span("d", start, start + len(words)))

    assert tree.node_at(0).parent == tree.sections[0].id
    assert tree.sections[0].synthetic
    assert path("lead") == ()
    assert path("own text") == ("One",)
    assert path("## Two") == ("One", "Two")
    assert path("nested") == ("One", "Two")
    assert path("# Three") == ("Three",)
    assert tree.section_path(Span("d", len(TEXT), len(TEXT))) == ()


def test_leaves_are_the_innermost_content() -> None:
    tree = markdown_tree(TEXT, "d")
    assert [TEXT[n.span.start : n.span.end].split("\n")[0] for n in tree.leaves] == [
        "lead",
        "own text",
        "- nested",
        "| a |",
    ]


def test_descendants_of_a_deep_tree() -> None:
    builder = TreeBuilder("d")
    node = builder.add(Kind.ROOT, 0, 1, None)
    for _ in range(5000):
        node = builder.add(Kind.LIST_ITEM, 0, 1, node)
    tree = builder.build(Structure(1.0, Basis.NONE))
    assert len(tree.descendants(tree.root)) == 5000


@pytest.mark.parametrize(
    "children",
    [
        [(0, 4), (3, 6)],  # overlaps its elder sibling
        [(5, 12)],  # ends after its parent
        [(4, 3)],  # runs backward
    ],
)
def test_a_node_that_does_not_nest_is_refused(children: list[tuple[int, int]]) -> None:
    builder = TreeBuilder("d")
    root = builder.add(Kind.ROOT, 0, 10, None)
    for start, end in children:
        builder.add(Kind.PARAGRAPH, start, end, root)
    with pytest.raises(SpanError):
        builder.build(Structure(1.0, Basis.NONE))


@pytest.mark.parametrize("parent", [1, 7])
def test_a_child_of_a_node_that_is_closed_or_unknown_is_refused(parent: int) -> None:
    builder = TreeBuilder("d")
    root = builder.add(Kind.ROOT, 0, 10, None)
    builder.add(Kind.LIST_ITEM, 0, 5, root)
    builder.add(Kind.LIST_ITEM, 5, 9, root)
    builder.add(Kind.LIST_ITEM, 1, 2, parent)
    with pytest.raises(SpanError):
        builder.build(Structure(1.0, Basis.NONE))


def test_a_heading_outside_its_section_is_refused() -> None:
    builder = TreeBuilder("d")
    root = builder.add(Kind.ROOT, 0, 10, None)
    builder.add(Kind.SECTION, 2, 5, root, level=1, heading=(0, 3))
    with pytest.raises(SpanError):
        builder.build(Structure(1.0, Basis.NONE))


def test_an_end_can_be_set_later() -> None:
    builder = TreeBuilder("d")
    root = builder.add(Kind.ROOT, 0, 10, None)
    child = builder.add(Kind.PARAGRAPH, 2, 2, root)
    builder.close(child, 7)
    assert builder.build(Structure(1.0, Basis.NONE)).nodes[child].span == Span("d", 2, 7)


def test_a_flat_tree_is_a_root_alone() -> None:
    tree = flat_tree("d", 5)
    assert list(tree) == [Node(0, Kind.ROOT, 0, "", Span("d", 0, 5))]
    assert tree.structure.basis is Basis.NONE
    assert flat_tree("d", 0).section_path(Span("d", 0, 0)) == ()
