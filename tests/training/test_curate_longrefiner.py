"""Samples for LongRefiner: the prompts of the strategy, and labels that it can read."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from colligate.bench.participants import ModelNames
from colligate.bench.question import Question
from colligate.core.events import Event, Noted
from colligate.core.run import Run
from colligate.errors import UsageError
from colligate.library.in_memory import InMemorySources
from colligate.models import Capability, ChatRequest, Completion, LabelOdds, Message, Role
from colligate.models.base import Usage
from colligate.models.metering import Meter
from colligate.settings import Settings
from colligate.strategies.longrefiner.method import LongRefiner, parse_scope
from colligate.strategies.longrefiner.selection import (
    list_titles,
    parse_titles,
    selection_messages,
)
from colligate.strategies.longrefiner.structuring import build_article
from colligate.testing import ScriptedModel
from colligate.training.card import Card
from colligate.training.curate import Curation
from colligate.training.curate_longrefiner import WITHOUT_PARTS, curate_longrefiner
from colligate.training.longrefiner_samples import (
    CUT_OFF,
    LONG,
    MADE_UP,
    MALFORMED,
    SHORT,
    TAKEN_OUT,
    UNSECTIONED,
    outlined,
    selection_sample,
)
from colligate.training.samples import Sample
from colligate.training.scores_longrefiner import score
from support.curation import document, every_sample, write_data
from support.embedders import WordEmbedder

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
LAKE = f"# Lake\n\nThe lake lies beside the mill. {FILL}\n\n## Fish\n\nCarp and pike. {FILL}\n"
NOTE = "# Note\n\nA note about the mill, without parts.\n"
TEXTS = {"mill": MILL, "lake": LAKE, "note": NOTE}
QUESTIONS = ("Who built the mill?", "Describe how the mill changed.", "Which fish are there?")


def teacher(
    titles: Callable[[ChatRequest], str] = lambda _: "['History']",
    label: Callable[[str], str] = lambda text: "Global" if "Describe" in text else "Local",
) -> ScriptedModel:
    """Names a question's type, and titles of an outline."""

    def say(call: ChatRequest) -> str:
        if call.prompt.endswith("Titles:"):
            return titles(call)
        return json.dumps({"query_type": label(call.messages[-1].content)})

    return ScriptedModel(say, capabilities=(Capability.CHAT, Capability.STRUCTURED))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Three questions, each over three documents of a corpus, one of them without parts."""
    return write_data(tmp_path, QUESTIONS, TEXTS, gold="mill")


def curate(
    data: Path, model: ScriptedModel | None, said: list[str] | None = None, **more: Any
) -> Card:
    def see(event: Event) -> None:
        if said is not None and isinstance(event, Noted):
            said.append(event.text)

    more.setdefault("corpus", data / "corpus.jsonl")
    more.setdefault("questions", data / "questions.jsonl")
    more.setdefault("settings", ("mode=sparse",))
    models = {} if model is None else {Role.READER: model}
    names = ModelNames(Settings(), models, embedder=WordEmbedder())
    return asyncio.run(curate_longrefiner(Curation(data / "out", names=names, **more), see))


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


async def in_words(question: str) -> Prompts:
    """What a scorer is asked that gives no odds."""
    model = ScriptedModel(lambda call: "[Local]" if call.max_tokens < 20 else "[]")
    async with InMemorySources([document("mill", MILL)]) as sources:
        run = Run(sources, {Role.READER: model}, Meter())
        await LongRefiner(mode="sparse").refine(question, run)  # type: ignore[arg-type]
    return {call.messages for call in model.calls if call.max_tokens < 20}


def test_prompts_are_those_of_inference_byte_for_byte(data: Path) -> None:
    curate(data, teacher(lambda _: "['abstract']"), tasks=("scope", "selection"))

    sent = [asyncio.run(asked_at_inference(question)) for question in QUESTIONS]
    scope = set().union(*(asked for asked, _ in sent))
    titles = set().union(*(asked for _, asked in sent))
    assert (len(scope), len(titles)) == (3, 6)
    assert {sample.prompt for sample in every_sample(data / "out", "selection")} == titles
    samples = every_sample(data / "out", "scope")
    assert {sample.prompt for sample in samples} == scope
    assert set().union(*(asyncio.run(in_words(text)) for text in QUESTIONS)) == scope
    assert {sample.target[0] for sample in samples} == {"["}


def test_a_target_read_as_inference_reads_it_is_the_label(data: Path) -> None:
    curate(data, teacher(lambda call: "['abstract', 'The fire']"))

    samples = every_sample(data / "out")
    assert {sample.task for sample in samples} == {"scope", "structuring", "selection"}
    for sample in samples:
        assert set(score(sample, sample.target).values()) == {1.0}
    for sample in every_sample(data / "out", "scope"):
        label = parse_scope(sample.target)
        assert label == (1.0 if "Describe" in sample.prompt[-1].content else 0.0)
        assert sample.target == f"[{sample.meta['class']}]"


def test_the_teacher_sees_definitions_and_the_question_as_material(data: Path) -> None:
    model = teacher()
    curate(data, model, tasks=("scope",), corpus=None, limit=1)

    (call,) = model.calls
    assert "Local:" in call.messages[0].content
    assert "Global:" in call.messages[0].content
    assert call.messages[-1].content.startswith("Question: ")
    assert call.schema is not None


# What is left out


def test_the_card_counts_by_task_and_class(data: Path) -> None:
    said: list[str] = []
    card = curate(
        data,
        teacher(lambda call: "['Fish']" if "Title: Lake" in call.prompt else "[]"),
        said,
        held_out=0.0,
    )

    def trained(task: str) -> dict[str, int]:
        return {name: found["train"] for name, found in card.classes[task].items()}

    assert trained("scope") == {"Global": 1, "Local": 2}
    assert trained("selection") == {"titles": 3, "nothing": 3}
    assert trained("structuring") == {"markup": 1}
    assert card.discarded == {
        f"selection: {WITHOUT_PARTS}": 3,
        f"structuring: {UNSECTIONED}": 1,
        f"structuring: {SHORT}": 1,
    }
    assert card.items == {"asked": 6, "done": 6, "failed": 0}
    assert len(card.filters) == 3
    assert "99%" in card.filters[1]
    assert card.usage["calls"] == 3 + 6
    assert {name.split("/")[-1] for name in card.made_with["prompts"]} >= {
        "reader.py",
        "longrefiner_samples.py",
    }


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


def test_made_up_titles_are_taken_out_and_counted(data: Path) -> None:
    reply = "['Section1: history', 'Sources', 'See also', \"WOMEN'S WORK\", 'History']"
    card = curate(data, teacher(lambda _: reply), tasks=("selection",), held_out=0.0)

    targets = {s.meta["document"]: s.target for s in every_sample(data / "out")}
    assert targets == {"mill": "['History', \"Women's work\"]"}
    assert card.counts == {f"selection: {TAKEN_OUT}": 3 * 2}
    assert card.discarded[f"selection: {MADE_UP}"] == 3  # of the lake


def test_a_reply_that_is_not_a_label_is_left_out(data: Path) -> None:
    card = curate(data, teacher(label=lambda _: "Both"), tasks=("scope",))

    assert every_sample(data / "out") == []
    assert card.discarded == {f"scope: {MALFORMED}": 3}
    assert card.items["failed"] == 0


def completion(text: str, finish_reason: str = "stop") -> Completion:
    return Completion(text, Usage(1, 1), "teacher", finish_reason=finish_reason)  # type: ignore[arg-type]


def test_a_reply_that_was_cut_off_is_left_out() -> None:
    mill = build_article(document("mill", MILL))
    messages = selection_messages("Who?", mill)
    made = selection_sample(Question("q", "Who?"), mill, messages, completion("['Hist", "length"))
    assert (made.samples, made.discarded) == ((), {CUT_OFF: 1})


def test_more_titles_than_a_reply_holds_are_left_out() -> None:
    text = "# Many\n\n" + "".join(f"## Part {i:03} of the document\n\nx\n\n" for i in range(99))
    many = build_article(document("many", text))
    every = str([node.title for node in many.nodes if node.title])
    messages = selection_messages("Who?", many)
    made = selection_sample(Question("q", "Who?"), many, messages, completion(every))
    assert made.discarded == {LONG: 1}


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


def test_a_document_that_is_there_twice_is_taken_once(data: Path) -> None:
    copy = {"id": "copy", "title": "Again", "text": MILL.replace("\n\n", "\n\n\n"), "file": "c.md"}
    with (data / "corpus.jsonl").open("a", encoding="utf-8") as lines:
        lines.write(json.dumps(copy) + "\n")
    said: list[str] = []

    card = curate(data, None, said, questions=None, held_out=0.5)

    assert card.items["asked"] == len(TEXTS)
    assert len(every_sample(data / "out")) == 1
    assert "1 of 4 documents are left out: others have the same text" in said


def test_how_pairs_are_made_can_be_set_and_stays(data: Path) -> None:
    cut = ("structuring_tokens=300", "joined_words=0")
    curate(data, None, questions=None, settings=cut, held_out=0.0)
    assert len(every_sample(data / "out")) > 3

    with pytest.raises(UsageError, match="structuring_tokens was 300 and is 16000"):
        curate(data, None, questions=None, held_out=0.0)


def test_nothing_is_asked_twice(data: Path) -> None:
    first = curate(data, teacher())
    model = teacher()

    again = curate(data, model)

    assert model.calls == []
    assert again.samples == first.samples
    assert again.files == first.files


def test_a_limit_holds_for_questions_and_for_documents(data: Path) -> None:
    card = curate(data, teacher(), limit=2)
    assert card.items["asked"] == 4


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"tasks": ("routing",)}, "LongRefiner has no task 'routing'"),
        ({"tasks": ("scope",), "questions": None}, "no scope without questions"),
        ({"settings": ("k=3",)}, "longrefiner has no parameter 'k'"),
        ({"settings": ("edge_words=0",)}, "edge_words is 0"),
        ({"settings": ("documents=0",)}, "documents is 0"),
    ],
)
def test_a_wrong_request_is_reported_before_anything_is_made(
    data: Path, more: dict[str, Any], said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        curate(data, teacher(), **more)

    assert not (data / "out").exists()


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


@settings(max_examples=150, deadline=None)
@given(st.lists(_TITLE, min_size=2, max_size=6), st.data())
def test_titles_that_are_kept_are_read_again(titles: list[str], data: st.DataObject) -> None:
    text = "# T\n\nlead\n\n" + "".join(f"## {title}\n\ntext\n\n" for title in titles)
    made_of = build_article(document("d", text))
    parts = [node.id for node in made_of.nodes if node.title and node.title != "abstract"]
    chosen = data.draw(st.lists(st.sampled_from(parts), unique=True)) if parts else []
    reply = json.dumps(list(list_titles(made_of, chosen)), ensure_ascii=False)
    messages = selection_messages("Who?", made_of)

    made = selection_sample(Question("q", "Who?"), made_of, messages, completion(reply))

    for sample in made.samples:
        assert parse_titles(sample.target, made_of) == parse_titles(reply, made_of)
        assert set(score(sample, sample.target).values()) == {1.0}
        assert "<|im_end|>" not in sample.target
        again = Sample.from_json(json.loads(json.dumps(sample.to_json())))
        assert outlined(again).nodes == outlined(sample).nodes
        assert again.prompt == tuple(messages)
        assert isinstance(sample.messages[-1], Message)
