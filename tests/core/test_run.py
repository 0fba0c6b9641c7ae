"""What a run meters and what it refuses to spend, whatever comes of the calls."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

import numpy as np
import pytest
from pydantic import BaseModel

from colligate.core.events import Located, Writing
from colligate.core.run import Run, show_ranked
from colligate.documents.languages import guess_languages
from colligate.documents.reading import read_file
from colligate.errors import BudgetExceeded, ContextTooSmall, RateLimited, ServerFailed
from colligate.library.in_memory import InMemorySources
from colligate.library.sources import SearchMode
from colligate.models import Capability, Completion, Message, Role, Usage
from colligate.models.metering import Meter
from colligate.testing import ScriptedModel
from support.embedders import WordEmbedder
from support.runs import NOTHING, document, events

ASK = [Message("user", "Which city?")]


class City(BaseModel):
    name: str


def reply(text: str) -> Completion:
    return Completion(text, Usage(100, 10), "scripted")


async def test_a_copy_of_a_document_takes_no_second_place(make_run):
    texts = {"bank": "# Bank\n\nThe bank is blue.", "copy": "# Bank\n\nThe  bank is blue."}
    texts["other"] = "# Bank\n\nThe bank is red."
    async with InMemorySources([document(*each) for each in texts.items()]) as sources:
        run, _ = make_run(sources)
        hits = await run.search("blue bank", k=5, mode="sparse")
    found = [" ".join(hit.passage.text.split()) for hit in hits]
    assert sum("blue" in text for text in found) == 1
    assert sum("red" in text for text in found) == 1


async def test_documents_of_one_title_are_told_apart_by_their_folders(make_run, tmp_path):
    documents = []
    for name, fee in (("acme", 900), ("globex", 950), ("other", 80)):
        file = tmp_path / name / "signed" / "agreement.md"
        file.parent.mkdir(parents=True)
        title = "Service agreement" if name != "other" else "Other agreement"
        file.write_text(f"# {title}\n\nThe fee is {fee} euros.\n", "utf-8")
        documents += read_file(file).documents
    embedder = WordEmbedder()
    async with InMemorySources(documents, embedder) as sources:
        run, _ = make_run(sources)
        infos = await run.infos()
        hits = await run.search("fee euros", k=3)
        read = [await run.document(each.id) for each in documents]
    titles = ["Service agreement (acme)", "Service agreement (globex)", "Other agreement"]
    assert [info.full_title for info in infos] == titles
    assert [each.passage(each.span(0, 9)).full_title for each in read] == titles
    assert {hit.passage.full_title for hit in hits} == set(titles)
    # A vector does not change because another document is added later.
    assert "acme" not in "".join(embedder.passages)


async def test_the_first_search_of_all_documents_alone_shows_what_it_located(make_run):
    texts = {"a": "# Flat\n\nDogs sleep.", "b": "# Yard\n\nDogs run."}
    for names, shown in ((None, [["Yard"]]), (["a"], [])):
        run, _ = make_run(InMemorySources([document(*each) for each in texts.items()]))
        for query in ("run", "sleep"):
            await run.search(query, k=1, mode=SearchMode.SPARSE, documents=names)
        located = events(run, Located)
        assert [[each.title for each in event.passages] for event in located] == shown


PAPER = """# Ovens

Bread rises in an oven of clay.

## 7. References

Otto Lind. Ovens of clay, and bread in ovens. Dorne 1904.

## Acknowledgements

