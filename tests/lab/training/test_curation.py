"""A curation as it is asked for: who takes part, over what, what is held out, what is spent."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from colligate.core.events import Event, Noted
from colligate.core.strategy import Needs
from colligate.errors import (
    BudgetExceeded,
    ColligateError,
    MissingPath,
    UsageError,
)
from colligate.lab.bench.participants import ModelNames
from colligate.lab.bench.question import Question
from colligate.lab.training.curation import (
    CuratedMethod,
    Curation,
    CurationContext,
    is_held_out,
    open_curation,
)
from colligate.lab.training.samples import (
    HELD_OUT,
    TRAIN,
    Card,
    CuratedItem,
    Sample,
    read_samples,
)
from colligate.models import Capability, Message, Role
from colligate.settings import Settings
from colligate.testing import ScriptedModel
from support.curation import write_jsonl

READS = Needs(searches=False)
ASKS = Needs(searches=False, reads=False)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Forty questions, each with a document of its own and one that all have."""
    records = [
        {
            "id": f"q{n}",
            "question": f"How high is mast {n}?",
            "answers": ["41"],
            "documents": [
                {"id": f"d{n}", "title": f"Mast {n}", "text": f"Mast {n} is 41 metres high."},
                {"id": "all", "title": "Masts", "text": "All masts are high."},
            ],
            "gold_document_ids": [f"d{n}"],
        }
        for n in range(40)
    ]
    write_jsonl(tmp_path / "questions.jsonl", records)
    return tmp_path


def request(data: Path, teacher: ScriptedModel | None = None, **more: Any) -> Curation:
    more.setdefault("questions", data / "questions.jsonl")
    models = {Role.READER: teacher or ScriptedModel(lambda _: "Yes.")}
    more.setdefault("names", ModelNames(Settings(), models))
    return Curation(out=data / "out", **more)


async def asking(context: CurationContext, question: Question) -> CuratedItem:
    """A sample of a question and the teacher's answer."""
    async with context.sources(question) as sources:
        run = context.start_run(sources)
        prompt = (Message("user", question.text),)
        reply = await run.chat(prompt, role=Role.WORKER, max_tokens=20)
    sample = Sample(f"{question.id}/0", "scope", (*prompt, Message("assistant", reply.text)))
    return CuratedItem([sample], usage=context.usage_of(run))


def within(
    asked: Curation,
    do: Callable[[CurationContext], Awaitable[Any]],
    needs: Needs = READS,
    said: list[Event] | None = None,
) -> Any:
    """What `do` gives with the context of a curation."""

    async def run() -> Any:
        see = [].append if said is None else said.append
        async with open_curation(asked, see, CuratedMethod("test", ["scope"], needs)) as made:
            return await do(made)

    return asyncio.run(run())


def curate(
    asked: Curation,
    work: Callable[[CurationContext, Question], Awaitable[CuratedItem]] = asking,
    said: list[Event] | None = None,
    needs: Needs = READS,
    **more: Any,
) -> Card:
    async def do(context: CurationContext) -> Card:
        items = {each.id: each for each in context.questions}
        return await context.curate(items, partial(work, context), **more)

    card: Card = within(asked, do, needs, said)
    return card


# What is held out


def questions_of(file: Path) -> set[str]:
    return {sample.prompt[0].content for sample in read_samples(file)}


def test_no_question_is_on_both_sides_and_each_stays_where_it_is(data: Path) -> None:
    curate(request(data, limit=20, held_out=0.3))
    before = questions_of(data / "out" / HELD_OUT), questions_of(data / "out" / TRAIN)

    card = curate(request(data, held_out=0.3))

    trained, unseen = questions_of(data / "out" / TRAIN), questions_of(data / "out" / HELD_OUT)
    assert not trained & unseen
    assert len(trained | unseen) == 40
    assert (card.total("train"), card.total("held_out")) == (len(trained), len(unseen))
    assert 4 <= len(unseen) <= 20  # 12 of 40, give or take
    assert before[0] < unseen
    assert before[1] < trained
    assert card.items == {"asked": 40, "done": 40, "failed": 0}


@settings(max_examples=100)
@given(
    what=st.text(max_size=20),
    seed=st.integers(0, 9),
    shares=st.lists(st.floats(0, 1, exclude_max=True), min_size=2, max_size=2).map(sorted),
)
def test_a_larger_share_holds_out_what_a_smaller_one_does(
    what: str, seed: int, shares: list[float]
) -> None:
    small, large = (is_held_out(what, share, seed) for share in shares)

    assert large or not small
    assert not is_held_out(what, 0.0, seed)


