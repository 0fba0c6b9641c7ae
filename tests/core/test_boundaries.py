from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from colligate.core.token_scores import cut_pieces, cut_runs, find_minima, merge_chunks


def test_a_chunk_ends_with_the_sentence_that_surprises_least():
    assert find_minima([3, 1, 2, 5, 4, 4, 6]) == [1, 4]


def test_a_shallow_minimum_is_none_under_a_threshold():
    assert find_minima([3.0, 2.8, 3.1], 0.5) == []
    assert find_minima([3.0, 2.8, 3.4], 0.5) == [1]
    assert find_minima([3.0, 2.8, 2.8], 0.5) == []


def test_the_first_and_the_last_are_no_minima():
    assert find_minima([1, 2, 1]) == []
    assert find_minima([]) == []


@given(st.integers(0, 30), st.data())
def test_runs_and_merged_cover_every_sentence_once(count, data):
    cuts = sorted(data.draw(st.sets(st.integers(0, 29))))
    sizes = data.draw(st.lists(st.integers(0, 50), min_size=count, max_size=count))
    most = data.draw(st.integers(1, 120))
    chunks = merge_chunks(cut_runs(count, cuts), sizes, most)
    assert [i for start, end in chunks for i in range(start, end)] == list(range(count))
    whole = set(cut_runs(count, cuts))
    assert all(sum(sizes[start:end]) <= most or (start, end) in whole for start, end in chunks)


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
