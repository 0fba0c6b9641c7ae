from dataclasses import fields, replace
from functools import partial

import pytest

from colligate.core.answer import NOT_FOUND
from colligate.core.events import Asked, Retrieved
from colligate.core.parameters import set_parameters
from colligate.core.run import Run
from colligate.documents import Span
from colligate.documents.tokens import estimate_tokens
from colligate.lab.bench.outcome import read_events
from colligate.library.in_memory import InMemorySources
from colligate.models import Capability, Role
from colligate.models.metering import Meter
from colligate.readers.plain import PlainReader
from colligate.readers.quoting import QuotingReader
from colligate.strategies.dualrag import DualRAG, Knowledge
from colligate.strategies.dualrag.knowledge import Fragment, Stop
from colligate.strategies.dualrag.method import (
    Gathered,
    Identified,
    Outlined,
    Reasoned,
    Stopped,
    Summarised,
)
from colligate.strategies.dualrag.prompts import reasoner_messages
from colligate.testing import ScriptedModel
from support.films import FACTS, QUESTION, TEXTS, World, facts_in, kind, outline_in
from support.prompts import passages_in
from support.runs import document, events

BOATS = "# Boats\n\nBoats are ships. A harbour is full of boats.\n"


@pytest.fixture
def sources():
    return InMemorySources([document(*each) for each in {**TEXTS, "boats": BOATS}.items()])


def dualrag(**own) -> DualRAG:
    return DualRAG(**({"mode": "sparse", "k": 2} | own))


def paper(**own) -> DualRAG:
    written = set_parameters(DualRAG, [f"{name}={value}" for name, value in DualRAG.PAPER.items()])
    return replace(written, **({"mode": "sparse", "k": 2} | own))


@pytest.fixture
async def learn(sources, make_run):
    """`learn(world, ...)` runs the rounds; options are for the strategy or for `make_run`."""

    async def learn(world=None, *, step="learn", **options):
        own = {f.name: options.pop(f.name) for f in fields(DualRAG) if f.name in options}
        run, model = make_run(sources, world or World(), **options)
        return await getattr(dualrag(**own), step)(QUESTION, run), run, model

    async with sources:
        yield learn


@pytest.fixture
def ask(learn):
    """`ask(world, ...)` answers the question."""
    return partial(learn, step="answer")


def stopped(run) -> Stopped:
    (event,) = events(run, Stopped)
    return event


def kinds(model) -> list[str]:
    return [kind(call) for call in model.calls]


ROUND = ["Reasoning", "Entities", "Summary"]
WRITTEN = ["Reasoning", "Entities", "text"]
QUERIES = ["Who was the director of Silver Harbour?", "Where was Ada Mercer born?"]
QUERIES += ["In which country is Lund?"]
ENOUGH = World(Reasoning={"thought": "It is Sweden.", "need_retrieve": False})  # f_1 = 0


@pytest.mark.parametrize(
    ("own", "world", "calls", "stop"),
    [
        ({}, World(), [*ROUND * 3, "Reasoning", "QuotedReply"], Stopped(3, Stop.ENOUGH)),
        ({"rounds": 2}, World(), [*ROUND * 2, "QuotedReply"], Stopped(2, Stop.ROUNDS)),
        ({"rounds": 0}, World(), ["QuotedReply"], Stopped(0, Stop.ROUNDS)),
        ({}, ENOUGH, ["Reasoning", "QuotedReply"], Stopped(0, Stop.ENOUGH)),
    ],
)
async def test_the_default_is_the_papers_loop_and_verifies_statements(ask, own, world, calls, stop):
    answer, run, model = await ask(world, **own)
    assert kinds(model) == calls
    assert stopped(run) == stop
    looked_up = QUERIES[: stop.rounds] or [QUESTION]  # where nothing is missed, the question itself
    assert [event.query for event in events(run, Retrieved)] == looked_up
    assert answer.found


@pytest.mark.parametrize(
    ("own", "world", "calls", "rounds"),
    [
        ({}, World(), [*WRITTEN * 3, "Reasoning", "text"], 3),
        ({"rounds": 2}, World(), [*WRITTEN * 2, "text"], 2),
        ({"rounds": 0}, World(), ["text"], 0),
        ({}, ENOUGH, ["Reasoning", "text"], 0),
    ],
)
async def test_paper_reads_outline_and_thoughts_alone(sources, make_run, own, world, calls, rounds):
    async with sources:
        run, model = make_run(sources, world)
        run.reader = PlainReader()
        answer = await paper(**own).answer(QUESTION, run)
    assert kinds(model) == calls
    assert [event.query for event in events(run, Retrieved)] == QUERIES[:rounds]
    assert answer.short == "Sweden"
    shown = passages_in(model.calls[-1].prompt).values()
    assert list(dict.fromkeys(shown)) == list(FACTS.values())[:rounds]
    thought = "It is Sweden." if world is ENOUGH else "Lund is in Sweden."
    assert (thought in model.calls[-1].prompt) == (calls[-2:-1] == ["Reasoning"])


