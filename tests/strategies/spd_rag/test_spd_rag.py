from __future__ import annotations

import asyncio
import gc
import json
import random
import re
import tracemalloc
from collections import Counter
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from colligate.concurrency import map_concurrent
from colligate.core.citing import NOT_FOUND
from colligate.core.events import Noted, Progressed, Pruned, Retrieved
from colligate.documents import Document, Hit, Span
from colligate.documents.markdown import markdown_tree
from colligate.documents.tokens import estimate_tokens
from colligate.errors import BudgetExceeded, ServerFailed, UsageError
from colligate.library import DocumentInfo, InMemorySources
from colligate.models import Role
from colligate.strategies.spd_rag import SPDRAG
from colligate.strategies.spd_rag.events import (
    AgentEnded,
    AgentTurn,
    Grouped,
    Planned,
    Synthesised,
)
from colligate.testing import ScriptedModel
from support.runs import judge_by_words

QUESTION = "How much rain did each station record in March?"
SHOWN = re.compile(r'<passage number="(\d+)" title="([^"]*)"[^>]*>\n(.*?)\n</passage', re.DOTALL)
RAIN = re.compile(r"Station \d+ recorded \d+ millimetres")


def station(number: int) -> Document:
    text = f"# Station {number}\n\nStation {number} recorded {number + 10} millimetres of rain.\n"
    name = f"s{number:04}"
    return Document(name, f"Station {number}", text, markdown_tree(text, name), language="en")


def shown(text: str) -> list[tuple[int, str, str]]:
    """The passages of a prompt: number, title, text."""
    return [(int(number), title, body) for number, title, body in SHOWN.findall(text)]


def who(call) -> str:
    """Who is asked, by the schema of the reply."""
    asked = call.schema["properties"]
    if "sub_agent_todos" in asked:
        return "coordinator"
    if "action" in asked:
        return "agent"
    return "reader" if "short_answer" in asked else "synthesis"


def document_of(call) -> str:
    return re.search(r"<document>(.*)</document>", call.prompt)[1]


def stage(call) -> str:
    """What an agent is asked for: "search", "turn" or "last"."""
    asked = call.schema["properties"]
    return (
        "turn"
        if "query" in asked and "findings" in asked
        else ("last" if "findings" in asked else "search")
    )


def plan(*tasks, directive="List every station."):
    todos = [{"task": task} for task in tasks or ("Note the rain in March.",)]
    return json.dumps({"sub_agent_todos": todos, "synthesis_directive": directive})


def search(query):
    return json.dumps({"reasoning": "It is missing.", "action": "search", "query": query})


def found(*findings, action="finalize", query="", relevance=0.9):
    rows = [dict(zip(("passage", "quote", "finding"), row, strict=True)) for row in findings]
    turn = {"findings": rows, "action": action, "query": query, "relevance": relevance}
    return json.dumps({"reasoning": "", **turn})


def joined(rows, **more):
    statements = [
        {"quotes": [{"passage": number, "quote": quote}], "sentence": quote}
        for number, quote in rows
    ]
    return json.dumps({"statements": statements, **more})


def gauges(call):
    """Models that do all that is wanted of them."""
    if who(call) == "coordinator":
        return plan()
    passages = shown(call.messages[-1].content)
    facts = [(number, fact[0]) for number, _, text in passages for fact in RAIN.finditer(text)]
    if who(call) == "agent":
        if stage(call) == "search":
            return search("millimetres of rain recorded")
        return found(*((number, fact, f"{fact} of rain.") for number, fact in facts))
    return joined(facts, short_answer="all of it", found=True)


def constrained(call):
    """The same with a decoder that ends a list at the schema's `maxItems`."""
    reply = json.loads(gauges(call))
    most = {name: field.get("maxItems") for name, field in call.schema["properties"].items()}
    return json.dumps(
        {name: value[: most[name]] if most.get(name) else value for name, value in reply.items()}
    )


def unless(name, what):
    """The same, but the agent of the document with this title gets an error or says this."""

    def say(call):
        if who(call) == "agent" and document_of(call) == name:
            return what(call) if callable(what) else what
        return gauges(call)

    return say


def unless_agent(what):
    """The same, but every agent gets this error."""
    return lambda call: what if who(call) == "agent" else gauges(call)


def events(run, kind):
    return [event for _, event in run.trace.events if isinstance(event, kind)]


def by_role(model) -> Counter:
    return Counter(who(call) for call in model.calls)


class ByWords:
    """An embedder: which station a text names decides its direction."""

    async def embed(self, texts, kind="passage"):
        rows = np.ones((len(texts), 8), dtype=np.float32)
        for row, text in zip(rows, texts, strict=True):
            row[int((re.search(r"Station (\d+)", text) or "00")[1]) % 8] += 2
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)


class Stations:
    """Sources of any number of documents, each made when it is asked for."""

    def __init__(self, count: int, characters: int = 60) -> None:
        self._infos = [
            DocumentInfo(f"s{n:04}", f"Station {n}", "", characters, 0, 1, "en")
            for n in range(count)
        ]
        self.open = self.most_open = 0

    async def documents(self):
        return self._infos

    async def document(self, document_id):
        return station(int(document_id[1:]))

    async def search(self, query, *, k, mode=None, documents=None):
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        await asyncio.sleep(0)
        if documents is None:  # what is read last of all
            return []
        (name,) = documents
        document = station(int(name[1:]))
        self.open -= 1
        return [Hit(document.passage(Span(name, 0, len(document))), 1.0)]


SPD = SPDRAG(mode="sparse")


async def test_every_document_is_read_and_every_finding_reaches_the_answer(make_run):
    async with InMemorySources([station(n) for n in range(4)]) as sources:
        run, model = make_run(sources, gauges)
        answer = await SPD.answer(QUESTION, run)
    assert answer.found
    assert [c.quote for c in answer.citations] == [
        f"Station {n} recorded {n + 10} millimetres of rain." for n in range(4)
    ]
    assert {c.span.document_id for c in answer.citations} == {f"s{n:04}" for n in range(4)}
    assert by_role(model) == {"coordinator": 1, "agent": 4, "reader": 1}
    best = answer.evidence[0]
    assert (best.score, best.reason) == (0.9, "found by the agent of 'Station 0'")
    assert answer.short == "all of it"
    assert answer.warnings == ()
    (planned,) = events(run, Planned)
    assert (planned.tasks, planned.documents) == (("Note the rain in March.",), 4)
    assert [e.done for e in events(run, Progressed)] == [0, 1, 2, 3, 4]
    assert {e.status for e in events(run, AgentEnded)} == {"read"}
    assert all(e.findings[0].spans[0].document_id == e.document for e in events(run, AgentEnded))


async def test_the_synthesis_sees_directive_findings_and_the_words_they_rest_on(make_run):
    async with InMemorySources([station(1), station(2)]) as sources:
        run, model = make_run(sources, gauges)
        await SPD.answer(QUESTION, run)
    prompt = model.calls[-1].prompt
    assert "<directive>\nList every station.\n</directive>" in prompt
    assert "Document: Station 1\n- Station 1 recorded 11 millimetres of rain. [1]" in prompt
    assert [title for _, title, _ in shown(prompt)] == ["Station 1", "Station 2"]
    assert prompt.endswith(f"Question: {QUESTION}")


