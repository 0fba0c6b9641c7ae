"""What is shown of an answer while it is written, and which of its statements are struck out."""

import json

import pytest

from colligate.core.answer import Verdict
from colligate.core.events import Answered, Drafted
from colligate.core.run import Shown
from colligate.documents import Span
from colligate.errors import MalformedOutput
from colligate.library.in_memory import InMemorySources
from colligate.models import Completion
from support.runs import events

RENT = ("900 euros a month", "The rent is 900 euros a month.")
DOGS = ("Dogs are welcome", "Dogs may live there.")
NOTICE = ("notice of three months", "Notice takes 12 months.")
CONFIRMED = (RENT[1], "confirmed", "")


def said(*statements, short="900 euros"):
    rows = [
        {"quotes": [{"passage": 1, "quote": quote}], "sentence": sentence}
        for quote, sentence in statements
    ]
    return json.dumps({"statements": rows, "short_answer": short, "found": bool(rows)})


def cut(reply, at):
    return Completion(reply[: reply.index(at)], finish_reason="length")


@pytest.fixture
async def watch(make_run, documents, monkeypatch):
    """`answer, run = await watch(*replies)`: the reader says these while a person watches."""
    monkeypatch.setattr("colligate.readers.drafting._SECONDS_BETWEEN_LOOKS", 0)
    async with InMemorySources(documents) as sources:
        lease = documents[0]
        shown = [Shown(lease.passage(Span(lease.id, 0, len(lease.text))))]

        async def watched(*replies, check=None, live=True):
            run, _ = make_run(sources, replies)
            run.live, run.check = live, check
            try:
                return await run.read("How much is the rent?", shown), run
            except MalformedOutput:
                return None, run

        yield watched


def draft(run):
    """What a person sees of the draft at the end."""
    seen = []
    for each in events(run, Drafted):
        if each.text:
            seen[each.index : each.index + 1] = [each]
        else:
            del seen[each.index :]
    return [(each.text, each.state, each.why) for each in seen]


async def test_statements_appear_word_by_word_and_are_confirmed_or_struck_out(watch):
    answer, run = await watch(said(RENT, DOGS, NOTICE))
    drafted = events(run, Drafted)
    first = [each.text for each in drafted if each.index == 0]
    assert first[:3] == ["The", "The rent", "The rent is"]
    assert draft(run) == [
        CONFIRMED,
        (DOGS[1], "struck", "no single passage has its quote"),
        (NOTICE[1], "struck", "no quote has 12 months"),
    ]
    [place] = next(each for each in drafted if each.state == "confirmed").passages
    assert place.span == answer.citations[0].span
    assert (
        drafted[-1].line()
        == "written: Notice takes 12 months. (struck out: no quote has 12 months)"
    )
    order = [type(each) for _, each in run.trace.events if isinstance(each, Drafted | Answered)]
    assert order.index(Answered) == len(drafted)


@pytest.mark.parametrize(
    ("replies", "seen"),
    [
        ([cut(said(RENT, DOGS), " may live")] * 2, [CONFIRMED]),  # the first statement is used
        ([cut(said(DOGS), " may live")] * 2, []),
        ([cut(said(DOGS), " may live"), said(RENT)], [CONFIRMED]),  # asked again
        ([said(DOGS), said(RENT)], [CONFIRMED]),  # asked again: nothing was cited
        (["The rent is {900} euros.", "[" * 999], []),
    ],
)
async def test_what_is_not_in_the_reply_that_is_used_is_withdrawn(watch, replies, seen):
    answer, run = await watch(*replies)
    assert draft(run) == seen
    assert bool(answer and answer.found) == bool(seen)


async def test_a_statement_that_its_quotes_contradict_is_struck_out_before_the_answer(watch):
    class Contradicts:
        name = "contradicts"

        async def judge(self, claims, run):
            return [
                Verdict.CONTRADICTED if "Mill" in each.statement else Verdict.SUPPORTED
                for each in claims
            ]

    mill = ("the flat in Mill Street", "The flat is not in Mill Street.")
    answer, run = await watch(said(mill, RENT), check=Contradicts())
    assert draft(run) == [(mill[1], "struck", "its quotes contradict it"), CONFIRMED]
    assert answer.text == f"{RENT[1]} [1]"


async def test_nothing_is_drafted_where_nobody_watches(watch):
    _, run = await watch(said(RENT), live=False)
    assert not events(run, Drafted)
