"""Tokens are found again in their text, whatever a tokenizer does with blanks and bytes."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colligate.models.llama.model import find_token_spans

# How SentencePiece of Llama's kind writes them: it puts a blank before a text, and reads a
# lower one eighth block as a blank.
SENTENCEPIECE = [
    ("ab", [b" a", b"b"], [(0, 1), (1, 2)]),
    (" ab", [b"  ", b"ab"], [(0, 1), (1, 3)]),
    ("<s>", [b" ", b"<", b"s>"], [(0, 0), (0, 1), (1, 3)]),
    ("n\u00e9", [b" ", b"n", b"\xc3", b"\xa9"], [(0, 0), (0, 1), (1, 2), (1, 2)]),
    ("[X]a", [b"[X]", b" a"], [(0, 3), (3, 4)]),
    ("\u2581a", [b" ", b" a"], [(0, 1), (1, 2)]),
    ("a\u2581", [b"a", b" "], [(0, 1), (1, 2)]),
]


@pytest.mark.parametrize(("text", "pieces", "spans"), SENTENCEPIECE)
def test_sentencepiece(text, pieces, spans):
    assert find_token_spans(text, pieces) == spans


def test_blanks_that_no_token_has():
    assert find_token_spans(" a  b\n", [b"a", b" b"]) == [(1, 2), (2, 5)]


def test_bytes_that_the_vocabulary_does_not_have():
    assert find_token_spans("a\x04b\x06", [b"a", b"b"]) == [(0, 1), (2, 3)]
    assert find_token_spans("a\U00040000b", [b"a", b"\x80", b"\x80", b"\x80b"]) == [
        (0, 1),
        (1, 2),
        (1, 2),
        (1, 3),
    ]
    assert find_token_spans("\x04", []) == []


@pytest.mark.parametrize(
    "pieces", [[b"a"], [b"b", b"a"], [b"ab", b"ac"], [b"ABA"], [b"abac"], [b"aba", b"a"]]
)
def test_tokens_of_another_text(pieces):
    with pytest.raises(ValueError, match="token"):
        find_token_spans("aba", pieces)


@given(st.text(), st.lists(st.integers(0, 60)))
def test_a_text_cut_anywhere_between_bytes(text, cuts):
    data = text.encode()
    places = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    pieces = [data[a:b] for a, b in pairwise(places)]
    spans = find_token_spans(text, pieces)
    for piece, (start, end) in zip(pieces, spans, strict=True):
        assert piece in text[start:end].encode()
        assert text[start + 1 : end - 1].encode() in piece
    assert spans == sorted(spans)
    assert [end for _, end in spans] == sorted(end for _, end in spans)
