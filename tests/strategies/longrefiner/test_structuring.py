from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from colligate.documents import Basis, Document, Kind, Node, Structure, Tree, TreeBuilder
from colligate.documents.sentences import word_spans
from colligate.strategies.longrefiner.structuring import LEVELS, Article, build_article, split_parts
from support.documents import make


def lighthouse(text: str, title: str = "Lighthouse", *, flat: bool = False) -> Document:
    return make(text, title, flat=flat)


def drawn(made: Article) -> list[str]:
    """One line a node, indented by its depth: its title, or `- ` and the text of a paragraph."""
    depth: dict[int | None, int] = {None: 0}
    lines = []
    for node in made.nodes:
        depth[node.id] = depth[node.parent] + 1
        said = f"{LEVELS[node.level]}: {node.title}"
        if node.kind is Kind.PARAGRAPH:
            said = f"- {made.document.slice(node.span)}"
        lines.append(f"{'  ' * depth[node.parent]}{said}")
    return lines


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        pytest.param(
            "# Lighthouse\n\nlead\n\n## A\n\none\n\n### I\n\ntwo\n\n#### 1\n\nthree\n\n"
            "### II\n\nfour\n\n## B\n\nfive",
            [
                "abstract: abstract",
                "  - lead",
                "section: A",
                "  - one",
                "  subsection: I",
                "    - two",
                "    - three",
                "  subsection: II",
                "    - four",
                "section: B",
                "  - five",
            ],
            id="two levels of headings over paragraphs",
        ),
        pytest.param(
            "# Lighthouse\n\n## ACME\n\nlead\n\n### I\n\none\n\n#### 1\n\ntwo\n\n### II\n\nthree",
            [
                "abstract: abstract",
                "  - lead",
                "section: I",
                "  - one",
                "  subsection: 1",
                "    - two",
                "section: II",
                "  - three",
            ],
            id="a top section that holds all others is not one",
        ),
        pytest.param(
            "# lighthouse\n\nlead\n\n# A\n\none",
            ["abstract: abstract", "  - lead", "section: A", "  - one"],
            id="nor is one with the title",
        ),
        pytest.param(
            "# Tower\n\nlead\n\n# A\n\none",
            ["section: Tower", "  - lead", "section: A", "  - one"],
            id="any other is",
        ),
        *(
            pytest.param(
                f"# Lighthouse\n\nA. Author\n\n#### {heading}\n\nLight.\n\n## Introduction\n\nSea.",
                [
                    "abstract: abstract",
                    "  - A. Author",
                    "  - Light.",
                    "section: Introduction",
                    "  - Sea.",
                ],
                id=f"a first section called {heading}",
            )
            for heading in ("Abstract", "ABSTRACT.", "1. Summary", "*Abstract*:")
        ),
        pytest.param(
            "# Abstract\n\n## Aims\n\n### Light\n\none\n\n# B\n\ntwo",
            ["abstract: abstract", "  - one", "section: B", "  - two"],
            id="everything in the abstract is abstract",
        ),
        pytest.param(
            "# A\n\n## B\n\n## C\n\ntext\n\n# D\n\n# E\n\nmore",
            ["section: A", "  subsection: C", "    - text", "section: E", "  - more"],
            id="sections without text are left out",
        ),
        pytest.param(
            "# A\n\n## B\n\none\n\n# C\n\n## B\n\ntwo\n\n# A\n\nthree",
            [
                "section: A",
                "  subsection: B",
                "    - one",
                "section: C",
                "  subsection: B",
                "    - two",
                "section: A",
                "  - three",
            ],
            id="sections of one name stay apart",
        ),
        pytest.param("A tower.\n\nIt is lit.", ["- A tower.\n\nIt is lit."], id="a short text"),
        pytest.param("# Lighthouse\n\nA tower.", ["- A tower."], id="with a title"),
        pytest.param("", [], id="nothing"),
        pytest.param("# Lighthouse\n\n## A", [], id="headings alone"),
    ],
)
def test_articles(text, lines):
    assert drawn(build_article(lighthouse(text))) == lines


@pytest.mark.parametrize("flat", [False, True])
def test_a_long_text_without_headings_is_one_section_of_six_sentences_each(flat):
    sentences = [f"The light of tower {n} turns all night and is seen far out." for n in range(25)]
    made = build_article(lighthouse(" ".join(sentences), flat=flat))
    sixes = [" ".join(sentences[i : i + 6]) for i in range(0, 25, 6)]
    assert drawn(made) == ["section: Lighthouse", *(f"  - {six}" for six in sixes)]


