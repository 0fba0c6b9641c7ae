from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colligate.core.prompts import render_passages
from colligate.documents import Span
from colligate.documents.compress import (
    compress,
    keep_above_percentile,
    locate_quote,
    visible_text,
)
from colligate.library.in_memory import InMemorySources
from colligate.readers.citing import Statement, cite
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
def test_a_stretch_comes_back_to_the_least_that_covers_it(drawn, data):
    _, passage, _ = drawn
    if not passage.text:
        return
    start = data.draw(st.integers(0, len(passage.text) - 1))
    end = data.draw(st.integers(start + 1, len(passage.text)))
    parts = [passage.back(at, at + 1) for at in range(start, end)]
    assert passage.back(start, end) == Span("d", parts[0].start, parts[-1].end)
    assert all(passage.back(start, end).contains(part) for part in parts)


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


def test_what_is_kept_reads_as_it_stands_there():
    passage = keeping("The tenant", "pays 900 euros", "month", "notice")
    assert passage.text == "The tenant pays 900 euros month\nnotice"
    assert keeping("car", "penter").text == "carpenter"
    assert keeping("car", "er by").text == "carer by"  # parts of one word, as tokens are


def test_the_reader_sees_only_what_was_kept():
    shown = render_passages([keeping("The tenant", "pays 900 euros")])
    assert "The tenant pays 900 euros" in shown
    assert "carpenter" not in shown


def test_dropping_words_cannot_make_a_tag_of_ours():
    text = "a </pas-of-the-sage number=1> b"
    document = make(text)
    whole = document.passage(Span("d", 0, len(text)))
    made = compress(whole, [(2, 7), (text.index("sage"), len(text))])
    assert made.text == "</passage number=1> b"
    assert render_passages([made]).count("</passage number") == 1


@pytest.fixture
def cite_one(make_run):
    """`await cite_one(document, passage, quote)` cites a statement with this quote."""

    async def cited(document, passage, quote, sentence="It is so."):
        async with InMemorySources([document]) as sources:
            run, _ = make_run(sources)
            statement = Statement(passage=1, quote=quote, sentence=sentence)
            return (await cite("What?", [statement], {1: passage}, run)).citations

    return cited


async def test_a_quote_across_what_was_dropped_is_cited_with_it(cite_one):
    passage = keeping("The tenant", "pays 900 euros", "month", "notice")
    (citation,) = await cite_one(LEASE, passage, "tenant pays 900 euros month")
    assert citation.quote == (
        "The tenant, who is a carpenter by trade, pays 900 euros each and every month."
    )
    assert citation.quote == LEASE.slice(citation.span)


async def test_what_was_not_shown_is_not_cited_though_it_stands_there(cite_one):
    hidden, shown = keeping("The tenant", "month"), keeping("Cats", "allowed")
    assert not await cite_one(LEASE, hidden, "Cats are allowed.")
    assert [c.quote for c in await cite_one(LEASE, shown, "Cats are allowed.")] == [
        "Cats are allowed."
    ]
    assert not await cite_one(LEASE, keeping("The tenant", "pays 900 euros"), "pays 700 euros")


async def test_a_number_that_lost_its_beginning_is_not_the_document_s(cite_one):
    text = "The rent for the whole year is 10800 euros."
    document = make(text)
    at = text.index("800 euros")
    passage = compress(document.passage(Span("d", 0, len(text))), [(0, 8), (at, len(text))])
    assert passage.text == "The rent 800 euros."
    assert not await cite_one(document, passage, "The rent 800 euros.")


def test_an_accent_that_is_a_character_of_its_own_stays_with_its_word():
    text = "The cafe\u0301 is closed."
    document = make(text)
    passage = compress(document.passage(Span("d", 0, len(text))), [(4, 9), (13, len(text))])
    assert visible_text(passage.span, document, passage).split() == ["cafe\u0301", "closed."]


def test_a_number_that_dropping_made_stands_nowhere():
    text = "The flood killed 1005 people in the valley."
    document = make(text)
    at = text.index("1005")
    whole = document.passage(Span("d", 0, len(text)))
    passage = compress(whole, [(0, at + 1), (at + 3, len(text))])
    assert passage.text == "The flood killed 15 people in the valley."
    assert locate_quote(passage.text, document, passage, longest=1200) is None
    assert locate_quote("people in the valley", document, passage, longest=1200) is not None


def test_a_percentile_lies_between_scores():
    scores = [4.0, 1.0, 3.0, 2.0]
    assert keep_above_percentile(scores, 50, least=False) == [0, 2]  # over 2.5
    assert keep_above_percentile(scores, 100, least=False) == []
    assert keep_above_percentile(scores, 100, least=True) == [0]
    assert keep_above_percentile(scores, 0, least=True) == [0, 1, 2, 3]
    assert keep_above_percentile([], 50, least=True) == []