async def test_free_summaries_are_cited_where_their_words_stand_in_a_document(sources, make_run):
    def reader(call):
        numbered = passages_in(call.prompt)
        rows = [
            {"quotes": [{"passage": n, "quote": text}], "sentence": text}
            for n, text in numbered.items()
        ]
        return {"statements": rows, "short_answer": "Sweden", "found": True}

    async with sources:
        run, model = make_run(sources, World(QuotedReply=reader))
        answer = await paper().answer(QUESTION, run)
    assert answer.found
    assert [c.quote for c in answer.citations] == list(FACTS)[1:]  # the first is in other words
    assert "The director of Silver Harbour was Ada Mercer." in model.calls[-1].prompt


async def test_the_reader_sees_the_outline_and_only_the_passages_behind_it(ask):
    answer, run, model = await ask()
    prompt = model.calls[-1].prompt
    assert "#### Ada Mercer\n\nAda Mercer was born in Lund." in outline_in(prompt)
    assert "Missing: In which country is Lund?" in prompt
    assert "4. Lund is in Sweden.\n</thoughts>" in prompt
    reasoning = [call.prompt for call in model.calls if kind(call) == "Reasoning"]
    assert f"1. Missing: {QUERIES[0]}\n</thoughts>" in reasoning[1]
    assert [e.span.document_id for e in answer.evidence] == ["film", "mercer", "lund"]
    assert "It has a cathedral." in prompt
    assert "“Silver Harbour”" in answer.evidence[0].reason
    first = events(run, Outlined)[0].to_json()["entities"][0]  # as the page reads it
    assert first["name"] == "Silver Harbour"
    assert first["fragments"][0].keys() == {"text", "spans", "located"}


@pytest.mark.parametrize("summary", [{"statements": []}, "hm, hard to say", {"statements": 3}])
async def test_an_empty_outline_is_a_refusal(ask, summary):
    answer, run, model = await ask(World(Summary=summary))
    assert (answer.found, answer.text) == (False, NOT_FOUND)
    assert any("the outline is empty" in warning for warning in run.warnings)
    assert "QuotedReply" not in kinds(model)


class Adaptable(ScriptedModel):
    """Takes adapters; each of its forms says the same under another name."""

    async def with_adapter(self, adapter):
        return Adaptable(World(), name=f"{self.name}+{adapter}", capabilities=list(Capability))


async def test_each_step_is_asked_under_its_own_adapter(sources):
    base = Adaptable(World(), name="base", capabilities=[*Capability])
    steps = {f"{step}_adapter": step for step in ("reasoner", "identifier", "summarizer")}
    async with sources:
        run = Run(sources, {Role.READER: base}, Meter(), reader=QuotingReader())
        answer = await dualrag(**steps).answer(QUESTION, run)
    assert answer.short == "Sweden"
    asked = [(e.model, e.messages[0].content[:16]) for e in events(run, Asked)]
    assert [model for model, _ in asked] == [
        *["base+reasoner", "base+identifier", "base+summarizer"] * 3,
        "base+reasoner",
        "base",  # who answers was not trained
    ]


def entities(*pairs):
    return {"entities": [{"entity": name, "keywords": [words]} for name, words in pairs]}


TWO = entities(("Ada Mercer", "Ada Mercer born"), ("Lund", "Lund town"), ("Ada Mercer", "boats"))


async def test_a_summary_that_cannot_be_read_leaves_the_others(learn):
    def summary(call):
        return "hm" if "<entity>Lund" in call.prompt else {"statements": facts_in(call.prompt)}

    knowledge, run, _ = await learn(World(Entities=TWO, Summary=summary), rounds=1)
    assert list(knowledge.entities) == ["Ada Mercer"]
    readable = {event.entity: event.readable for event in events(run, Summarised)}
    assert readable == {"Ada Mercer": True, "Lund": False}
    assert any("Lund" in warning for warning in run.warnings)


class Reranker:
    """Scores a passage by how often a word stands in it, less one."""

    name = "counting"

    def __init__(self, word):
        self.word, self.queries = word, []

    async def score(self, query, texts):
        self.queries.append(query)
        return [text.count(self.word) - 1.0 for text in texts]


async def test_passages_are_reranked_for_the_entity(learn):
    reranker = Reranker("boats")
    _, run, _ = await learn(World(Entities=TWO), reranker=reranker, rounds=1)
    assert set(reranker.queries) == {"Ada Mercer", "Lund"}
    gathered = events(run, Gathered)[0]
    assert gathered.scores == tuple(sorted(gathered.scores, reverse=True))
    assert gathered.how == "reranked for “Ada Mercer”"
    reranker = Reranker("boats")
    await learn(World(Entities={"entities": []}), reranker=reranker, rounds=1)
    assert reranker.queries == [f"Missing: {QUERIES[0]}"]


