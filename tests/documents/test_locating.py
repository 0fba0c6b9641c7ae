from __future__ import annotations

import random
import re
import time

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from colligate.documents import Span
from colligate.documents.locating import Location, MatchKind, locate, normalise
from colligate.errors import SpanError
from support.documents import make

TEXT = """# Licence agreement

The **Licensee** shall pay the fee of $15 million on 1 June 2019, as “agreed”, and
shall not sub-license the soft\u00adware; see [the annex](https://example.org/a_(b)#c).

| Year | Income  | Loss |
|------|---------|------|
| 2019 | 1,234.5 | -7   |
| 2020 | 2,345.6 | 8    |

The of\ufb01ce may termi-
nate this well\u2011known licence at any time — with or without notice.

今天天气很好。我们一起去公园
散步吧！Cafe\u0301 Gro\u00dfe Stra\u00dfe.
"""


DOCUMENT = make(TEXT)


def found(quote: str, text: str = TEXT) -> tuple[str, MatchKind] | None:
    document = make(text)
    location = locate(quote, document)
    return None if location is None else (document.slice(location.span), location.how)


def test_a_verbatim_quote_is_exact() -> None:
    start = TEXT.index("shall pay")
    assert locate("shall pay the fee", DOCUMENT) == Location(
        Span("d", start, start + 17), MatchKind.EXACT, 100.0
    )


@pytest.mark.parametrize(
    ("quote", "stands"),
    [
        ("the licensee shall pay", "The **Licensee** shall pay"),
        ('as "agreed", and shall not', "as “agreed”, and\nshall not"),
        ("as 'agreed', and  shall\tnot", "as “agreed”, and\nshall not"),
        ("sublicense the software; see the annex.", None),
        ("the software", "the soft\u00adware"),
        ("see the annex.", "see [the annex](https://example.org/a_(b)#c)."),
        ("The office may terminate this well-known licence", None),
        ("at any time - with or without notice", "at any time — with or without notice"),
        ("2019 1,234.5 -7", "2019 | 1,234.5 | -7"),
        ("2019 | 1,234.5 | −7", "2019 | 1,234.5 | -7"),
        ("我们一起去公园散步吧！", "我们一起去公园\n散步吧！"),
        ("Café GROSSE STRASSE", "Cafe\u0301 Gro\u00dfe Stra\u00dfe"),
        ("“Licence agreement”", "Licence agreement"),
        ("...may terminate this...", "may termi-\nnate this"),
        ("ofﬁce", "of\ufb01ce"),
    ],
)
def test_blanks_marks_and_forms_do_not_matter(quote: str, stands: str | None) -> None:
    at = found(quote)
    assert at is not None
    assert at[1] in (MatchKind.NORMALISED, MatchKind.EXACT)
    if stands is not None:
        assert at[0] == stands


def test_what_a_quote_got_slightly_wrong_is_fuzzy() -> None:
    location = locate("The Licensee must pay the fee of $15 million on 1 June 2019", DOCUMENT)
    assert location is not None
    assert location.how is MatchKind.FUZZY
    assert 90 <= location.score < 100
    assert DOCUMENT.slice(location.span) == (
        "The **Licensee** shall pay the fee of $15 million on 1 June 2019"
    )


def test_verbatim_a_quote_that_is_slightly_wrong_is_nowhere() -> None:
    wrong = "The office may end this well-known licence at any time"
    assert locate(wrong, DOCUMENT) is not None
    assert locate(wrong, DOCUMENT, verbatim=True) is None
    right = locate("The office may terminate this well-known licence", DOCUMENT, verbatim=True)
    assert right is not None
    assert right.how is MatchKind.NORMALISED


@pytest.mark.parametrize(
    "quote",
    [
        "The Licensee shall pay the fee of $16 million on 1 June 2019",
        "The Licensee shall pay the fee of $15 million on 1 June 2018",
        "The Licensee shall pay the fee of $1.5 million on 1 June 2019",
        "| 2019 | 1,234.5 | -8   |",
        "2019 1,234.5 7",
    ],
)
def test_a_quote_with_a_changed_number_is_nowhere(quote: str) -> None:
    assert found(quote) is None


@pytest.mark.parametrize(
    "quote", ["5 million", "$1", "234.5", "1,234", "2,345.6 | 8 9", "June 201"]
)
def test_no_match_begins_or_ends_inside_a_number(quote: str) -> None:
    assert found(quote) is None


def test_the_row_with_the_right_numbers_is_taken() -> None:
    rows = [
        f"In the fiscal year {year} total revenue was {year * 7} dollars.\n\n"
        for year in range(2000, 2006)
    ]
    at = found("In the fiscal year 2003 the total revenue was 14021 dollars", "".join(rows))
    assert at == ("In the fiscal year 2003 total revenue was 14021 dollars", MatchKind.FUZZY)