Ada Mercer lent an oven.
"""


@pytest.mark.parametrize(
    ("question", "last"),
    [
        ("What bread rises in ovens of clay?", "Dorne 1904."),
        ("Who is cited on bread in ovens of clay?", "an oven."),
    ],
)
async def test_references_come_last_unless_the_question_asks_for_them(make_run, question, last):
    async with InMemorySources([document("paper", PAPER)]) as sources:
        run, _ = make_run(sources)
        hits = await run.search(question, k=3, mode=SearchMode.SPARSE)
    assert [len(hits), hits[-1].passage.text[-len(last) :]] == [3, last]
    assert sorted((hit.score for hit in hits), reverse=True) == [hit.score for hit in hits]


@pytest.mark.parametrize(
    "limits", [{}, {"context_tokens": 80}, {"max_tokens": 190}, {"max_tokens": 185}]
)
async def test_after_a_cut_reply_the_next_may_be_twice_as_long_within_the_limits(make_run, limits):
    cut = Completion('{"na', finish_reason="length", usage=Usage(90, 20))
    run, model = make_run(None, [cut, reply('{"name": "Paris"}')], **limits)
    await run.structured(ASK, City, max_tokens=20)
    first, second = model.calls
    free = min([*limits.values(), 1000]) - 110 * ("max_tokens" in limits)
    assert first.max_tokens == 20
    assert second.max_tokens == min(40, free - await model.count_prompt(second.messages))


async def test_room_counts_the_schema_where_it_is_in_the_prompt(make_run):
    rooms = []
    for capabilities in ([Capability.STRUCTURED], []):
        options = {"capabilities": capabilities, "context_tokens": 500}
        run, model = make_run(None, ['{"name": "Paris"}'] * 2, **options)
        assert await run.room(Role.READER, ASK, 20) == 500 - 7 - 20
        room = await run.room(Role.READER, ASK, 20, schema=City)
        await run.structured(ASK, City, max_tokens=20 + room)  # all of it, and
        with pytest.raises(ContextTooSmall):  # not one more
            await run.structured(ASK, City, max_tokens=20 + room + 1)
        assert len(model.calls) == 1
        rooms.append(room)
    assert rooms[0] == 473 > rooms[1]


async def test_what_a_model_writes_is_counted_where_somebody_watches(make_run, monkeypatch):
    monkeypatch.setattr("colligate.core.run._SECONDS_BETWEEN_COUNTS", 0.0)
    counted = []
    for live in (False, True):
        run, _ = make_run(None, ["Paris, by the river"])
        run.live = live
        reply = await run.chat(ASK, max_tokens=20)
        assert reply.text == "Paris, by the river"
        written = events(run, Writing)
        counted.append([event.tokens for event in written])
        assert all((each.role, each.model) == (Role.READER, "scripted") for each in written)
    assert counted == [[], [2, 3, 4, 5]]
    monkeypatch.undo()  # usually not at each piece
    run, _ = make_run(None, ["Paris, by the river"])
    run.live = True
    await run.chat(ASK, max_tokens=20)
    assert not events(run, Writing)


class Gate:
    """Replies when opened, and counts how many calls were under way at once."""

    def __init__(self, model: Any) -> None:
        self.now = self.most = 0
        self._chat = model.chat
        model.chat = self

    async def __call__(self, messages: Any, **options: Any) -> Completion:
        self.now += 1
        self.most = max(self.most, self.now)
        for _ in range(5):
            await asyncio.sleep(0)
        self.now -= 1
        return await self._chat(messages, **options)


@pytest.mark.parametrize(("replied", "answered"), [(3, 6), (93, 2)])
async def test_calls_side_by_side_do_not_spend_the_same_tokens(make_run, replied, answered):
    # Each may take 7 + 93 tokens, so that two at a time are within 250.
    run, model = make_run(None, lambda call: Completion("Paris", Usage(7, replied)), max_tokens=250)
    gate = Gate(model)
    calls = [run.chat(ASK, max_tokens=93) for _ in range(6)]
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    kinds = [type(outcome) for outcome in outcomes]
    assert kinds == [Completion] * answered + [BudgetExceeded] * (6 - answered)
    assert run.meter.tokens == answered * (7 + replied)
    assert gate.most == 2


async def test_a_call_that_failed_or_was_given_up_leaves_its_tokens_to_others(make_run):
    run, _ = make_run(None, [RateLimited("later"), reply("Paris")], max_tokens=120)
    failing = asyncio.create_task(run.chat(ASK, max_tokens=100))
    waiting = asyncio.create_task(run.chat(ASK, max_tokens=100))
    with pytest.raises(RateLimited):
        await failing
    assert (await waiting).text == "Paris"


class Adaptable(ScriptedModel):
    """A model that takes adapters; what it says is the adapter's name."""

    def __init__(self, name: str = "base") -> None:
        super().__init__(lambda call: name, name=name, capabilities=tuple(Capability))

    async def with_adapter(self, adapter: str) -> Adaptable:
        return Adaptable(f"{self.name}+{adapter}")


async def test_an_adapter_is_on_one_roles_model_and_the_rest_is_shared():
    run = Run(InMemorySources([]), {Role.READER: Adaptable()}, Meter(), max_tokens=1000)
    router = await run.with_adapter(Role.WORKER, "router")
    messages = [Message("user", "Who?")]
    said = [
        (await asked.chat(messages, role=role, max_tokens=5)).text
        for asked, role in ((run, Role.WORKER), (router, Role.WORKER), (router, Role.READER))
    ]
    assert said == ["base", "base+router", "base"]
    assert await run.with_adapter(Role.WORKER, None) is run
    assert run.meter.report().calls == 3
    assert len(run.trace.events) == len(router.trace.events) == 6
    assert router.tokens is run.tokens


