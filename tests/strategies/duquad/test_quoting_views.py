import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colligate.documents import Passage, Span
from colligate.strategies.duquad.prompts import parse_quoting_view, quoting_view_messages

TEXTS = {
    2: "The mill stands by the lake. The rent is 900 euros a month.",
    5: "The road goes to the old town beyond the hills.",
    7: "The mill stands by the lake. It has two wheels.",
}


def passage(text: str, title: str = "Mill") -> Passage:
    return Passage(Span("a", 0, len(text)), text, title)


SHOWN = [(number, passage(text, f"Title of {number}")) for number, text in TEXTS.items()]


def said(*quotes, answer="It is 900.", short="900"):
    rows = [{"quote": quote, "document": number} for quote, number in quotes]
    return json.dumps({"quotes": rows, "answer": answer, "short_answer": short})


@pytest.mark.parametrize(
    ("quote", "number", "found"),
    [
        ("The rent is 900 euros", 2, 2),
        ("the  RENT is “900 euros”", 2, 2),  # but for case, blanks and marks
        ("The rent is 900 euros a month.", 5, 2),  # it stands in another
        ("The rent is 900 euros a month.", 99, 2),
        ("The mill stands by the lake.", 7, 7),  # in two: the one it names
        ("The mill stands by the lake.", 5, 2),  # else the first
        ("The road gos to the old town beyond the hill", 7, 5),  # slips
        ("two wheels", 7, 7),
        ("two wheels", 5, None),  # too short to stand for a document it does not name
        ("Title of 5", 5, 5),
        ("The eagle has landed on the moon, at last.", 2, None),
        ("", 2, None),
        ("...", 2, None),
    ],
)
def test_a_quote_names_the_document_in_which_it_stands(quote, number, found):
    view = parse_quoting_view(said((quote, number)), SHOWN)
    assert view.named == (None if found is None else (found,))
    assert ("[DOC" in view.log) == (found is not None)
    assert [each.passage for each in view.quotes] == ([] if found is None else [found])


def test_the_log_has_what_was_found_and_the_answer():
    reply = said(("The rent is\n900 euros", 2), ("The moon is made of cheese.", 5), answer=" 900. ")
    view = parse_quoting_view(reply, SHOWN)
    assert view.log == '"The rent is 900 euros" [DOC 2]\n900.'


def test_the_answer_rests_on_all_quotes_and_claims_nothing_without_a_short_one():
    quotes = [("The rent is 900 euros", 2), ("It has two wheels.", 7)]
    view = parse_quoting_view(said(*quotes, answer="It is 900, with two wheels."), SHOWN)
    (claim,) = view.claims
    assert claim.sentence == "It is 900, with two wheels."
    assert [(each.quote, each.passage) for each in claim.quotes] == quotes
    assert view.short == "900"
    unsure = parse_quoting_view(said(*quotes, answer="They do not say.", short=" "), SHOWN)
    assert (unsure.claims, unsure.named) == ((), (2, 7))
    brief = parse_quoting_view(said(*quotes, answer="", short="900"), SHOWN)
    assert brief.claims[0].sentence == "900"


def test_documents_come_in_the_order_of_their_quotes_each_once_and_no_more_than_wanted():
    quotes = [("The road goes to the old town", 5), ("It has two wheels.", 7), ("The road goes", 5)]
    assert parse_quoting_view(said(*quotes), SHOWN).named == (5, 7)
    assert parse_quoting_view(said(*quotes), SHOWN, most=1).named == (5,)


def test_as_many_quotes_count_as_documents_are_wanted():
    sentences = [f"The road number {n} goes to the town." for n in range(5)]
    shown = [(n, passage(text)) for n, text in enumerate(sentences)]
    reply = said(*((text, n) for n, text in enumerate(sentences)))
    assert parse_quoting_view(reply, shown, most=5).named == (0, 1, 2, 3, 4)
    assert len(parse_quoting_view(reply, shown).quotes) == 3


@pytest.mark.parametrize(
    ("reply", "named"),
    [
        ('It is 900 [DOC 2]. {"important_docs": [5]}', (5,)),
        ("It is 900 [DOC 2].", (2,)),
        ("It is 900.", None),
        ("", None),
    ],
)
def test_the_other_form_is_read_as_that(reply, named):
    view = parse_quoting_view(reply, SHOWN)
    assert (view.log, view.named) == (reply, named)


def test_an_answer_without_quotes_names_the_documents_it_cites():
    view = parse_quoting_view('{"quotes": [], "answer": "It is 900 [DOC 7]."}', SHOWN)
    assert (view.log, view.named, view.claims) == ("It is 900 [DOC 7].", (7,), ())


def test_more_quotes_than_wanted_and_a_long_one_are_cut():
    long = "The road goes to the old town beyond the hills. " * 9
    quotes = [("The rent is 900 euros", 2), ("It has two wheels.", 7), (long, 5), ("two wheels", 7)]
    view = parse_quoting_view(said(*quotes), [SHOWN[0], (5, passage(long)), SHOWN[2]])
    assert view.named == (2, 7, 5)
    assert view.short == "900"


def test_a_reply_that_was_cut_off_is_mended():
    reply = said(("The rent is 900 euros", 2))[:-12] + '"'
    assert parse_quoting_view(reply, SHOWN).named == (2,)


@given(
    st.text(max_size=200)
    | st.lists(st.text(max_size=40), min_size=1, max_size=3).map(
        lambda quotes: said(*((quote, 5) for quote in quotes))
    )
)
def test_no_reply_names_what_was_not_shown(reply):
    view = parse_quoting_view(reply, SHOWN)
    assert view.named is None or set(view.named) <= set(TEXTS)
    assert {each.passage for each in view.quotes} <= set(TEXTS)


def test_the_prompt_ends_in_the_question_and_its_spans_are_the_documents():
    messages, spans = quoting_view_messages("Rent?", SHOWN)
    content = messages[-1].content
    assert content.endswith("Question: Rent?")
    assert [content[start:end].split("\n")[1] for start, end in spans] == list(TEXTS.values())
