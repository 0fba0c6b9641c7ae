from __future__ import annotations

import re
from collections.abc import Collection

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colligate.documents import Span
from colligate.documents.tokens import estimate_tokens
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


def test_all_headings_and_the_content_beside_are_shown() -> None:
    shown = build_subtree(TREE, [4])
    assert shown.text == (
        "-1: Park\n\t0: ==Introduction==\n\t2: ==History==\n\t\t3: ===Construction===\n"
        "\t\t\t4: Built in a year.\n\t\t\t5: Opened in 1961.\n\t6: ==Records==\n\t13: ==Later=="
    )
    assert shown.highlighted == (4,)
    assert shown.visible == HEADINGS | {4, 5}
    assert shown.omitted == frozenset()


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
    ],
)
def test_what_is_visible(
    highlighted: list[int], options: dict[str, bool], visible: set[int]
) -> None:
    shown = build_subtree(TREE, highlighted, **options)
    assert shown.visible == visible
    assert shown.highlighted == tuple(sorted(highlighted))


def test_a_highlighted_heading_shows_the_content_beside_it() -> None:
    tree = made("# Park\n\nA\n\n## B\n\nb\n\n### C\n\nc\n", "Other")
    section = next(i for i, node in tree.nodes.items() if node.text == "====C====")
    shown = [tree.nodes[i].text for i in sorted(build_subtree(tree, [section]).visible)]
    assert "b" in shown
    assert "c" not in shown
    assert "A" not in shown


@pytest.mark.parametrize(
    ("highlighted", "limit", "visible"),
    [
        # the highlighted, headings to half, content beside, other headings
        ([4], 4, {-1, 2, 3, 4}),
        ([4], 5, {-1, 2, 3, 4, 6}),
        ([4], 6, {-1, 2, 3, 4, 5, 6}),
        ([4], 7, {-1, 0, 2, 3, 4, 5, 6}),
        ([4], 8, HEADINGS | {4, 5}),
        # of too many the first
        ([12, 4, 9], 6, {-1, 2, 3, 4, 5, 13}),
        ([12, 4, 9], 7, {-1, 2, 3, 4, 6, 8, 9}),
        # headings outermost first
        ([14], 6, {-1, 0, 2, 6, 13, 14}),
        ([14], 7, HEADINGS | {14}),
        # content beside nearest first
        ([12], 8, {-1, 0, 2, 6, 8, 11, 12, 13}),
        ([12], 9, {-1, 0, 2, 6, 8, 9, 11, 12, 13}),
        ([12], 11, HEADINGS | {12, 8, 11, 9, 10}),
    ],
)
def test_a_limit_of_lines(highlighted: list[int], limit: int, visible: set[int]) -> None:
    def count(text: str) -> int:
        return len(text.splitlines())

    shown = build_subtree(TREE, highlighted, most_tokens=limit, count=count)
    assert shown.visible == visible
    assert shown.omitted == build_subtree(TREE, highlighted).visible - shown.visible


def test_a_limit_without_content() -> None:
    assert build_subtree(TREE, [4], content=False, most_tokens=8).visible < HEADINGS


def test_content_longer_than_the_limit_is_cut_and_leaves_room_for_headings() -> None:
    tree = made(f"# Park\n\n## A\n\n{WORDS}\n\n## B\n\nb\n\n## C\n\nc\n")
    shown = build_subtree(tree, [1], most_tokens=100)
    assert 90 <= estimate_tokens(shown.text) <= 100
    assert shown.visible == {-1, 0, 1, 2, 4}
    assert shown.omitted == frozenset()
    assert re.search(r"\t\t1: word0 .* word\d+…\n", shown.text)
    assert tree.nodes[1].text == WORDS


def test_content_cut_has_at_least_half_of_the_limit() -> None:
    headings = "".join(f"## Heading {i}\n\ntext\n\n" for i in range(100))
    tree = made(f"# Park\n\n{'word ' * 500}\n\n{headings}")
    shown = build_subtree(tree, [1], most_tokens=200)
    line = shown.text.splitlines()[2]
    assert line.endswith("…")
    assert 85 <= estimate_tokens(line) <= 110
    assert estimate_tokens(shown.text) > 190


def place(tree: StructureTree, words: str) -> Span:
    start = tree.document.text.index(words)
    return tree.document.span(start, start + len(words))


