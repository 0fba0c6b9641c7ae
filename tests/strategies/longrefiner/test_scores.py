from math import sqrt
from typing import Any

import pytest

from colligate.documents import Hit
from colligate.library import SearchMode
from colligate.library.in_memory import InMemorySources
from colligate.strategies.longrefiner.method import (
    compute_global_scores,
    compute_local_scores,
    normalise_scores,
    scope_from_odds,
    scope_messages,
    score_leaves,
)
from colligate.strategies.longrefiner.structuring import build_article
from support.documents import make

# R_q


@pytest.mark.parametrize(
    ("local", "global_", "scope"), [(0.9, 0.1, 0.1), (0.2, 0.2, 0.5), (0.0, 0.3, 1.0), (0, 0, 0.5)]
)
def test_the_scope_is_the_share_of_global(local, global_, scope):
    assert scope_from_odds({"Local": local, "Global": global_}) == pytest.approx(scope)


def test_the_question_comes_last_and_the_reply_begins_with_its_bracket():
    *shots, last = scope_messages(" Who signed? ")
    assert last.content == "Who signed?"
    assert {m.content for m in shots if m.role == "assistant"} == {"[Local]", "[Global]"}


# LS of paragraphs, from a search

WORDS = make("aaaa bbbb\n\n# A\n\ncccc dddd eeee ffff\n\n# B\n\ngggg\n")
FIRST, LONG, LAST = "aaaa bbbb", "cccc dddd eeee ffff", "gggg"
OTHER = make("hhhh\n\n# C\n\niiii\n", name="other")


class Finding(InMemorySources):
    """Sources whose search finds these words of `WORDS`, with these scores."""

    def __init__(self, *found: tuple[str, float]) -> None:
        super().__init__([WORDS, OTHER])
        starts = [(WORDS.text.index(words), words, score) for words, score in found]
        self._hits = [
            Hit(WORDS.passage(WORDS.span(start, start + len(words))), score)
            for start, words, score in starts
        ]

    async def search(self, query: str, **options: Any) -> list[Hit]:
        return self._hits


async def scored(make_run: Any, *found: tuple[str, float]) -> dict[str, float]:
    articles = [build_article(each, least_words=1, most_words=4) for each in (WORDS, OTHER)]
    async with Finding(*found) as sources:
        run, _ = make_run(sources)
        rows = await score_leaves("?", articles, run, "search", SearchMode.SPARSE)
    texts = [each.document.slice(each.nodes[i].span) for each in articles for i in each.leaves]
    scores = dict(zip(texts, (score for row in rows for score in row), strict=True))
    assert scores.pop("hhhh") == scores.pop("iiii") == 0  # same offsets, another document
    assert list(scores) == [FIRST, LONG, LAST]
    return scores


@pytest.mark.parametrize(
    ("found", "share"),
    [
        (LONG, 1),
        ("cccc", 1),  # of the shorter of the two
        (f"# A\n\n{LONG}", 1),
        ("aaaa bbbb\n\n# A\n\ncccc", 4 / 19),  # 4 of the paragraph's 19 characters
    ],
)
async def test_a_paragraph_scores_the_root_of_its_share(make_run, found, share):
    scores = await scored(make_run, (found, 0.8))
    assert scores[LONG] == pytest.approx(0.8 * sqrt(share))
    assert scores[LAST] == 0


# LS, GS and their sum.
# 0 abstract, 1-2 its paragraphs; 3 section A, 4 its own paragraph, 5 sub-section B with 6 and 7,
# 8 sub-section C with 9; 10 section D with 11.
TEXT = """one two

three four

# A

five six

## B

seven eight

nine ten

## C

eleven

# D

twelve
"""
ABSTRACT, A, B, C, D = 0, 3, 5, 8, 10
MADE = build_article(make(TEXT), least_words=2, most_words=9)
THIRD, HALF = 1 / 3, 1 / 2


def test_an_inner_node_scores_the_mean_of_its_children():
    assert [node.title for node in MADE.nodes if node.children] == ["abstract", "A", "B", "C", "D"]
    assert MADE.leaves == (1, 2, 4, 6, 7, 9, 11)
    scores = compute_local_scores(MADE, [1.0, 2.0, 6.0, 3.0, 5.0, -1.0, 8.0])
    assert scores == [1.5, 1.0, 2.0, 3.0, 6.0, 4.0, 3.0, 5.0, -1.0, -1.0, 8.0, 8.0]


def test_min_max_is_over_the_whole_pool():
    assert normalise_scores([[2.0, 4.0], [], [6.0]]) == [[0.0, 0.5], [], [1.0]]
    assert normalise_scores([[-1.0, -1.0], [-1.0]]) == [[0.0, 0.0], [0.0]]
    assert normalise_scores([[], []]) == [[], []]
    assert normalise_scores([]) == []


_T, _S = THIRD, THIRD * HALF


@pytest.mark.parametrize(
    ("selected", "scores"),
    [
        ({A}, [0, 0, 0, 1, _T, _T, _S, _S, _T, _T, 0, 0]),  # shared all the way down
        ({C}, [0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0]),  # not lifted to its section
        ({A, B}, [0, 0, 0, 1, _T, 1, HALF, HALF, _T, _T, 0, 0]),
        ({ABSTRACT}, [1, HALF, HALF, *[0] * 9]),
        ((), [0] * 12),
    ],
)
def test_global_scores(selected, scores):
    assert compute_global_scores(MADE, selected) == pytest.approx(scores)