@pytest.mark.parametrize("reaches", [True, False])
async def test_the_question_reaches_the_agents_unless_switched_off(reaches, make_run):
    async with InMemorySources([station(1)]) as sources:
        run, model = make_run(sources, gauges)
        await SPDRAG(mode="sparse", question_reaches=reaches).answer(QUESTION, run)
    prompts = [call.prompt for call in model.calls if who(call) == "agent"]
    assert all((QUESTION in prompt) is reaches for prompt in prompts)
    assert all("1. Note the rain in March." in prompt for prompt in prompts)


async def test_a_search_stays_inside_the_agents_document(make_run):
    async with InMemorySources([station(n) for n in range(3)]) as sources:
        run, model = make_run(sources, gauges)
        await SPD.answer(QUESTION, run)
    for call in model.calls:
        if who(call) == "agent" and stage(call) != "search":
            titles = {title for _, title, _ in shown(call.prompt)}
            assert titles == {document_of(call)}


async def test_agents_are_the_worker_and_the_others_the_reader(make_run):
    async with InMemorySources([station(1)]) as sources:
        run, reader = make_run(sources, gauges)
        worker = ScriptedModel(gauges, name="cheap", capabilities=reader.capabilities)
        run.models = {**run.models, Role.WORKER: worker}
        await SPD.answer(QUESTION, run)
    assert by_role(worker) == {"agent": 1}
    assert by_role(reader) == {"coordinator": 1, "reader": 1}


# The loop of an agent

LONG = "# Station 7\n\n" + "\n\n".join(
    f"## Part {n}\n\nStation {n} recorded {n + 10} millimetres of {word}. " + f"{word} fell. " * 60
    for n, word in enumerate(("rain", "snow", "hail", "sleet", "drizzle", "fog", "mist", "dew"))
)


@pytest.fixture
async def long():
    """One document of many passages."""
    made = Document("long", "Station 7", LONG, markdown_tree(LONG, "long"), language="en")
    async with InMemorySources([made]) as sources:
        yield sources


# The paper's way: each agent is asked for its first query.
ASKED = SPDRAG(mode="sparse", k=1, evidence_tokens=250, first_search="asked")


def turns(model) -> list[str]:
    return [stage(call) for call in model.calls if who(call) == "agent"]


async def test_an_agent_that_never_ends_gets_so_many_searches_and_must_finalize(long, make_run):
    queries = iter(["rain", "snow", "hail", "sleet", "drizzle", "fog", "mist"])

    def say(call):
        if who(call) != "agent":
            return gauges(call)
        if stage(call) == "search":
            return search(next(queries))
        facts = [
            (number, fact[0], fact[0])
            for number, _, text in shown(call.messages[-1].content)
            for fact in RAIN.finditer(text)
        ]
        return found(*facts, action="search", query=next(queries))

    run, model = make_run(long, say)
    answer = await ASKED.answer(QUESTION, run)
    assert turns(model) == ["search", "turn", "turn", "turn", "turn", "last"]
    assert "No search is left" in [c for c in model.calls if who(c) == "agent"][-1].prompt
    (ended,) = events(run, AgentEnded)
    assert (ended.searches, ended.turns, ended.status) == (5, 6, "read")
    assert next(queries) == "mist"  # what was asked for with the last words was not searched
    # What it found is of every search, the last one's too, and is numbered on.
    prompts = [call.prompt for call in model.calls if who(call) == "agent"]
    assert [[number for number, _, _ in shown(prompt)] for prompt in prompts] == [
        [], [1], [1, 2], [1, 2, 3], [1, 2, 3, 4], [1, 2, 3, 4, 5]
    ]  # fmt: skip
    assert "- rain\n- snow\n- hail\n- sleet\n- drizzle\n" in prompts[-1]
    assert len(ended.findings) == 5
    assert len(answer.citations) == 5


async def test_a_document_that_fits_is_shown_whole_in_one_call(make_run):
    async with InMemorySources([station(n) for n in range(2)]) as sources:
        run, model = make_run(sources, gauges)
        answer = await SPD.answer(QUESTION, run)
    assert turns(model) == ["last", "last"]
    assert events(run, Retrieved) == []
    assert "whole document" in model.calls[1].prompt
    assert {(event.searches, event.turns) for event in events(run, AgentEnded)} == {(0, 1)}
    assert all(event.stage["read"] for event in events(run, AgentTurn))
    assert len(answer.citations) == 2


async def test_a_document_whose_last_passages_were_found_is_not_searched_again(make_run):
    async with InMemorySources([station(1)]) as sources:
        run, model = make_run(sources, gauges)
        strategy = SPDRAG(mode="sparse", first_search="asked", evidence_tokens=1)
        await strategy.answer(QUESTION, run)
    assert turns(model) == ["search", "last"]


async def test_the_tasks_are_the_first_search_together_and_without_a_call(long, make_run):
    def say(call):
        if who(call) == "coordinator":
            return plan("Note the millimetres of hail.", "Note the millimetres of dew.")
        return gauges(call)

    run, model = make_run(long, say)
    await SPDRAG(mode="sparse", k=2, evidence_tokens=500).answer(QUESTION, run)
    assert turns(model) == ["turn"]
    asked = next(call for call in model.calls if who(call) == "agent").prompt
    assert all(re.search(rf"millimetres of {word}\.", asked) for word in ("hail", "dew"))
    queries = [event.query for event in events(run, Retrieved)]
    assert queries == ["Note the millimetres of hail.", "Note the millimetres of dew."]
    (ended,) = events(run, AgentEnded)
    assert (ended.searches, ended.turns) == (1, 1)


async def test_the_first_search_may_be_the_question(long, make_run):
    run, model = make_run(long, gauges)
    strategy = SPDRAG(mode="sparse", first_search="question", evidence_tokens=500)
    await strategy.answer(QUESTION, run)
    assert turns(model) == ["turn"]
    assert [event.query for event in events(run, Retrieved)] == [QUESTION]


@pytest.mark.parametrize(
    ("tokens", "window", "passages"), [(None, None, 8), (500, None, 2), (None, 9000, 4)]
)
async def test_a_search_shows_passages_of_so_many_tokens(tokens, window, passages, make_run):
    def say(call):
        return plan("millimetres recorded") if who(call) == "coordinator" else gauges(call)

    text = LONG + "\n\n# Other\n\n" + "Nothing else was measured. " * 1200
    made = Document("long", "Station 7", text, markdown_tree(text, "long"), language="en")
    async with InMemorySources([made]) as sources:
        run, model = make_run(sources, say, context_tokens=window)
        await SPDRAG(mode="sparse", evidence_tokens=tokens).answer(QUESTION, run)
    asked = next(call for call in model.calls if who(call) == "agent")
    assert len([1 for _, _, text in shown(asked.prompt) if RAIN.search(text)]) == passages


async def test_earlier_passages_stay_while_they_fit_the_window(long, make_run):
    queries = iter(["rain", "snow", "hail", "sleet", "drizzle"])

    def say(call):
        if stage(call) == "last":
            return found()
        query = next(queries)
        return found(action="search", query=query) if shown(call.prompt) else search(query)

    run, reader = make_run(long, gauges)
    worker = ScriptedModel(say, "small", capabilities=reader.capabilities, context_tokens=1600)
    run.models = {**run.models, Role.WORKER: worker}
    await replace(ASKED, agent_tokens=200).answer(QUESTION, run)
    numbers = [[number for number, _, _ in shown(call.prompt)] for call in worker.calls]
    assert numbers == [[], [1], [1, 2], [1, 2, 3], [2, 3, 4], [3, 4, 5]]
    assert run.warnings == ()


