from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from colligate.documents.chunking import (
    Chunker,
    FixedTokens,
    FixedWords,
    SixSentences,
    Structural,
    parse_chunker,
)
from colligate.documents.tokens import token_spans
from colligate.errors import UsageError
from support.documents import MARKDOWN, make

PROSE = "The licensee pays the fee. It is due at once. Late payment costs interest. "


def cut(chunker: Chunker, text: str) -> list[str]:
    found = make(text)
    return [found.slice(span) for span in chunker(found)]


@pytest.mark.parametrize(
    ("chunker", "text", "chunks"),
    [
        (
            Structural(),
            f"# A\n\nOne.\n\n{PROSE}\n\n- three\n- four\n\n## B\n\n{PROSE}\n",
            [f"# A\n\nOne.\n\n{PROSE}\n\n- three\n- four", f"## B\n\n{PROSE.strip()}"],
        ),
        # Blocks are whole where they fit, and no heading is left behind.
        (Structural(50), "\n\n".join([PROSE * 2] * 3), [(PROSE * 2).strip()] * 3),
        (Structural(20), f"# Payment of fees\n\n{PROSE}", [
            "# Payment of fees\n\nThe licensee pays the fee. It is due at once.",
            "Late payment costs interest.",
        ]),
        (Structural(20), "lorem " * 30, [("lorem " * 20).strip(), ("lorem " * 10).strip()]),
        (FixedWords(3), "今天天气很好。", ["今天天", "气很好", "。"]),
        (FixedWords(2), "a b c", ["a b", "c"]),
        (SixSentences(2), PROSE, ["The licensee pays the fee. It is due at once.", PROSE[46:-1]]),
    ],
)  # fmt: skip
def test_chunks(chunker, text, chunks):
    assert cut(chunker, text) == chunks


FEES = f"## Fees\n\n{PROSE.strip()}"
CREW = "## Crew\n\n" + "- Ann Lee\n" * 13


@pytest.mark.parametrize(
    "chunks",
    [
        # What says nothing is read with what follows it, a title page as well as an empty section.
        [f"# A\n\n## B\n\n{FEES}"],
        [f"# A\n\nAnn Lee, Leeds\n\n2027\n\n{FEES}"],
        [f"## Mines\n\nNot applicable.\n\n{FEES}"],
        [f"## Photos\n\n- Front\n- Back\n\n{FEES}"],
        # At the end it is read with what comes before it.
        [f"{FEES}\n\n## Reserved\n\n117"],
        # A short sentence, a row and a long list say something.
        ["## Mines\n\nThere are none.", FEES],
        ["## Fees\n\n| who | fee |\n|---|---|\n| adults | 9 |", FEES],
        [CREW.strip(), FEES],
        ["## 鉱山\n\n鉱山はありません。", FEES],
    ],
)
def test_what_says_nothing_is_no_chunk_of_its_own(chunks):
    assert cut(Structural(), "\n\n".join(chunks)) == chunks


def test_structural_cuts_a_table_at_rows_only_when_it_must():
    rows = ["| year | income |", "|---|---|", *(f"| {year} | 100 |" for year in range(2000, 2030))]
    table = "\n".join(rows)
    text = f"Before.\n\n{table}\n\nAfter."
    assert cut(Structural(tokens=1000), text) == [text]
    chunks = cut(Structural(tokens=60), table)
    assert len(chunks) > 2
    assert "\n".join(chunks) == table


@pytest.mark.parametrize(
    "wrong",
    [
        *(lambda: Structural(tokens=0), lambda: FixedWords(0), lambda: SixSentences(0)),
        *(lambda: FixedTokens(0, 0), lambda: FixedTokens(10, 10), lambda: FixedTokens(10, -1)),
    ],
)
def test_sizes_that_make_no_sense_are_refused(wrong):
    with pytest.raises(UsageError):
        wrong()


CHUNKERS: list[Chunker] = [
    *(Structural(1), Structural(5), Structural(25), FixedWords(1), FixedWords(7)),
    *(FixedTokens(1, 0), FixedTokens(4, 3), FixedTokens(9, 2), FixedTokens(30, 10)),
    *(SixSentences(2), SixSentences()),
]


@settings(max_examples=250)
@given(MARKDOWN, st.sampled_from(CHUNKERS), st.booleans())
def test_chunks_are_in_order_and_leave_nothing_out(text, chunker, flat):
    found = make(text, flat=flat)
    spans = chunker(found)
    place = 0
    for span in spans:
        assert not text[place : span.start].strip()
        assert found.slice(span) == found.slice(span).strip() != ""
        assert span.end > place
        place = span.end
        if isinstance(chunker, FixedTokens):
            assert len(token_spans(found.slice(span))) <= chunker.tokens
    assert not text[place:].strip()
    overlap = isinstance(chunker, FixedTokens) and chunker.overlap > 0
    assert overlap or all(a.end <= b.start for a, b in pairwise(spans))


def test_a_window_repeats_the_end_of_the_one_before():
    words = [f"w{i:03}" for i in range(100)]  # three tokens each
    chunks = cut(FixedTokens(30, 9), " ".join(words))
    assert chunks[0].split() == words[:10]
    assert chunks[1].split() == words[7:17]
    assert chunks[-1].split()[-1] == words[-1]


@pytest.mark.parametrize(
    ("name", "chunker"),
    [("structural", Structural()), ("words:9", FixedWords(9)), ("tokens:9/2", FixedTokens(9, 2))],
)
def test_a_chunker_has_a_name(name, chunker):
    assert parse_chunker(name) == chunker
    assert getattr(chunker, "name", None) == name


@pytest.mark.parametrize("name", ["words", "words:0", "tokens:100", "tokens:5/9", "lines:3", ""])
def test_another_name_is_wrong_usage(name):
    with pytest.raises(UsageError):
        parse_chunker(name)


@settings(max_examples=150)
@given(MARKDOWN, st.sampled_from([1, 3, 8, 25]))
def test_structural_chunks_stay_in_the_limit(text, limit):
    found = make(text)
    assert all(len(token_spans(found.slice(span))) <= limit for span in Structural(limit)(found))
