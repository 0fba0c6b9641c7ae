from __future__ import annotations

import random
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colligate.documents import Document, Kind, Span
from colligate.documents.chunking import FixedWords
from colligate.documents.markdown import markdown_tree, own_span
from colligate.errors import SpanError
from colligate.strategies.rdr2.tree import align, align_exhaustively, nodes_over

TEXT = """# Six Flags

A theme park in Texas, opened in 1961.

## History

### Construction

Angus Wynne built the park in a year, for ten million dollars.

Visitors came by the **thousand** from the first day on.

### Decline

In the nineties hardly anything was built.

## Records

- Tallest coaster: Titan
  - at 245 feet
- Tallest swing: SkyScreamer

## Empty

## Closing words

It still stands.
"""


def document(text: str = TEXT) -> Document:
    return Document("d", "d", text, markdown_tree(text, "d"))


def mapped(start: str, end: str = "") -> list[str]:
    """The own texts of the nodes over what stands from the one string to the end of the other."""
    it = document()
    first = TEXT.index(start)
    last = TEXT.index(end or start, first) + len(end or start)
    own = [own_span(it, node) for node in nodes_over(it.tree, it.span(first, last))]
    return [it.slice(span) for span in own if span]


def test_a_span_in_one_paragraph_is_mapped_to_it() -> None:
    assert mapped("theme park") == ["A theme park in Texas, opened in 1961."]


def test_headings_in_between_are_mapped_too() -> None:
    assert mapped("first day", "hardly") == [
        "Visitors came by the **thousand** from the first day on.",
        "### Decline",
        "In the nineties hardly anything was built.",
    ]
    assert mapped("was built", "coaster") == [
        "In the nineties hardly anything was built.",
        "## Records",
        "- Tallest coaster: Titan",
    ]


def test_headings_around_are_not() -> None:
    assert mapped("### Decline", "hardly") == ["In the nineties hardly anything was built."]


def test_a_bare_heading_is_mapped_to_its_section() -> None:
    assert mapped("## Empty") == ["## Empty"]
    assert mapped("## Hist") == ["## History"]


def test_blanks_between_blocks_are_mapped_to_the_section_around() -> None:
    it = document()
    gap = TEXT.index("\n\nVisitors")
    assert [node.title for node in nodes_over(it.tree, it.span(gap, gap + 2))] == ["Construction"]


def test_a_nested_item_is_mapped_without_the_item_around_it() -> None:
    assert mapped("245 feet") == ["- at 245 feet"]
    assert mapped("Titan", "245") == ["- Tallest coaster: Titan", "- at 245 feet"]


def test_a_span_of_another_document_has_no_nodes() -> None:
    with pytest.raises(SpanError, match="no span of other"):
        nodes_over(document().tree, Span("other", 0, 5))


def test_an_empty_document_is_its_root() -> None:
    assert [node.kind for node in nodes_over(document("").tree, Span("d", 0, 0))] == [Kind.ROOT]


@given(st.data())
def test_all_content_a_span_touches_is_mapped(data: st.DataObject) -> None:
    it = document()
    start = data.draw(st.integers(0, len(TEXT) - 1))
    span = it.span(start, data.draw(st.integers(start, len(TEXT))))
    found = nodes_over(it.tree, span)
    assert [node.id for node in found] == list(range(found[0].id, found[-1].id + 1))
    content = [node for node in it.tree if node.kind not in (Kind.ROOT, Kind.SECTION)]
    touched = [node for node in content if (own := own_span(it, node)) and own.overlaps(span)]
    assert set(touched) <= set(found)
    if touched:
        assert found[0].span.overlaps(span)
        assert found[0].kind is not Kind.SECTION
        assert found[-1] == touched[-1]


def test_a_verbatim_chunk_is_aligned_to_its_first_place() -> None:
    at = TEXT.index("the park in")
    assert align("  the park in a year\n", document()) == Span("d", at, at + 18)