async def test_a_cut_turn_searches_on_and_keeps_what_it_says(long, make_run):
    cut = '{"findings": [{"passage": 1, "quote": "Station 0 recorded 10", "finding": "Station 0: 10'
    replies = [search("rain"), cut, search("snow"), found()]
    run, model = make_run(long, lambda c: replies.pop(0) if who(c) == "agent" else gauges(c))
    await ASKED.answer(QUESTION, run)
    assert turns(model) == ["search", "turn", "turn", "turn"]
    (ended,) = events(run, AgentEnded)
    assert [finding.text for finding in ended.findings] == ["Station 0 recorded 10"]


async def test_a_reply_has_room_for_the_longest_valid_turn():
    digits = "1,234,567 | 8,901,234 | " * 20
    row = (1, digits[:400], ("Operating profit was 1,234,567 dollars. " * 10)[:300])
    turn = json.loads(found(*[row] * 6, query="q" * 150, action="search"))
    assert estimate_tokens(json.dumps(turn, indent=2)) < SPDRAG().agent_tokens


async def test_not_found_needs_a_second_search(long, make_run):
    run, model = make_run(long, lambda c: found() if who(c) == "agent" else gauges(c))
    strategy = SPDRAG(mode="sparse", k=1, evidence_tokens=250)
    await strategy.answer("How much rain fell in March?", run)
    queries = [event.query for event in events(run, Retrieved)]
    assert queries[:2] == ["Note the rain in March.", "How much rain fell in March?"]
    assert turns(model) in (["turn"], ["turn", "turn"])  # the second where it found more
    (ended,) = events(run, AgentEnded)
    assert ended.searches == 2


async def test_an_empty_query_is_asked_for_and_takes_a_turn(long, make_run):
    replies = [search(""), search(" "), search("rain"), found()]
    run, model = make_run(long, lambda c: replies.pop(0) if who(c) == "agent" else gauges(c))
    await ASKED.answer(QUESTION, run)
    assert turns(model) == ["search", "search", "search", "turn"]
    calls = [call for call in model.calls if who(call) == "agent"]
    assert 'There was no "query"' in calls[1].messages[-1].content
    (ended,) = events(run, AgentEnded)
    assert (ended.searches, ended.turns) == (2, 4)  # the second without a call


async def test_an_agent_that_never_says_what_to_search_for_ends(long, make_run):
    run, model = make_run(long, lambda c: search("") if who(c) == "agent" else gauges(c))
    run.models = {**run.models, Role.READER: ScriptedModel(gauges, capabilities=model.capabilities)}
    run.models[Role.WORKER] = model
    await ASKED.answer(QUESTION, run)
    assert turns(model) == ["search"] * 5
    assert [event.findings for event in events(run, AgentEnded)] == [()]


async def test_finalizing_before_anything_was_read_is_not_taken(long, make_run):
    made_up = found((1, "Station 1 recorded", "Made up."))
    replies = [made_up, search("rain"), found(query="snow"), found()]
    run, model = make_run(long, lambda c: replies.pop(0) if who(c) == "agent" else gauges(c))
    await ASKED.answer(QUESTION, run)
    assert turns(model) == ["search", "search", "turn", "turn"]
    (ended,) = events(run, AgentEnded)
    assert (ended.findings, ended.dropped) == ((), 0)


async def test_a_search_that_brings_nothing_new_says_so(long, make_run):
    replies = [search("rain"), found(action="search", query="rain"), found()]
    run, model = make_run(long, lambda c: replies.pop(0) if who(c) == "agent" else gauges(c))
    await ASKED.answer(QUESTION, run)
    calls = [call for call in model.calls if who(call) == "agent"]
    assert "no passage that you have not seen" in calls[-1].messages[-1].content
    assert [len(event.shown) for event in events(run, AgentTurn)] == [1, 0, 0]


async def test_a_finding_may_quote_any_passage_that_was_shown(long, make_run):
    def say(call):
        if who(call) != "agent":
            return gauges(call)
        if stage(call) == "search":
            return search("rain")
        if "- snow" not in call.prompt:
            return found(action="search", query="snow")
        # The first passage is no longer in the prompt; it was shown all the same.
        return found((1, "Station 0 recorded 10", "Station 0 recorded 10 millimetres of rain."))

    run, _ = make_run(long, say)
    await ASKED.answer(QUESTION, run)
    (ended,) = events(run, AgentEnded)
    assert ended.findings[0].text == "Station 0 recorded 10 millimetres of rain."
    span = ended.findings[0].spans[0]
    assert LONG[span.start : span.end] == "Station 0 recorded 10 millimetres of rain."


async def test_a_finding_without_a_place_is_counted_and_goes_nowhere(make_run):
    made_up = found((1, "It was dry.", "Nine lakes were drained by a dragon in 1888."))
    say = unless("Station 1", made_up)
    async with InMemorySources([station(1), station(2)]) as sources:
        run, model = make_run(sources, say)
        answer = await SPD.answer(QUESTION, run)
    one, other = sorted(events(run, AgentEnded), key=lambda event: event.document)
    assert (one.findings, one.dropped, one.relevance) == ((), 1, 0.0)
    assert (len(other.findings), other.dropped) == (1, 0)
    assert "dragon" not in model.calls[-1].prompt
    assert "Nothing was found in: Station 1" in model.calls[-1].prompt
    assert len(answer.citations) == 1


async def test_the_words_that_frame_a_finding_prove_nothing_against_it(make_run):
    framed = found((1, "Station 1 recorded 11", "The passage states that the rain was recorded."))
    say = unless("Station 1", framed)
    async with InMemorySources([station(1)]) as sources:
        run, _ = make_run(sources, say)
        await SPD.answer(QUESTION, run)
    (ended,) = events(run, AgentEnded)
    assert (len(ended.findings), ended.dropped) == (1, 0)


async def test_passages_that_do_not_fit_the_workers_window_are_left_out_and_said(long, make_run):
    noted = found((1, "Station 0 recorded 10", "Station 0: 10."), query="fog")
    say = iter([search("rain snow hail"), noted])
    run, reader = make_run(long, gauges)
    worker = ScriptedModel(say, "small", capabilities=reader.capabilities, context_tokens=1000)
    run.models = {**run.models, Role.WORKER: worker}
    await SPDRAG(mode="sparse", agent_tokens=400, first_search="asked").answer(QUESTION, run)
    assert turns(worker) == ["search", "turn"]
    assert 0 < len(shown(worker.calls[-1].prompt)) < 5
    (ended,) = events(run, AgentEnded)
    assert ended.status == "read"
    assert events(run, Pruned)
    assert any("windows were full" in warning for warning in run.warnings)


async def test_a_window_that_no_passage_fits_is_a_failure_and_not_a_document_read(long, make_run):
    run, reader = make_run(long, gauges)
    worker = ScriptedModel(
        [search("rain")], "small", capabilities=reader.capabilities, context_tokens=720
    )
    run.models = {**run.models, Role.WORKER: worker}
    await replace(ASKED, agent_tokens=300).answer(QUESTION, run)
    assert any("not one passage fits the agent's window" in warning for warning in run.warnings)


# Failures


