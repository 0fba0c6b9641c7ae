"""What DuQUAD's prompts show, and how the replies are read."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colligate.strategies.duquad.prompts import (
    DocScore,
    distinct_words,
    find_evidence_sentences,
    find_important,
    find_quotes,
    parse_doc_scores,
    read_document_number,
)
from support.documents import make

# The agents


@pytest.mark.parametrize(
    ("reply", "named"),
    [
        ('The rent is 900 [DOC 1].\n{"important_docs": [3, 1, 2]}', (3, 1, 2)),
        ('{"important_docs": ["3", "DOC 1", "[Doc 2]"]}', (3, 1, 2)),
        ('{"important_docs": [DOC 3, DOC 1]}', (3, 1)),
        ('{"important_docs": [[DOC 3], [DOC 1]]}', (3, 1)),
        ('{"important_docs": 3}', (3,)),
        ('{"important_docs": ["DOC3", "doc_5"]}', (3, 5)),
        ('{"important_docs": ["DOC 3 – 12 May report", "DOC 5"]}', (3, 5)),
        ("important_docs: 3, 5, 1", (3, 5, 1)),
        ("important_docs: DOC 3, DOC 5", (3, 5)),
        ("important_docs: [DOC 1], [DOC 2], [DOC 3]", (1, 2, 3)),
        ('{"important_docs": [3.0, 1]}', (3, 1)),
        ('{"answer": {"text": "x"}, "important_docs": [3]}', (3,)),
        ("{'important_docs': [3]}", (3,)),
        ('```json\n{"important_docs": [3,\n 1]}\n```\n', (3, 1)),
        ('{"important_docs": [3, 1', (3, 1)),  # cut off
        ('{"important_docs": [1]} and then {"important_docs": [2]}', (2,)),  # the last counts
        ('{"important_docs": [2]} {"important_docs": ["the best"]}', (2,)),  # of those with numbers
        ('{"important_docs": [9, 3, 3, 0, -1, 1]}', (3, 1)),  # not shown; doubled
        ('{"important_docs": [5, 4, 3, 2, 1]}', (5, 4, 3)),  # three at most
        ('{"important_docs": [9]} as [DOC 1] says', ()),
        ('I rely on [DOC 1]. {"important_docs": []}', ()),
        ("[DOC 2] says so, [DOC 4] too, and [DOC 4] again, [Document 5, DOC 2]", (2, 4, 5)),
        ("[DOC 9] [DOC 9] [DOC 9] [DOC 1]", (1,)),
        ("[DOC 1] [DOC 2] [DOC 3] [DOC 4] [DOC 4]", (4, 1, 2)),
        ('[DOC 1] {"important_docs": [', (1,)),  # cut off before it named any
        ('[DOC 1] {"important_docs": ["all of them"]}', (1,)),
        ('The "important_docs" are 1 and 2.', None),
        ("The rent is 900 euros.", None),
        ("", None),
    ],
)
def test_what_an_agent_names(reply, named):
    assert find_important(reply, {1, 2, 3, 4, 5}) == named


@pytest.mark.parametrize("item", [True, None, 2.5, float("inf"), "two", "2.5", "12th", "3rd", {}])
def test_what_names_no_document(item):
    assert read_document_number(item) is None


@given(
    st.text(max_size=300)
    | st.lists(st.integers() | st.text(max_size=9) | st.floats()).map(
        lambda items: json.dumps({"important_docs": items})
    )
)
def test_no_reply_names_what_was_not_shown_or_too_many(reply):
    named = find_important(reply, {1, 2, 3, 4, 5}, most=2)
    assert named is None or (len(set(named)) == len(named) <= 2 and set(named) <= {1, 2, 3, 4, 5})


@pytest.mark.parametrize(
    ("reply", "quotes"),
    [
        ('Rent: "it is 900 euros" [DOC 2], and [DOC 4].', [(2, "it is 900 euros")]),
        ("“It is 900 euros” (see [Document 2, DOC 4]).", [(2, "It is 900 euros")]),
        (
            '"It is 900 euros" and "it has two wheels" [DOC 4].',
            [(0, "It is 900 euros"), (4, "it has two wheels")],
        ),
        ('It is "900" [DOC 2].', []),  # stands in many documents
        ('[DOC 2] says "it is 900 euros', []),
        ('It is 900 [DOC 2].\n{"important_docs": [2, 4]}', []),
        ("", []),
    ],
)
def test_quoted_snippets_belong_to_the_document_cited_after_them(reply, quotes):
    assert list(find_quotes(reply)) == quotes


@given(st.text(max_size=300) | st.text('[DOC 12]"“”. a', max_size=900))
def test_any_reply_can_be_looked_through_for_quotes(reply):
    assert all(quote in reply for _, quote in find_quotes(reply))


def scores(*rows):
    names = ("doc_id", "answer", "p")
    return json.dumps({"scores": [dict(zip(names, row, strict=True)) for row in rows]})


def test_every_document_has_its_score_and_answer():
    found = parse_doc_scores(scores((3, "900 euros", 0.9), (7, "", 0.1)), [3, 7])
    assert found == {3: DocScore(0.9, "900 euros"), 7: DocScore(0.1, "")}


@pytest.mark.parametrize(
    ("p", "held"),
    [(1.7, 1.0), (-2, 0.0), ("0.5", 0.5), (1, 1.0), ("very", None), (None, None), (True, None),
     (float("nan"), None), (float("inf"), 1.0), (10**400, None)],
)  # fmt: skip
def test_p_is_held_to_its_range_and_an_entry_without_one_is_missing(p, held):
    found = parse_doc_scores(scores((3, "x", p)), [3])
    assert found == ({} if held is None else {3: DocScore(held, "x")})


@pytest.mark.parametrize(
    "reply",
    [
        'Here they are: {"scores": [{"doc_id": 3, "answer": "x", "p": 0.5}]} as asked.',
        '```json\n{"scores": [{"doc_id": "DOC 3", "answer": "x", "p": 0.5}]}\n```',
        '[{"doc_id": 3, "p": 0.5, "answer": "x"}]',
        '{"doc_id": 3, "p": 0.5, "answer": "x"}',
        '{"scores": [{"doc_id": 3, "answer": "x", "p": 0.5',  # cut off
        '{"scores": [{"doc_id": 3, "answer": "x", "p": 0.5,}, {"doc_id": 7, "ans',
        '{"scores": {"first": {"doc_id": 3, "answer": " x ", "p": 0.5}}}',
    ],
)
def test_broken_and_wrapped_replies_are_mended(reply):
    assert parse_doc_scores(reply, [3, 7]) == {3: DocScore(0.5, "x")}


@pytest.mark.parametrize("reply", ["", "no", "[", "{", '{"scores": 3}', "[[[[" * 3000, "{" * 5000])
def test_what_is_no_score_gives_none(reply):
    assert parse_doc_scores(reply, [3]) == {}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["doc_id", "p", "answer", "scores"]), inner, max_size=4)
    ),
)


@given(st.text(max_size=200) | JSON.map(json.dumps))
def test_no_reply_scores_what_was_not_asked(reply):
    for number, score in parse_doc_scores(reply, [1, 2]).items():
        assert number in (1, 2)
        assert 0 <= score.p <= 1


TEXT = (
    "The mill is old. It stands by the lake. The rent of the mill is 900 euros. "
    "Nobody pays it. The euros go to the lake."
)


def shown(answer: str, most: int = 2, text: str = TEXT) -> list[str]:
    made = make(text)
    spans = find_evidence_sentences(made, made.span(0, len(text)), answer, most)
    assert spans == sorted(spans)
    return [made.slice(span) for span in spans]


def test_the_sentences_with_most_of_the_answers_words_in_document_order():
    assert shown("900 euros of rent") == [
        "The rent of the mill is 900 euros.",
        "The euros go to the lake.",
    ]
    assert shown("the lake by which it stands", 1) == ["It stands by the lake."]


@pytest.mark.parametrize("answer", ["", "zebra", "the a an", "..."])
def test_without_a_shared_word_the_first_sentences(answer):
    assert shown(answer) == ["The mill is old.", "It stands by the lake."]


def test_only_sentences_within_the_passage():
    made = make(TEXT)
    within = made.span(0, TEXT.index("The rent"))
    spans = find_evidence_sentences(made, within, "900 euros")
    assert [made.slice(span) for span in spans] == ["The mill is old.", "It stands by the lake."]


def test_words_are_compared_as_squad_does_and_numbers_keep_sign_and_decimals():
    assert distinct_words("The “U.S.” $900, an ATLAS") == {"us", "900", "atlas"}
    assert distinct_words("-1.5 or (−2), 1,5; 3,487,000.") == {"-1.5", "or", "-2", "1,5", "3487000"}
    assert distinct_words("長い文書") == {"長", "い", "文", "書"}
    text = "The base rate is 15 percent. It is old. The surcharge is 1.5 percent."
    assert shown("1.5 percent", 1, text) == ["The surcharge is 1.5 percent."]


@given(st.text(max_size=200), st.text(max_size=40), st.integers(1, 4))
def test_any_text_gives_spans_of_it(text, answer, most):
    made = make(text)
    spans = find_evidence_sentences(made, made.span(0, len(text)), answer, most)
    assert len(spans) <= most
    assert all(made.slice(span).strip() for span in spans)
