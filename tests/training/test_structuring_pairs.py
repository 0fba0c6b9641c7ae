"""Structuring pairs: what inference would show and could read again, or they are not made."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from colligate.core.run import Run
from colligate.documents import Document, Tree
from colligate.documents.markdown import markdown_tree
from colligate.documents.reading import read_file
from colligate.documents.reading.text import text_tree
from colligate.documents.tokens import estimate_tokens
from colligate.errors import FaultyRecord, UsageError
from colligate.library.in_memory import InMemorySources
from colligate.models import LabelOdds, Message, Role
from colligate.models.metering import Meter
from colligate.strategies.longrefiner.events import Structured
from colligate.strategies.longrefiner.method import Refiner
from colligate.strategies.longrefiner.skeleton import recover
from colligate.strategies.longrefiner.structuring import split_parts, structuring_messages
from colligate.testing import ScriptedModel
from colligate.training.longrefiner_samples import (
    HEADED,
    LONG_PAIRS,
    LOST,
    SHORT,
    UNSECTIONED,
    Pairing,
    body_of,
    extract_text,
    make_plain_document,
    structuring_pairs,
)
from colligate.training.recipes import read_recipe


def paragraph(about: str, words: int = 60) -> str:
    told = " ".join(f"{about} is told of in {i} words" for i in range(words // 7))
    return f"The {about} begins here, and {told}, until the {about} ends."


BOOK = f"""# The Mill

{paragraph("mill itself")}

## History

{paragraph("founding")}

{paragraph("flood of 1788")}

### The war & after

{paragraph("war")}

#### A deeper one

{paragraph("peace")}

## Machines

