import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from colligate.documents import Basis, Kind, Structure, TreeBuilder
from colligate.documents.tokens import estimate_tokens
from colligate.strategies.longrefiner.selection import (
    Selection,
    extract_passages,
    find_unknown_titles,
    list_pieces,
    list_titles,
    parse_titles,
    render_outline,
    render_selection,
    select_nodes,
)
from colligate.strategies.longrefiner.structuring import Article, build_article
from support.documents import make

# Titles

LIFE = """# Ada

Ada was a mathematician.

## Early life

She was born in London.

### School

She had tutors.

## Work

She wrote notes.

### School

Notes for schools.

## Death

She died in 1852.
"""


ADA = build_article(make(LIFE, "Ada"))


def test_the_outline_counts_subsections_anew_in_each_section():
    lines = "Title: Ada|Section1: Early life|Subsection1: School|Section2: Work|Subsection1: School"
    assert render_outline(ADA).split("\n") == [*lines.split("|"), "Section3: Death"]


def test_a_long_outline_loses_subsections_first_then_sections():
    most = estimate_tokens(render_outline(ADA)) - 1
    shorter = render_outline(ADA, most_tokens=most)
    assert "Section3: Death" in shorter
    assert shorter.count("Subsection") < 2
    tiny = render_outline(ADA, most_tokens=8)
    assert tiny.splitlines()[0] == "Title: Ada"
    assert "Subsection" not in tiny


@pytest.mark.parametrize(
    ("reply", "titles"),
    [
        ("['Work']", ("Work",)),
        ('["work", "ABSTRACT"]', ("abstract", "Work")),
        ("[Work, Death]", ("Work", "Death")),
        ("[“Work”, “Early life”]", ("Early life", "Work")),
        ("Titles: [Work]", ("Work",)),
        ("Titles: ['Section3: Death'].", ("Death",)),
        ('{"selected_titles": ["Death"]}', ("Death",)),
        ('[{"selected_titles": ["Death"]}, {"selected_titles": []}]', ("Death",)),
        ("['School']", ("School", "School")),
        ("['Early lfie']", ("Early life",)),  # a slip
        ("- Work\n- Death", ("Work", "Death")),
        ("['Childhood', 'Work', 3]", ("Work",)),
        ("[]", ()),
        ("['Work', 'Dea", ("Work",)),  # cut off
        ("I would read all of it.", ()),
        ("", ()),
    ],
)
def test_titles_are_found_whatever_form_the_reply_has(reply, titles):
    assert list_titles(ADA, parse_titles(reply, ADA)) == titles


@given(st.text(max_size=200))
def test_no_reply_selects_what_is_not_there(reply):
    chosen = parse_titles(reply, ADA)
    assert all(ADA.nodes[i].children for i in chosen)
    assert list(chosen) == sorted(set(chosen))


TITLES = "The mill's history|Directors' pay|The 'good' years|Risks [2023]|1. Overview|Career"
FIRM = "\n\n".join(["# Acme\n\nIntro.", *(f"## {title}\n\na" for title in TITLES.split("|"))])


@pytest.mark.parametrize(
    ("reply", "titles"),
    [
        ("['The mill's history', 'Career']", ("The mill's history", "Career")),
        ("['Section2: Directors' pay', 'Career']", ("Directors' pay", "Career")),
        ("['The mill\\'s history', \"Directors' pay\"]", ("The mill's history", "Directors' pay")),
        ("{'selected_titles': ['Directors' pay']}", ("Directors' pay",)),
        ("['The 'good' years', 'Career']", ("The 'good' years", "Career")),
        ("- Career\n- Risks [2023]", ("Risks [2023]", "Career")),
        ("1. Career\n2) The mill's history", ("The mill's history", "Career")),
        ("['1. Overview', '2. Career']", ("1. Overview", "Career")),
        ("1. Overview", ("1. Overview",)),
        ("Nothing in this outline helps: []", ()),
        ("['Career']\nDirectors' pay does not help.", ("Career",)),
    ],
)
def test_titles_with_marks_and_in_lists_of_lines_are_found(reply, titles):
    firm = build_article(make(FIRM, "Acme"))
    assert list_titles(firm, parse_titles(reply, firm)) == titles
    assert find_unknown_titles(reply, firm) == ()


def test_names_that_are_not_titles_are_found():
    named = "['Section2: work', 'Sources', 'abstract', 'Deaths', '']"
    assert find_unknown_titles(named, ADA) == ("Sources",)
    assert find_unknown_titles("[]", ADA) == ()
    assert find_unknown_titles("None of it helps.", ADA) == ("None of it helps.",)


def words(text: str) -> int:
    return len(text.split())


def made(text: str, title: str = "T", name: str = "d") -> Article:
    return build_article(make(text, title, name), least_words=2, most_words=9)


# 0 abstract, 1 and 2 its paragraphs; 3 section A, 4 its own, 5 sub-section B, 6 and 7 in that.
TOWER = made("one two\n\nthree four\n\n# A\n\nfive six\n\n## B\n\nseven eight\n\nnine ten\n\n# C")
# 0 section X, 1 and 2 its paragraphs.
SEA = made("# X\n\nalpha beta\n\ngamma delta", "Sea", "s")