class Broken:
    """An embedder and a reranker whose server is down."""

    name = "broken"
    dimension = 8

    async def score(self, query, texts):
        raise ServerFailed("the reranker does not answer")

    async def embed(self, texts, kind="passage"):
        if kind == "query":
            raise ServerFailed("the embedder does not answer")
        return np.eye(len(texts), 8, dtype=np.float32)


@pytest.mark.parametrize("paid", [False, True])
async def test_a_search_without_its_embedder_goes_by_words_once_a_call_was_paid_for(make_run, paid):
    made = document("d", "# A\n\nThe kiln is cold.\n\n# B\n\nThe oven is hot.\n")
    async with InMemorySources([made], embedder=Broken()) as sources:
        run, _ = make_run(sources, [reply("Where is the oven?")])
        if not paid:
            with pytest.raises(ServerFailed):
                await run.search("oven", k=1)
            return
        await run.chat(ASK, max_tokens=10)
        hits = await run.search("oven", k=1)
    assert [hit.passage.text.split()[-1] for hit in hits] == ["hot."]
    assert "by words alone: the embedder does not answer" in run.warnings[0]


@pytest.mark.parametrize("paid", [False, True])
async def test_a_reranker_that_fails_leaves_the_order_of_the_search(make_run, paid):
    made = document("d", "# A\n\nThe kiln is cold.\n\n# B\n\nThe oven is hot.\n")
    async with InMemorySources([made]) as sources:
        run, _ = make_run(sources, [reply("Where is the oven?")], reranker=Broken())
        if not paid:
            with pytest.raises(ServerFailed):
                await run.search("oven", k=1, pool=2, mode=SearchMode.SPARSE)
            return
        await run.chat(ASK, max_tokens=10)
        hits = await run.search("oven", k=1, pool=2, mode=SearchMode.SPARSE)
    assert [hit.passage.text.split()[-1] for hit in hits] == ["hot."]
    assert "the order of the search: the reranker does not answer" in run.warnings[0]


@pytest.mark.parametrize(
    ("question", "first"),
    [
        ("What is the meal allowance?", "52"),
        ("What was the meal allowance in 2023?", "41"),
        ("What is the meal allowance in Tarn?", "41"),  # of which the newer one says nothing
    ],
)
async def test_of_versions_the_newest_comes_first(make_run, question, first):
    made = [
        dataclasses.replace(
            document(f"rules-{year}", f"# Rules\n\nThe meal allowance is {fee}."),
            metadata={"date": f"{year}-02-01"},
        )
        for year, fee in ((2023, "41 euros, in Tarn too"), (2025, "52 euros, all places"))
    ]
    async with InMemorySources(made) as sources:
        run, _ = make_run(sources)
        hits = await run.search(question, k=2, mode="sparse")
    assert first in hits[0].passage.text
    assert hits[0].score >= hits[1].score


@pytest.mark.parametrize("fails", [False, True])
async def test_a_foreign_question_is_searched_and_read_in_the_documents_language(make_run, fails):
    asked = "Bis zu welcher Temperatur fressen die Karpfen im Teich?"

    def say(call):
        if "You translate" not in call.prompt:
            return NOTHING
        if fails:
            raise ServerFailed("it is down")
        return "Up to which temperature do carp feed?"

    pond = document("pond", "# Pond\n\nCarp feed in water of up to 35 degrees.")
    async with InMemorySources([pond]) as sources:
        run, model = make_run(sources, say)
        await run.find_foreign(guess_languages(asked))
        hits = await run.search(asked, k=3, mode="sparse")
        answer = await run.read(asked, show_ranked(hits))
    assert run.foreign == "de"
    assert answer.question == asked
    if fails:
        assert not hits
        assert any("not translated into English" in warning for warning in run.warnings)
    else:
        assert [hit.passage.document_id for hit in hits] == ["pond"]
        assert len(model.calls) == 2
        assert "Question: Up to which temperature do carp feed?" in model.calls[1].prompt
        assert f"asked in German: {asked} Answer in German." in model.calls[1].prompt


async def test_a_question_in_the_language_of_a_document_is_not_translated(make_run):
    async with InMemorySources([document("pond", "# Pond\n\nCarp feed.")]) as sources:
        run, model = make_run(sources)
        await run.find_foreign(guess_languages("When do carp feed?"))
        await run.search("When do carp feed?", k=3, mode="sparse")
    assert (run.foreign, model.calls) == ("", [])
