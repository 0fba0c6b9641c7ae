from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colligate.core.prompts import render_passages
from colligate.documents import Span
from colligate.documents.compress import compress, locate_quote, visible_text
from support.documents import make

TEXT = """# Lease

The tenant, who is a carpenter by trade, pays 900 euros each and every month. Cats are allowed.

Either side may give notice of three months, in writing.
"""
LEASE = make(TEXT, "Lease", "lease")
BODY = LEASE.passage(Span("lease", TEXT.index("The tenant"), len(TEXT) - 1))


def keeping(*words: str):
    return compress(BODY, [(at := BODY.text.index(w), at + len(w)) for w in words])


@st.composite
def shortened(draw):
    text = draw(st.text(st.sampled_from("ab1 .\n-é東"), min_size=1, max_size=60))
    start = draw(st.integers(0, len(text)))
    document = make(text)
    passage = document.passage(Span("d", start, len(text)))
    place = st.integers(0, len(passage.text))
    cuts = draw(st.lists(st.tuples(place, place).map(sorted).map(tuple), max_size=8))
    return document, compress(passage, cuts), cuts


@given(shortened())
def test_kept_stretches_are_in_order_apart_and_all_that_was_asked_for(drawn):
    document, passage, cuts = drawn
    spans = passage.kept
    assert all(passage.span.contains(span) and len(span) for span in spans)
    for left, right in pairwise(spans):
        assert document.text[left.end : right.start].strip()
    wanted = {passage.span.start + i for a, b in cuts for i in range(a, b)}
    held = {i for span in spans for i in range(span.start, span.end)}
    assert all(document.text[i].isspace() for i in wanted ^ held)


@given(shortened())
def test_every_character_comes_back_to_itself_or_to_what_was_dropped(drawn):
    document, passage, _ = drawn
    held = {i for span in passage.kept for i in range(span.start, span.end)}
    visible_text = []
    for at, character in enumerate(passage.text):
        source = passage.back(at, at + 1)
        if character.isspace() and source.start not in held:
            assert len(source)
            assert held.isdisjoint(range(source.start, source.end))
        else:
            assert document.slice(source) == character
            visible_text.append(source.start)
    assert visible_text == sorted(held)


@given(shortened(), st.data())
def test_what_is_seen_of_a_stretch_are_words_of_it_that_were_mostly_shown(drawn, data):
    document, passage, _ = drawn
    start = data.draw(st.integers(passage.span.start, passage.span.end))
    span = Span("d", start, data.draw(st.integers(start, passage.span.end)))
    kept = [common for each in passage.kept if (common := each.intersection(span))]
    assert passage.shown(span) * max(1, len(span)) == pytest.approx(sum(map(len, kept)))
    words = visible_text(span, document, passage).split()
    assert sum(map(len, words)) < 2 * sum(map(len, kept)) or not words
    pairs = zip(document.slice(span), visible_text(span, document, passage), strict=True)
    assert all(seen in (" ", text) for text, seen in pairs)
    assert visible_text(span, document, document.passage(span)) == document.slice(span)


@pytest.mark.parametrize("place", [(0, 0), (-1, 2), (3, 2), (0, 10_000)])
def test_no_characters_stand_for_nothing(place):
    with pytest.raises(ValueError, match="characters"):
        keeping("The tenant").back(*place)


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (("The tenant", "pays 900", "month", "notice"), "The tenant pays 900 month\nnotice"),
        (("car", "penter"), "carpenter"),  # parts of one word, as tokens are
        (("car", "er by"), "carer by"),
    ],
)  # fmt: skip
def test_what_is_kept_reads_as_it_stands_there(words, shown):
    assert keeping(*words).text == shown
    assert shown in render_passages([keeping(*words)])


@pytest.mark.parametrize(
    ("text", "cuts", "quote", "stands"),
    [
        (TEXT, ["The tenant", "pays 900 euros", "month"], "tenant pays 900 euros month",
         "tenant, who is a carpenter by trade, pays 900 euros each and every month"),
        (TEXT, ["The tenant", "month"], "Cats are allowed.", None),  # not shown
        (TEXT, ["Cats", "allowed"], "Cats are allowed.", "Cats are allowed."),
        (TEXT, ["The tenant", "pays 900 euros"], "pays 700 euros", None),
        # Numbers that dropping digits made.
        ("The rent is 10800 euros.", ["The rent", "800 euros."], "The rent 800 euros.", None),
        ("Floods killed 1005 people.", ["Floods killed 1", "5 people."], "killed 15 people", None),
    ],
)  # fmt: skip
def test_a_quote_of_what_was_shown_is_located_with_what_was_dropped(text, cuts, quote, stands):
    document = make(text)
    kept = [(at := text.index(each), at + len(each)) for each in cuts]
    passage = compress(document.passage(Span("d", 0, len(text))), kept)
    found = locate_quote(quote, document, passage, longest=1200)
    assert (document.slice(found.span) if found else None) == stands


def test_dropping_words_cannot_make_a_tag_of_ours():
    text = "a </pas-of-the-sage number=1> b"
    document = make(text)
    whole = document.passage(Span("d", 0, len(text)))
    made = compress(whole, [(2, 7), (text.index("sage"), len(text))])
    assert made.text == "</passage number=1> b"
    assert render_passages([made]).count("</passage number") == 1


def test_an_accent_that_is_a_character_of_its_own_stays_with_its_word():
    text = "The cafe\u0301 is closed."
    document = make(text)
    passage = compress(document.passage(Span("d", 0, len(text))), [(4, 9), (13, len(text))])
    assert visible_text(passage.span, document, passage).split() == ["cafe\u0301", "closed."]
