"""Samples for LongRefiner: prompts of inference, and labels, titles and pairs that it can read."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from colligate.core.run import Run
from colligate.documents import Document
from colligate.documents.markdown import markdown_tree
from colligate.lab.bench.question import Question
from colligate.lab.training.longrefiner import (
    LOST,
    MADE_UP,
    MALFORMED,
    SHORT,
    UNSECTIONED,
    CurationSettings,
    curate_longrefiner,
    remove_headings,
    selection_sample,
    structuring_pairs,
)
from colligate.lab.training.samples import Sample
from colligate.lab.training.scores import (
    extract_text,
    make_plain_document,
    rebuild_outline,
    score_reply,
)
from colligate.library.in_memory import InMemorySources
from colligate.models import Capability, ChatRequest, Completion, LabelOdds, Message, Role
from colligate.models.metering import Meter
from colligate.strategies.longrefiner import LongRefiner
from colligate.strategies.longrefiner.method import parse_scope
from colligate.strategies.longrefiner.selection import (
    list_titles,
    parse_titles,
    selection_messages,
)
from colligate.strategies.longrefiner.skeleton import recover
from colligate.strategies.longrefiner.structuring import (
    Structured,
    build_article,
    split_parts,
)
from colligate.testing import ScriptedModel
from support import curation as shared
from support.curation import document, every_sample, write_data
from support.documents import squeeze
from support.prompts import task_of

FILL = " ".join(f"It turns its wheel in the month {i} of the year." for i in range(12))
MILL = f"""# The Mill

The mill grinds corn for the town. {FILL}

## History

The mill was built in 1788 by the Harper brothers. {FILL}

### The fire

It burned down in 1803. {FILL}

## Machines

The great wheel is of oak. {FILL}

## Women's work

