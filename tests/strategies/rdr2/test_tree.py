import re
from collections.abc import Collection

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colligate.documents import Span
from colligate.strategies.rdr2.tree import (
    WIKIPEDIA,
    StructureTree,
    build_structure_tree,
    build_subtree,
)
from support.documents import block_spans, make

TEXT = """# Six Flags

A theme park
in   Texas.

## History

### Construction

Angus Wynne built it in a year.

Visitors came from the first day on.

### Closed rides

## Records

- Tallest coaster: Titan
  - at 245 feet
- Tallest swing

1. first

| ride | feet |
|------|------|
| Titan | 245 |

## References

Nobody knows.

### Books

None.
"""
DOCUMENT = make(TEXT, "Six flags")
TREE = build_structure_tree(DOCUMENT, skipped=[WIKIPEDIA])


def lines(tree: StructureTree) -> list[str]:
    return [f"{'  ' * node.depth}{node.id}: {node.text}" for node in tree.nodes.values()]


def lines_of(text: str, title: str, **options: object) -> list[str]:
    return lines(build_structure_tree(make(text, title), **options))  # type: ignore[arg-type]


def span_of(start: str, end: str = "") -> Span:
    """Return the span from one string to the end of another."""
    first = TEXT.index(start)
    return Span("d", first, TEXT.index(end or start, first) + len(end or start))


def test_a_page_is_as_in_the_paper():
    assert lines(TREE) == [
        "-1: Six flags",
        "  0: ==Introduction==",
        "    1: A theme park in Texas.",
        "  2: ==History==",
        "    3: ===Construction===",
        "      4: Angus Wynne built it in a year.",
        "      5: Visitors came from the first day on.",
        "  6: ==Records==",
        "    7: * Tallest coaster: Titan",
        "      8: * at 245 feet",
        "    9: * Tallest swing",
        "    10: * 1. first",
        "    11: | ride | feet | |------|------| | Titan | 245 |",
    ]


def test_a_page_is_as_in_the_released_code():
    assert lines_of(TEXT, "Six flags", introduction=False, skipped=["records", "References"]) == [
        "0: Six flags",
        "  1: A theme park in Texas.",
        "  2: ==History==",
        "    3: ===Construction===",
        "      4: Angus Wynne built it in a year.",
        "      5: Visitors came from the first day on.",
    ]


@pytest.mark.parametrize(
    ("text", "title", "expected"),
    [
        pytest.param(
            "# A\n\n## Banknotes\n\nmoney\n\n## NOTES\n\nnone\n",
            "A",
            ["-1: A", "  0: ==Banknotes==", "    1: money"],
            id="only whole titles are skipped",
        ),
        pytest.param(
            "# Notes\n\nKept.\n",
            "Notes",
            ["-1: Notes", "  0: ==Introduction==", "    1: Kept."],
            id="a document is not skipped for its title",
        ),
        pytest.param(
            "# Report\n\nAbout.\n\n## Results\n\nGood.\n",
            "file-1",
            [
                "-1: file-1",
                "  0: ==Report==",
                "    1: ===Introduction===",
                "      2: About.",
                "    3: ===Results===",
                "      4: Good.",
            ],
            id="a top section of another name stays",
        ),
        pytest.param(
            "# One\n\na\n\n# Two\n\nb\n",
            "One",
            ["-1: One", "  0: ==One==", "    1: a", "  2: ==Two==", "    3: b"],
            id="one of several top sections is never the title",
        ),
        pytest.param(
            "---\nyear: 1961\n---\n\n# Park\n\nLead.\n\n## Rides\n\nTitan.\n",
            "Park",
            [
                "-1: Park",
                "  0: ==Introduction==",
                "    1: --- year: 1961 ---",
                "    2: Lead.",
                "  3: ==Rides==",
                "    4: Titan.",
            ],
            id="front matter is in the introduction",
        ),
        pytest.param(
            "# A\n\n## B\n",
            "D",
            ["-1: D", "  0: ==Introduction==", "    1: # A", "    2: ## B"],
            id="headings alone are text",
        ),
        pytest.param(
            "# A\n\n##\n\nThere.\n\n## B\n\nb\n",
            "A",
            ["-1: A", "  0: ==Introduction==", "    1: There.", "  2: ==B==", "    3: b"],
            id="a heading without words is none",
        ),
        pytest.param("", "D", ["-1: D"], id="an empty document is its title"),
    ],
)
def test_pages(text, title, expected):
    assert lines_of(text, title, skipped=[WIKIPEDIA]) == expected


def test_a_text_without_known_blocks_is_cut_at_blank_lines():
    it = make("one\nline\n \t\ntwo \n\n\n  three   \n", "", flat=True)
    made = build_structure_tree(it)
    texts = ["    1: one line", "    2: two", "    3: three"]
    assert lines(made) == ["-1: d", "  0: ==Introduction==", *texts]
    assert [it.slice(made.nodes[i].span) for i in (1, 2, 3)] == ["one\nline", "two", "three"]