@pytest.mark.parametrize("quote", ["", "  \n", "…", "“”", "xyzzy", "the feet", "Nothing like this"])
def test_what_is_not_there_is_nowhere(quote: str) -> None:
    assert found(quote) is None


def test_short_quotes_are_not_guessed() -> None:
    assert found("shall pay thee fee") is None


def test_the_first_occurrence_wins_and_whole_words_before_parts() -> None:
    text = "start is here. The art is old. Fine art is new."
    location = locate("art is", make(text))
    assert location is not None
    assert location.span.start == text.index("art is old")
    assert locate("tart", make(text)) == Location(Span("d", 1, 5), MatchKind.EXACT, 100.0)


def test_only_the_place_named_is_searched() -> None:
    text = "One rule holds.\n\nNo rule.\n\nOne **rule** holds."
    named = Span("d", text.rindex("One"), len(text))
    location = locate("One rule holds.", make(text), within=named)
    assert location is not None
    assert (location.how, location.span) == (MatchKind.NORMALISED, named)
    assert locate("No rule.", make(text), within=named) is None
    assert locate("No rule.", make(text)) is not None


def test_a_place_in_another_document_is_refused() -> None:
    with pytest.raises(SpanError):
        locate("rule", DOCUMENT, within=Span("other", 0, 4))


def test_normalising_keeps_numbers_apart() -> None:
    assert normalise("1 2 | 3. 4 - 5, x – y -6").text == "1 2 3. 4-5,xy-6"


@settings(max_examples=200)
@given(st.text(max_size=60))
def test_normalised_characters_know_where_they_came_from(text: str) -> None:
    plain = normalise(text)
    assert len(plain.offsets) == len(plain.text)
    places = [plain.original(i, i + 1) for i in range(len(plain.text))]
    assert all(0 <= start < end <= len(text) for start, end in places)
    assert places == sorted(places)


@settings(max_examples=300)
@given(st.data())
def test_a_slice_of_the_document_is_found_as_it_stands(data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(TEXT) - 1))
    end = data.draw(st.integers(start + 1, len(TEXT)))
    quote = TEXT[start:end].strip()
    assume(quote and not _cuts_a_number(quote))
    location = locate(quote, DOCUMENT)
    assert location is not None
    assert location.how is MatchKind.EXACT
    assert DOCUMENT.slice(location.span) == quote


@settings(max_examples=150)
@given(st.text(min_size=1, max_size=80), st.data())
def test_a_slice_of_any_text_is_found(text: str, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(text) - 1))
    quote = text[start : data.draw(st.integers(start + 1, len(text)))].strip()
    assume(quote and not re.search(r"\d", text))
    at = found(quote, text)
    assert at == (quote, MatchKind.EXACT)


WORDS = list(re.finditer(r"\S+", TEXT[: TEXT.index("今")]))


@settings(max_examples=150)
@given(
    st.integers(0, len(WORDS) - 8),
    st.integers(4, 8),
    st.sampled_from([" ", "\n", "  ", "\u00a0", "\r\n", "\u2009", "\t"]),
    st.sampled_from(["-", "\u2010", "\u2011", "\u2013", "\u2014", "\u2212"]),
    st.booleans(),
)
def test_changed_blanks_and_dashes_are_found(
    first: int, count: int, blank: str, dash: str, upper: bool
) -> None:
    start, end = WORDS[first].start(), WORDS[first + count - 1].end()
    stands = TEXT[start:end]
    assume(re.search(r"\w", stands))
    quote = re.sub(r"[-\u2011—]", dash, re.sub(r"\s+", blank, stands))
    location = locate(quote.upper() if upper else quote, DOCUMENT)
    assert location is not None
    assert location.how is not MatchKind.FUZZY
    assert normalise(DOCUMENT.slice(location.span)).text.strip(".") == normalise(stands).text.strip(
        "."
    )


@settings(max_examples=100)
@given(st.text(alphabet="qxzjkvw ", min_size=3, max_size=200))
def test_random_letters_are_nowhere(quote: str) -> None:
    assume(quote.strip() and normalise(quote).text not in normalise(TEXT).text)
    assert found(quote) is None


def test_a_large_document_takes_bounded_time() -> None:
    words = [*re.findall(r"[a-z]{3,9}", TEXT), "alpha", "beta", "gamma", "delta"]
    chance = random.Random(7)
    body = " ".join(chance.choice(words) for _ in range(400_000))
    large = make(body + " " + TEXT, flat=True)
    begun = time.perf_counter()
    assert locate("nothing of this kind was ever written by anyone here at all", large) is None
    hit = locate("The Licensee must pay the fee of $15 million on 1 June 2019", large)
    assert hit is not None
    assert hit.span.start > len(body)
    assert time.perf_counter() - begun < 10


def _cuts_a_number(quote: str) -> bool:
    # Whether this may be a slice from inside one of the numbers of TEXT.
    return bool(re.match(r"[\d.,]", quote) or re.search(r"[\d.,]\Z", quote))
