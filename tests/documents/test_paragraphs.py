from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from colligate.documents import Document, Span
from colligate.documents.reading.text import text_tree
from colligate.documents.sentences import split_paragraphs, word_spans
from colligate.errors import SpanError, UsageError
from support.documents import make, squeeze


def cut(text: str, least: int, most: int, *, flat: bool = False) -> list[str]:
    found = make(text, flat=flat)
    spans = split_paragraphs(found, found.span(0, len(text)), least_words=least, most_words=most)
    return [found.slice(span) for span in spans]


def test_neighbours_are_joined_until_there_are_words_enough() -> None:
    text = "one two\n\nthree\n\nfour five six\n\n- seven\n- eight\n- nine\n\nten"
    assert cut(text, 3, 9) == [
        "one two\n\nthree",
        "four five six",
        "- seven\n- eight",
        "- nine\n\nten",
    ]


def test_a_short_remainder_stands_alone() -> None:
    assert cut("one two three\n\nfour", 3, 9) == ["one two three", "four"]


def test_nothing_is_joined_over_a_heading() -> None:
    text = "lead\n\n# A\n\none\n\n## B\n\n### C\n\ntwo\n\nthree\n\nUnderlined\n---\n\nfour"
    assert cut(text, 100, 250) == ["lead", "one", "two\n\nthree", "four"]


def test_a_long_block_is_cut_at_sentences() -> None:
    text = "The fee is due. It is paid at once. Late payment costs interest. No more is owed."
    assert cut(text, 4, 10) == [
        "The fee is due.",
        "It is paid at once.",
        "Late payment costs interest.",
        "No more is owed.",
    ]


def test_a_block_that_is_not_too_long_stays_whole() -> None:
    text = "The fee is due. It is paid at once."
    assert cut(text, 4, 9) == [text]


def test_a_long_table_is_cut_at_rows() -> None:
    rows = ["year | income", "---|---", *(f"{year} | Much. More" for year in range(9))]
    found = cut("\n".join(rows), 10, 12)
    assert "\n".join(found) == "\n".join(rows)
    assert [piece.count("\n") for piece in found] == [3, 2, 2, 0]


def test_long_code_is_cut_at_lines() -> None:
    lines = ["```", *(f"x = {n}. Then y" for n in range(9)), "```"]
    found = cut("\n".join(lines), 5, 7)
    assert found == ["\n".join(lines[:2]), *lines[2:]]


def test_a_line_without_end_is_cut_at_blanks() -> None:
    found = cut("lorem " * 25, 10, 10)
    assert [len(piece.split()) for piece in found] == [10, 10, 5]
    assert set(" ".join(found).split()) == {"lorem"}


def test_prose_without_full_stops_is_cut_at_its_lines() -> None:
    text = "\n".join(f"revenue of the year {year}" for year in range(1990, 2000))
    tree = text_tree(text, "d")
    found = Document("d", "d", text, tree)
    spans = split_paragraphs(found, found.span(0, len(text)), least_words=5, most_words=9)
    assert [found.slice(span) for span in spans] == text.split("\n")


def test_chinese_counts_a_character_a_word() -> None:
    assert cut("市议会昨天决定。在车站附近建一所新学校。", 8, 12) == [
        "市议会昨天决定。",
        "在车站附近建一所新学校。",
    ]
    assert [len(piece) for piece in cut("学" * 25, 10, 10)] == [10, 10, 5]


def test_text_that_no_blank_divides_has_an_end_too() -> None:
    found = cut("x" * 1000, 10, 20)
    assert max(map(len, found)) == 400
    assert "".join(found) == "x" * 1000


def test_a_text_without_a_tree_is_cut_at_blank_lines_first() -> None:
    text = "One two. Three\n\nFour five. Six\n\nSeven"
    assert cut(text, 2, 3, flat=True) == ["One two. Three", "Four five. Six", "Seven"]


def test_only_the_area_is_looked_at() -> None:
    found = make("# One\n\nfirst words here\n\n# Two\n\nlast words here")
    start, end = found.text.index("words"), found.text.index("words here", 25) + len("words")
    spans = split_paragraphs(found, found.span(start, end))
    assert [found.slice(span) for span in spans] == ["words here", "last words"]