def test_no_text_can_pass_for_another_line():
    text = "# T\n\na\u2028\t9: ==Fake==\x85b\n\n## H\n\nx\n"
    tree = build_structure_tree(make(text, "T\n7: no"))
    assert all(len(node.text.splitlines()) == 1 for node in tree.nodes.values())
    assert not any("\t" in node.text for node in tree.nodes.values())


@pytest.mark.parametrize(
    ("start", "end", "ids"),
    [
        pytest.param("Wynne", "", (4,), id="one paragraph"),
        pytest.param("first day", "coaster", (5, 6, 7), id="headings in between"),
        pytest.param("### Construction", "Wynne", (4,), id="not around"),
        pytest.param("## Hist", "", (2,), id="a bare heading"),
        pytest.param("### Closed rides", "", (2,), id="of an empty section"),
        pytest.param("# Six", "", (-1,), id="the title"),
        pytest.param("245 feet", "", (8,), id="a nested item alone"),
        pytest.param("Titan", "245", (7, 8), id="both items"),
        pytest.param("Nobody knows", "", (-1,), id="left out"),
        pytest.param("\n\nVisitors", "\n\n", (3,), id="blanks between blocks"),
    ],
)
def test_a_span_is_mapped_to_nodes(start, end, ids):
    assert TREE.map_span(span_of(start, end)) == ids


def test_the_routed_passage_shows_its_blocks_and_their_headings_alone():
    passage = TREE.extract_routed([8, 5])
    assert passage.text == (
        "## History\n\n### Construction\nVisitors came from the first day on.\n## Records\n\n"
        "- Tallest coaster: Titan\n  - at 245 feet"
    )


_BLOCKS = ["# A", "## B", "### C", "#### D"]
_BLOCKS += ["text", "more\ntext", "- a\n  - b\n- c", "> q\n>\n> - r"]
_PIECES = st.lists(st.sampled_from(_BLOCKS), max_size=12)


@given(_PIECES, st.booleans())
def test_every_block_of_the_document_is_one_node(pieces, introduction):
    it = make("\n\n".join(pieces), "A")
    tree = build_structure_tree(it, introduction=introduction)
    assert list(tree.nodes) == list(range(tree.root, tree.root + len(tree.nodes)))
    headings = {node.heading for node in it.tree if node.heading}
    content = [node.span for node in tree.nodes.values() if not node.structure]
    if len(headings) < len(block_spans(it)):
        assert content == [span for span in block_spans(it) if span not in headings]
    for i, node in tree.nodes.items():
        assert node.id == i
        assert node.structure or it.slice(node.span).split()[-1] == node.text.split()[-1]
        assert node.children == tuple(k for k in tree.nodes if tree.nodes[k].parent == i)
        if node.parent is not None:
            assert tree.nodes[node.parent].depth == node.depth - 1
            assert node.parent in (i - 1, *tree.ancestors(i - 1))  # pre-order
        assert not node.structure or node.parent is None or tree.content_under(i)
        below = [k for k in tree.nodes if i in tree.ancestors(k)]
        assert tree.content_under(i) == tree.content_of(below)
        if not node.structure:
            assert tree.map_span(node.span) == (i,)


@given(_PIECES, st.data())
def test_passages_hold_the_answers_and_nothing_else(pieces, data):
    it = make("\n\n".join(pieces), "A")
    tree = build_structure_tree(it)
    content = tree.content_of(list(tree.nodes))
    answers = data.draw(st.sets(st.sampled_from(content))) if content else set()
    wanted = answers.union(*(tree.content_of(tree.ancestors(i)) for i in answers))
    passages = tree.extract_passages(answers)
    held = "".join("".join(passage.text.split()) for passage in passages)
    assert held == "".join("".join(it.slice(tree.nodes[i].span).split()) for i in sorted(wanted))
    assert [p.span.start for p in passages] == sorted(p.span.start for p in passages)


PARK = """# Park

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


def made(text: str = PARK, title: str = "Park") -> StructureTree:
    return build_structure_tree(make(text, title))


PARK_TREE = made()
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
def test_what_is_visible(highlighted, options, visible):
    shown = build_subtree(PARK_TREE, highlighted, **options)
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
def test_without_a_limit_all_is_shown_that_the_algorithm_shows(tree, data):
    highlighted = data.draw(st.sets(st.sampled_from(sorted(tree.nodes))))
    shown = build_subtree(tree, highlighted)
    assert shown.visible == by_the_book(tree, highlighted)
    parsed = [match.groups() for match in map(_LINE.fullmatch, shown.text.split("\n")) if match]
    assert parsed == [
        ("\t" * tree.nodes[i].depth, str(i), tree.nodes[i].text) for i in sorted(shown.visible)
    ]
