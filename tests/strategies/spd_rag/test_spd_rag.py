import asyncio
import json
import re
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest

from colligate.core.events import Noted, Progressed, Pruned
from colligate.core.parameters import set_parameters
from colligate.documents import Document, Hit, Span
from colligate.documents.markdown import markdown_tree
from colligate.errors import ServerFailed, UsageError
from colligate.library import DocumentInfo
from colligate.library.in_memory import InMemorySources
from colligate.models import Role
from colligate.strategies.spd_rag import SPDRAG
from colligate.strategies.spd_rag.method import AgentEnded, Planned
from colligate.strategies.spd_rag.synthesis import Grouped, Synthesised
from colligate.testing import ScriptedModel
from support.runs import events

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
    asked = call.schema["properties"] if call.schema else {}
    if "sub_agent_todos" in asked:
        return "coordinator"
    if "action" in asked:
        return "agent"
    return "reader" if "short_answer" in asked else "synthesis"


def document_of(call) -> str:
    return re.search(r"<document>(.*)</document>", call.prompt)[1]


def plan(*tasks, directive="List every station."):
    todos = [{"task": task} for task in tasks or ("Note the rain in March.",)]
    return json.dumps({"sub_agent_todos": todos, "synthesis_directive": directive})


def search(query):
    return json.dumps({"reasoning": "It is missing.", "action": "search", "query": query})


def finalize(*lines, relevance=0.9):
    report = "\n".join(f"{n}. {line}" for n, line in enumerate(lines, 1))
    return json.dumps({"action": "finalize", "findings": report, "relevance": relevance})


NOT_THERE = finalize("Not found in this document.", relevance=0)


def joined(rows, **more):
    statements = [{"quotes": [{"passage": n, "quote": said}], "sentence": said} for n, said in rows]
    return json.dumps({"statements": statements, **more})


def gauges(call):
    """Models that do all that is wanted of them."""
    if who(call) == "coordinator":
        return plan()
    if who(call) == "synthesis":
        facts = dict.fromkeys(fact[0] for fact in RAIN.finditer(call.prompt))
        return "\n".join(f"{fact}: “{fact}”" for fact in facts)
    passages = shown(call.prompt)
    facts = [(number, fact[0]) for number, _, text in passages for fact in RAIN.finditer(text)]
    if who(call) == "agent":
        if not passages:
            return search("millimetres of rain recorded")
        return finalize(*(f"Found: {fact}: “{fact}”" for _, fact in facts))
    return joined(facts, short_answer="all of it", found=True)


def unless(title, what):
    """The same, but the agent of the document with this title gets an error or says this."""

    def say(call):
        return what if who(call) == "agent" and document_of(call) == title else gauges(call)

    return say


def by_role(model) -> Counter:
    return Counter(who(call) for call in model.calls)


def agent_calls(model):
    return [call for call in model.calls if who(call) == "agent"]


class ByWords:
    """An embedder: which station a text names decides its direction."""

    async def embed(self, texts, kind="passage"):
        rows = np.ones((len(texts), 8), dtype=np.float32)
        for row, text in zip(rows, texts, strict=True):
            row[int((re.search(r"Station (\d+)", text) or "00")[1]) % 8] += 2
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)