def test_an_area_that_begins_in_a_heading_leaves_out_the_rest_of_it() -> None:
    found = make("# A long heading\n\ntext")
    for start in range(len("# A long heading") + 1):
        spans = split_paragraphs(found, found.span(start, len(found)))
        assert [found.slice(span) for span in spans] == ["text"]
    assert split_paragraphs(found, found.span(2, 8)) == []


def test_an_area_inside_a_table_is_cut_as_a_table() -> None:
    rows = ["| a | b |", "|---|---|", *(f"| {n}. x. y. | {n} |" for n in range(8))]
    found = make("\n".join(rows))
    spans = split_paragraphs(
        found, found.span(found.text.index("| 2."), len(found)), least_words=5, most_words=8
    )
    assert [found.slice(span) for span in spans] == rows[4:]


def test_an_empty_area_has_no_paragraphs() -> None:
    assert cut("", 1, 1) == []
    assert cut(" \n\n ", 1, 1) == []
    found = make("text")
    assert split_paragraphs(found, found.span(4, 4)) == []


def test_impossible_lengths_and_foreign_areas_are_refused() -> None:
    found = make("text")
    for least in (0, 6):
        with pytest.raises(UsageError, match=f"{least} to 5"):
            split_paragraphs(found, found.span(0, 4), least_words=least, most_words=5)
    with pytest.raises(SpanError):
        split_paragraphs(found, Span("another", 0, 4))


SENTENCE = st.sampled_from(
    [
        "The licensee pays the fee.",
        "It is due at once!",
        "no end here",
        "市议会昨天决定。",
        "x" * 50,
        "a <b> &amp; *c*",
        "Ünïcode\u00a0stays 😀",
        "No. 3 of vol. 2, Mr. A. Bee.",
    ]
)
PARAGRAPH = st.lists(SENTENCE, min_size=1, max_size=12).map(" ".join)
BLOCK = st.one_of(
    PARAGRAPH,
    PARAGRAPH.map(lambda text: f"- {text}\n  - {text}"),
    PARAGRAPH.map(lambda text: f"> {text}"),
    PARAGRAPH.map(lambda text: f"| a | b |\n|---|---|\n| {text} | {text} |\n| {text} | 2 |"),
    PARAGRAPH.map(lambda text: f"```\n{text}\n\n{text}\n```"),
    st.tuples(st.integers(1, 4), SENTENCE).map(lambda made: f"{'#' * made[0]} {made[1]}"),
    SENTENCE.map(lambda text: f"{text}\n====="),
    st.text(max_size=30),
)
MARKDOWN = st.lists(BLOCK, max_size=12).map("\n\n".join)


@settings(max_examples=150)
@given(data=st.data(), text=MARKDOWN, least=st.integers(1, 30), more=st.integers(0, 40))
def test_paragraphs_hold_every_character_once(
    data: st.DataObject, text: str, least: int, more: int
) -> None:
    found = make(text, flat=data.draw(st.booleans()))
    ends = sorted(data.draw(st.tuples(*[st.integers(0, len(text))] * 2)))
    area = found.span(*data.draw(st.sampled_from([(0, len(text)), (ends[0], ends[1])])))
    spans = split_paragraphs(found, area, least_words=least, most_words=least + more)

    headings = [node.heading for node in found.tree.sections if node.heading]
    assert all(area.contains(span) for span in spans)
    assert all(one.end <= other.start for one, other in pairwise(spans))
    assert all((piece := found.slice(span)) and piece == piece.strip() for span in spans)
    assert not any(span.overlaps(heading) for span in spans for heading in headings)
    held = set().union(*(range(span.start, span.end) for span in [*spans, *headings]))
    assert not squeeze("".join(text[i] for i in range(area.start, area.end) if i not in held))

    between = split_paragraphs(found, area, least_words=10**6, most_words=10**6)
    assert squeeze("".join(map(found.slice, between))) == squeeze("".join(map(found.slice, spans)))
    words = [len(word_spans(found.slice(span))) for span in spans]
    assert all(count < 2 * least + more for count in words)
    for span, after, count in zip(spans, spans[1:], words, strict=False):
        joined = any(each.contains(span) and each.contains(after) for each in between)
        assert count >= least or not joined
