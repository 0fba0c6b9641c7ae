import pytest
from hypothesis import given
from hypothesis import strategies as st

from colligate.documents import Document, Page, Passage, Span, clean_text, flat_tree
from colligate.errors import SpanError, UsageError
from support.documents import make

SPANS = st.builds(
    lambda document_id, start, length: Span(document_id, start, start + length),
    st.sampled_from("ab"),
    st.integers(0, 20),
    st.integers(0, 20),
)


@pytest.mark.parametrize(("start", "end"), [(-1, 3), (4, 3), (-2, -1)])
def test_a_span_runs_forward_from_zero(start, end):
    with pytest.raises(SpanError):
        Span("d", start, end)


@given(SPANS, SPANS)
def test_span_arithmetic_is_that_of_sets(a, b):
    in_a = {(a.document_id, place) for place in range(a.start, a.end)}
    in_b = {(b.document_id, place) for place in range(b.start, b.end)}
    shared = a.intersection(b)
    assert a.overlaps(b) == b.overlaps(a)
    if in_a and in_b:
        assert a.overlaps(b) == bool(in_a & in_b)
        assert a.contains(b) == (in_b <= in_a)
    if shared is None:
        assert not in_a & in_b
    else:
        places = {(shared.document_id, place) for place in range(shared.start, shared.end)}
        assert places == in_a & in_b


def make_paged() -> Document:
    text = "# A\n\nfirst page\n\n## B\n\nsecond page, 漢字🙂 and more\n"
    middle = text.index("## B")
    return make(text, pages=(Page(1, 0, middle), Page(2, middle, len(text))))


def test_spans_outside_the_document_are_refused():
    document = make_paged()
    with pytest.raises(SpanError):
        document.span(0, len(document) + 1)
    with pytest.raises(SpanError):
        document.slice(Span("other", 0, 1))


def test_every_character_has_its_page():
    document = make_paged()
    middle = document.text.index("## B")
    pages = [document.page_of(document.span(i, i)) for i in range(len(document))]
    assert [page.number for page in pages if page] == [1] * middle + [2] * (len(pages) - middle)
    assert make("no pages").page_of(Span("d", 0, 1)) is None


def test_a_passage_carries_its_text_and_place():
    document = make_paged()
    start = document.text.index("🙂")
    passage = document.passage(document.span(start, start + 5))
    assert passage == Passage(passage.span, "🙂 and", "d", ("A", "B"), 2)
    assert (passage.id, passage.document_id) == (f"d:{start}-{start + 5}", "d")
    assert len(document.digest) == 64


@pytest.mark.parametrize("field", ["id", "title", "text", "source", "metadata", "warnings"])
def test_half_a_surrogate_pair_is_refused(field):
    torn = "half \ud800 pair"
    value = {"metadata": {"author": torn}, "warnings": (torn,)}.get(field, torn)
    fields = {"id": "d", "title": "d", "text": "d", "tree": flat_tree("d", 1)}
    with pytest.raises(UsageError, match=r"document .* surrogate"):
        Document(**fields | {field: value})  # type: ignore[arg-type]


@given(st.text(st.characters(exclude_categories=())))
def test_clean_text_can_be_encoded_and_is_clean(text):
    clean = clean_text(text)
    clean.encode()
    assert not set("\r\x00") & set(clean)
    assert clean_text(clean) == clean
    if text.isprintable():
        assert clean == text


@pytest.mark.parametrize(
    ("rows", "head"),
    [
        ("| 2015 | | |\n|---|---|---|\n| Sales | 5 | 6 |\n| 2014 | | |\n", "2014"),
        ("| | Q1 | Q2 |\n|---|---|---|\n| Fiscal 2014: | | |\n| Costs | 1 | 2 |\n",
         "Q1 | Q2 | Fiscal 2014:"),
        ("| | 2015 | 2014 |\n|---|---|---|\n| Assets | | |\n| Cash | 1 | 2 |\n", "2015 | 2014"),
        ("| Year |\n|---|\n| 2013 |\n| 2014 |\n", "Year"),
        ("| | | Year ended May 31, |\n|---|---|---|\n| | 2017 | 2016 |\n| Costs | 1 | 2 |\n",
         "Year ended May 31, | 2017 | 2016"),
        ("| Streams | | |\n|---|---|---|\n| | Year 2014 | |\n", "Streams | Year 2014"),
    ],
)  # fmt: skip
def test_a_row_below_a_period_has_it_in_the_head_of_its_table(rows, head):
    document = make(f"# Report\n\n{rows}| Sales | 7 | 8 |\n", "Report", "a")
    row = document.span(document.text.rindex("| Sales"), len(document))
    assert document.table_head(row) == head


@pytest.mark.parametrize(
    ("above", "first", "head"),
    [
        ("Year ended May 31,\n\n2018 2017\n\n", "| Sales | $ 5,100 | 4,200 |",
         "Year ended May 31, | 2018 2017"),
        ("# Part\n\n2018 2017\n\n", "| Sales | 5,100 | (4,200) |", "2018 2017"),
        ("2018 2017\n\n", "| | | |\n|---|---|---|\n| Sales | 5,100 | 4,200 |", "2018 2017"),
        ("2018 2017\n\n", "| Plan | 1.0 | 2.0 |", "Plan | 1.0 | 2.0"),
        ("", "| Sales | 5,100 | 4,200 |", "Sales | 5,100 | 4,200"),
    ],
)  # fmt: skip
def test_a_table_that_begins_with_amounts_has_its_columns_named_above_it(above, first, head):
    prose = "This is what the company sold in these years. " * 4
    document = make(f"{prose}\n\n{above}{first}\n|---|---|---|\n| Costs | 1 | 2 |\n", "R", "a")
    row = document.span(document.text.index("| Costs"), len(document))
    assert document.table_head(row) == head
    start = document.text.index(first)
    named = head if above and "," in first else ""
    assert document.table_head(document.span(start, start + len(first))) == named


@pytest.mark.parametrize("unit", ["In millions, except per share data", "MILLIONS, EXCEPT LOSS"])
def test_the_unit_of_a_row_of_figures_may_be_printed_long_before_it(unit):
    above = f"# Statements\n\n({unit})\n\n"
    prose = "Nothing of note was sold in 2018 or 2017. " * 40
    table = "| Sales | 7 |\n|---|---|\n| Costs | 1 |"
    document = make(f"{above}{prose}\n\nTotal assets $ 22,536 $ 23,259\n\n{table}\n", "R", "a")
    for words, row in (("Total assets $ 22,536 $ 23,259", True), ("Costs", True), ("Nothing", 0)):
        start = document.text.index(words)
        printed = document.printed_unit(document.span(start, start + len(words)))
        assert printed == (unit if row else "")


def test_a_head_is_looked_for_at_the_top_of_its_table_alone():
    blank = "| | |\n|---|---|\n" + "| | |\n" * 2_000
    document = make(f"# Report\n\n{blank}| a | b |\n| c | d |\n", "Report", "a")
    row = document.span(document.text.rindex("| c"), len(document))
    assert document.table_head(row) == ""
