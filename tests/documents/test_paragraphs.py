from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from colligate.documents import Document, Span
from colligate.documents.reading.text import text_tree
from colligate.documents.sentences import split_paragraphs, word_spans
from colligate.errors import SpanError, UsageError
from support.documents import MARKDOWN, make, squeeze


def cut(text: str, least: int, most: int, *, flat: bool = False) -> list[str]:
    found = make(text, flat=flat)
    spans = split_paragraphs(found, found.span(0, len(text)), least_words=least, most_words=most)
    return [found.slice(span) for span in spans]


TABLE = "\n".join(["year | income", "---|---", *(f"{year} | Much. More" for year in range(9))])
SENTENCES = ["The fee is due.", "It is paid at once.", "Late payment costs interest."]


@pytest.mark.parametrize(
    ("text", "least", "most", "pieces"),
    [
        (
            "one two\n\nthree\n\nfour five six\n\n- seven\n- eight\n- nine\n\nten",
            3,
            9,
            ["one two\n\nthree", "four five six", "- seven\n- eight", "- nine\n\nten"],
        ),
        ("one two three\n\nfour", 3, 9, ["one two three", "four"]),  # a short rest
        (
            "lead\n\n# A\n\none\n\n## B\n\n### C\n\ntwo\n\nthree\n\nUnderlined\n---\n\nfour",
            100,
            250,
            ["lead", "one", "two\n\nthree", "four"],
        ),
        (" ".join(SENTENCES), 4, 10, SENTENCES),
        (" ".join(SENTENCES[:2]), 4, 9, [" ".join(SENTENCES[:2])]),  # not too long
        (TABLE, 10, 12, [TABLE[:51], TABLE[52:96], TABLE[97:141], TABLE[142:]]),
        ("```\na = 1. So y\nb = 2. So y\n```", 5, 6, ["```\na = 1. So y", "b = 2. So y", "```"]),
        ("lorem " * 25, 10, 10, [("lorem " * n).strip() for n in (10, 10, 5)]),
        (
            "市议会昨天决定。在车站附近建一所新学校。",
            8,
            12,
            ["市议会昨天决定。", "在车站附近建一所新学校。"],
        ),
        ("学" * 25, 10, 10, ["学" * 10, "学" * 10, "学" * 5]),
        ("x" * 1000, 10, 20, ["x" * 400, "x" * 400, "x" * 200]),
        (" \n\n ", 1, 1, []),
    ],
)
def test_short_blocks_are_joined_and_long_ones_cut(text, least, most, pieces):
    assert cut(text, least, most) == pieces


def test_prose_without_full_stops_is_cut_at_its_lines():
    text = "\n".join(f"revenue of the year {year}" for year in range(1990, 2000))
    found = Document("d", "d", text, text_tree(text, "d"))
    spans = split_paragraphs(found, found.span(0, len(text)), least_words=5, most_words=9)
    assert [found.slice(span) for span in spans] == text.split("\n")


def test_a_text_without_a_tree_is_cut_at_blank_lines_first():
    text = "One two. Three\n\nFour five. Six\n\nSeven"
    assert cut(text, 2, 3, flat=True) == ["One two. Three", "Four five. Six", "Seven"]


def test_an_area_that_begins_in_a_heading_leaves_out_the_rest_of_it():
    found = make("# A long heading\n\ntext")
    for start in range(len("# A long heading") + 1):
        spans = split_paragraphs(found, found.span(start, len(found)))
        assert [found.slice(span) for span in spans] == ["text"]
    assert split_paragraphs(found, found.span(2, 8)) == []


def test_an_area_inside_a_table_is_cut_as_a_table():
    rows = ["| a | b |", "|---|---|", *(f"| {n}. x. y. | {n} |" for n in range(8))]
    found = make("\n".join(rows))
    area = found.span(found.text.index("| 2."), len(found))
    spans = split_paragraphs(found, area, least_words=5, most_words=8)
    assert [found.slice(span) for span in spans] == rows[4:]


def test_impossible_lengths_and_foreign_areas_are_refused():
    found = make("text")
    for least in (0, 6):
        with pytest.raises(UsageError, match=f"{least} to 5"):
            split_paragraphs(found, found.span(0, 4), least_words=least, most_words=5)
    with pytest.raises(SpanError):
        split_paragraphs(found, Span("another", 0, 4))


@settings(max_examples=150)
@given(data=st.data(), text=MARKDOWN, least=st.integers(1, 30), more=st.integers(0, 40))
def test_paragraphs_hold_every_character_once(data, text, least, more):
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
