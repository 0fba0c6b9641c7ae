"""Finding: the carried model tells which passage answers and where, without a call."""

import dataclasses

import pytest

from colligate.core.run import show_ranked
from colligate.library.in_memory import InMemorySources
from colligate.readers.finding import Likely, answer_found, find, show_likely
from support.runs import document, events

LIT = "The lighthouse on Skerry Rock was lit for the first time in March 1851."
TEXTS = {
    "skerry": f"# Skerry Rock\n\nNobody lives there. {LIT} Its keeper was Ada Holm.",
    "herring": "# Herring\n\nHerring are caught in nets and salted in barrels.",
    "bridge": "# Dorne Bridge\n\nThe bridge at Dorne has four arches of red stone.",
}
QUESTION = "When was the lighthouse on Skerry Rock first lit?"


def whole_of(text):
    return (made := document("skerry", text)).passage(made.span(0, len(text)))


@pytest.fixture
def search(make_run):
    """`search(question)`: what a search shows of the texts, and a run whose model is not asked."""

    async def searched(question, texts=TEXTS):
        made = [document(*each) for each in texts.items()]
        async with InMemorySources(made) as sources:
            run, model = make_run(sources, [])
            hits = await run.search(question, k=10, mode="sparse")
            return show_ranked(hits), run, model

    return searched


async def test_the_passage_and_the_place_of_the_answer_are_found_and_shown(search):
    shown, run, model = await search(QUESTION)
    best, *others = await find(QUESTION, shown, run)
    text = TEXTS["skerry"]
    assert "1851" in text[best.answer.start : best.answer.end]
    assert best.share > 0.5 > sum(each.share for each in others)
    assert best.place_share <= 0.001
    assert events(run, Likely) == []  # before it is shown
    await show_likely(best, run)
    [likely] = events(run, Likely)
    assert likely.sentence.text == LIT
    assert likely.line() == f"likely: “{LIT}” (Skerry Rock)"
    assert model.calls == []


async def test_a_long_sentence_is_shown_around_the_answer(search):
    text = f"# Skerry Rock\n\n{'It was, as they said, a long story, ' * 20}{LIT}"
    shown, run, _ = await search(QUESTION, {"skerry": text})
    best, *_ = await find(QUESTION, shown, run)
    await show_likely(best, run)
    [likely] = events(run, Likely)
    assert "1851" in likely.line()
    assert len(likely.line()) < 320


async def test_a_long_passage_is_searched_to_its_end(search):
    text = f"# Skerry Rock\n\n{'Boats lay in the harbour all summer. ' * 150}{LIT}"
    shown, run, _ = await search(QUESTION, {"skerry": text})
    [whole] = [dataclasses.replace(each, passage=whole_of(text)) for each in shown[:1]]
    [found] = await find(QUESTION, [whole], run)
    assert "1851" in text[found.answer.start : found.answer.end]


async def test_what_is_surely_found_is_an_answer_without_a_call(search):
    shown, run, model = await search(QUESTION)
    answer = await answer_found(QUESTION, shown, run)
    assert (answer.found, answer.citations[0].quote) == (True, LIT)
    assert "1851" in answer.short
    assert answer.probability > 0.8
    assert len(answer.evidence) == len(shown)
    assert model.calls == []


async def test_what_no_passage_says_is_no_answer_without_a_call(search):
    question = "How many people visited the Louvre in 2019?"
    shown, run, _ = await search(question)
    assert await answer_found(question, shown, run) is None


async def test_a_question_in_another_language_is_left_to_the_reader(search):
    shown, run, _ = await search(QUESTION)
    run.language = "de"
    assert await find(QUESTION, shown, run) == []
    assert await answer_found(QUESTION, shown, run) is None