async def test_one_agent_failing_sinks_no_other_and_is_said(make_run):
    failure = ServerFailed("the server failed", "503", "try again later")
    async with InMemorySources([station(n) for n in range(3)]) as sources:
        run, _ = make_run(sources, unless("Station 1", failure))
        answer = await SPD.answer(QUESTION, run)
    assert {c.span.document_id for c in answer.citations} == {"s0000", "s0002"}
    assert run.warnings == (
        "1 of 3 documents could not be read: 'Station 1': the server failed: 503; try again later",
    )


async def test_what_an_agent_found_before_it_failed_counts(long, make_run):
    def say(call):
        if who(call) != "agent":
            return gauges(call)
        if stage(call) == "search":
            return search("rain")
        if "- snow" in call.prompt:
            return ServerFailed("the server failed")
        return found((1, "Station 0 recorded 10", "Station 0: 10."), action="search", query="snow")

    run, _ = make_run(long, say)
    answer = await ASKED.answer(QUESTION, run)
    assert answer.found
    (warning,) = run.warnings
    assert warning.startswith("1 of 1 documents could not be read to the end (1 in part)")


@pytest.mark.parametrize("reader_too", [False, True])
async def test_when_all_agents_fail_the_best_passages_are_read_and_it_is_said(reader_too, make_run):
    failing = ("agent", "reader") if reader_too else ("agent",)

    def say(call):
        return ServerFailed("the server failed", "503") if who(call) in failing else gauges(call)

    async with InMemorySources([station(n) for n in range(3)]) as sources:
        run, model = make_run(sources, say)
        answer = await SPD.answer(QUESTION, run)
    assert answer.found is not reader_too
    assert run.warnings[0].startswith("3 of 3 documents could not be read: 'Station 0': the server")
    assert by_role(model)["agent"] == 3


async def test_a_server_that_fails_from_the_start_is_an_error(make_run):
    run, _ = make_run(Stations(3), lambda call: ServerFailed("the server failed", "503"))
    with pytest.raises(ServerFailed):
        await SPD.answer(QUESTION, run)


async def test_where_nothing_works_not_every_document_is_tried(make_run):
    run, model = make_run(Stations(500), unless_agent(ServerFailed("the server failed", "503")))
    answer = await SPDRAG(concurrency=4).answer(QUESTION, run)
    assert not answer.found
    assert by_role(model)["agent"] < 30
    assert any("500 documents could not be read" in warning for warning in run.warnings)


async def test_a_coordinator_that_gives_no_plan_leaves_the_question_as_the_task(make_run):
    async with InMemorySources([station(1)]) as sources:
        run, model = make_run(sources, lambda c: "no" if who(c) == "coordinator" else gauges(c))
        answer = await SPD.answer(QUESTION, run)
    assert answer.found
    assert any(f"1. {QUESTION}" in call.prompt for call in model.calls)
    assert any("not split into tasks" in warning for warning in run.warnings)


async def test_where_the_last_reply_cannot_be_had_the_findings_are_given_and_cited(make_run):
    async with InMemorySources([station(1), station(2)]) as sources:
        run, _ = make_run(sources, lambda c: "no" if who(c) == "reader" else gauges(c))
        answer = await SPD.answer(QUESTION, run)
    assert answer.text == (
        "Station 1 recorded 11 millimetres of rain. [1] "
        "Station 2 recorded 12 millimetres of rain. [2]"
    )
    assert any("last synthesis failed" in warning for warning in run.warnings)


# What is in view


async def test_no_documents_are_no_call(make_run):
    async with InMemorySources([]) as sources:
        run, model = make_run(sources, gauges)
        answer = await SPD.answer(QUESTION, run)
    assert (answer.found, answer.text, model.calls) == (False, NOT_FOUND, [])


@pytest.mark.parametrize("there", [True, False])
async def test_where_no_agent_finds_anything_the_best_passages_are_read(there, make_run):
    def say(call):
        if who(call) == "agent":
            return found(relevance=0.0)
        return gauges(call) if there or who(call) != "reader" else joined([], found=False)

    async with InMemorySources([station(1), station(2)]) as sources:
        run, model = make_run(sources, say)
        answer = await SPD.answer(QUESTION, run)
    assert by_role(model)["agent"] == 2
    assert {title for _, title, _ in shown(model.calls[3].prompt)} == {"Station 1", "Station 2"}
    assert answer.found == there
    assert len(answer.citations) == 2 * there


async def test_where_no_agent_gives_a_usable_reply_the_best_passages_are_read(make_run):
    async with InMemorySources([station(1), station(2)]) as sources:
        run, _ = make_run(sources, lambda c: "no" if who(c) == "agent" else gauges(c))
        answer = await SPD.answer(QUESTION, run)
    assert len(answer.citations) == 2
    assert {event.status for event in events(run, AgentEnded)} == {"malformed"}
    (warning,) = run.warnings
    assert warning.startswith("2 of 2 documents could not be read: 'Station 1': ")


@pytest.mark.parametrize("released", [False, True])
async def test_a_single_document_is_synthesised_too_unless_switched_off(released, make_run):
    async with InMemorySources([station(1)]) as sources:
        run, model = make_run(sources, gauges)
        strategy = SPDRAG(mode="sparse", no_single_synthesis=released)
        answer = await strategy.answer(QUESTION, run)
    assert by_role(model)["reader"] == (0 if released else 1)
    assert answer.citations[0].quote == "Station 1 recorded 11 millimetres of rain."
    assert answer.text.endswith("[1]")


async def test_a_document_without_text_is_said_and_no_agent_is_asked(make_run):
    empty = Document("e", "Empty", "", markdown_tree("", "e"))
    async with InMemorySources([station(1), empty]) as sources:
        run, model = make_run(sources, gauges)
        answer = await SPD.answer(QUESTION, run)
    assert answer.found
    assert by_role(model)["agent"] == 1
    assert run.warnings == ("1 of 2 documents have no passage to read",)


async def test_only_the_best_documents_where_a_number_is_given(make_run):
    other = "# Fish\n\nCarp and pike.\n"
    fish = Document("fish", "Fish", other, markdown_tree(other, "fish"), language="en")
    async with InMemorySources([fish, station(1), station(2)]) as sources:
        run, _ = make_run(sources, gauges)
        await SPDRAG(mode="sparse", documents=2).answer("station recorded rain", run)
    assert {e.document for e in events(run, AgentEnded)} == {"s0001", "s0002"}
    assert any("2 of 3 documents are read" in warning for warning in run.warnings)


async def test_two_documents_of_the_same_name_are_two(make_run):
    one, other = station(1), station(2)
    twin = Document("twin", one.title, other.text, other.tree, language="en")
    async with InMemorySources([one, twin]) as sources:
        run, _ = make_run(sources, gauges)
        answer = await SPD.answer(QUESTION, run)
    assert {c.span.document_id for c in answer.citations} == {"s0001", "twin"}


def test_numbers_that_mean_nothing_are_refused():
    names = "searches concurrency documents merge_tokens k evidence_tokens most_calls answer_tokens"
    for wrong in ({name: 0} for name in names.split()):
        with pytest.raises(UsageError):
            SPDRAG(**wrong)


# The answer grows with the findings


