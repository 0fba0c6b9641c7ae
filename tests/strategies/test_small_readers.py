"""What a small reader has found and paid for, where a budget or a server ends its work."""

import re

from colligate.errors import ServerFailed
from colligate.library import InMemorySources
from colligate.models import LabelOdds
from colligate.strategies.auto import Auto
from colligate.strategies.baselines.retrieve_read import RetrieveRead
from colligate.strategies.duquad import DuQUAD
from colligate.strategies.spd_rag import SPDRAG
from colligate.strategies.spd_rag.events import AgentEnded
from support.runs import document, judge_by_words

LISTED = "How much rain was recorded at each station?"


def events(run, kind):
    return [e for _, e in run.trace.events if isinstance(e, kind)]


def station(n):
    text = f"# Station {n}\n\nStation {n} recorded 1{n} millimetres of rain in the year.\n"
    return document(f"s{n:04}", text)


def say(call):
    if "each document" in call.messages[0].content:
        return "How much rain was recorded?"
    return next(iter(re.findall(r"\d+ (?:millimetres|euros)", call.prompt)), "none")


SMALL = {"name": "a-1.5b", "labels": judge_by_words({"recorded": 0.9})}


async def test_a_small_agent_whose_reading_fails_has_not_read_its_document(ask):
    def fails(call):
        if "Station 2 recorded" in call.prompt:
            raise ServerFailed("the server failed", "500", "try again")
        return say(call)

    made = [station(n) for n in range(4)]
    answer, run, _ = await ask(SPDRAG(mode="sparse"), LISTED, made, fails, **SMALL)
    assert len(answer.citations) == 3
    assert {e.title: e.status for e in events(run, AgentEnded)}["Station 2"] == "failed"
    assert any("1 of 4 documents could not be read: 'Station 2'" in w for w in run.warnings)
    assert not any("nothing was found" in w for w in run.warnings)


async def test_what_a_budget_left_unread_by_small_agents_is_said_and_read_when_asked_again(
    make_run,
):
    async with InMemorySources([station(n) for n in range(40)]) as sources:
        spd = SPDRAG(mode="sparse", concurrency=2)
        run, _ = make_run(sources, say, max_tokens=8000, **SMALL)
        await spd.answer(LISTED, run)
        left = [e.title for e in events(run, AgentEnded) if e.status == "unread"]
        assert (
            f"{len(left)} of 40 documents were not read: the token budget is spent" in run.warnings
        )
        assert not any("nothing was found" in w for w in run.warnings)
        again, model = make_run(sources, say, **SMALL)
        again.store = run.store
        answer = await spd.answer(LISTED, again)
    assert len(answer.citations) == 40
    assert len(model.calls) == len(left)


async def test_what_small_agents_found_is_listed_where_the_last_reading_fails(ask):
    def fails(*_):
        raise ServerFailed("the server failed", "500", "try again")

    def judge(messages, labels, forced):
        return (
            fails() if "north" in messages[-1].content else LabelOdds({"Yes": 0.9, "No": 0.1}, 1.0)
        )

    def says(call):
        plans = "each document" in call.messages[0].content
        return fails() if "north" in call.prompt and not plans else say(call)

    question = "How much rain did the station in the north record?"
    made = [station(n) for n in range(3)]
    answer, *_ = await ask(SPDRAG(mode="sparse"), question, made, says, name="a-1.5b", labels=judge)
    assert len(answer.citations) == 3


def house(n):
    rest = "It is a fine house near the old mill by the lake. " * 20
    return document(f"d{n}", f"# House {n}\n\nThe rent of house {n} is {700 + n} euros. {rest}")


async def test_a_small_reader_answers_from_what_was_reserved_for_the_answer(ask):
    options = {"name": "a-1.5b", "labels": judge_by_words({"703 euros": 0.9}), "max_tokens": 8000}
    made = [house(n) for n in range(6)]
    question = "What is the rent of house 3?"
    answer, run, _ = await ask(DuQUAD(mode="sparse"), question, made, say, **options)
    assert (answer.short, run.warnings) == ("703 euros", ())


async def test_documents_that_no_passage_is_read_of_are_counted(ask):
    def judge(messages, labels, forced):
        kinds = {"fact": 0.1, "steps": 0.1, "each": 0.7, "overview": 0.1}
        return LabelOdds(kinds if "each" in labels else {"Yes": 0.9, "No": 0.1}, 1.0)

    made = [document(f"f{n:02}", f"# Film {n}\n\nFilm {n} is a film of 1980.\n") for n in range(15)]
    which = "Which of these films are from the eighties?"
    answer, run, _ = await ask(
        Auto(mode="sparse"), which, made, lambda call: "1980", name="a-1.5b", labels=judge
    )
    assert len(answer.citations) == 10
    assert run.warnings == ("the answer is from the 10 documents that a search finds best, of 15",)


async def test_passages_that_the_budget_leaves_unjudged_cost_no_others(ask):
    options = {"name": "a-1.5b", "labels": judge_by_words({"703 euros": 0.9}), "max_tokens": 4000}
    made = [house(n) for n in range(6)]
    question = "What rent has the fine house?"
    answer, run, _ = await ask(RetrieveRead(mode="sparse"), question, made, say, **options)
    assert answer.short == "703 euros"
    assert run.warnings == ("3 of 10 passages not judged: the token budget is spent",)


async def test_small_agents_reserve_nothing_for_reports_that_nobody_writes(ask):
    made = [station(n) for n in range(40)]
    answer, run, _ = await ask(SPDRAG(mode="sparse"), LISTED, made, say, max_tokens=20_000, **SMALL)
    assert (len(answer.citations), run.warnings) == (40, ())
