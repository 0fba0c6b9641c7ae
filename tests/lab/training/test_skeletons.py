from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from colligate.documents import Document, Kind, Span
from colligate.errors import SpanError
from colligate.lab.training.longrefiner import write_skeleton
from colligate.strategies.longrefiner.skeleton import recover
from support.documents import block_spans, make, squeeze

TEXT = """# Treaty of Ghent

The Treaty of Ghent was the peace treaty that ended the War of 1812 between the United States
and the United Kingdom; it took effect in February 1815 once both sides had ratified it.

## Background

After the abdication of Napoleon in April 1814, British public opinion demanded major gains in
the war against the United States.

### Aims & claims

Short one.

#### Deeper still

The senior American representative in London told Secretary of State Monroe what he had read in
the newspapers that very week.

## Empty

### Also empty

## Talks

* first point
* second point
"""


def document(text: str) -> Document:
    return make(text, "Treaty of Ghent")


def test_a_skeleton_says_how_each_block_begins_and_ends() -> None:
    assert write_skeleton(document(TEXT), edge_words=3) == (
        "<abstract>The Treaty of...had ratified it.</abstract>"
        "<section: Background>After the abdication...the United States."
        "<sub-section: Aims & claims>Short one.<br>The senior American...that very week."
        "</sub-section: Aims & claims></section: Background>"
        "<section: Talks>* first point<br>* second point</section: Talks>"
    )


def test_short_blocks_are_joined_up_to_the_next_heading() -> None:
    text = "# A\n\na b\n\nc d\n\ne f g h\n\ni\n\n# B\n\n- j\n- k\n\n## C\n\n中文中文\n\nl m n\n"
    joined = write_skeleton(document(text), least_words=4)
    assert joined == (
        "<section: A>a b c d<br>e f g h i</section: A>"
        "<section: B>- j - k<sub-section: C>中文中文 l m n</sub-section: C></section: B>"
    )
    assert recover(joined, document(text)).coverage == 1


def test_a_stretch_is_written_in_the_sections_it_stands_in() -> None:
    source = document(TEXT)
    cuts = [0, TEXT.index("Short one."), TEXT.index("The senior"), len(TEXT)]
    parts = [
        write_skeleton(source, edge_words=3, within=source.span(start, end))
        for start, end in pairwise(cuts)
    ]
    assert parts[1] == (
        "<section: Background><sub-section: Aims & claims>Short one."
        "</sub-section: Aims & claims></section: Background>"
    )
    assert parts[2].startswith(
        "<section: Background><sub-section: Aims & claims>The senior American...that very week."
    )
    assert recover("".join(parts), source).coverage == 1
    assert write_skeleton(source, within=source.span(0, len(TEXT))) == write_skeleton(source)
    assert write_skeleton(source, within=source.span(3, 3)) == ""
    with pytest.raises(SpanError):
        write_skeleton(source, within=Span("d", 0, len(TEXT) + 1))


_PLAIN = st.sampled_from(
    "the treaty of Ghent was signed in 1814 a 3.5 naïve Straße ﬁn 今天天气很好 мир e\u0301".split()
)
_ODD = st.sampled_from(
    [
        *"... … <br> <skip> </section: a> <sub-section: b> <abstract> **b** [1](x)".split(),
        *'" “q” - # | < br>'.split(),
        "\u00a0",
        "\u200b",
        "< section: x>",
        "&lt;",
        "a" * 50,
        "\\",
        "`c`",
        "$$",
    ]
)
_PARAGRAPH = st.lists(st.one_of(_PLAIN, _PLAIN, _PLAIN, _ODD), min_size=1, max_size=60).map(
    " ".join
)
_HEADING = st.builds(
    lambda level, title: f"{'#' * level} {title}",
    st.integers(1, 4),
    st.lists(st.one_of(_PLAIN, _ODD), max_size=4).map(" ".join),
)


@st.composite
def texts(draw: st.DrawFn) -> str:
    """Markdown in which the same paragraphs and headings come again and again."""
    pool = draw(
        st.lists(st.one_of(_PARAGRAPH, _HEADING, st.text(max_size=40)), min_size=1, max_size=8)
    )
    return "\n\n".join(draw(st.lists(st.sampled_from(pool), max_size=14)))


@settings(max_examples=100)
@given(texts(), st.integers(1, 9), st.sampled_from([0, 5, 20]))
@example("a b ... c d\n\n" * 3, 1, 0)
@example("x x x x x x x x x x x x x x x x\n\n# x\n\nx x", 1, 0)
def test_a_skeleton_brings_a_document_back(text: str, edge_words: int, least_words: int) -> None:
    source = document(text)
    given_back = recover(
        write_skeleton(source, edge_words=edge_words, least_words=least_words), source
    )
    wanted = [s for s in block_spans(source) if all(s != n.heading for n in source.tree.sections)]
    found = [node.span for node in given_back.tree.leaves]
    assert given_back.coverage >= 0.99 or not any(len(squeeze(source.slice(s))) for s in wanted)
    assert not given_back.lost
    kept = sum(len(squeeze(source.slice(span))) for span in found)
    assert kept >= 0.99 * sum(len(squeeze(source.slice(span))) for span in wanted)
    assert [s.start for s in found] == sorted(s.start for s in found)
    assert all(n.kind in (Kind.ROOT, Kind.SECTION, Kind.PARAGRAPH) for n in given_back.tree)


@settings(max_examples=60)
@given(st.text(max_size=400), st.integers(1, 4))
def test_any_text_without_structure_comes_back(text: str, edge_words: int) -> None:
    source = make(text, flat=True)
    assert recover(write_skeleton(source, edge_words=edge_words), source).coverage == (
        1 if text.strip() else 0
    )