class Stations:
    """Sources of any number of documents, each made when it is asked for."""

    def __init__(self, count: int) -> None:
        self._infos = [
            DocumentInfo(f"s{n:04}", f"Station {n}", "", 60, 0, 1, "en") for n in range(count)
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
        (name,) = documents
        document = station(int(name[1:]))
        self.open -= 1
        return [Hit(document.passage(Span(name, 0, len(document))), 1.0)]


SPD = SPDRAG(mode="sparse")


@pytest.mark.parametrize("paper", [False, True])
async def test_the_calls_are_those_of_the_papers_algorithm(paper, make_run):
    """Coordinator; for each document a conversation; UPGMA levels; the reader at the last one."""
    queries: list[tuple] = []

    class Recorded(Stations):
        async def search(self, query, *, k, mode=None, documents=None):
            queries.append((query, k, mode, *documents))
            return await Stations.search(self, query, k=k, documents=documents)

    strategy = SPDRAG(concurrency=1, merge_tokens=250)
    if paper:
        strategy = set_parameters(SPDRAG, [*(f"{k}={v}" for k, v in SPDRAG.PAPER.items())])
        object.__setattr__(strategy, "concurrency", 1)
        object.__setattr__(strategy, "merge_tokens", 250)
    run, model = make_run(Recorded(4), gauges, embedder=ByWords())
    answer = await strategy.answer(QUESTION, run)
    levels = events(run, Grouped)
    merged = sum(len(level.groups) for level in levels[:-1])
    assert merged > 1
    assert [who(call) for call in model.calls] == [
        "coordinator",  # from q alone
        *["agent", "agent"] * 4,  # one search and the report, for each document
        *["synthesis"] * merged,  # every batch of every level
        "reader",
    ]
    mode = "dense" if paper else "hybrid"
    k = 5 if paper else 5000 // 150
    assert queries == [("millimetres of rain recorded", k, mode, f"s{n:04}") for n in range(4)]
    # The conversation grows: system, tasks, then the search and what it found.
    first, second = agent_calls(model)[:2]
    assert [m.role for m in second.messages] == ["system", "user", "assistant", "user"]
    assert list(second.messages[:2]) == list(first.messages)
    assert "1. Note the rain in March." in first.prompt
    # One and the same prompt at all levels; only the reader adds the form of its reply.
    prompts = [c.messages[0].content for c in model.calls if who(c) in ("synthesis", "reader")]
    assert all(prompt.startswith(prompts[0]) for prompt in prompts)
    assert {c.span.document_id for c in answer.citations} == {f"s{n:04}" for n in range(4)}


async def test_every_document_is_read_and_every_finding_reaches_the_answer(make_run):
    async with InMemorySources([station(n) for n in range(4)]) as sources:
        run, model = make_run(sources, gauges)
        answer = await SPD.answer(QUESTION, run)
    assert answer.found
    assert [c.quote for c in answer.citations] == [
        f"Station {n} recorded {n + 10} millimetres of rain." for n in range(4)
    ]
    assert by_role(model) == {"coordinator": 1, "agent": 8, "reader": 1}
    best = answer.evidence[0]
    assert (best.score, best.reason) == (0.9, "found by the agent of 'Station 0'")
    assert answer.short == "all of it"
    assert answer.warnings == ()
    (planned,) = events(run, Planned)
    assert (planned.tasks, planned.documents) == (("Note the rain in March.",), 4)
    assert [e.done for e in events(run, Progressed)] == [0, 1, 2, 3, 4]
    assert {(e.status, e.searches, e.turns) for e in events(run, AgentEnded)} == {("read", 1, 2)}
    assert all(e.sources[0].document_id == e.document for e in events(run, AgentEnded))


async def test_agents_are_the_worker_and_search_inside_their_document(make_run):
    async with InMemorySources([station(1), station(2)]) as sources:
        run, reader = make_run(sources, gauges)
        worker = ScriptedModel(gauges, name="cheap", capabilities=reader.capabilities)
        run.models = {**run.models, Role.WORKER: worker}
        await SPD.answer(QUESTION, run)
    assert by_role(worker) == {"agent": 4}
    assert by_role(reader) == {"coordinator": 1, "reader": 1}
    for call in agent_calls(worker):
        assert {title for _, title, _ in shown(call.prompt)} <= {document_of(call)}


WORDS = ("rain", "snow", "hail", "sleet", "drizzle", "fog", "mist", "dew")
LONG = "# Station 7\n\n" + "\n\n".join(
    f"## Part {n}\n\nStation {n} recorded {n + 10} millimetres of {word}. " + f"{word} fell. " * 60
    for n, word in enumerate(WORDS)
)
ONE = SPDRAG(mode="sparse", k=1)


@pytest.fixture
async def long():
    """One document of many passages."""
    made = Document("long", "Station 7", LONG, markdown_tree(LONG, "long"), language="en")
    async with InMemorySources([made]) as sources:
        yield sources


def agent_says(*replies):
    said = iter(replies)
    return lambda call: next(said) if who(call) == "agent" else gauges(call)


async def test_an_agent_that_never_ends_gets_five_searches_and_must_finalize(long, make_run):
    words = iter(WORDS)

    def say(call):
        if who(call) != "agent":
            return gauges(call)
        if "query" in call.schema["properties"]:
            return search(next(words))
        facts = dict.fromkeys(fact[0] for fact in RAIN.finditer(call.prompt))
        return finalize(*(f"Found: “{fact}”" for fact in facts))

    run, model = make_run(long, say)
    answer = await ONE.answer(QUESTION, run)
    calls = agent_calls(model)
    assert len(calls) == 6
    assert "No search is left" in calls[-1].messages[-1].content
    assert "No search is left" not in calls[-2].prompt
    assert len(shown(calls[-1].prompt)) == 5
    assert len(answer.citations) == 5


@pytest.mark.parametrize(
    ("replies", "told"),
    [
        ([finalize("Found: “made up”"), search("rain"), finalize("Found: x")], "Search the doc"),
        ([search("rain"), NOT_THERE, search("snow"), NOT_THERE], "at least twice"),
        ([search(" "), search("rain"), finalize("Found: x")], 'There was no "query"'),
        ([search("rain"), search("rain"), NOT_THERE], "no passage that you have not seen"),
    ],
    ids=["finalized unread", "not found after one search", "no query", "nothing new"],
)
async def test_what_an_agent_is_told_takes_a_turn(replies, told, long, make_run):
    run, model = make_run(long, agent_says(*replies))
    await ONE.answer(QUESTION, run)
    assert len(agent_calls(model)) == len(replies)
    assert told in agent_calls(model)[-1].prompt
    searches = sum("query" in json.loads(each) for each in replies)
    (ended,) = events(run, AgentEnded)
    assert (ended.turns, ended.searches) == (len(replies), searches - ("There" in told))


async def test_quotes_of_a_report_are_located_and_the_others_counted(long, make_run):
    report = finalize(
        "Found: ten: “Station 0 recorded 10 millimetres of rain.”",
        "Found: “Nine lakes were drained by a dragon in 1888.”",
        "Not found in this document.",
    )
    run, model = make_run(long, agent_says(search("rain"), search("snow"), report))
    await ONE.answer(QUESTION, run)
    (ended,) = events(run, AgentEnded)
    assert ended.dropped == 1
    said = ended.to_json()["findings"][0]["text"]
    assert said == "ten: “Station 0 recorded 10 millimetres of rain.”"
    (span,) = ended.sources
    assert LONG[span.start : span.end] == "Station 0 recorded 10 millimetres of rain."
    assert len(shown(model.calls[-1].prompt)) == 1


async def test_passages_that_do_not_fit_the_workers_window_are_left_out_and_said(long, make_run):
    run, reader = make_run(long, gauges)
    says = [search("rain snow hail"), finalize("Found: “Station 0 recorded 10”")]
    worker = ScriptedModel(says, "small", capabilities=reader.capabilities, context_tokens=1500)
    run.models = {**run.models, Role.WORKER: worker}
    small = SPDRAG(mode="sparse", agent_tokens=300, evidence_tokens=900, searches=1)
    await small.answer(QUESTION, run)
    assert 0 < len(shown(worker.calls[-1].prompt)) < 4
    assert [event.status for event in events(run, AgentEnded)] == ["read"]
    assert events(run, Pruned)
    assert any("windows were full" in warning for warning in run.warnings)


async def test_a_window_that_no_passage_fits_is_a_failure(long, make_run):
    run, reader = make_run(long, gauges)
    says = [search("rain")]
    worker = ScriptedModel(says, "small", capabilities=reader.capabilities, context_tokens=1000)
    run.models = {**run.models, Role.WORKER: worker}
    await SPDRAG(mode="sparse", agent_tokens=300).answer(QUESTION, run)
    assert any("not one passage fits the agent's window" in warning for warning in run.warnings)


async def test_one_agent_failing_sinks_no_other_and_is_said(make_run):
    failure = ServerFailed("the server failed", "503", "try again later")
    async with InMemorySources([station(n) for n in range(3)]) as sources:
        run, _ = make_run(sources, unless("Station 1", failure))
        answer = await SPD.answer(QUESTION, run)
    assert {c.span.document_id for c in answer.citations} == {"s0000", "s0002"}
    assert run.warnings == (
        "1 of 3 documents could not be read: 'Station 1': the server failed: 503; try again later",
    )


async def test_where_nothing_works_not_every_document_is_tried(make_run):
    failure = ServerFailed("the server failed", "503")
    run, model = make_run(Stations(300), lambda c: failure if who(c) == "agent" else gauges(c))
    answer = await SPDRAG(concurrency=4).answer(QUESTION, run)
    assert not answer.found
    assert by_role(model)["agent"] < 30
    assert any("300 documents could not be read" in warning for warning in run.warnings)


async def test_hundreds_of_reports_go_through_levels_and_keep_their_places(make_run):
    run, model = make_run(Stations(200), gauges, embedder=ByWords())
    answer = await SPDRAG(merge_tokens=1000).answer(QUESTION, run)
    levels = events(run, Grouped)
    assert len(levels) >= 2
    for one, other in pairwise(levels):
        assert sorted(i for group in one.groups for i in group) == list(range(len(one.tokens)))
        assert len(other.tokens) == len(one.groups) < len(one.tokens)
        for group in one.groups:
            assert len(group) == 1 or sum(one.tokens[i] for i in group) <= 1000
    assert len(levels[-1].groups) == 1
    assert by_role(model)["synthesis"] == sum(len(level.groups) for level in levels[:-1])
    # No document is lost on the way, nor is what it rests on.
    assert {c.span.document_id for c in answer.citations} == {f"s{n:04}" for n in range(200)}
    assert len(answer.evidence) == 200


async def test_a_forced_group_beyond_the_window_keeps_the_most_relevant_and_says_so(make_run):
    def say(call):
        reply = gauges(call)
        if who(call) == "agent" and shown(call.prompt):
            relevance = 0.9 if "Station 25" in call.prompt else 0.4
            return json.dumps({**json.loads(reply), "relevance": relevance})
        return reply

    run, model = make_run(Stations(60), say, context_tokens=9000, embedder=ByWords())
    answer = await SPDRAG(merge_tokens=60).answer(QUESTION, run)
    assert events(run, Grouped)[-1].forced
    assert events(run, Pruned)
    assert any("of 60 reports do not fit" in warning for warning in run.warnings)
    titles = [title for _, title, _ in shown(model.calls[-1].prompt)]
    assert 0 < len(titles) < 60
    assert titles[0] == "Station 25"
    assert answer.found


async def test_a_report_that_does_not_fit_costs_no_report_that_does(make_run):
    def say(call):
        reply = gauges(call)
        if who(call) == "agent" and "Station 1" in call.prompt and shown(call.prompt):
            said = json.loads(reply)
            report = said["findings"] + "\n2. Found: " + "much " * 20_000
            return json.dumps({**said, "findings": report, "relevance": 1.0})
        return reply

    run, model = make_run(Stations(4), say, context_tokens=9000, embedder=ByWords())
    await SPD.answer(QUESTION, run)
    assert events(run, Pruned)
    titles = {title for _, title, _ in shown(model.calls[-1].prompt)}
    assert titles == {"Station 0", "Station 2", "Station 3"}


async def test_a_synthesis_that_fails_loses_no_findings(make_run):
    run, _ = make_run(
        Stations(10),
        lambda c: ServerFailed("down") if who(c) == "synthesis" else gauges(c),
        embedder=ByWords(),
    )
    answer = await SPDRAG(merge_tokens=250).answer(QUESTION, run)
    assert len(answer.citations) == 10
    assert any(event.passed_on for event in events(run, Synthesised))
    assert any("a synthesis failed" in warning for warning in run.warnings)


async def test_a_budget_gives_a_clear_partial_result_with_the_synthesis_done(make_run):
    run, model = make_run(Stations(100), gauges, max_tokens=60_000)
    answer = await SPDRAG(concurrency=4, agent_tokens=400).answer(QUESTION, run)
    assert answer.found
    assert by_role(model)["reader"] == 1
    ended = Counter(event.status for event in events(run, AgentEnded))
    assert 0 < ended["unread"] < 100
    (warning,) = [each for each in run.warnings if "not read" in each]
    assert warning == (
        f"{ended['unread']} of 100 documents were not read: the token budget is spent"
    )
    assert run.meter.tokens <= 60_000
    # Once an agent was refused its first call, the others are not begun.
    assert by_role(model)["agent"] <= 2 * (ended["read"] + 4)


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
    again.store = run.store
    answer = await strategy.answer(QUESTION, again)
    assert answer.found
    assert by_role(second)["coordinator"] == 0
    assert events(again, Planned)[0].kept
    kept = {event.title: event for event in events(again, AgentEnded) if event.kept}
    assert done <= set(kept) < {f"Station {n}" for n in range(60)}
    assert all(asked[title] == 2 for title in kept)  # a search and the report
    assert all(event.findings[0].places for event in kept.values())
    said = [event.text for event in events(again, Noted)]
    assert f"{len(kept)} of 60 documents were read before the interruption" in said
    assert again.warnings == ()


@pytest.mark.parametrize(
    ("question", "name"),
    [(QUESTION, "scripted"), (QUESTION, "other"), ("How much snow?", "scripted")],
)
async def test_what_a_failure_left_unread_is_read_when_asked_again(question, name, make_run):
    run, _ = make_run(Stations(6), unless("Station 3", ServerFailed("down")))
    await SPD.answer(QUESTION, run)
    again, model = make_run(Stations(6), gauges, name=name)
    again.store = run.store
    await SPD.answer(question, again)
    asked = {document_of(call) for call in agent_calls(model)}
    same = (question, name) == (QUESTION, "scripted")
    assert asked == ({"Station 3"} if same else {f"Station {n}" for n in range(6)})


async def test_nothing_is_kept_of_a_run_in_which_the_worker_tells_its_window(make_run):
    def say(call):
        if who(call) == "agent":
            model.context_tokens = 8192  # as an endpoint does when it is first asked for odds
        return gauges(call)

    run, model = make_run(Stations(3), say)
    await SPD.answer(QUESTION, run)
    assert not any(run.store.values())


@pytest.mark.parametrize("most", [1, 3])
async def test_no_more_documents_are_under_way_than_allowed(most, make_run):
    sources = Stations(40)
    run, _ = make_run(sources, gauges)
    await SPDRAG(concurrency=most).answer(QUESTION, run)
    assert 1 <= sources.most_open <= most


async def test_too_many_calls_are_not_begun_unless_allowed(make_run):
    run, model = make_run(Stations(30), gauges)
    with pytest.raises(UsageError) as caught:
        await SPDRAG(most_calls=20).answer(QUESTION, run)
    assert str(caught.value) == (
        "an agent for each of 30 documents takes about 92, at most 182 model calls: "
        "most_calls is 20; --yes or the parameter most_calls=92 allows them, "
        "the parameter documents=N reads only the N best"
    )
    assert model.calls == []
    await SPDRAG(most_calls=92).answer(QUESTION, run)
    asked = []

    async def consent(estimate):
        asked.append(estimate)
        return True

    run.consent = consent
    assert (await SPDRAG(most_calls=20).answer(QUESTION, run)).found
    assert asked == ["an agent for each of 30 documents takes about 92, at most 182 model calls"]
