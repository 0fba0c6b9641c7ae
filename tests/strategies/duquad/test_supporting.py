import pytest
from hypothesis import given
from hypothesis import strategies as st

from colligate.documents import Document
from colligate.documents.markdown import markdown_tree
from colligate.strategies.duquad.prompts import distinct_words, find_evidence_sentences

TEXT = (
    "The mill is old. It stands by the lake. The rent of the mill is 900 euros. "
    "Nobody pays it. The euros go to the lake."
)


def document(text: str = TEXT) -> Document:
    return Document("mill", "Mill", text, markdown_tree(text, "mill"), language="en")


def shown(answer: str, most: int = 2, text: str = TEXT) -> list[str]:
    made = document(text)
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
    made = document()
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
    made = document(text)
    spans = find_evidence_sentences(made, made.span(0, len(text)), answer, most)
    assert len(spans) <= most
    assert all(made.slice(span).strip() for span in spans)
