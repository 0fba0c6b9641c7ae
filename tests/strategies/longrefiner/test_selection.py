from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from colligate.documents import Basis, Document, Kind, Passage, Structure, TreeBuilder, flat_tree
from colligate.documents.markdown import markdown_tree
from colligate.documents.reading.text import text_tree
from colligate.documents.tokens import estimate_tokens
from colligate.strategies.longrefiner.selection import (
    Selection,
    passages,
    pieces,
    render,
    select,
    shortened,
)
from colligate.strategies.longrefiner.tree import Article, article


def words(text: str) -> int:
    return len(text.split())


def made(text: str, title: str = "T", name: str = "d") -> Article:
    found = Document(name, title, text, markdown_tree(text, name))
    return article(found, least_words=2, most_words=9)


# 0 abstract, 1 and 2 its paragraphs; 3 section A, 4 its own, 5 sub-section B, 6 and 7 in that.
TOWER = made("one two\n\nthree four\n\n# A\n\nfive six\n\n## B\n\nseven eight\n\nnine ten\n\n# C")
# 0 section X, 1 and 2 its paragraphs.
SEA = made("# X\n\nalpha beta\n\ngamma delta", "Sea", "s")


def test_the_pieces_are_all_that_can_be_written() -> None:
    assert list(pieces(TOWER)) == [
        "# T\n\n",
        "one two\n\n",
        "three four\n\n",
        "## A\n\n",
        "five six\n\n",
        "### B\n\n",
        "seven eight\n\n",
        "nine ten\n\n",
    ]


def test_the_best_that_fits_in_the_order_of_the_text() -> None:
    scores = [0, 0.1, 0, 0, 0.3, 0, 0.9, 0]
    kept = select([TOWER], [scores], 11, words)
    assert kept.chosen == ((4, 6),)  # 2 for the title, 2 a heading, 2 a paragraph
    assert kept.tokens == 10
    assert render([TOWER], kept) == "# T\n\n## A\n\nfive six\n\n### B\n\nseven eight"
    assert select([TOWER], [scores], 9, words).chosen == ((6,),)


def test_a_node_chosen_takes_all_under_it() -> None:
    scores = [0, 0, 0, 0, 0, 0.9, 0.1, 0]
    kept = select([TOWER], [scores], 10, words)
    assert kept.chosen == ((6, 7),)
    assert kept.promoted == ((5,),)
    assert kept.tokens == 10


def test_a_node_all_of_whose_paragraphs_are_chosen_is_chosen() -> None:
    kept = select([TOWER], [[0.5, 0.9, 0.8, 0, 0, 0, 0, 0]], 6, words)
    assert kept.chosen == ((1, 2),)
    assert kept.promoted == ((0,),)


def test_what_is_chosen_already_costs_nothing() -> None:
    # With the section, all but its own paragraph is there.
    kept = select([TOWER], [[0, 0, 0, 0.5, 0.1, 0.9, 0, 0]], 12, words)
    assert kept.chosen == ((4, 6, 7),)
    assert kept.promoted == ((3, 5),)
    assert kept.tokens == 12


def test_what_does_not_fit_is_passed_over_or_ends_the_choice() -> None:
    scores = [0, 0.1, 0, 0.9, 0, 0, 0, 0]
    assert select([TOWER], [scores], 6, words).chosen == ((1, 2),)
    assert select([TOWER], [scores], 6, words, stop_at_first_overflow=True).chosen == ((),)


def test_documents_come_in_rank_order_whatever_their_scores() -> None:
    scores = [[0, 0.1, 0, 0, 0, 0, 0, 0], [0, 0.8, 0.9]]
    kept = select([TOWER, SEA], scores, 12, words)
    assert kept.chosen == ((1,), (1, 2))
    assert (
        render([TOWER, SEA], kept) == "# T\n\none two\n\n# Sea\n\n## X\n\nalpha beta\n\ngamma delta"
    )


def test_equal_scores_go_by_rank_then_place() -> None:
    same = [0.5] * 8
    assert select([TOWER], [same], 6, words).chosen == ((1, 2),)
    assert select([TOWER], [same], 4, words).chosen == ((1,),)


def test_a_budget_of_nothing_holds_nothing() -> None:
    for budget in (0, -1, 3):
        kept = select([TOWER, SEA], [[1.0] * 8, [1.0] * 3], budget, words)
        assert kept == Selection(((), ()), ((), ()), 0)
        assert render([TOWER, SEA], kept) == ""
        assert passages([TOWER, SEA], kept) == [[], []]
    assert select([], [], 100, words) == Selection((), (), 0)


def test_each_node_needs_a_score() -> None:
    with pytest.raises(ValueError, match="zip"):
        select([TOWER], [[1.0]], 100, words)


def everything(*articles: Article) -> Selection:
    return select(articles, [[1.0] * len(each.nodes) for each in articles], 10**9, words)