async def test_without_a_reranker_the_rankings_of_the_queries_are_joined(learn):
    both = {"entities": [{"entity": "ships", "keywords": ["cathedral ships", "director ships"]}]}
    _, run, _ = await learn(World(Entities=both), rounds=1, k=4)
    (gathered,) = events(run, Gathered)
    # Both searches are under way at once: either may end first.
    found = {e.query: {s.document_id for s in e.spans} for e in events(run, Retrieved)}
    assert found == {"cathedral ships": {"boats", "lund"}, "director ships": {"boats", "film"}}
    assert gathered.spans[0].document_id == "boats"
    assert {s.document_id for s in gathered.spans} == {"boats", "lund", "film"}
    assert gathered.how == "reciprocal rank fusion"


async def test_without_a_reasoner_single_sentences_go_on_until_the_marker(ask):
    answer, run, model = await ask(no_reasoner=True)
    assert answer.found
    assert "Reasoning" not in kinds(model)
    thoughts = [event.thought for event in events(run, Reasoned)]
    assert thoughts == [*QUERIES, "So the answer is Sweden."]
    assert stopped(run).reason is Stop.ENOUGH


async def test_without_entities_the_thought_is_the_query_and_titles_are_the_entities(learn):
    knowledge, run, model = await learn(no_entities=True)
    assert "Entities" not in kinds(model)
    assert events(run, Identified)[0].queries == ((f"Missing: {QUERIES[0]}",),)
    assert {"Silver Harbour", "Ada Mercer", "Lund"} <= set(knowledge.entities)


async def test_with_ei2_the_model_writes_the_one_query(learn):
    knowledge, run, model = await learn(ei2=True)
    assert "Entities" not in kinds(model)
    assert events(run, Identified)[0].queries == ((QUERIES[0],),)
    prompts = [call.prompt for call in model.calls if kind(call) == "Query"]
    assert not any("<outline>" in prompt for prompt in prompts)
    assert {*knowledge.entities} == {knowledge.question}
    _, run, model = await learn(World(Query="prose"), ei2=True, rounds=1)
    (event,) = events(run, Identified)
    assert not event.readable
    assert event.queries[0][0].startswith("Missing")


async def test_without_an_outline_passages_are_read_raw_under_one_heading(ask):
    answer, _, model = await ask(no_outline=True)
    assert "Summary" not in kinds(model)
    outline = outline_in([call for call in model.calls if kind(call) == "Reasoning"][1].prompt)
    assert "Its director was Ada Mercer." in outline
    assert "Silver Harbour" in outline
    assert "<outline>" not in model.calls[-1].prompt
    assert sorted(c.quote for c in answer.citations) == sorted(FACTS)


async def test_a_flat_outline_has_the_summaries_without_their_entities(ask):
    answer, _, model = await ask(flat_outline=True)
    assert answer.found
    for call in model.calls:
        assert "####" not in call.prompt
        if kind(call) == "Entities":
            assert "(none yet)" in call.prompt


async def test_an_outline_too_long_for_the_window_keeps_its_newest_parts(sources, make_run):
    async with sources:
        run, _ = make_run(sources, World(), context_tokens=3050)
        knowledge = Knowledge(QUESTION)
        long = "Sentence {} is a rather long one about nothing."
        fragments = [Fragment(long.format(n), (Span("x", n, n + 1),)) for n in range(300)]
        knowledge.merge("X", fragments, [])
        shown = await knowledge.render_outline(
            run, lambda text: reasoner_messages(QUESTION, text, []), 400
        )
    assert "Sentence 299" in shown
    assert "Sentence 0 " not in shown
    assert estimate_tokens(shown) > 1000
    assert any("oldest" in warning for warning in run.warnings)


async def test_queries_that_find_nothing_new_are_counted(learn):
    named = ("Ada Mercer", "Ada Mercer born"), ("Mercer", "Mercer Ada born")
    twice = entities(*named, ("Lund", "Lund cathedral"))
    for own, queries in (({}, 3), ({"no_entities": True}, 1)):
        _, run, _ = await learn(World(Entities=twice), rounds=1, **own)
        counts = read_events(event for _, event in run.trace.events)["counts"]
        assert counts["queries"] == queries
        assert counts["redundant_queries"] == (queries == 3)
    thoughts = iter("abc")
    world = World(
        Reasoning=lambda call: {"thought": next(thoughts), "need_retrieve": True}, Entities=twice
    )
    _, run, _ = await learn(world, rounds=2)
    assert [e.redundant for e in events(run, Gathered)] == [0, 1, 0, 1, 1, 1]