def test_content_too_long_is_cut_around_the_place_that_was_found() -> None:
    tree = made(f"# Park\n\n## A\n\n{WORDS}\n\n## B\n\nb\n")
    for words in ("word250 word251", "word498 word499"):
        shown = build_subtree(tree, [1], near=place(tree, words), most_tokens=100)
        assert 90 <= estimate_tokens(shown.text) <= 100
        assert shown.visible == {-1, 0, 1, 2}
        assert re.search(rf"\t\t1: word0 word1 .*… ….*\b{words}\b", shown.text)
    for words in ("word0 word1", WORDS):  # at its beginning, or all of it
        shown = build_subtree(tree, [1], near=place(tree, words), most_tokens=100)
        assert shown == build_subtree(tree, [1], most_tokens=100)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (f"Short.\n\n{WORDS}", {1: "Short", 2: "word0 word1"}),
        (f"{WORDS}\n\nShort.", {1: "word499", 2: "Short"}),
        (f"{WORDS}\n\n{WORDS}x", {1: "word499", 2: "word0 word1"}),
    ],
)
def test_all_content_that_was_found_is_shown(text: str, found: dict[int, str]) -> None:
    tree = made(f"# Park\n\n## A\n\n{text}\n\n## B\n\nb\n")
    middle = tree.nodes[2].span.start
    near = tree.document.span(middle - 9, middle + 9)
    shown = build_subtree(tree, tree.map_span(near), near=near, most_tokens=200)
    assert estimate_tokens(shown.text) <= 200
    assert shown.visible == {-1, 0, 1, 2, 3}
    lines = {int(line.split(":")[0]): line for line in shown.text.splitlines()}
    assert all(words in lines[node] for node, words in found.items())


def test_text_without_blanks_is_cut_too() -> None:
    tree = made(f"# Park\n\n{'長い文書' * 300}\n")
    assert 95 <= estimate_tokens(build_subtree(tree, [1], most_tokens=100).text) <= 100


@pytest.mark.parametrize("limit", [0, 1, 2])
def test_where_not_even_the_title_fits_nothing_is_shown(limit: int) -> None:
    shown = build_subtree(TREE, [4], most_tokens=limit)
    assert (shown.text, shown.visible) == ("", frozenset())
    assert shown.omitted == HEADINGS | {4, 5}


def test_a_long_title_is_cut() -> None:
    shown = build_subtree(made("text\n", "title " * 100), [], most_tokens=20)
    assert shown.text.startswith("-1: title title")
    assert "title…" in shown.text
    assert 15 <= estimate_tokens(shown.text) <= 20


def test_a_count_that_grows_with_the_text_keeps_the_limit() -> None:
    def count(text: str) -> int:
        return len(text) + len(text) ** 2 // 50

    for limit in range(0, 2000, 50):
        shown = build_subtree(TREE, [9], most_tokens=limit, count=count)
        assert count(shown.text) <= limit
        assert 9 in shown.visible or limit < 300


def test_many_neighbours_take_no_time() -> None:
    items = "\n".join(f"- item {i} of a long list" for i in range(3000))
    tree = made(f"# Park\n\n{items}\n\n## B\n\nb\n")
    kids = tree.content_children(0)
    assert len(build_subtree(tree, kids).visible) == 3003
    near = build_subtree(tree, [kids[1500]], most_tokens=500).visible
    assert kids[1490] in near
    assert kids[1510] in near
    assert kids[1000] not in near


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


@given(trees(), st.integers(0, 150), st.booleans(), st.booleans(), st.data())
def test_under_a_limit(
    tree: StructureTree, limit: int, structure: bool, content: bool, data: st.DataObject
) -> None:
    highlighted = data.draw(st.sets(st.sampled_from(sorted(tree.nodes))))
    free = build_subtree(tree, highlighted, structure=structure, content=content)
    start, end = sorted(data.draw(st.tuples(*[st.integers(0, len(tree.document.text))] * 2)))
    held = build_subtree(
        tree,
        highlighted,
        near=data.draw(st.none() | st.just(tree.document.span(start, end))),
        structure=structure,
        content=content,
        most_tokens=limit,
    )
    assert estimate_tokens(held.text) <= limit
    assert held.visible | held.omitted == free.visible
    assert not held.visible & held.omitted
    assert all(tree.nodes[i].parent in (None, *held.visible) for i in held.visible)
    parsed = [_LINE.fullmatch(line) for line in held.text.split("\n") if line]
    assert [int(match[2]) for match in parsed if match] == sorted(held.visible)
    if estimate_tokens(free.text) <= limit:
        assert held == free
    found = [i for i in free.highlighted if not tree.nodes[i].structure and i in free.visible]
    kept = [i in held.visible for i in found]
    if limit >= 60:  # room for the path of one at least
        assert not found or kept[0]
