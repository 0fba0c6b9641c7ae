from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colligate.documents import Document, Hit, Page, Passage, Span, flat_tree
from colligate.documents.markdown import markdown_tree
from colligate.errors import SpanError

SPANS = st.builds(
    lambda document_id, start, length: Span(document_id, start, start + length),
    st.sampled_from("ab"),
    st.integers(0, 20),
    st.integers(0, 20),
)


@pytest.mark.parametrize(("start", "end"), [(-1, 3), (4, 3), (-2, -1)])
def test_a_span_runs_forward_from_zero(start: int, end: int) -> None:
    with pytest.raises(SpanError):
        Span("d", start, end)


def test_an_empty_span_is_a_place() -> None:
    assert len(Span("d", 3, 3)) == 0
    assert Span("d", 3, 3)


def test_spans_of_different_documents_share_nothing() -> None:
    here, there = Span("a", 0, 9), Span("b", 0, 9)
    assert not here.overlaps(there)
    assert not here.contains(there)
    assert here.intersection(there) is None


@given(SPANS, SPANS)
def test_span_arithmetic_is_that_of_sets(a: Span, b: Span) -> None:
    in_a = {(a.document_id, place) for place in range(a.start, a.end)}
    in_b = {(b.document_id, place) for place in range(b.start, b.end)}
    shared = a.intersection(b)
    assert a.overlaps(b) == b.overlaps(a)
    if in_a and in_b:
        assert a.overlaps(b) == bool(in_a & in_b)
        assert a.contains(b) == (in_b <= in_a)
    if shared is not None:
        assert {(shared.document_id, place) for place in range(shared.start, shared.end)} == (
            in_a & in_b
        )
    else:
        assert not in_a & in_b


def paged() -> Document:
    text = "# A\n\nfirst page\n\n## B\n\nsecond page, 漢字🙂 and more\n"
    middle = text.index("## B")
    pages = (Page(1, 0, middle), Page(2, middle, len(text)))
    return Document("d", "Title", text, markdown_tree(text, "d"), pages=pages)


def test_a_slice_is_counted_in_code_points() -> None:
    document = paged()
    start = document.text.index("🙂")
    assert document.slice(document.span(start, start + 5)) == "🙂 and"


def test_spans_outside_the_document_are_refused() -> None:
    document = paged()
    with pytest.raises(SpanError):
        document.span(0, len(document) + 1)
    with pytest.raises(SpanError):
        document.slice(Span("other", 0, 1))


def test_every_character_knows_its_page() -> None:
    document = paged()
    middle = document.text.index("## B")
    numbers = [document.page_of(document.span(i, i)) for i in range(len(document))]
    assert [page.number for page in numbers if page] == [1] * middle + [2] * (
        len(document) - middle
    )
    text = "no pages"
    assert Document("d", "d", text, flat_tree("d", 8)).page_of(Span("d", 0, 1)) is None


def test_a_passage_carries_what_is_needed_to_show_it() -> None:
    document = paged()
    start = document.text.index("second")
    passage = document.passage(document.span(start, start + 6))
    assert passage == Passage(passage.span, "second", "Title", ("A", "B"), 2)
    assert passage.id == f"d:{start}-{start + 6}"
    assert passage.document_id == "d"
    assert Hit(passage, 0.5).passage is passage


def test_the_digest_follows_the_text() -> None:
    one, two = (Document("d", "d", text, flat_tree("d", 1)) for text in "ab")
    assert one.digest != two.digest
    assert len(one.digest) == 64
    assert Document("d", "d", "\ud800", flat_tree("d", 1)).digest
