from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colligate.documents.tokens import token_spans
from colligate.errors import MissingCapability
from colligate.lab.baselines.token_scores import (
    cut_pieces,
    group_words,
    keep_above_percentile,
    score_running_tokens,
    score_tokens,
)
from colligate.library.in_memory import InMemorySources

TEXT = "One fish swims. Two birds fly away. Red deer run. Blue whales dive deep."
CUTS = [(0, 15), (16, 35), (36, 49), (50, 72)]


def by_place(prefix, text):
    """-1 for the first token of a continuation, -2 for the second..."""
    return [-float(place) for place, _ in enumerate(token_spans(text), 1)]


@pytest.fixture
def score(make_run):
    """`score(text, cuts, ...)` scores a running text; returns the rows and what was asked."""

    async def score(text, cuts, likelihood=by_place, **options):
        seen = []

        def watch(prefix, text):
            seen.append((prefix, text))
            return likelihood(prefix, text)

        async with InMemorySources([]) as sources:
            run, _ = make_run(sources, likelihood=watch, **options)
            return await score_running_tokens(run, text, cuts), seen

    return score


async def test_a_model_whose_tokens_have_no_places_is_refused(make_run):
    async with InMemorySources([]) as sources:
        run, _ = make_run(sources, likelihood=lambda prefix, text: [-1.0])
        with pytest.raises(MissingCapability, match="the places of its tokens"):
            await score_tokens(run, [("", "two words")])


async def test_a_text_that_fits_is_scored_in_one_pass_as_it_runs_on(score):
    rows, seen = await score(TEXT, CUTS)
    assert seen == [("", TEXT)]
    assert [TEXT[row[0].start : row[-1].end] for row in rows] == [TEXT[a:b] for a, b in CUTS]
    values = [token.logprob for row in rows for token in row]
    assert values == by_place("", TEXT)


async def test_a_long_text_is_scored_in_parts_each_after_what_comes_before(score):
    rows, seen = await score(TEXT, CUTS, context_tokens=24)  # 8 before, 8 scored
    assert "".join(text for _, text in seen).replace(" ", "") == TEXT.replace(" ", "")
    assert all(len(token_spans(text)) <= 8 for pair in seen for text in pair)
    assert all(TEXT.index(text) == TEXT.index(before) + len(before) for before, text in seen[1:])
    assert all(before for before, _ in seen[1:])
    assert [TEXT[row[0].start : row[-1].end] for row in rows] == [TEXT[a:b] for a, b in CUTS]


# Words


def words(text, *tokens):
    spans, at = [], 0
    for token in tokens:
        at = text.index(token, at)
        spans.append((at, at + len(token)))
        at += len(token)
    return ["".join(tokens[place] for place in word) for word in group_words(text, spans)]


def test_tokens_of_one_word_stand_together():
    assert words("unbelievable news", "un", "believ", "able", "news") == ["unbelievable", "news"]
    assert words("unbelievable news", "un", "believ", "able", " news") == ["unbelievable", " news"]
    assert words("two  words", "two", " ", " words") == ["two ", " words"]


def test_a_mark_is_a_word_and_so_is_a_character_without_blanks():
    assert words("rent, paid", "rent", ",", "paid") == ["rent", ",", "paid"]
    assert words("東京 is", "東", "京", "is") == ["東", "京", "is"]


@given(st.text(st.sampled_from("ab ,東"), max_size=20), st.data())
def test_every_token_is_in_one_word_in_order(text, data):
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    tokens = list(pairwise(cuts))
    found = group_words(text, tokens)
    assert [place for word in found for place in word] == list(range(len(tokens)))


# Cuts


@given(st.lists(st.integers(0, 3), max_size=40), st.integers(1, 9))
def test_pieces_have_no_more_tokens_than_asked_and_lose_nothing(gaps, most):
    tokens, at = [], 0
    for gap in gaps:
        tokens.append((at + gap, at + gap + 2))
        at += gap + 2
    found = cut_pieces(7, 7 + at + 1, tokens, most)
    assert found[0][0] == 7
    assert found[-1][1] == 7 + at + 1
    assert all(left[1] == right[0] for left, right in pairwise(found))
    for start, end in found:
        assert sum(start <= 7 + a and 7 + b <= end for a, b in tokens) <= most
    inside = sum(start <= 7 + a and 7 + b <= end for start, end in found for a, b in tokens)
    assert inside == len(tokens)


def test_a_percentile_lies_between_scores():
    scores = [4.0, 1.0, 3.0, 2.0]
    assert keep_above_percentile(scores, 50, least=False) == [0, 2]  # over 2.5
    assert keep_above_percentile(scores, 100, least=False) == []
    assert keep_above_percentile(scores, 100, least=True) == [0]
    assert keep_above_percentile(scores, 0, least=True) == [0, 1, 2, 3]
    assert keep_above_percentile([], 50, least=True) == []
