from __future__ import annotations

import time
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from colligate.documents import Basis, Document, Kind, Structure, Tree
from colligate.documents.markdown import markdown_tree, own_span
from support.documents import block_spans, make, squeeze


def rows_of(text: str) -> list[tuple[int, str, int, str]]:
    """Each node but the root: depth, kind, level, and title or own text."""
    document = make(text)
    rows = []
    for node in document.tree.nodes[1:]:
        own = own_span(document, node)
        shown = node.title if node.kind is Kind.SECTION else document.slice(own) if own else ""
        rows.append((len(document.tree.ancestors(node)), node.kind.value, node.level, shown))
    return rows


def test_headings_nest_by_level_under_the_nearest_shallower_one() -> None:
    assert rows_of("# A\n\n#### B\n\n## C\n\n### D\n\nE\n=\n\nF\n-\n") == [
        (1, "section", 1, "A"),
        (2, "section", 4, "B"),
        (2, "section", 2, "C"),
        (3, "section", 3, "D"),
        (1, "section", 1, "E"),
        (2, "section", 2, "F"),
    ]


def test_a_section_runs_from_its_heading_to_the_next_one_beside_it() -> None:
    text = "# A\n\none\n\n## B\n\ntwo\n\n\n# C\n\nthree\n"
    tree = markdown_tree(text, "d")
    spans = {n.title: text[n.span.start : n.span.end] for n in tree.sections}
    assert spans == {"A": "# A\n\none\n\n## B\n\ntwo", "B": "## B\n\ntwo", "C": "# C\n\nthree"}
    headings = [text[n.heading.start : n.heading.end] for n in tree.sections if n.heading]
    assert headings == ["# A", "## B", "# C"]


def test_an_underlined_heading_holds_its_underline() -> None:
    text = "Mozilla Public\nLicense\n=======\n\nText.\n"
    (section,) = markdown_tree(text, "d").sections
    assert section.title == "Mozilla Public License"
    assert section.heading is not None
    assert text[section.heading.start : section.heading.end] == "Mozilla Public\nLicense\n======="


def test_a_rule_drawn_under_a_long_paragraph_makes_no_heading() -> None:
    assert markdown_tree("one\ntwo\nthree\n---\n", "d").sections == ()
    assert markdown_tree("word " * 60 + "\n---\n", "d").sections == ()


@pytest.mark.parametrize(
    ("written", "title"),
    [
        ("## *Emph* and **strong** ##", "Emph and strong"),
        ("## [link](https://a.example) ![pic](b.png)", "link pic"),
        ("## `x*y*` &amp; \\*z\\*", "x*y* & *z*"),
        ("## 1.2  Scope", "1.2 Scope"),
        ("##", ""),
        ("## snake_case and 2 * 3 * 4", "snake_case and 2 * 3 * 4"),
        ("## ~~old~~ new<br>line", "old newline"),
    ],
)
def test_a_title_is_the_heading_without_its_marks(written: str, title: str) -> None:
    assert [s.title for s in markdown_tree(written, "d").sections] == [title]


def test_lead_text_stands_in_an_introduction() -> None:
    text = "lead\n\nmore\n\n## A\n\nbody"
    assert rows_of(text) == [
        (1, "section", 1, "Introduction"),
        (2, "paragraph", 0, "lead"),
        (2, "paragraph", 0, "more"),
        (1, "section", 2, "A"),
        (2, "paragraph", 0, "body"),
    ]
    introduction = markdown_tree(text, "d").sections[0]
    assert introduction.synthetic
    assert text[introduction.span.start : introduction.span.end] == "lead\n\nmore"


def test_lead_text_under_the_documents_title_stands_in_an_introduction_too() -> None:
    assert rows_of("# Title\n\nlead\n\n## A\n\nown\n\n### B\n") == [
        (1, "section", 1, "Title"),
        (2, "section", 2, "Introduction"),
        (3, "paragraph", 0, "lead"),
        (2, "section", 2, "A"),
        (3, "paragraph", 0, "own"),
        (3, "section", 3, "B"),
    ]


@pytest.mark.parametrize("text", ["# One\n\nown\n\n# Two\n", "# Only\n\nown\n"])
def test_without_a_title_over_all_headings_own_text_stays_where_it_is(text: str) -> None:
    assert "Introduction" not in [s.title for s in markdown_tree(text, "d").sections]


def test_no_headings_give_a_flat_tree() -> None:
    tree = markdown_tree("one\n\n- two\n\nthree\n", "d", structure=Structure(0.5, Basis.LAYOUT))
    assert tree.structure == Structure(1.0, Basis.NONE)
    assert [(n.kind, n.parent) for n in tree.nodes[1:]] == [
        (Kind.PARAGRAPH, 0),
        (Kind.LIST_ITEM, 0),
        (Kind.PARAGRAPH, 0),
    ]


def test_the_structure_says_what_the_caller_knows() -> None:
    known = Structure(0.7, Basis.OUTLINE, "bookmarks")
    assert markdown_tree("# A", "d", structure=known).structure == known
    assert markdown_tree("# A", "d").structure == Structure(1.0, Basis.MARKUP)


def test_list_items_nest_and_hold_their_blocks() -> None:
    text = (
        "- a\n  - b\n\n    second\n\n    | x |\n    |---|\n    | 1 |\n"
        "- ```\n  code\n  ```\n1. - c\n"
    )
    assert rows_of(text) == [
        (1, "list_item", 0, "- a"),
        (2, "list_item", 0, "- b"),
        (3, "paragraph", 0, "second"),
        (3, "table", 0, "| x |\n    |---|\n    | 1 |"),
        (1, "list_item", 0, "-"),
        (2, "code", 0, "```\n  code\n  ```"),
        (1, "list_item", 0, "1."),
        (2, "list_item", 0, "- c"),
    ]


