from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from colligate.core.token_scores import group_words


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