@pytest.mark.parametrize("say", [gauges, constrained], ids=["free", "constrained"])
@pytest.mark.parametrize("embedder", [ByWords(), None], ids=["by meaning", "in order"])
async def test_200_documents_with_a_fact_each_give_200_facts(say, embedder, make_run):
    run, model = make_run(Stations(200), say, embedder=embedder)
    answer = await SPD.answer(QUESTION, run)
    assert {c.span.document_id for c in answer.citations} == {f"s{n:04}" for n in range(200)}
    for number in range(200):
        assert f"Station {number} recorded {number + 10} millimetres" in answer.text
    assert answer.short == "all of it"
    # No reply is longer than allowed, and the last one writes the head alone.
    assert max(call.max_tokens for call in model.calls) <= SPD.answer_tokens
    assert model.calls[-1].schema["title"] == "Head"
    assert by_role(model)["reader"] == 1
    assert not any("documents with findings" in warning for warning in run.warnings)


@pytest.mark.parametrize("count", [13, 25])
async def test_what_one_reply_can_hold_is_one_reply(count, make_run):
    run, model = make_run(Stations(count), constrained)
    answer = await SPD.answer(QUESTION, run)
    assert len(answer.citations) == count
    assert by_role(model) == {"coordinator": 1, "agent": count, "reader": 1}


def few(call):
    """A writer that hands on the first finding only."""
    reply = json.loads(gauges(call))
    if who(call) in ("reader", "synthesis"):
        reply["statements"] = reply["statements"][:1]
    return json.dumps(reply)


async def test_findings_that_the_synthesis_drops_are_added_word_for_word(make_run):
    run, _ = make_run(Stations(5), few)
    answer = await SPD.answer(QUESTION, run)
    assert answer.text == (
        "Station 0 recorded 10 millimetres [1] "
        "Station 1 recorded 11 millimetres of rain. [2] "
        "Station 2 recorded 12 millimetres of rain. [3] "
        "Station 3 recorded 13 millimetres of rain. [4] "
        "Station 4 recorded 14 millimetres of rain. [5]"
    )
    assert run.warnings == ()


@pytest.mark.parametrize("form", ["joined", "short"])
async def test_where_less_is_wanted_a_warning_counts_the_documents_cited(form, make_run):
    run, _ = make_run(Stations(5), lambda c: single(c) if form == "short" else few(c))
    answer = await SPDRAG(form=form, keep_findings=form == "short").answer(QUESTION, run)
    assert len(answer.citations) == 1
    assert run.warnings == ("1 of 5 documents with findings are cited",)


def single(call):
    """A writer of one statement with one quote."""
    reply = json.loads(few(call))
    if who(call) == "reader":
        (one,) = reply["statements"]
        reply["statements"] = [{**one["quotes"][0], "sentence": one["sentence"]}]
    return json.dumps(reply)


async def test_a_finding_is_not_added_if_a_statement_has_its_place_and_its_numbers(make_run):
    text = "# Gauge\n\nStation 1 recorded 11 millimetres of rain and 22 of snow.\n"
    gauge = Document("g", "Gauge", text, markdown_tree(text, "g"), language="en")

    def say(call):
        if who(call) == "agent":
            quote = "Station 1 recorded 11 millimetres of rain and 22 of snow."
            rain = (1, quote, "Station 1 recorded 11 millimetres of rain.")
            return found(rain, (1, quote, "Station 1 recorded 22 millimetres of snow."))
        return gauges(call)

    async with InMemorySources([gauge]) as sources:
        run, _ = make_run(sources, say)
        answer = await SPD.answer(QUESTION, run)
    assert answer.text == (
        "Station 1 recorded 11 millimetres [1] Station 1 recorded 22 millimetres of snow. [1]"
    )


@pytest.mark.parametrize("there", [True, False])
async def test_if_the_findings_do_not_hold_the_answer_the_best_passages_are_read(there, make_run):
    def say(call):
        if who(call) != "reader" or (there and "<findings" not in call.prompt):
            return gauges(call)
        return joined([], short_answer="", found=False)

    async with InMemorySources([station(1), station(2)]) as sources:
        run, model = make_run(sources, say)
        answer = await SPD.answer(QUESTION, run)
    assert by_role(model)["reader"] == 2
    assert (answer.found, len(answer.citations)) == (there, 2 * there)
    assert any("the best passages are read too" in warning for warning in run.warnings)
    reasons = {evidence.reason for evidence in answer.evidence}
    assert any("found by the agent" in reason for reason in reasons)


async def test_a_search_that_fails_last_of_all_is_a_refusal_with_a_warning(make_run, monkeypatch):
    search = InMemorySources.search

    async def fails_over_all(self, query, *, documents=None, **options):
        if documents is None:
            raise ServerFailed("the embedder is down")
        return await search(self, query, documents=documents, **options)

    monkeypatch.setattr(InMemorySources, "search", fails_over_all)

    def say(call):
        return found(relevance=0.0) if who(call) == "agent" else gauges(call)

    async with InMemorySources([station(1), station(2)]) as sources:
        run, _ = make_run(sources, say)
        answer = await SPD.answer(QUESTION, run)
    assert (answer.found, answer.text) == (False, NOT_FOUND)
    assert any("the embedder is down" in warning for warning in run.warnings)


@pytest.mark.parametrize(
    "failure", [ServerFailed("the server failed"), "no", joined([(1, "x y z")])]
)
async def test_whatever_the_last_call_says_what_was_found_is_the_answer(failure, make_run):
    if isinstance(failure, str) and "quotes" in failure:
        failure = joined([(1, "Nobody wrote this anywhere.")], short_answer="x", found=True)
    for count in (3, 40):  # one prompt, and the head above groups
        run, _ = make_run(Stations(count), lambda c: failure if who(c) == "reader" else gauges(c))
        run.embedder = ByWords()
        answer = await SPD.answer(QUESTION, run)
        assert len(answer.citations) == count
        assert run.warnings


@given(seed=st.integers(0, 2**32), count=st.sampled_from([2, 35]))
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_no_reply_however_spoilt_ends_a_run_and_no_finding_is_lost(seed, count, make_run):
    chance = random.Random(seed)

    def spoil(call):
        reply, kind = gauges(call), chance.randrange(6)
        if kind == 0:
            return reply[: chance.randrange(len(reply))]
        if kind == 1:
            return "I cannot help with that."
        if kind == 2:
            fields = json.loads(reply)
            del fields[chance.choice(list(fields))]
            return json.dumps(fields)
        return reply.replace('", "', '", "' + "x" * 2000, 1) if kind == 3 else reply

    run, _ = make_run(Stations(count), spoil, embedder=ByWords())
    answer = await SPD.answer(QUESTION, run)
    ended = events(run, AgentEnded)
    assert len(ended) == count
    # What the synthesis is given is cited, unless it says that nothing of it helps.
    if answer.found:
        with_findings = {event.document for event in ended if event.findings}
        cited = {citation.span.document_id for citation in answer.citations}
        believed = [event for event in events(run, Synthesised) if not event.findings]
        assert cited == with_findings or believed


async def test_an_embedder_that_fails_costs_no_finding(make_run):
    class Broken:
        async def embed(self, texts, kind="passage"):
            raise ServerFailed("the embedder is down")

    run, _ = make_run(Stations(50), gauges, embedder=Broken())
    answer = await SPD.answer(QUESTION, run)
    assert len(answer.citations) == 50
    assert any("grouped in their order" in warning for warning in run.warnings)