# Who takes part


def test_the_teacher_takes_every_role(data: Path) -> None:
    settings_ = Settings().override(reader="a", worker="b", scorer="c")
    teacher = ScriptedModel(lambda _: "Yes.")
    asked = request(data, names=ModelNames(settings_, {Role.READER: teacher}), limit=2)

    curate(asked)  # else b and c would be opened, which nobody knows

    assert len(teacher.calls) == 2


@pytest.mark.parametrize(
    ("names", "more", "why"),
    [
        ({"names": ModelNames()}, frozenset(), r"no teacher is named: .*--teacher MODEL"),
        ({}, frozenset({Capability.ATTENTION}), "test needs attention"),
    ],
)
def test_a_teacher_must_be_named_and_able(
    data: Path, names: dict[str, Any], more: frozenset[Capability], why: str
) -> None:
    needs = Needs(required=frozenset({Capability.CHAT}) | more, searches=False)

    with pytest.raises(ColligateError, match=why):
        curate(request(data, **names), needs=needs)
    assert not (data / "out" / "journal.jsonl").exists()


# What is spent


def test_a_run_that_was_refused_a_call_gives_nothing_even_if_it_hid_that(data: Path) -> None:
    async def hiding(context: CurationContext, question: Question) -> CuratedItem:
        async with context.sources(question) as sources:
            run = context.start_run(sources)
            with suppress(BudgetExceeded):  # some strategies answer with what they have
                await run.chat([Message("user", question.text)], max_tokens=20)
        return CuratedItem(usage=context.usage_of(run))

    with pytest.raises(BudgetExceeded, match="--max-tokens-total"):
        curate(request(data, max_tokens_total=100), hiding)

    card = json.loads((data / "out" / "card.json").read_text("utf-8"))
    assert 0 < card["items"]["done"] < 40
    assert card["usage"]["input_tokens"] + card["usage"]["output_tokens"] <= 100


# Over what


def test_documents_are_those_of_the_questions_each_once(data: Path) -> None:
    async def do(context: CurationContext) -> list[str]:
        return [document.id for document in await context.load_documents()]

    all_of_them = within(request(data, questions=data / "questions.jsonl"), do)
    some_of_them = within(request(data, limit=3), do)

    assert sorted(all_of_them) == sorted([*(f"d{n}" for n in range(40)), "all"])
    assert len(some_of_them) == 3


def test_documents_of_a_folder_need_no_questions(data: Path) -> None:
    pages = data / "pages"
    pages.mkdir()
    for n in range(5):
        (pages / f"p{n}.md").write_text(f"# Page {n}\n\n## Part\n\nWords of it.\n", "utf-8")
    (pages / "bad.pdf").write_bytes(b"%PDF-1.4 and nothing else")
    said: list[Event] = []

    async def titles(context: CurationContext) -> list[str]:
        assert context.questions == ()
        return [document.title for document in await context.load_documents()]

    everything, two = (
        within(request(data, questions=None, corpus=pages, limit=limit), titles, ASKS, said)
        for limit in (None, 2)
    )
    assert sorted(everything) == [f"Page {n}" for n in range(5)]
    assert two == everything[:2]
    notes = [event.text for event in said if isinstance(event, Noted)]
    assert any("left out" in note and "bad.pdf" in note for note in notes)


@pytest.mark.parametrize(
    ("more", "error", "said"),
    [
        ({"questions": Path("nowhere.jsonl")}, MissingPath, "nowhere.jsonl"),
        ({"corpus": Path("nowhere")}, MissingPath, "there is no .*nowhere"),
        ({"corpus": Path()}, UsageError, "would be among the documents"),
        ({"format": "xml"}, UsageError, "unknown format 'xml'"),
    ],
)
def test_what_cannot_be_read_is_reported_before_anything_is_made(
    data: Path, more: dict[str, Any], error: type[Exception], said: str
) -> None:
    more = {name: data / v if isinstance(v, Path) else v for name, v in more.items()}

    with pytest.raises(error, match=said):
        curate(request(data, **more))
    assert not (data / "out" / "journal.jsonl").exists()


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"held_out": 1.0}, "cannot hold out 1.0"),
        ({"held_out": -0.1}, "expected a share"),
        ({"limit": 0}, "limit is 0"),
        ({"concurrency": 0}, "concurrency is 0"),  # nothing would ever begin
        ({"max_tokens_total": 0}, "max_tokens_total is 0"),
        ({"timeout": 0.0}, "timeout is 0"),
    ],
)
def test_a_value_out_of_range_is_refused(data: Path, more: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        request(data, **more)