def test_tables_and_code_are_whole() -> None:
    text = (
        "| a | b |\n|---|---|\n| 1 | 2 |\n| # 3 | 4 |\n\n"
        "```\n# no heading\n\ntext\n```\n\n    indented\n"
    )
    assert rows_of(text) == [
        (1, "table", 0, "| a | b |\n|---|---|\n| 1 | 2 |\n| # 3 | 4 |"),
        (1, "code", 0, "```\n# no heading\n\ntext\n```"),
        (1, "code", 0, "    indented"),
    ]


def test_quotes_rules_html_and_definitions_stay_text() -> None:
    text = "> one\n>\n> # two\n> - three\n\n***\n\n<div>\nfour\n</div>\n\n[five]: /six\n\n>\n"
    assert rows_of(text) == [
        (1, "paragraph", 0, "> one\n>"),
        (1, "paragraph", 0, "> # two"),
        (1, "list_item", 0, "> - three"),
        (1, "paragraph", 0, "***"),
        (1, "paragraph", 0, "<div>\nfour\n</div>"),
        (1, "paragraph", 0, "[five]: /six"),
        (1, "paragraph", 0, ">"),
    ]


def test_front_matter_is_no_heading() -> None:
    assert rows_of("---\ntitle: x\ndate: 2020\n---\n\n# A\n\nb\n") == [
        (1, "code", 0, "---\ntitle: x\ndate: 2020\n---"),
        (1, "section", 1, "A"),
        (2, "paragraph", 0, "b"),
    ]


def test_a_rule_at_the_start_is_no_front_matter() -> None:
    assert rows_of("---\n\ntext\n\n---\n\nmore\n")[1] == (1, "paragraph", 0, "text")


@pytest.mark.parametrize("end", ["\r\n", "\r", "\n"])
def test_spans_hold_with_any_line_end(end: str) -> None:
    text = end.join(["lead", "", "# A", "", "para", "line", "", "- x", "- y", ""])
    tree = markdown_tree(text, "d")
    assert [text[n.span.start : n.span.end] for n in tree.leaves] == [
        "lead",
        f"para{end}line",
        "- x",
        "- y",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "- " * 10_000 + "x",
        ">" * 10_000 + "x",
        "> - " * 5_000 + "x",
        "\n".join("  " * i + "- a" for i in range(300)),
        "#" * 10_000,
        "# " + "[" * 50_000,
        "# " + "*a_" * 20_000,
        "---\na: b\n" + "\r" * 5_000,
    ],
    ids=lambda text: text[:6],
)
def test_hostile_nesting_neither_fails_nor_stalls(text: str) -> None:
    begun = time.perf_counter()
    document = make(text)
    assert time.perf_counter() - begun < 10
    assert visible(document) == squeeze(text)


def test_time_grows_with_the_text_and_no_faster() -> None:
    block = "## Heading\n\n" + "Words of a paragraph that goes on.\n" * 8 + "\n- item\n- item\n\n"

    def seconds(times: int) -> float:
        begun = time.perf_counter()
        markdown_tree(block * times, "d")
        return time.perf_counter() - begun

    small = min(seconds(100) for _ in range(3))
    # Ten times the text; with the square of it the time would be a hundredfold.
    assert min(seconds(1000) for _ in range(3)) < 60 * small


MARKS = ["# ", "## ", "#### ", "- ", "* ", "1. ", "12) ", "> ", "```", "~~~", "---", "===", "***"]
BLANKS = ["    ", "\t", "  ", "\n", "\n\n", "\r\n", "\r", *"\xa0\x0c\u2028\x1c\u3000"]
WORDS = ["word", "two words", "x", "é", "漢字。", "🙂", "title: x", "\\", "*", "_", "`", "\x00"]
BLOCKS = ["|", "| a | b |\n|---|---|\n", "[a]: /b", "[a](b)", "<div>", "<!--", "-->"]
PIECES = st.one_of(*map(st.sampled_from, (MARKS, BLANKS, WORDS, BLOCKS)))
MARKDOWN = st.lists(PIECES, max_size=40).map("".join)


@settings(max_examples=300)
@given(MARKDOWN)
@example("---\na: b\n---\n")
@example(">\n> - \n")
@example("- \n\n  # a")
def test_a_tree_keeps_all_text_and_nests_in_order(text: str) -> None:
    document = make(text)
    tree = document.tree
    assert visible(document) == squeeze(text)
    assert (tree.root.span.start, tree.root.span.end) == (0, len(text))
    for node in tree.nodes[1:]:
        held = text[node.span.start : node.span.end]
        assert held.strip()
        assert not held[-1].isspace()
        assert node.kind is Kind.CODE or node.synthetic or not held[0].isspace()
        assert node.parent is not None
        parent = tree.nodes[node.parent]
        assert node.id in parent.children
        if node.kind is Kind.SECTION:
            assert node.level > parent.level
        if node.heading is not None:
            assert node.heading.start == node.span.start
            assert node.span.contains(node.heading)
    for node in tree:
        kids = tree.children(node)
        assert all(node.span.contains(kid.span) for kid in kids)
        assert all(a.span.end <= b.span.start for a, b in pairwise(kids))
    assert Tree.from_json(tree.to_json(), "d") == tree


def visible(document: Document) -> str:
    return squeeze("".join(document.slice(span) for span in block_spans(document)))