async def test_the_synthesis_knows_which_tasks_are_answered_where(make_run):
    def say(call):
        if who(call) == "coordinator":
            return plan("Note the rain.", "Note the snow.", "Note the owner.")
        if who(call) != "agent":
            return gauges(call)
        turn = json.loads(gauges(call))
        snow = "Station 1" in document_of(call)
        turn["findings"] = [{**turn["findings"][0], "task": 2 if snow else 1}]
        return json.dumps(turn)

    run, model = make_run(Stations(2), say)
    await SPD.answer(QUESTION, run)
    prompt = model.calls[-1].prompt
    one = "Document: Station 0\n- Station 0 recorded 10 millimetres of rain. [1]\n"
    assert f"{one}- Not found there: tasks 2, 3\nDocument: Station 1" in prompt
    assert "- Not found there: tasks 1, 3" in prompt
    assert "No document answers task 3." in prompt
    assert "3. Note the owner." in prompt
    assert {event.answered for event in events(run, AgentEnded)} == {(1,), (2,)}


async def test_tasks_that_findings_do_not_name_are_not_called_unanswered(make_run):
    def say(call):
        return plan("Note the rain.", "Note it.") if who(call) == "coordinator" else gauges(call)

    run, model = make_run(Stations(2), say)
    await SPD.answer(QUESTION, run)
    assert "Not found there" not in model.calls[-1].prompt
    assert "No document answers" not in model.calls[-1].prompt


TABLE = (
    "# Report\n\n| Item | Fiscal 2023 | Fiscal 2022 |\n|---|---|---|\n"
    + "".join(f"| Line {n} of the accounts | {n}1,000 | {n}2,000 |\n" for n in range(10, 90))
    + "\n"
)


async def test_rows_of_a_table_are_shown_and_checked_with_its_head(make_run):
    made = Document("t", "Report", TABLE, markdown_tree(TABLE, "t"), language="en")
    sentence = "Line 77 of the accounts was 771,000 in fiscal 2023."

    def say(call):
        if who(call) == "coordinator":
            return plan("Note line 77 of the accounts.")
        row = "| Line 77 of the accounts | 771,000 | 772,000 |"
        at = next(number for number, _, text in shown(call.prompt) if row in text)
        if who(call) == "agent":
            return found((at, row, sentence))
        quotes = [{"passage": at, "quote": row}]
        statement = {"quotes": quotes, "sentence": sentence}
        return json.dumps({"statements": [statement], "short_answer": "771,000", "found": True})

    async with InMemorySources([made]) as sources:
        run, model = make_run(sources, say)
        answer = await SPDRAG(mode="sparse", evidence_tokens=600).answer("What was line 77?", run)
    for call in model.calls[1:]:
        assert "Item | Fiscal 2023 | Fiscal 2022" in call.prompt
    assert answer.text == f"{sentence} [1]"
    assert events(run, AgentEnded)[0].dropped == 0


# The synthesis, level by level


async def test_hundreds_of_findings_go_through_levels_and_keep_their_places(make_run):
    run, model = make_run(Stations(400), gauges)
    run.embedder = ByWords()
    answer = await SPDRAG(merge_tokens=600).answer(QUESTION, run)
    levels = events(run, Grouped)
    assert len(levels) >= 3
    for one, other in pairwise(levels):
        assert sorted(i for group in one.groups for i in group) == list(range(len(one.tokens)))
        assert len(other.tokens) == len(one.groups) < len(one.tokens)
        for group in one.groups:
            assert len(group) == 1 or sum(one.tokens[i] for i in group) <= 600
    assert len(levels[-1].groups) == 1
    # No text of a level is lost on the way, nor is what it rests on.
    assert answer.found
    for citation in answer.citations:
        assert citation.quote == station(int(citation.span.document_id[1:])).slice(citation.span)
    many = sum(len(group) > 1 for level in levels[:-1] for group in level.groups)
    assert by_role(model)["synthesis"] >= many
    assert len(events(run, Synthesised)) == by_role(model)["synthesis"]


async def test_similar_findings_are_put_together_first(make_run):
    run, _ = make_run(Stations(16), gauges)
    run.embedder = ByWords()
    await SPDRAG(merge_tokens=250).answer(QUESTION, run)
    groups = events(run, Grouped)[0].groups
    assert all(one % 8 == other % 8 for group in groups for one in group for other in group)


async def test_what_fits_one_prompt_is_put_together_at_once_without_an_embedder(make_run):
    run, model = make_run(Stations(12), gauges)
    assert run.embedder is None
    answer = await SPD.answer(QUESTION, run)
    assert len(answer.citations) == 12
    assert by_role(model)["synthesis"] == 0
    assert [len(event.groups) for event in events(run, Grouped)] == [1]


async def test_where_no_two_fit_together_all_are_forced_into_one(make_run):
    run, model = make_run(Stations(3), gauges)
    run.embedder = ByWords()
    answer = await SPDRAG(merge_tokens=60).answer(QUESTION, run)
    (grouped,) = events(run, Grouped)
    assert (grouped.groups, grouped.forced) == (((0, 1, 2),), True)
    assert len(answer.citations) == 3
    assert by_role(model)["synthesis"] == 0


async def test_a_forced_group_beyond_the_window_keeps_a_share_of_each_and_says_so(make_run):
    def say(call):
        if who(call) == "agent" and stage(call) != "search":
            rows = shown(call.messages[-1].content)
            facts = [(n, f[0], f"{f[0]} {'x' * 80}.") for n, _, t in rows for f in RAIN.finditer(t)]
            return found(*facts, relevance=float("Station 5" in call.prompt))
        return gauges(call)

    run, model = make_run(Stations(30), say, context_tokens=3400)
    run.embedder = ByWords()
    answer = await SPDRAG(merge_tokens=60).answer(QUESTION, run)
    assert events(run, Grouped)[-1].forced
    (pruned,) = events(run, Pruned)
    kept = len(shown(model.calls[-1].prompt))
    assert 0 < kept < 30
    assert len(pruned.spans) == 30 - kept
    assert any("of 30 findings do not fit" in warning for warning in run.warnings)
    # The most relevant is not the one left out.
    assert any(title == "Station 5" for _, title, _ in shown(model.calls[-1].prompt))
    assert answer.found


async def test_findings_of_one_document_too_many_for_one_call_are_split(long, make_run):
    def say(call):
        if who(call) == "agent" and stage(call) != "search":
            rows = shown(call.messages[-1].content)
            facts = [(n, f[0], f[0]) for n, _, t in rows for f in RAIN.finditer(t)]
            return found(*facts)
        return search("station recorded millimetres") if who(call) == "agent" else gauges(call)

    run, _ = make_run(long, say)
    run.embedder = ByWords()
    answer = await SPDRAG(mode="sparse", merge_tokens=500).answer(QUESTION, run)
    assert len(events(run, Grouped)[0].tokens) > 1
    assert len(answer.citations) == 8


async def test_a_synthesis_that_fails_loses_no_findings(make_run):
    def say(call):
        return "no" if who(call) == "synthesis" else gauges(call)

    run, _ = make_run(Stations(10), say)
    run.embedder = ByWords()
    answer = await SPDRAG(merge_tokens=250).answer(QUESTION, run)
    assert len(answer.citations) == 10
    assert any(event.passed_on for event in events(run, Synthesised))
    assert any("a synthesis failed" in warning for warning in run.warnings)


async def test_a_synthesis_that_says_that_nothing_helps_is_believed(make_run):
    def say(call):
        if who(call) == "synthesis" and "Station 0" in call.prompt:
            return joined([])
        return gauges(call)

    run, _ = make_run(Stations(16), say)
    run.embedder = ByWords()
    answer = await SPDRAG(merge_tokens=250).answer(QUESTION, run)
    cited = {citation.span.document_id for citation in answer.citations}
    assert "s0000" not in cited
    assert "s0001" in cited


