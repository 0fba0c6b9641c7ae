"""The estimate of tokens where no tokenizer can be asked."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from colligate.documents.tokens import estimate_tokens, iter_token_spans, token_spans

# Letters, marks, digits and blanks of several scripts, emoji, combining marks, lone surrogates.
TEXTS = st.text() | st.text(
    alphabet=st.sampled_from(
        "abZß é\u0301ж東あ한ไ७3_-.,'’\n\t\u00a0\u200d\U0001f469\U00020000\udce9"
    )
)


@settings(max_examples=300)
@given(TEXTS)
def test_spans_are_in_order_and_leave_out_only_blanks(text):
    spans = token_spans(text)
    assert len(spans) == estimate_tokens(text)
    assert list(iter_token_spans(text)) == spans
    assert all(0 <= start < end <= len(text) for start, end in spans)
    assert all(end <= start for (_, end), (start, _) in pairwise(spans))
    covered = {place for start, end in spans for place in range(start, end)}
    assert {place for place, letter in enumerate(text) if not letter.isspace()} == covered


@pytest.mark.parametrize(
    ("text", "tokens"),
    [("", 0), ("  \n", 0), ("internationally", 3), ("東京の橋", 4), ("2024", 2), ("привет", 3)],
)
def test_the_estimate_of_known_texts(text, tokens):
    assert estimate_tokens(text) == tokens