def test_headings_are_written_by_their_depth_in_the_document() -> None:
    text = "# A\n\n##### B\n\none two\n\n###### C\n\nthree four\n\n# D\n\nfive six"
    each = made(text)
    assert render([each], everything(each)) == (
        "# T\n\n## A\n\n### B\n\none two\n\n#### C\n\nthree four\n\n## D\n\nfive six"
    )


def test_a_heading_has_six_marks_at_most_and_needs_words() -> None:
    text = "\n\n".join(f"{'#' * level} {level}" for level in range(1, 7)) + "\n\none two"
    each = made(f"# 0\n\nzero zero\n\n{text}")
    assert render([each], everything(each)).endswith("\n\n###### 5\n\n###### 6\n\none two")
    bare = made("# A\n\n##\n\none two")
    assert render([bare], everything(bare)) == "# T\n\n## A\n\none two"


def test_a_heading_that_is_the_title_is_not_written_twice() -> None:
    each = made("# T\n\n## A\n\none two")
    assert render([each], everything(each)) == "# T\n\n## A\n\none two"


def test_plain_headings_are_written_as_headings() -> None:
    text = "1. Grant\n\nThe fee is due.\n\n2. Term\n\nIt ends."
    each = article(Document("d", "Licence", text, text_tree(text, "d")))
    assert render([each], everything(each)) == (
        "# Licence\n\n## 1. Grant\n\nThe fee is due.\n\n## 2. Term\n\nIt ends."
    )


def of_model() -> Article:
    """A text without headings, in which a model saw two sections."""
    text = "one two\n\nthree four"
    builder = TreeBuilder("d")
    builder.add(Kind.ROOT, 0, len(text), None)
    for title, start, end in (("Rise", 0, 7), ("Fall", 9, 19)):
        section = builder.add(Kind.SECTION, start, end, 0, level=1, title=title)
        builder.add(Kind.PARAGRAPH, start, end, section)
    bare = Document("d", "T", text, flat_tree("d", len(text)))
    each = article(bare, builder.build(Structure(0.9, Basis.NONE)))
    assert [node.title for node in each.nodes if node.children] == ["Rise", "Fall"]
    return each


def test_headings_that_a_model_made_up_are_not_written() -> None:
    each = of_model()
    assert render([each], everything(each)) == "# T\n\none two\n\nthree four"


def test_passages_end_where_sections_of_a_model_do() -> None:
    each = of_model()
    assert shown(passages([each], everything(each))) == [["one two", "three four"]]


def test_a_document_without_a_title_begins_with_its_text() -> None:
    each = made("one two", title=" ")
    assert render([each], everything(each)) == "one two"


def shown(found: list[list[Passage]]) -> list[list[str]]:
    return [[passage.text for passage in each] for each in found]


def test_neighbours_of_one_section_are_one_passage() -> None:
    assert shown(passages([TOWER, SEA], everything(TOWER, SEA))) == [
        ["one two\n\nthree four", "five six", "seven eight\n\nnine ten"],
        ["alpha beta\n\ngamma delta"],
    ]
    kept = Selection(((1, 4, 7), ()), ((), ()), 0)
    found = passages([TOWER, SEA], kept)
    assert shown(found) == [["one two", "five six", "nine ten"], []]
    assert [passage.section for passage in found[0]] == [(), ("A",), ("A", "B")]


def test_the_best_paragraph_is_cut_to_a_small_budget() -> None:
    scores = [[0.9, 0.1, 0.2, 0.9, 0.3, 0, 0, 0.3], [1.0, 0.1, 0.3]]
    found = shortened([TOWER, SEA], scores, 1, words)
    assert found is not None
    assert found.text == "five"
    assert found.section == ("A",)
    whole = shortened([TOWER, SEA], scores, 99, words)
    assert whole is not None
    assert whole.text == "five six"
    assert shortened([TOWER, SEA], scores, 0, words) is None
    assert shortened([], [], 10, words) is None


def test_three_thousand_paragraphs_are_chosen_from_at_once() -> None:
    text = "\n\n".join(
        f"# {a}\n\n" + "\n\n".join(f"## {a} {b}\n\none two\n\nthree four" for b in range(5))
        for a in range(60)
    )
    articles = [made(text, name=f"d{n}") for n in range(5)]
    assert sum(len(each.leaves) for each in articles) == 3000
    scores = [[(7 * i) % 31 / 31 for i in range(len(each.nodes))] for each in articles]
    tokens = {piece: words(piece) for each in articles for piece in pieces(each)}
    begun = time.perf_counter()
    kept = select(articles, scores, 2048, tokens.__getitem__)
    assert time.perf_counter() - begun < 1
    assert 2040 < kept.tokens <= 2048


BLOCK = st.sampled_from(
    [
        "# A",
        "## B",
        "### C",
        "one two",
        "three four five",
        "a\n\nb\n\nc d",
        "学校市议会。",
        "- e f\n- g h",
        "| i | j |\n|---|---|\n| k | l |",
    ]
)
ARTICLES = st.lists(st.lists(BLOCK, max_size=9).map("\n\n".join), max_size=3).map(
    lambda texts: [made(text, f"T {n}", f"d{n}") for n, text in enumerate(texts)]
)


