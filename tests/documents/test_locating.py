import random
import re
import time

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from colligate.documents import Span
from colligate.documents.locating import Location, MatchKind, locate, normalise
from support.documents import make

TEXT = """# Licence agreement

The **Licensee** shall pay the fee of $15 million on 1 June 2019, as “agreed”, and
shall not sub-license the soft\u00adware; see [the annex](https://example.org/a_(b)#c).

| Year | Income  | Loss |
|------|---------|------|
| 2019 | 1,234.5 | -7   |
| 2020 | 2,345.6 | 8    |

See [[the plan]] of [[months/May|May]] and the rest.

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


@pytest.mark.parametrize(
    ("quote", "stands", "how"),
    [
        ("shall pay the fee", "shall pay the fee", "exact"),
        ("ofﬁce", "of\ufb01ce", "exact"),
        ("the licensee shall pay", "The **Licensee** shall pay", "normalised"),
        ('as "agreed", and shall not', "as “agreed”, and\nshall not", "normalised"),
        ("as 'agreed', and  shall\tnot", "as “agreed”, and\nshall not", "normalised"),
        ("the software", "the soft\u00adware", "normalised"),
        ("see the annex.", "see [the annex](https://example.org/a_(b)#c).", "normalised"),
        ("The office may terminate", "The of\ufb01ce may termi-\nnate", "normalised"),
        ("time - with or without notice", "time — with or without notice", "normalised"),
        ("2019 1,234.5 -7", "2019 | 1,234.5 | -7", "normalised"),
        ("2019 | 1,234.5 | −7", "2019 | 1,234.5 | -7", "normalised"),
        ("我们一起去公园散步吧！", "我们一起去公园\n散步吧！", "normalised"),
        ("Café GROSSE STRASSE", "Cafe\u0301 Gro\u00dfe Stra\u00dfe", "normalised"),
        ("公园散步吧！CAFÉ", "公园\n散步吧！Cafe\u0301", "normalised"),
        ("the plan of May and", "the plan]] of [[months/May|May]] and", "normalised"),
        ("“Licence agreement”", "Licence agreement", "normalised"),
        ("...may terminate this...", "may termi-\nnate this", "normalised"),
        (
            "The Licensee must pay the fee of $15 million on 1 June 2019",
            "The **Licensee** shall pay the fee of $15 million on 1 June 2019",
            "fuzzy",
        ),
    ],
)
def test_blanks_marks_forms_and_a_few_letters_do_not_matter(quote, stands, how):
    assert found(quote) == (stands, how)
    verbatim = locate(quote, DOCUMENT, verbatim=True)
    assert (verbatim is None) == (how == "fuzzy")


@pytest.mark.parametrize(
    "mark",
    [
        *("[^1]", "[^a-b]", "[12]", " [3, 4]", "[[1]](#cite_note-1)", "[2](notes.xhtml#n2)"),
        *("³", "¹²", "<sup>2</sup>", "^4^", "†"),
    ],
)
def test_a_quote_may_leave_out_the_mark_of_a_note(mark):
    text = f"The fee is due.{mark} It is paid in May{mark.strip()}. Nobody is free."
    for quote in ("The fee is due. It is paid in May", "The fee is due. It is paid in may."):
        stands = f"The fee is due.{mark} It is paid in May"
        at, how = found(quote, text)
        assert at.startswith(stands)
        assert how is MatchKind.NORMALISED
    assert found(f"due.{mark} It", text) == (f"due.{mark} It", MatchKind.EXACT)


@pytest.mark.parametrize(
    ("quote", "text"),
    [
        ("is a room of 20 m long", "is a room of 20 m² long"),
        ("is 10 rooms", "is 10<sup>6</sup> rooms"),
        ("take a[1] first", "take a[2] first"),
        ("[^1] says", "word[^2] says"),
    ],
)
def test_powers_and_other_marks_are_no_marks_to_leave_out(quote, text):
    assert found(quote, text) is None


def test_the_row_with_the_right_numbers_is_taken():
    row = "In the fiscal year {} total revenue was {} dollars.\n\n".format
    rows = [row(year, year * 7) for year in range(2000, 2006)]
    at = found("In the fiscal year 2003 the total revenue was 14021 dollars", "".join(rows))
    assert at == ("In the fiscal year 2003 total revenue was 14021 dollars", MatchKind.FUZZY)


@pytest.mark.parametrize("order", [1, -1])
def test_a_place_with_another_number_hides_no_less_similar_one(order):
    right = "The tenant of the house must pay a fee of 16 dollars in each month of the year."
    other = "The tenant of the house shall pay a fee of 15 dollars in each month of the year."
    text = "\n\n".join([right, other][::order])
    quote = "The tenant of the house shall pay a fee of 16 dollars in each month of the year."
    assert found(quote, text) == (right, MatchKind.FUZZY)


@pytest.mark.parametrize(
    "quote",
    [
        *("", "  \n", "…", "“”", "xyzzy", "the feet", "Nothing like this", "shall pay thee fee"),
        # not like enough: 87 of 100
        "The Licensee has to settle the fee of $15 million on 1 June 2019",
        # another number
        "The Licensee shall pay the fee of $16 million on 1 June 2019",
        "The Licensee shall pay the fee of $15 million on 1 June 2018",
        "The Licensee shall pay the fee of $1.5 million on 1 June 2019",
        *("| 2019 | 1,234.5 | -8   |", "2019 1,234.5 7"),
        # a part of a number
        *("5 million", "$1", "234.5", "1,234", "2,345.6 | 8 9", "June 201"),
    ],
)
def test_what_is_not_there_is_nowhere(quote):
    assert found(quote) is None


def test_the_first_occurrence_wins_and_whole_words_before_parts():
    text = "start is here. The art is old. Fine art is new."
    location = locate("art is", make(text))
    assert location.span.start == text.index("art is old")
    assert locate("tart", make(text)) == Location(Span("d", 1, 5), MatchKind.EXACT, 100.0)


def test_only_the_place_named_is_searched():
    text = "One rule holds.\n\nNo rule.\n\nOne **rule** holds."
    named = Span("d", text.rindex("One"), len(text))
    location = locate("One rule holds.", make(text), within=named)
    assert (location.how, location.span) == (MatchKind.NORMALISED, named)
    assert locate("No rule.", make(text), within=named) is None
    assert locate("No rule.", make(text)) is not None


def test_normalising_keeps_numbers_apart():
    assert normalise("1 2 | 3. 4 - 5, x – y -6").text == "1 2 3. 4-5,xy-6"


@settings(max_examples=200)
@given(st.text(max_size=60))
def test_normalised_characters_know_where_they_came_from(text):
    plain = normalise(text)
    assert len(plain.offsets) == len(plain.text)
    places = [plain.original(i, i + 1) for i in range(len(plain.text))]
    assert all(0 <= start < end <= len(text) for start, end in places)
    assert places == sorted(places)


@settings(max_examples=300)
@given(st.data())
def test_a_slice_of_the_document_is_found_as_it_stands(data):
    start = data.draw(st.integers(0, len(TEXT) - 1))
    end = data.draw(st.integers(start + 1, len(TEXT)))
    quote = TEXT[start:end].strip()
    assume(quote and not _cuts_a_number(quote))
    location = locate(quote, DOCUMENT)
    assert location.how is MatchKind.EXACT
    assert DOCUMENT.slice(location.span) == quote


@settings(max_examples=150)
@given(st.text(min_size=1, max_size=80), st.data())
def test_a_slice_of_any_text_is_found(text, data):
    start = data.draw(st.integers(0, len(text) - 1))
    quote = text[start : data.draw(st.integers(start + 1, len(text)))].strip()
    assume(quote and not re.search(r"\d", text))
    assert found(quote, text) == (quote, MatchKind.EXACT)


WORDS = list(re.finditer(r"\S+", TEXT[: TEXT.index("今")]))


@settings(max_examples=150)
@given(
    st.integers(0, len(WORDS) - 8),
    st.integers(4, 8),
    st.sampled_from([" ", "\n", "  ", "\u00a0", "\r\n", "\u2009", "\t"]),
    st.sampled_from(["-", "\u2010", "\u2011", "\u2013", "\u2014", "\u2212"]),
    st.booleans(),
)
def test_changed_blanks_and_dashes_are_found(first, count, blank, dash, upper):
    start, end = WORDS[first].start(), WORDS[first + count - 1].end()
    stands = TEXT[start:end]
    assume(re.search(r"\w", stands))
    quote = re.sub(r"[-\u2011—]", dash, re.sub(r"\s+", blank, stands))
    location = locate(quote.upper() if upper else quote, DOCUMENT)
    assert location.how is not MatchKind.FUZZY
    plain, expected = (normalise(text).text for text in (DOCUMENT.slice(location.span), stands))
    assert plain.strip(".") == expected.strip(".")


def test_a_large_document_takes_bounded_time():
    words = [*re.findall(r"[a-z]{3,9}", TEXT), "alpha", "beta", "gamma", "delta"]
    chance = random.Random(7)
    body = " ".join(chance.choice(words) for _ in range(400_000))
    large = make(body + " " + TEXT, flat=True)
    begun = time.perf_counter()
    assert locate("nothing of this kind was ever written by anyone here at all", large) is None
    hit = locate("The Licensee must pay the fee of $15 million on 1 June 2019", large)
    assert hit.span.start > len(body)
    assert time.perf_counter() - begun < 10


def _cuts_a_number(quote: str) -> bool:
    # Whether this may be a slice from inside one of the numbers of TEXT.
    return bool(re.match(r"[\d.,]", quote) or re.search(r"[\d.,]\Z", quote))
