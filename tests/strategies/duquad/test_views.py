import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colligate.documents import Passage, Span
from colligate.strategies.duquad.prompts import (
    find_important,
    find_quotes,
    read_document_number,
    view_messages,
)


def passage(text: str, title: str = "Title", name: str = "a", **more) -> Passage:
    return Passage(Span(name, 0, len(text)), text, title, **more)


def test_an_agent_sees_the_documents_by_number_and_then_the_question():
    numbered = [
        (4, passage("First text.\n")),
        (2, passage("Other text.", "Mill", section=("Wheel",))),
    ]
    content = view_messages("  Who built it?\n", numbered)[-1].content
    assert '<document number="4">\nTitle\nFirst text.\n' in content
    assert '<document number="2">\nMill › Wheel\nOther text.\n' in content
    assert content.index('number="4"') < content.index('number="2"')
    assert content.endswith("Question: Who built it?")


def test_it_is_asked_for_a_json_object_with_as_many_documents_as_wanted():
    task = view_messages("Q?", [(1, passage("Text."))], most=2)[0].content
    assert '\n{"important_docs": [<number 1>, <number 2>]}\n' in task
    assert "top 2 most important" in task


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
    assert [(each.passage, each.quote) for each in find_quotes(reply)] == quotes


@given(st.text(max_size=300) | st.text('[DOC 12]"“”. a', max_size=900))
def test_any_reply_can_be_looked_through_for_quotes(reply):
    assert all(each.quote in reply for each in find_quotes(reply))