def test_blanks_case_and_marks_do_not_matter() -> None:
    found = align("Visitors  came by the THOUSAND\nfrom the first day on", document())
    assert document().slice(found) == "Visitors came by the **thousand** from the first day on"


def test_another_edition_is_aligned_to_what_it_was() -> None:
    chunk = "In 1960 Angus Wynne had built the park in one year, for about ten million US dollars."
    found = document().slice(align(chunk, document()))
    assert found.endswith("built the park in a year, for ten million dollars.")


def test_a_chunk_filled_up_from_the_beginning_is_aligned_to_the_end() -> None:
    chunk = "Closing words It still stands. Six Flags A theme park in Texas, opened"
    found = align(chunk, document())
    assert document().slice(found).strip("# ").startswith("Closing words")
    assert found.end == len(TEXT.rstrip())
    assert align(chunk.replace("still stands", "stands still"), document()).end == found.end


def test_a_chunk_longer_than_the_document_is_all_of_it() -> None:
    assert align("A theme park in Texas, no more.", document("A park.\n")) == Span("d", 0, 8)


def test_an_unlike_chunk_is_aligned_to_the_content_with_most_of_its_words() -> None:
    chunk = "Is SkyScreamer, which some say is rather tiring, their very tallest swing of all?"
    assert document().slice(align(chunk, document())) == "- Tallest swing: SkyScreamer"


@pytest.mark.parametrize("chunk", ["", "  \n", "***", "Привет, как дела"])
def test_a_chunk_of_which_nothing_is_there_has_an_empty_span(chunk: str) -> None:
    assert align(chunk, document()) == Span("d", 0, 0)


# Few letters and many repetitions: much is alike, and the first of equals must be found.
@given(st.text("ab", min_size=1, max_size=40), st.text("abc ", min_size=20, max_size=120))
def test_no_window_is_missed(chunk: str, text: str) -> None:
    assert align(chunk, document(text)) == align_exhaustively(chunk, document(text))


@given(st.integers(0, 100_000), st.integers(1, 6), st.integers(20, 120), st.integers(1, 4))
def test_no_window_is_missed_where_a_text_repeats_itself(
    seed: int, period: int, length: int, changes: int
) -> None:
    chance = random.Random(seed)
    text = list("".join(chance.choices("ab", k=period)) * (300 // period))
    for place in chance.choices(range(len(text)), k=10):
        text[place] = "c"
    start = chance.randrange(len(text) - length)
    chunk = text[start : start + length]
    for place in chance.choices(range(length), k=changes):
        chunk[place] = "d"
    it = document("".join(text))
    assert align("".join(chunk), it) == align_exhaustively("".join(chunk), it)


def article(words: int) -> Document:
    chance = random.Random(7)
    known = ["".join(chance.choices("etaoinshrdlu", k=chance.randint(2, 9))) for _ in range(400)]
    text = " ".join(chance.choices(known, k=words))
    return document("\n\n".join(text[at : at + 500] for at in range(0, len(text), 500)))


@given(st.integers(0, 10_000), st.sampled_from([0.05, 0.2, 0.5]))
def test_edited_chunks_are_aligned_as_by_comparing_all_windows(seed: int, changed: float) -> None:
    it, chance = ARTICLE, random.Random(seed)
    span = chance.choice(CHUNKS)
    words = []
    for word in it.slice(span).split():
        kept = chance.random() >= changed
        words += [word] if kept else chance.choice([[], ["other"], [word, "more"]])
    found = align(" ".join(words), it)
    assert found == align_exhaustively(" ".join(words), it)
    if changed < 0.5:
        shared = found.intersection(span)
        assert shared is not None
        assert len(shared) > 0.7 * len(span)


ARTICLE = article(400)
CHUNKS = FixedWords(40)(ARTICLE)[:-1]


def test_a_text_made_to_repeat_itself_does_not_hang() -> None:
    chance = random.Random(3)
    it = document("".join(chance.choices("01", k=100_000)))
    before = time.process_time()
    align("".join(chance.choices("01", k=2000)), it)
    assert time.process_time() - before < 20