# Budget


async def test_a_budget_gives_a_clear_partial_result_with_the_synthesis_done(make_run):
    run, model = make_run(Stations(100), gauges, max_tokens=25_000)
    answer = await SPDRAG(concurrency=4).answer(QUESTION, run)
    assert answer.found
    assert answer.citations
    assert by_role(model)["reader"] == 1
    ended = Counter(event.status for event in events(run, AgentEnded))
    assert 0 < ended["unread"] < 100
    (warning,) = [each for each in run.warnings if "not read" in each]
    assert warning.startswith(f"{ended['unread']} of 100 documents were not read")
    assert warning.endswith("the token budget is spent")
    assert run.meter.tokens <= 25_000
    # Once an agent was refused its first call, the others are not begun.
    assert by_role(model)["agent"] <= 2 * (ended["read"] + 4)


async def test_a_budget_for_no_document_at_all_is_an_error(make_run):
    run, model = make_run(Stations(5), gauges, max_tokens=1500)
    with pytest.raises(BudgetExceeded):
        await SPD.answer(QUESTION, run)
    assert model.calls == []  # not begun: even the synthesis alone takes more


async def test_where_the_budget_allows_no_levels_one_prompt_gets_what_fits(make_run):
    run, model = make_run(Stations(60), gauges, max_tokens=130_000)
    run.embedder = ByWords()
    strategy = SPDRAG(merge_tokens=300)
    spent = run.tokens.left
    answer = await strategy.answer(QUESTION, run)
    assert answer.found
    assert run.meter.tokens <= spent
    assert by_role(model)["reader"] == 1


# Interruption


async def test_an_interrupted_run_goes_on_and_asks_no_document_twice(make_run):
    asked: Counter = Counter()
    interrupted = asyncio.Event()

    def say(call):
        if who(call) == "agent":
            asked[document_of(call)] += 1
            if len(asked) == 30:
                interrupted.set()
        return gauges(call)

    run, _ = make_run(Stations(60), say)
    strategy = SPDRAG(concurrency=4)
    task = asyncio.ensure_future(strategy.answer(QUESTION, run))
    await asyncio.wait(
        {task, reached := asyncio.ensure_future(interrupted.wait())},
        return_when=asyncio.FIRST_COMPLETED,
    )
    reached.cancel()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    done = {event.title for event in events(run, AgentEnded)}
    assert 0 < len(done) < 60

    again, second = make_run(Stations(60), say)
    again.store, again.embedder = run.store, ByWords()
    answer = await strategy.answer(QUESTION, again)
    assert answer.found
    assert by_role(second)["coordinator"] == 0
    assert events(again, Planned)[0].kept
    kept = {event.title: event for event in events(again, AgentEnded) if event.kept}
    assert done <= set(kept) < {f"Station {n}" for n in range(60)}
    assert all(asked[title] == 1 for title in kept)
    assert all(event.findings[0].spans for event in kept.values())
    said = [event.text for event in events(again, Noted)]
    assert f"{len(kept)} of 60 documents were read before the interruption" in said
    assert again.warnings == ()


async def test_a_run_that_ended_is_not_remembered(make_run):
    run, _ = make_run(Stations(3), gauges)
    await SPD.answer(QUESTION, run)
    again, model = make_run(Stations(3), gauges)
    again.store = run.store
    await SPD.answer(QUESTION, again)
    assert by_role(model) == {"coordinator": 1, "agent": 3, "reader": 1}


async def test_what_a_budget_left_unread_is_read_when_asked_again_and_nothing_else(make_run):
    run, _ = make_run(Stations(100), gauges, max_tokens=25_000)
    await SPD.answer(QUESTION, run)
    read = {event.title for event in events(run, AgentEnded) if event.status == "read"}
    again, model = make_run(Stations(100), gauges)
    again.store = run.store
    await SPD.answer(QUESTION, again)
    asked = {document_of(call) for call in model.calls if who(call) == "agent"}
    assert asked == {f"Station {n}" for n in range(100)} - read


async def test_another_question_or_another_worker_uses_nothing_of_it(make_run):
    run, _ = make_run(Stations(100), gauges, max_tokens=25_000)
    await SPD.answer(QUESTION, run)
    for question, name in ((QUESTION, "other"), ("How much snow?", "scripted")):
        again, _ = make_run(Stations(100), gauges, name=name)
        again.store = run.store
        await SPD.answer(question, again)
        assert not any(event.kept for event in events(again, AgentEnded))


# Many documents


@pytest.mark.parametrize("most", [1, 3])
async def test_no_more_documents_are_under_way_than_allowed(most, make_run):
    sources = Stations(40, characters=50_000)
    run, _ = make_run(sources, gauges)
    await SPDRAG(concurrency=most).answer(QUESTION, run)
    assert 1 <= sources.most_open <= most


async def test_a_pool_begins_an_item_only_when_a_place_is_free():
    begun: list[int] = []
    gate = asyncio.Event()

    async def work(item: int) -> int:
        begun.append(item)
        await gate.wait()
        return item * 2

    task = asyncio.ensure_future(map_concurrent(range(10), work, 3))
    for _ in range(20):
        await asyncio.sleep(0)
    assert begun == [0, 1, 2]
    gate.set()
    assert await task == [n * 2 for n in range(10)]


async def test_many_calls_are_said_beforehand(long, make_run):
    run, _ = make_run(Stations(400), gauges)
    run.embedder = ByWords()
    await SPD.answer(QUESTION, run)
    first = next(event.text for event in events(run, Noted))
    assert first == "an agent for each of 400 documents: about 402, at most 402 model calls"


async def test_too_many_calls_are_not_begun_unless_allowed(make_run):
    run, model = make_run(Stations(30), gauges)
    with pytest.raises(UsageError) as caught:
        await SPDRAG(most_calls=20).answer(QUESTION, run)
    assert str(caught.value) == (
        "an agent for each of 30 documents takes about 32, at most 32 model calls: "
        "most_calls is 20; --yes or the parameter most_calls=32 allows them, "
        "the parameter documents=N reads only the N best"
    )
    assert model.calls == []
    await SPDRAG(most_calls=32).answer(QUESTION, run)
    asked = []

    async def consent(estimate):
        asked.append(estimate)
        return True

    run.consent = consent
    assert (await SPDRAG(most_calls=20).answer(QUESTION, run)).found
    assert asked == ["an agent for each of 30 documents takes about 32, at most 32 model calls"]
    with pytest.raises(UsageError, match=r"about 10,002"):
        await SPDRAG().answer(QUESTION, make_run(Stations(10_000), gauges)[0])


async def test_memory_stays_flat_while_documents_are_read(make_run):
    sizes: dict[int, int] = {}
    sources = Stations(1000, characters=50_000)
    run, model = make_run(sources, gauges, embedder=ByWords())
    run.trace.events = Forgetful()
    model.calls = Forgetful()
    run.meter.calls = Forgetful()

    async def search(query, **inside):
        number = int(inside["documents"][0][1:])
        if number == 500:
            gc.collect()
            tracemalloc.start()
        if number == 900:
            gc.collect()
            sizes[number], _ = tracemalloc.get_traced_memory()
            tracemalloc.stop()
        return await Stations.search(sources, query, **inside)

    sources.search = search
    await SPDRAG(form="short", most_calls=None).answer(QUESTION, run)
    assert sizes[900] / 400 < 4_000  # bytes a document: its finding and the span


