import time

import pytest
from hypothesis import example, given, settings

from colligate.documents import Basis, Document, Kind, Structure, Tree
from colligate.documents.markdown import markdown_tree, own_span
from support.documents import MARKDOWN, block_spans, make, squeeze


def rows_of(text: str) -> list[str]:
    """Each node but the root: depth, kind, and title or own text."""
    document = make(text)
    rows = []
    for node in document.tree.nodes[1:]:
        own = own_span(document, node)
        shown = node.title if node.kind is Kind.SECTION else document.slice(own) if own else ""
        rows.append(f"{len(document.tree.ancestors(node))} {node.kind.value} {shown}")
    return rows


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        (
            "# A\n\n#### B\n\n## C\n\n### D\n\nE\n=\n\nF\n-\n",
            [
                *("1 section A", "2 section B", "2 section C", "3 section D"),
                *("1 section E", "2 section F"),
            ],
        ),
        (
            "lead\n\nmore\n\n## A\n\nbody",
            [
                "1 section Introduction",
                *("2 paragraph lead", "2 paragraph more", "1 section A", "2 paragraph body"),
            ],
        ),
        (
            "# Title\n\nlead\n\n## A\n\nown\n\n### B\n",
            [
                *("1 section Title", "2 section Introduction", "3 paragraph lead"),
                *("2 section A", "3 paragraph own", "3 section B"),
            ],
        ),
        # Without a title over all headings, own text stays where it is.
        ("# One\n\nown\n\n# Two\n", ["1 section One", "2 paragraph own", "1 section Two"]),
        ("# Only\n\nown\n", ["1 section Only", "2 paragraph own"]),
        (
            "- a\n  - b\n\n    second\n\n    | x |\n    |---|\n    | 1 |\n"
            "- ```\n  code\n  ```\n1. - c\n",
            [
                *("1 list_item - a", "2 list_item - b", "3 paragraph second"),
                *("3 table | x |\n    |---|\n    | 1 |", "1 list_item -"),
                *("2 code ```\n  code\n  ```", "1 list_item 1.", "2 list_item - c"),
            ],
        ),
        (
            "| a | b |\n|---|---|\n| # 3 | 4 |\n\n```\n# no heading\n\ntext\n```\n\n    indented\n",
            [
                "1 table | a | b |\n|---|---|\n| # 3 | 4 |",
                *("1 code ```\n# no heading\n\ntext\n```", "1 code     indented"),
            ],
        ),
        (
            "> one\n>\n> # two\n> - three\n\n***\n\n<div>\nfour\n</div>\n\n[five]: /six\n\n>\n",
            [
                *("1 paragraph > one\n>", "1 paragraph > # two", "1 list_item > - three"),
                *("1 paragraph ***", "1 paragraph <div>\nfour\n</div>"),
                *("1 paragraph [five]: /six", "1 paragraph >"),
            ],
        ),
        ("---\nt: x\n---\n\n# A\n\nb\n", ["1 code ---\nt: x\n---", "1 section A", "2 paragraph b"]),
        ("---\n\ntext\n", ["1 paragraph ---", "1 paragraph text"]),  # no front matter
        (  # the facts of a slide
            "# A\n\n---\nlayout: wide\nb: c\n---\n\n# Note: x\n",
            [
                *("1 section A", "2 paragraph ---", "2 paragraph layout: wide\nb: c\n---"),
                "1 section Note: x",
            ],
        ),
        # A rule under a long paragraph makes no heading.
        ("one\ntwo\nthree\n---\n", ["1 paragraph one\ntwo\nthree\n---"]),
    ],
)  # fmt: skip
def test_headings_and_blocks_nest(text, rows):
    assert rows_of(text) == rows


def test_a_section_runs_from_its_heading_to_the_next_one_beside_it():
    text = "# A\n\none\n\n## B\n\ntwo\n\n\nMore\nof C\n====\n\nthree\n"
    tree = markdown_tree(text, "d")
    spans = {n.title: text[n.span.start : n.span.end] for n in tree.sections}
    assert spans["A"] == "# A\n\none\n\n## B\n\ntwo"
    assert (spans["B"], spans["More of C"]) == ("## B\n\ntwo", "More\nof C\n====\n\nthree")
    headings = [text[n.heading.start : n.heading.end] for n in tree.sections if n.heading]
    assert headings == ["# A", "## B", "More\nof C\n===="]


@pytest.mark.parametrize(
    ("written", "title"),
    [
        ("## *Emph* and **strong** ##", "Emph and strong"),
        ("## [link](https://a.example) ![pic](b.png)", "link pic"),
        ("## `x*y*` &amp; \\*z\\*", "x*y* & *z*"),
        ("## 1.2  Scope", "1.2 Scope"),
        ("## Scope {#scope .wide}", "Scope"),
        ("##", ""),
        ("## snake_case and 2 * 3 * 4", "snake_case and 2 * 3 * 4"),
        ("## ~~old~~ new<br>line", "old newline"),
    ],
)
def test_a_title_is_the_heading_without_its_marks(written, title):
    assert [s.title for s in markdown_tree(written, "d").sections] == [title]


def test_the_structure_is_what_the_caller_knows_if_there_are_headings():
    known = Structure(0.7, Basis.OUTLINE, "bookmarks")
    assert markdown_tree("# A", "d", structure=known).structure == known
    assert markdown_tree("# A", "d").structure == Structure(1.0, Basis.MARKUP)
    assert markdown_tree("- two", "d", structure=known).structure == Structure(1.0, Basis.NONE)


@pytest.mark.parametrize("end", ["\r\n", "\r", "\n"])
def test_spans_hold_with_any_line_end(end):
    text = end.join(["lead", "", "# A", "", "para", "line", "", "- x", "- y", ""])
    tree = markdown_tree(text, "d")
    leaves = [text[node.span.start : node.span.end] for node in tree.leaves]
    assert leaves == ["lead", f"para{end}line", "- x", "- y"]


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
def test_hostile_nesting_neither_fails_nor_stalls(text):
    begun = time.perf_counter()
    document = make(text)
    assert time.perf_counter() - begun < 10
    assert visible(document) == squeeze(text)


@settings(max_examples=300)
@given(MARKDOWN)
@example("---\na: b\n---\n")
@example(">\n> - \n")
@example("- \n\n  # a")
def test_a_tree_keeps_all_text_and_nests_in_order(text):
    document = make(text)
    tree = document.tree
    assert visible(document) == squeeze(text)
    assert (tree.root.span.start, tree.root.span.end) == (0, len(text))
    for node in tree.nodes[1:]:
        held = text[node.span.start : node.span.end]
        assert held.strip()
        assert not held[-1].isspace()
        assert node.kind is Kind.CODE or node.synthetic or not held[0].isspace()
        if node.kind is Kind.SECTION and node.parent is not None:
            assert node.level > tree.nodes[node.parent].level
        if node.heading is not None:
            assert node.heading.start == node.span.start
    assert Tree.from_json(tree.to_json(), "d") == tree


def visible(document: Document) -> str:
    return squeeze("".join(document.slice(span) for span in block_spans(document)))