They carried the sacks. {FILL}
"""
LAKE = (
    f"# Lake\n\nThe lake lies beside the mill. {FILL} {FILL}\n\n## Fish\n\nCarp and pike. {FILL}\n"
)
NOTE = "# Note\n\nA note about the mill, without parts.\n"
TEXTS = {"mill": MILL, "lake": LAKE, "note": NOTE}
QUESTIONS = ("Who built the mill?", "Describe how the mill changed.", "Which fish are there?")


def structures(call: ChatRequest) -> bool:
    """Tell whether a call asks for the structure of a text."""
    return task_of(call.messages) == "longrefiner.structuring_instruction"


def teacher(
    titles: Callable[[ChatRequest], str] = lambda _: "['History']",
    label: Callable[[str], str] = lambda text: "Global" if "Describe" in text else "Local",
) -> ScriptedModel:
    """Names a question's type, and titles of an outline."""

    def say(call: ChatRequest) -> str:
        if task_of(call.messages) == "longrefiner.selection_instruction":
            return titles(call)
        return json.dumps({"query_type": label(call.messages[-1].content)})

    return ScriptedModel(say, capabilities=(Capability.CHAT, Capability.STRUCTURED))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Three questions, each over three documents of a corpus, one of them without parts."""
    return write_data(tmp_path, QUESTIONS, TEXTS, gold="mill")


curate = partial(shared.curate, curate_longrefiner)


# Equal to inference


Prompts = set[tuple[Message, ...]]


async def asked_at_inference(question: str) -> tuple[Prompts, Prompts]:
    """What the strategy asks label odds for, and what titles; a reply begins as it is forced."""
    scope: Prompts = set()

    def odds(messages: Sequence[Message], labels: Sequence[str], forced: str) -> LabelOdds:
        assert forced == "["
        scope.add(tuple(messages))
        return LabelOdds(dict.fromkeys(labels, 0.5), mass=1.0)

    model = ScriptedModel(lambda _: "[]", labels=odds)
    async with InMemorySources([document(*each) for each in TEXTS.items()]) as sources:
        run = Run(sources, {Role.READER: model}, Meter())
        await LongRefiner(mode="sparse").refine(question, run)  # type: ignore[arg-type]
    return scope, {call.messages for call in model.calls}


def test_prompts_are_those_of_inference_byte_for_byte(data: Path) -> None:
    curate(data, teacher(lambda _: "['abstract']"), tasks=("scope", "selection"))

    sent = [asyncio.run(asked_at_inference(question)) for question in QUESTIONS]
    scope = set().union(*(asked for asked, _ in sent))
    titles = set().union(*(asked for _, asked in sent))
    assert (len(scope), len(titles)) == (3, 6)
    assert {sample.prompt for sample in every_sample(data / "out", "selection")} == titles
    samples = every_sample(data / "out", "scope")
    assert {sample.prompt for sample in samples} == scope
    assert {sample.target[0] for sample in samples} == {"["}


def test_a_target_read_as_inference_reads_it_is_the_label(data: Path) -> None:
    curate(data, teacher(lambda call: "['abstract', 'The fire']"))

    samples = every_sample(data / "out")
    assert {sample.task for sample in samples} == {"scope", "structuring", "selection"}
    for sample in samples:
        assert set(score_reply(sample, sample.target).values()) == {1.0}
    for sample in every_sample(data / "out", "scope"):
        label = parse_scope(sample.target)
        assert label == (1.0 if "Describe" in sample.prompt[-1].content else 0.0)
        assert sample.target == f"[{sample.meta['class']}]"


# What is left out


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        ("['Fisheries', 'Sources']", MADE_UP),
        ("I think the part about history is best.", MALFORMED),
        ("", MALFORMED),
    ],
)
def test_titles_that_teach_nothing_are_left_out_by_reason(
    data: Path, reply: str, reason: str
) -> None:
    card = curate(data, teacher(lambda _: reply), tasks=("selection",))

    assert every_sample(data / "out") == []
    assert card.discarded[f"selection: {reason}"] == 6


def test_made_up_titles_are_taken_out_and_so_is_what_is_no_label(data: Path) -> None:
    reply = "['Section1: history', 'Sources', 'See also', \"WOMEN'S WORK\", 'History']"
    asked = teacher(lambda _: reply, label=lambda _: "Both")
    card = curate(data, asked, tasks=("selection", "scope"), held_out=0.0)

    targets = {s.meta["document"]: s.target for s in every_sample(data / "out")}
    assert targets == {"mill": "['History', \"Women's work\"]"}
    assert card.discarded[f"selection: {MADE_UP}"] == 3  # of the lake
    assert card.discarded[f"scope: {MALFORMED}"] == 3
    assert card.items["failed"] == 0


# Documents alone


def test_structuring_needs_neither_questions_nor_a_teacher(data: Path) -> None:
    pages = data / "pages"
    pages.mkdir()
    for name, text in TEXTS.items():
        (pages / f"{name}.md").write_text(text, "utf-8")

    card = curate(data, None, questions=None, corpus=pages, held_out=0.0)

    (sample,) = every_sample(data / "out")
    assert sample.task == "structuring"
    assert re.findall(r"<((?:sub-)?section: [^>]*)>", sample.target) == [
        "section: History",
        "sub-section: The fire",
        "section: Machines",
        "section: Women's work",
    ]
    assert card.made_with["models"] == {}
    assert card.made_with["tasks"] == ["structuring"]


# Whatever the titles


_TITLE = st.lists(
    st.sampled_from(
        [
            *("History", "of", "the", "women's", '"q"', "Section 2:", "a, b", "[x]", "{y}", "\\"),
            *("水車", "</document>", "<|im_end|>", "’s", "abstract", "1.", "Title: x", "None", "'"),
        ]
    ),
    min_size=1,
    max_size=4,
).map(" ".join)


@given(st.lists(_TITLE, min_size=2, max_size=6), st.data())
def test_titles_that_are_kept_are_read_again(titles: list[str], data: st.DataObject) -> None:
    text = "# T\n\nlead\n\n" + "".join(f"## {title}\n\ntext\n\n" for title in titles)
    made_of = build_article(document("d", text))
    parts = [node.id for node in made_of.nodes if node.title and node.title != "abstract"]
    chosen = data.draw(st.lists(st.sampled_from(parts), unique=True)) if parts else []
    reply = json.dumps(list(list_titles(made_of, chosen)), ensure_ascii=False)
    messages = selection_messages("Who?", made_of)

    made = selection_sample(Question("q", "Who?"), made_of, messages, Completion(reply))

    for sample in made.samples:
        assert parse_titles(sample.target, made_of) == parse_titles(reply, made_of)
        assert set(score_reply(sample, sample.target).values()) == {1.0}
        assert "<|im_end|>" not in sample.target
        again = Sample.from_json(json.loads(json.dumps(sample.to_json())))
        assert rebuild_outline(again).nodes == rebuild_outline(sample).nodes
        assert again.prompt == tuple(messages)
        assert isinstance(sample.messages[-1], Message)


# Structuring pairs: inference would ask for them and could read them.


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


def sectioned(text: str) -> Document:
    return Document("mill", "The Mill", text, markdown_tree(text, "mill"), language="en")


@pytest.mark.parametrize("most_tokens", [22_000, 200])
async def test_the_prompts_are_those_of_the_strategy_and_it_reads_the_replies(most_tokens):
    made = structuring_pairs(sectioned(BOOK), CurationSettings(structuring_tokens=most_tokens))
    assert not made.discarded
    replies = {sample.prompt: sample.target for sample in made.samples}
    assert len(replies) == (1 if most_tokens == 22_000 else 4)
    bare = remove_headings(sectioned(BOOK)).bare
    model = ScriptedModel(
        lambda call: replies.get(call.messages, "[]"),
        labels=lambda *_: LabelOdds({"Local": 0.5, "Global": 0.5}, mass=1.0),
    )

    async with InMemorySources([bare]) as sources:
        run = Run(sources, {Role.READER: model}, Meter())
        await LongRefiner(mode="sparse", structuring_tokens=most_tokens).refine("Who?", run)

    asked = [call.messages for call in model.calls if structures(call)]
    assert asked == list(replies)  # byte by byte, in order
    (event,) = (event for _, event in run.trace.events if isinstance(event, Structured))
    assert (event.basis, event.lost) == ("model", ())
    assert event.coverage == 1.0


LONG = f"# The Mill\n\n## A\n\n{paragraph('mill', 300)}\n\n## B\n\n"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("# The Mill\n\n## A\n\nIt ground corn.\n\n## B\n\nIt burned down.\n", SHORT),
        (paragraph("mill", 300), UNSECTIONED),
        (f"# The Mill\n\n{paragraph('mill', 300)}\n\n## Without text\n", UNSECTIONED),
        (f"# Quite another title\n\n{paragraph('mill', 300)}", UNSECTIONED),
        # A turn token must not get into a reply, and without it these words are not found again.
        (LONG + " ".join("<|im_end|>" for _ in range(40)), LOST),
    ],
)
def test_what_inference_would_not_ask_or_read_is_no_sample(text, reason):
    made = structuring_pairs(sectioned(text), CurationSettings())
    assert (made.samples, made.discarded) == ([], {f"structuring: {reason}": 1})


def test_the_text_can_neither_close_its_place_nor_end_a_turn():
    text = BOOK.replace("ends.", "ends.</document> <|im_end|> </section: History>")
    made = structuring_pairs(sectioned(text), CurationSettings())
    assert made.samples
    for sample in made.samples:
        whole = "".join(message.content for message in sample.messages)
        assert whole.count("</document>") == 1
        assert "<|im_end|>" not in whole


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


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(texts(), st.sampled_from([120, 400, 22_000]))
def test_what_is_written_brings_the_text_back(text, most_tokens):
    source = sectioned(text)
    made = structuring_pairs(source, CurationSettings(most_tokens))

    assert f"structuring: {LOST}" not in made.discarded
    bare = remove_headings(source).bare
    if made.samples and not made.discarded:
        # As inference does: all parts together, over the whole text.
        whole = recover("\n".join(sample.target for sample in made.samples), bare)
        assert whole.coverage >= 0.99
        together = squeeze("".join(extract_text(sample) for sample in made.samples))
        assert together == squeeze(bare.text)
    for sample in made.samples:
        text = extract_text(sample)
        alone = recover(sample.target, make_plain_document(text))
        assert alone.coverage >= 0.99
        kept = squeeze("".join(text[n.span.start : n.span.end] for n in alone.tree.leaves))
        assert len(kept) >= 0.99 * len(squeeze(text))


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(texts())
def test_sections_come_back_where_their_headings_stood(text):
    source = sectioned(text)
    body = remove_headings(source)
    for sample in structuring_pairs(source, CurationSettings()).samples:
        back = recover(sample.target, body.bare).tree
        assert len(back.sections) == len(
            re.findall(r"<(?:abstract|(?:sub-)?section: )", sample.target)
        )
        for section in back.sections:
            apart = (sorted((section.span.start, start)) for start in body.starts)
            assert any(not re.search(r"\w", body.bare.text[a:b]) for a, b in apart)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(texts())
def test_nothing_but_headings_is_taken_from_the_text(text):
    source = sectioned(text)
    body = remove_headings(source)

    headings = [node.heading for node in source.tree.sections if node.heading is not None]
    without = text
    for heading in reversed(headings):
        without = without[: heading.start] + without[heading.end :]
    assert squeeze(body.bare.text) == squeeze(without)
    for one, other in pairwise(body.pieces):
        assert one.end <= other.start
    for span in split_parts(body.bare, 200):
        back = source.slice(body.locate(span)).split()
        words = body.bare.slice(span).split()
        assert (back[0], back[-1]) == (words[0], words[-1])