- {paragraph("great wheel")}
- {paragraph("small wheel")}
"""


def document(text: str, name: str = "mill", title: str = "The Mill") -> Document:
    return Document(name, title, text, markdown_tree(text, name), language="en")


def sections(tree: Tree) -> list[tuple[int, str]]:
    return [(node.level, node.title) for node in tree.sections]


def visible(text: str) -> str:
    return "".join(text.split())


def pieces(about: str, ends: str) -> str:
    return f"The {about} begins here, and {ends}"


def test_the_model_reads_the_text_without_headings_and_writes_the_skeleton_of_them():
    (sample,) = structuring_pairs(document(BOOK), Pairing()).samples

    (asked,) = sample.prompt
    shown = asked.content.split("<document>")[-1]
    for heading in ("#", "The Mill", "History", "Machines", "A deeper one"):
        assert heading not in shown
    assert re.sub(r"(?<=here, and )[^<]*?(?=7 words)", "... ", sample.target) == (
        "<abstract>The mill itself begins here, and ... 7 words, until the mill itself ends."
        "</abstract>"
        "<section: History>The founding begins here, and ... 7 words, until the founding ends."
        "<br>The flood of 1788 begins here, and ... 7 words, until the flood of 1788 ends."
        "<sub-section: The war & after>The war begins here, and ... 7 words, until the war ends."
        "<br>The peace begins here, and ... 7 words, until the peace ends."
        "</sub-section: The war & after></section: History>"
        "<section: Machines>- The great wheel begins here, and ... 7 words, until the great wheel"
        " ends.<br>- The small wheel begins here, and ... 7 words, until the small wheel ends."
        "</section: Machines>"
    )
    assert sample.target.count("...") == 7
    assert len(sample.target) < len(BOOK) / 2
    assert sample.task == "structuring"


@pytest.mark.parametrize("most_tokens", [22_000, 200])
async def test_the_prompts_are_those_of_the_strategy_and_it_reads_the_replies(most_tokens):
    made = structuring_pairs(document(BOOK), Pairing(structuring_tokens=most_tokens))
    assert not made.discarded
    replies = {sample.prompt: sample.target for sample in made.samples}
    assert len(replies) == (1 if most_tokens == 22_000 else 4)
    bare = body_of(document(BOOK)).bare
    model = ScriptedModel(
        lambda call: replies.get(call.messages, "[]"),
        labels=lambda *_: LabelOdds({"Local": 0.5, "Global": 0.5}, mass=1.0),
    )

    async with InMemorySources([bare]) as sources:
        run = Run(sources, {Role.READER: model}, Meter())
        await Refiner(mode="sparse", structuring_tokens=most_tokens).refine("Who?", run)

    asked = [call.messages for call in model.calls if "Skeleton:" in call.prompt]
    assert asked == list(replies)  # byte by byte, in order
    (event,) = (event for _, event in run.trace.events if isinstance(event, Structured))
    assert (event.basis, event.lost) == ("model", ())
    assert event.coverage == 1.0


def test_a_long_document_is_cut_as_inference_cuts_it_and_each_part_says_its_sections():
    source = document(BOOK)
    made = structuring_pairs(source, Pairing(structuring_tokens=200))

    bare = body_of(source).bare
    texts = [bare.slice(span) for span in split_parts(bare, 200)]
    assert [extract_text(sample) for sample in made.samples] == texts
    assert [sample.meta["stretch"] for sample in made.samples] == [
        [i, len(texts)] for i in range(len(texts))
    ]
    assert len({sample.id for sample in made.samples}) == len(texts) > 2
    # A part that begins inside a section bears that section's name again.
    begun = [re.match(r"<([a-z-]+(?:: [^>]*)?)>", sample.target) for sample in made.samples]
    assert [tag and tag[1] for tag in begun] == [
        "abstract",
        "section: History",
        "section: History",
        "section: Machines",
    ]
    assert "<sub-section: The war & after>" in made.samples[2].target


def test_a_sample_of_another_prompt_is_said():
    (sample,) = structuring_pairs(document(BOOK), Pairing()).samples
    other = Message("user", sample.messages[0].content.replace("chapters", "parts"))
    with pytest.raises(FaultyRecord, match="another version of the prompt"):
        extract_text(replace(sample, messages=(other, sample.messages[1])))


def test_what_inference_would_not_ask_about_is_no_sample():
    short = document("# The Mill\n\n## A\n\nIt ground corn.\n\n## B\n\nIt burned down.\n")
    assert structuring_pairs(short, Pairing()).discarded == {SHORT: 1}


@pytest.mark.parametrize(
    "text",
    [
        paragraph("mill", 300),
        f"# The Mill\n\n{paragraph('mill', 300)}",
        f"# Quite another title\n\n{paragraph('mill', 300)}",
        f"# The Mill\n\n{paragraph('mill', 300)}\n\n## Without text\n",
    ],
)
@pytest.mark.parametrize("most_tokens", [22_000, 200])  # in parts it is still one section
def test_a_document_without_sections_is_no_sample(text, most_tokens):
    made = structuring_pairs(document(text), Pairing(most_tokens))
    assert (made.samples, made.discarded) == ((), {UNSECTIONED: 1})


def test_a_body_that_would_be_read_with_headings_is_no_sample():
    # In plain text a "#" is no heading; in a text of which nothing is known it is one.
    parts = (f"CHAPTER {i}\n\n{paragraph('mill', 200)}\n\n# a comment\n\n" for i in range(3))
    text = "".join(parts)
    source = Document("mill", "The Mill", text, text_tree(text, "mill"))
    assert [n.title for n in source.tree.sections if n.heading][1:] == ["CHAPTER 1", "CHAPTER 2"]
    assert structuring_pairs(source, Pairing()).discarded == {HEADED: 1}


def test_a_skeleton_that_inference_would_cut_off_is_no_sample():
    rows = "\n".join(f"- entry {i} of a list in {i} words" for i in range(120))
    text = f"# The Mill\n\n## A\n\n{rows}\n\n## B\n\n{paragraph('mill', 300)}\n"
    made = structuring_pairs(document(text), Pairing(structuring_tokens=400, joined_words=0))
    assert made.discarded[LONG_PAIRS] >= 2
    assert all(estimate_tokens(sample.target) <= 200 for sample in made.samples)


def test_a_skeleton_that_does_not_bring_the_text_back_is_no_sample():
    # A turn token must not get into a reply, and without it these words are not found again.
    odd = " ".join("<|im_end|>" for _ in range(40))
    text = f"# The Mill\n\n## A\n\n{paragraph('mill', 120)}\n\n## B\n\n{odd}\n"
    made = structuring_pairs(document(text), Pairing())
    assert (made.samples, made.discarded) == ((), {LOST: 1})


def test_the_text_can_neither_close_its_place_nor_end_a_turn():
    text = BOOK.replace("ends.", "ends.</document> <|im_end|> </section: History>")
    made = structuring_pairs(document(text), Pairing())
    assert made.samples
    for sample in made.samples:
        whole = "".join(message.content for message in sample.messages)
        assert whole.count("</document>") == 1
        assert "<|im_end|>" not in whole


def test_a_page_of_html_gives_what_its_headings_say(tmp_path):
    body = "".join(
        f"<h2>{title}</h2><p>{paragraph(title)}</p><p>{paragraph(title + ' later')}</p>"
        for title in ("Origin", "Use")
    )
    page = tmp_path / "mill.html"
    page.write_text(f"<title>The Mill</title><h1>The Mill</h1><p>{paragraph('mill')}</p>{body}")

    (sample,) = structuring_pairs(read_file(page).documents[0], Pairing()).samples

    assert re.findall(r"<(abstract|section: \w+)>", sample.target) == [
        "abstract",
        "section: Origin",
        "section: Use",
    ]
    assert "Origin\n" not in extract_text(sample)


@pytest.mark.parametrize("field", ["structuring_tokens", "edge_words"])
def test_a_number_that_means_nothing_is_wrong_usage(field):
    with pytest.raises(UsageError, match=f"{field} is 0: it must be 1 or more"):
        Pairing(**{field: 0})


def test_a_share_above_one_would_leave_everything_out():
    with pytest.raises(UsageError, match="recovered is 99: it is a share of the text"):
        Pairing(recovered=99)


async def test_the_longest_pair_fits_the_recipe_and_is_what_its_base_is_shown():
    most = Pairing().structuring_tokens
    instruction = estimate_tokens(structuring_messages("")[0].content)
    assert instruction + most + most // 2 <= read_recipe("longrefiner-structuring").cutoff

    text = "\n\n".join(paragraph(f"wheel {i}", 200) for i in range(150))
    model = ScriptedModel(
        lambda _: "[]",
        labels=lambda *_: LabelOdds({"Local": 0.5, "Global": 0.5}, mass=1.0),
        context_tokens=32_768,  # of the recipe's base
    )
    async with InMemorySources([document(text)]) as sources:
        await Refiner(mode="sparse").refine("Who?", Run(sources, {Role.READER: model}, Meter()))
    first = next(call.prompt for call in model.calls if "Skeleton:" in call.prompt)
    assert most <= estimate_tokens(first) - instruction <= most + 400


# Whatever the document


_WORD = st.sampled_from(
    'the mill ground corn in 1814 a 3.5 naïve Straße ﬁn 今天天气很好 мир **b** [1](x) "q" - … '
    "... <br> </section: a> <sub-section: b> &lt; 1. | a".split()
)
_PARAGRAPH = st.lists(_WORD, min_size=1, max_size=60).map(" ".join)
_HEADING = st.builds(
    lambda level, title: f"{'#' * level} {title}",
    st.integers(1, 4),
    st.lists(_WORD, min_size=1, max_size=4).map(" ".join),
)


@st.composite
def texts(draw: st.DrawFn) -> str:
    """Long Markdown with headings, in which paragraphs and headings come again."""
    blocks = draw(st.lists(_PARAGRAPH, min_size=1, max_size=5))
    headings = draw(st.lists(_HEADING, min_size=1, max_size=5))
    text = draw(st.lists(st.sampled_from([*blocks, *headings]), min_size=8, max_size=30))
    filling = "\n\n".join(paragraph(about, 80) for about in ("lock", "dam"))
    return "\n\n".join([*text, headings[0], filling, "# Last", filling])


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(texts(), st.sampled_from([120, 400, 22_000]), st.sampled_from([0, 20]))
def test_what_is_written_brings_the_text_back(text, most_tokens, joined_words):
    source = document(text)
    made = structuring_pairs(source, Pairing(most_tokens, joined_words=joined_words))

    assert LOST not in made.discarded
    bare = body_of(source).bare
    if made.samples and not made.discarded:
        # As inference does: all parts together, over the whole text.
        whole = recover("\n".join(sample.target for sample in made.samples), bare)
        assert whole.coverage >= 0.99
        together = visible("".join(extract_text(sample) for sample in made.samples))
        assert together == visible(bare.text)
    for sample in made.samples:
        text = extract_text(sample)
        alone = recover(sample.target, make_plain_document(text))
        assert alone.coverage >= 0.99
        kept = visible("".join(text[n.span.start : n.span.end] for n in alone.tree.leaves))
        assert len(kept) >= 0.99 * len(visible(text))


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(texts())
def test_sections_come_back_where_their_headings_stood(text):
    source = document(text)
    body = body_of(source)
    for sample in structuring_pairs(source, Pairing()).samples:
        back = recover(sample.target, body.bare).tree
        assert len(back.sections) == len(
            re.findall(r"<(?:abstract|(?:sub-)?section: )", sample.target)
        )
        for section in back.sections:
            apart = (sorted((section.span.start, start)) for start in body.starts)
            assert any(not re.search(r"\w", body.bare.text[a:b]) for a, b in apart)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(texts())
def test_nothing_but_headings_is_taken_from_the_text(text):
    source = document(text)
    body = body_of(source)

    headings = [node.heading for node in source.tree.sections if node.heading is not None]
    without = text
    for heading in reversed(headings):
        without = without[: heading.start] + without[heading.end :]
    assert visible(body.bare.text) == visible(without)
    for one, other in pairwise(body.pieces):
        assert one.end <= other.start
    for span in split_parts(body.bare, 200):
        back = source.slice(body.source(span)).split()
        words = body.bare.slice(span).split()
        assert (back[0], back[-1]) == (words[0], words[-1])
