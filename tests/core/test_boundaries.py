from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from colligate.core.token_scores import cut_pieces


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
