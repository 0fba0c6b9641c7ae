import json
import pickle
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
    root = builder.add(Kind.ROOT, (0, length), None)

    def grow(parent: int, start: int, end: int, level: int) -> None:
        while start < end and draw(st.booleans()):
            first = draw(st.integers(start, end - 1))
            last = draw(st.integers(first + 1, end))
            if draw(st.booleans()):
                heading = (first, draw(st.integers(first + 1, last)))
                about = {"level": level, "title": draw(st.text(max_size=3)), "heading": heading}
                child = builder.add(Kind.SECTION, (first, last), parent, **about)
                grow(child, heading[1], last, level + 1)
            else:
                child = builder.add(Kind.LIST_ITEM, (first, last), parent)
                if first + 1 < last:
                    grow(child, first + 1, last, level + 1)
            start = last

    grow(root, 0, length, 1)
    confidence = draw(st.floats(0, 1))
    return builder.build(Structure(confidence, draw(st.sampled_from(Basis)), "note"))


@settings(max_examples=100)
@given(trees())
def test_any_tree_nests_in_order_finds_its_nodes_and_is_stored_whole(tree):
    for node in tree:
        children = tree.children(node)
        assert all(child.parent == node.id for child in children)
        assert all(node.span.contains(child.span) for child in children)
        assert all(a.span.end <= b.span.start for a, b in pairwise(children))
        assert all(node in tree.ancestors(child) for child in children)
    for place in range(len(tree.root.span)):
        holding = [n for n in tree if n.span.start <= place < n.span.end]
        assert tree.node_at(place) == holding[-1]
    for outside in (-1, len(tree.root.span)):
        with pytest.raises(SpanError):
            tree.node_at(outside)
    assert Tree.from_json(json.loads(json.dumps(tree.to_json())), "d") == tree
    assert pickle.loads(pickle.dumps(tree)) == tree


def test_a_heading_path_leaves_synthetic_sections_out():
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


def test_of_a_long_heading_the_title_has_the_beginning():
    tree = markdown_tree(f"# {'a' * 1000}\n\n## {'b' * 1001}\n\ntext\n", "d")
    assert [node.title for node in tree.sections] == ["a" * 1000, "b" * 999 + "…"]
    assert len(tree.sections[1].heading) == 1004


@pytest.mark.parametrize(
    "nodes",
    [
        [(0, 4, 0, None), (3, 6, 0, None)],  # overlaps the sibling before it
        [(5, 12, 0, None)],  # ends after its parent
        [(4, 3, 0, None)],  # runs backward
        [(0, 5, 0, None), (5, 9, 0, None), (1, 2, 1, None)],  # its parent is closed
        [(0, 5, 0, None), (5, 9, 0, None), (1, 2, 7, None)],  # its parent is unknown
        [(2, 5, 0, (0, 3))],  # its heading is outside
    ],
)
def test_a_node_that_does_not_nest_is_refused(nodes):
    builder = TreeBuilder("d")
    builder.add(Kind.ROOT, (0, 10), None)
    for start, end, parent, heading in nodes:
        builder.add(Kind.SECTION, (start, end), parent, level=1, heading=heading)
    with pytest.raises(SpanError):
        builder.build(Structure(1.0, Basis.NONE))


def test_a_flat_tree_is_a_root_alone():
    tree = flat_tree("d", 5)
    assert list(tree) == [Node(0, Kind.ROOT, 0, "", Span("d", 0, 5))]
    assert tree.structure.basis is Basis.NONE
    assert flat_tree("d", 0).section_path(Span("d", 0, 0)) == ()