@pytest.mark.parametrize(
    ("scores", "budget", "chosen"),
    [
        # 2 words for the title, 2 for a heading, 2 for a paragraph
        pytest.param([0, 0.1, 0, 0, 0.3, 0, 0.9, 0], 11, (4, 6), id="the best that fits"),
        pytest.param([0, 0, 0, 0, 0, 0.9, 0.1, 0], 10, (6, 7), id="a node takes all under it"),
        pytest.param([0, 0, 0, 0.5, 0.1, 0.9, 0, 0], 12, (4, 6, 7), id="what is chosen is free"),
        pytest.param([0, 0.1, 0, 0.9, 0, 0, 0, 0], 6, (4,), id="the last node in part"),
        pytest.param([0, 0.1, 0, 0.9, 0.1, 0.2, 0.3, 0], 10, (4, 6), id="its best paragraphs"),
        pytest.param([0.5] * 8, 6, (1, 2), id="equal scores go by place"),
        pytest.param([1.0] * 8, 3, (), id="no paragraph fits"),
        pytest.param([1.0] * 8, 0, (), id="no budget"),
    ],
)
def test_what_is_chosen(scores, budget, chosen):
    kept = select_nodes([TOWER], [scores], budget, words)
    assert kept == [list(chosen)]
    assert words(render_selection([TOWER], kept)) <= max(0, budget)


def everything(*articles: Article) -> Selection:
    return select_nodes(articles, [[1.0] * len(each.nodes) for each in articles], 10**9, words)


@pytest.mark.parametrize(
    ("text", "title", "written"),
    [
        pytest.param(
            "# A\n\n##### B\n\none two\n\n###### C\n\nthree four\n\n# D\n\nfive six",
            "T",
            "# T\n\n## A\n\n### B\n\none two\n\n#### C\n\nthree four\n\n## D\n\nfive six",
            id="by their depth",
        ),
        pytest.param(
            "# 0\n\n# 1\n\n## 2\n\n### 3\n\n#### 4\n\n##### 5\n\n###### 6\n\none two",
            "T",
            "# T\n\n## 1\n\n### 2\n\n#### 3\n\n##### 4\n\n###### 5\n\n###### 6\n\none two",
            id="with six marks at most",
        ),
        pytest.param("# A\n\n##\n\none two", "T", "# T\n\n## A\n\none two", id="only with words"),
        pytest.param("# T\n\n## A\n\none", "T", "# T\n\n## A\n\none", id="the title only once"),
        pytest.param("one two", " ", "one two", id="no title"),
    ],
)
def test_headings_are_written(text, title, written):
    each = made(text, title)
    assert render_selection([each], everything(each)) == written


def test_headings_that_a_model_made_up_part_passages_and_are_not_written():
    text = "one two\n\nthree four"
    builder = TreeBuilder("d")
    builder.add(Kind.ROOT, (0, len(text)), None)
    for title, start, end in (("Rise", 0, 7), ("Fall", 9, 19)):
        section = builder.add(Kind.SECTION, (start, end), 0, level=1, title=title)
        builder.add(Kind.PARAGRAPH, (start, end), section)
    tree = builder.build(Structure(0.9, Basis.NONE))
    each = build_article(make(text, "T", flat=True), tree)
    assert [node.title for node in each.nodes if node.children] == ["Rise", "Fall"]
    assert render_selection([each], everything(each)) == "# T\n\none two\n\nthree four"
    found = extract_passages([each], everything(each))
    assert [passage.text for passage in found] == ["one two", "three four"]


BLOCKS = ["# A", "## B", "### C", "one two", "three four five", "a\n\nb\n\nc d", "学校市议会。"]
BLOCKS += ["- e f\n- g h", "| i | j |\n|---|---|\n| k | l |"]
ARTICLES = st.lists(st.lists(st.sampled_from(BLOCKS), max_size=9).map("\n\n".join), max_size=3).map(
    lambda texts: [made(text, f"T {n}", f"d{n}") for n, text in enumerate(texts)]
)


_Case = tuple[list[Article], list[list[float]], dict[str, int], int]


@st.composite
def cases(draw: st.DrawFn) -> _Case:
    articles = draw(ARTICLES)
    score = st.floats(-1, 1) | st.sampled_from([0.0, 0.5])
    sizes = [len(each.nodes) for each in articles]
    scores = [draw(st.lists(score, min_size=size, max_size=size)) for size in sizes]
    tokens = {piece: draw(st.integers(0, 9)) for each in articles for piece in list_pieces(each)}
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


def reference(articles, scores, budget, measure) -> tuple[list[set[int]], int]:
    """Sort all nodes and select them one by one until the budget is met."""

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
        full = False
        row = scores[rank]
        for leaf in sorted(sorted(leaves(articles[rank], node)), key=lambda i: -row[i]):
            after = [set(kept) for kept in chosen]
            after[rank].add(leaf)
            if after == chosen or cost(after) <= budget:
                chosen = after
            else:
                full = True
        if full:
            break
    return chosen, cost(chosen)


@settings(max_examples=200)
@given(case=cases())
def test_the_choice_is_the_reference_algorithms(case):
    articles, scores, tokens, budget = case
    measure = tokens.__getitem__
    kept = select_nodes(articles, scores, budget, measure)
    chosen, cost = reference(articles, scores, budget, measure)
    assert kept == [sorted(leaves) for leaves in chosen]
    assert cost <= max(budget, 0)
    assert render_selection(articles, kept) == "\n\n".join(
        text
        for each, leaves in zip(articles, chosen, strict=True)
        for text in written(each, leaves)
    )