def model_tree(text: str, rows: list[tuple[str | None, str, int | None]]) -> Tree:
    """A tree as a model makes one: titles that the text does not have, and spans with gaps."""
    builder = TreeBuilder("d")
    builder.add(Kind.ROOT, (0, len(text)), None)
    for title, words, parent in rows:
        start = text.index(words)
        kind = Kind.PARAGRAPH if title is None else Kind.SECTION
        builder.add(kind, (start, start + len(words)), parent, title=title or "", level=1)
    return builder.build(Structure(0.9, Basis.LAYOUT))


def test_a_tree_that_a_model_made_over_text_without_headings():
    text = "lead. gap one. first. gap two. second. third. gap three."
    rows = [("abstract", "lead.", 0), (None, "lead.", 1)]
    rows += [("Rise", "first. gap two. second. third.", 0), (None, "first.", 3)]
    rows += [("Peak", "second.", 3), (None, "second.", 5), (None, "third.", 3)]
    made = build_article(lighthouse(text, flat=True), model_tree(text, rows))
    assert drawn(made) == [
        "abstract: abstract",
        "  - lead. gap one.",
        "section: Rise",
        "  - first. gap two.",
        "  subsection: Peak",
        "    - second.",
        "  - third. gap three.",
    ]
    assert made.document.slice(made.nodes[2].span) == text[text.index("first") :]


BLOCK = st.one_of(
    st.tuples(st.integers(1, 5), st.sampled_from(["A", "B", "Abstract", "Lighthouse", ""])).map(
        lambda made: f"{'#' * made[0]} {made[1]}"
    ),
    st.sampled_from(["A short one.", "First. Second! Third?", "- item\n  - inner", "学校。" * 9]),
    st.integers(1, 90).map(lambda n: "some words that go on " * n),
    st.text(max_size=20),
)


@settings(max_examples=150)
@given(blocks=st.lists(BLOCK, max_size=14), flat=st.booleans())
def test_an_article_is_a_tree_that_leaves_out_no_text(blocks, flat):
    found = lighthouse("\n\n".join(blocks), flat=flat)
    made = build_article(found, least_words=10, most_words=30)
    leaves = [made.nodes[leaf] for leaf in made.leaves]

    assert [node.id for node in made.nodes] == list(range(len(made.nodes)))
    assert walked(made) == [node.id for node in made.nodes]
    for node in made.nodes:
        assert (node.kind is Kind.PARAGRAPH) == (not node.children)
        inside = [made.nodes[child] for child in node.children]
        assert all(child.parent == node.id and node.span.contains(child.span) for child in inside)
        assert made.leaves_under[node.id] == tuple(
            leaf.id for leaf in leaves if node in lineage(made, leaf)
        )
        assert node.children or found.slice(node.span) == found.slice(node.span).strip() != ""
    assert all(one.span.end <= other.span.start for one, other in pairwise(leaves))
    assert all(len(word_spans(found.slice(leaf.span))) < 40 for leaf in leaves)

    headings = [node.heading for node in found.tree.sections if node.heading]
    wanted = set(range(len(found)))
    wanted -= {i for span in headings for i in range(span.start, span.end)}
    held = {i for leaf in leaves for i in range(leaf.span.start, leaf.span.end)}
    solid = {i for i, character in enumerate(found.text) if not character.isspace()}
    assert held & solid == wanted & solid


def walked(made: Article) -> list[int]:
    def under(ids: list[int]) -> list[int]:
        return [i for each in ids for i in [each, *under(list(made.nodes[each].children))]]

    return under([node.id for node in made.nodes if node.parent is None])


def lineage(made: Article, node: Node) -> list[Node]:
    return [node, *([] if node.parent is None else lineage(made, made.nodes[node.parent]))]


WORDS = st.text("abc \n.", max_size=400)


@given(st.lists(WORDS, max_size=8), st.integers(1, 60))
def test_parts_leave_nothing_out_and_come_in_order(paragraphs, most_tokens):
    document = make("\n\n".join(paragraphs))
    spans = list(split_parts(document, most_tokens))
    assert all(a.end <= b.start for a, b in pairwise(spans))
    together = "".join(document.slice(span) for span in spans)
    assert "".join(together.split()) == "".join(document.text.split())