class Forgetful(list):
    """What is recorded of a run is not what the strategy holds."""

    def append(self, item):
        pass


@pytest.fixture
def ask_small(ask):
    """`ask_small(**options)`: agents and reader are one small model that gives odds."""

    async def asked(stations=3, question=QUESTION, sure=0.25, **options):
        def say(call):
            if call.schema is not None:
                return plan()
            if "each document" in call.messages[0].content:
                return "How much rain was recorded?"
            return next(iter(re.findall(r"\d+ millimetres", call.prompt)), "none")

        made = [station(number) for number in range(stations)]
        odds = judge_by_words({"Station 0 recorded": 0.25, "Station 1 recorded": sure})
        spd = SPDRAG(mode="sparse", **options)
        return await ask(spd, question, made, say, name="a-1.5b", labels=odds)

    return asked


async def test_small_agents_answer_one_question_and_what_they_find_is_the_answer(ask_small):
    answer, run, model = await ask_small()
    [planned] = events(run, Planned)
    assert planned.tasks == ("How much rain was recorded?",)
    found = {event.document: len(event.findings) for event in events(run, AgentEnded)}
    assert found == {"s0000": 1, "s0001": 1, "s0002": 0}
    said = [
        f"Station {n}: 1{n} millimetres: “Station {n} recorded 1{n} millimetres of rain.” [{n + 1}]"
        for n in range(2)
    ]
    assert answer.text == " ".join(said)
    assert {c.span.document_id for c in answer.citations} == {"s0000", "s0001"}
    assert run.warnings == ("nothing was found in Station 2",)
    assert len(model.calls) == 3  # the question for each document, and two short answers


async def test_one_thing_is_answered_from_the_surest_of_what_small_agents_find(ask_small):
    question = "How much rain did the station in the north record?"
    answer, run, _ = await ask_small(question=question)
    found = {event.document: len(event.findings) for event in events(run, AgentEnded)}
    assert found == {"s0000": 1, "s0001": 1, "s0002": 0}
    assert not answer.found  # the odds of both are low for a question about all documents
    assert {"s0000", "s0001"} <= {evidence.span.document_id for evidence in answer.evidence}
    answer, _, _ = await ask_small(question=question, sure=0.9)
    assert [c.span.document_id for c in answer.citations] == ["s0001"]
    answer, _, _ = await ask_small(question="Wie viel Regen fiel?")  # perhaps at each
    assert len(answer.citations) == 2


@pytest.mark.parametrize(
    ("question", "places"),
    [
        ("Which stations in the north have rain?", 2),
        ("Which companies recorded rain?", 2),
        ("In which newspapers is the rain?", 2),
        ("Which northern stations have rain?", 2),
        ("What records do we have of rain?", 2),
        ("What are the termination conditions?", 2),
        ("Which people have recorded rain?", 2),
        ("Which station records the rain?", 1),
        ("Which news is of the rain?", 1),
        ("Which series was of the rain?", 1),
        ("Which analysis shows the rain?", 1),
        ("Which gas may be used in the rain?", 1),
        ("Which lens shows the rain?", 1),
        ("Which thermos is out in the rain?", 1),
        ("Which areas have rain?", 2),
        ("What was the rain?", 1),
        ("What does the station record?", 1),
        ("Who measured the rain which falls in the north?", 1),
    ],
)
async def test_all_findings_are_listed_if_a_plural_asks_for_them(ask_small, question, places):
    answer, run, _ = await ask_small(question=question, sure=0.9)
    assert len(answer.citations) == places
    assert ("nothing was found in Station 2" in run.warnings) == (places == 2)


async def test_the_highest_of_what_small_agents_find_is_found_by_comparing(ask_small):
    question = "Which station recorded the most rain?"
    answer, run, model = await ask_small(question=question, stations=2)
    lead = "Station 1: 11 millimetres is the largest of what was found in 2 of 2 documents. [1][2]"
    assert answer.text.startswith(lead)
    assert answer.short == "Station 1"
    assert answer.ground == "computed"
    assert {c.span.document_id for c in answer.citations} == {"s0000", "s0001"}
    assert len(model.calls) == 3  # as for a list
    answer, run, _ = await ask_small(question=question)  # nothing is known of the third one
    assert "the largest of what was found in 2 of 3 documents" in answer.text
    assert answer.short is None
    assert run.warnings == ("nothing was found in Station 2",)


async def test_of_what_small_agents_find_only_what_is_within_the_limit_is_listed(ask_small):
    question = "Which stations recorded more than 10 millimetres?"
    answer, *_ = await ask_small(question=question)
    lead = "More than 10 millimetres: Station 1 (of what was found in 2 of 3 documents). [1][2]"
    rest = "Station 1: 11 millimetres: “Station 1 recorded 11 millimetres of rain.” [2]"
    assert answer.text == f"{lead} {rest}"
    assert {evidence.span.document_id for evidence in answer.evidence} == {"s0000", "s0001"}
    answer, *_ = await ask_small(question=question.replace("10", "90"), stations=2)
    assert answer.text.startswith("More than 90 millimetres: none (of what was found in 2 of 2")
    assert (answer.found, answer.short) == (True, None)
    assert "Station 0: 10 millimetres" in answer.text


@pytest.mark.parametrize(("least", "short"), [(9, "2"), (10, "1"), (90, "0")])
async def test_how_many_are_within_the_limit_is_counted(ask_small, least, short):
    question = f"How many of these stations recorded more than {least} millimetres?"
    answer, *_ = await ask_small(question=question, stations=2)
    assert (answer.short, answer.ground) == (short, "computed")
    assert answer.text.startswith(f"{short} of 2: More than {least} millimetres: ")
    for options in ({"stations": 3}, {"stations": 3, "documents": 2}):  # not all are known
        answer, *_ = await ask_small(question=question, **options)
        assert answer.short is None
        assert answer.text.startswith(f"More than {least} millimetres: ")


async def test_figures_that_cannot_be_compared_are_listed_with_a_warning(ask_small):
    answer, run, _ = await ask_small(question="Which station recorded more than 10 inches?")
    assert answer.text.startswith("Station 0: 10 millimetres: ")
    assert len(answer.citations) == 2
    warning = "what was found in the documents cannot be compared: it is listed"
    assert warning in run.warnings
    answer, run, _ = await ask_small(question="List the rain of each station in 2019.")
    assert len(answer.citations) == 2
    assert warning not in run.warnings  # the year says of what time


async def test_what_small_agents_find_is_added_if_the_sum_is_asked_for(ask_small):
    answer, *_ = await ask_small(question="How much rain did the stations record altogether?")
    lead = "21 millimetres is the sum of what was found in 2 of 3 documents. [1][2]"
    assert answer.text.startswith(f"{lead} Station 0: 10 millimetres: ")
    assert (answer.short, answer.ground) == (None, "computed")
    question = "How much rain did the stations record altogether?"
    answer, *_ = await ask_small(question=question, stations=2)
    assert answer.short == "21 millimetres"


async def test_small_agents_can_search_in_turns(ask_small):
    *_, model = await ask_small(reading="together", stations=1)
    assert "sub_agent_todos" in model.calls[0].schema["properties"]
    assert "action" in model.calls[1].schema["properties"]