@st.composite
def cases(
    draw: st.DrawFn,
) -> tuple[list[Article], list[list[float]], dict[str, int], int]:
    articles = draw(ARTICLES)
    score = st.floats(-1, 1) | st.sampled_from([0.0, 0.5])
    scores = [
        draw(st.lists(score, min_size=len(each.nodes), max_size=len(each.nodes)))
        for each in articles
    ]
    tokens = {piece: draw(st.integers(0, 9)) for each in articles for piece in pieces(each)}
    return articles, scores, tokens, draw(st.integers(-1, 60))


def written(each: Article, leaves: set[int]) -> list[str]:
    """What stands on the page for these paragraphs, read off the document's tree."""
    if not leaves:
        return []
    document = each.document
    found = [(-1, f"# {document.title}")]
    for leaf in leaves:
        span = each.nodes[leaf].span
        found.append((span.start, document.slice(span)))
        around = [n for n in document.tree.sections if n.heading and n.span.contains(span)]
        for depth, node in enumerate(around, 2):
            found.append((node.span.start, f"{'#' * depth} {node.title}"))
    return [text for _, text in sorted(set(found))]


def reference(
    articles: Sequence[Article],
    scores: Sequence[Sequence[float]],
    budget: int,
    measure: Callable[[str], int],
    stop: bool,
) -> tuple[list[set[int]], int]:
    """Section 4.5's algorithm, word for word."""

    def cost(chosen: list[set[int]]) -> int:
        return sum(
            measure(text + "\n\n")
            for each, leaves in zip(articles, chosen, strict=True)
            for text in written(each, leaves)
        )

    def leaves(each: Article, node: int) -> set[int]:
        below = each.nodes[node].children
        return {node} if not below else set().union(*(leaves(each, child) for child in below))

    chosen: list[set[int]] = [set() for _ in articles]
    nodes = [(rank, node.id) for rank, each in enumerate(articles) for node in each.nodes]
    for rank, node in sorted(nodes, key=lambda at: scores[at[0]][at[1]], reverse=True):
        after = [set(leaves) for leaves in chosen]
        after[rank] |= leaves(articles[rank], node)
        if after == chosen:
            continue
        if cost(after) <= budget:
            chosen = after
        elif stop:
            break
    return chosen, cost(chosen)


@settings(max_examples=200, deadline=None)
@given(case=cases(), stop=st.booleans())
def test_the_choice_is_the_reference_algorithms(
    case: tuple[list[Article], list[list[float]], dict[str, int], int], stop: bool
) -> None:
    articles, scores, tokens, budget = case
    measure = tokens.__getitem__
    kept = select(articles, scores, budget, measure, stop_at_first_overflow=stop)
    chosen, cost = reference(articles, scores, budget, measure, stop)
    assert kept.chosen == tuple(tuple(sorted(leaves)) for leaves in chosen)
    assert kept.tokens == cost <= max(budget, 0)
    assert render(articles, kept) == "\n\n".join(
        text
        for each, leaves in zip(articles, chosen, strict=True)
        for text in written(each, leaves)
    )
    for each, leaves, promoted in zip(articles, chosen, kept.promoted, strict=True):
        assert set(promoted) == {
            node.id
            for node in each.nodes
            if node.children and leaves >= set(each.leaves_under[node.id])
        }


@settings(max_examples=100, deadline=None)
@given(case=cases())
def test_passages_hold_what_was_chosen_and_no_more(
    case: tuple[list[Article], list[list[float]], dict[str, int], int],
) -> None:
    articles, scores, tokens, budget = case
    kept = select(articles, scores, budget, tokens.__getitem__)
    for each, leaves, found in zip(articles, kept.chosen, passages(articles, kept), strict=True):
        text = each.document.text
        held = [i for passage in found for i in range(passage.span.start, passage.span.end)]
        chosen = [i for leaf in leaves for i in range(*offsets(each, leaf))]
        assert held == sorted(set(held))
        assert [i for i in held if not text[i].isspace()] == [
            i for i in chosen if not text[i].isspace()
        ]
        assert all(passage.text == each.document.slice(passage.span) for passage in found)


def offsets(each: Article, leaf: int) -> tuple[int, int]:
    span = each.nodes[leaf].span
    return span.start, span.end


@settings(max_examples=50, deadline=None)
@given(case=cases(), budget=st.integers(0, 30))
def test_a_cut_paragraph_keeps_the_budget(
    case: tuple[list[Article], list[list[float]], dict[str, int], int], budget: int
) -> None:
    articles, scores, _, _ = case
    found = shortened(articles, scores, budget, estimate_tokens)
    if found is not None:
        assert 0 < estimate_tokens(found.text) <= budget
