"""Retrievers: what a name stands for, and what a method's search finds by them."""

import json
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import ClassVar

import pytest

from colligate import Engine
from colligate.core.events import Retrieved
from colligate.errors import ServerFailed, UsageError
from colligate.library.in_memory import InMemorySources
from colligate.library.sources import SearchMode
from colligate.models import Capability, LabelOdds, Message
from colligate.retrievers import make_retriever
from colligate.settings import Settings
from colligate.strategies.duquad import SFS
from colligate.strategies.longrefiner import LongRefiner
from colligate.strategies.rdr2 import RDR2
from colligate.strategies.retrieve_read import RetrieveRead
from colligate.testing import ScriptedModel
from support.http_server import quoting
from support.runs import document, events
from support.web import Loopback

MILL = document(
    "mill",
    "# Mill\n\nThe mill grinds rye.\n\n## Wheels\n\nIt has two wheels of oak.\n\n"
    "## Owners\n\nAda Holm bought the mill in 1901.\n",
)
LAKE = document("lake", "# Lake\n\nCarp live in the lake.\n\n## Depth\n\nIt is nine metres deep.\n")
QUESTION = "Who bought the mill?"


def say(request):
    """A router that accepts the owners, or a chooser of their title."""
    for line in request.prompt.splitlines():
        number, _, text = line.strip().partition(": ")
        if number.isdigit() and text.startswith("Ada Holm"):
            return f"[ANSWER] {number}: {text}"
    return "['Owners']"


def places(hits):
    return [hit.passage.span for hit in hits]


@pytest.fixture
async def sources():
    async with InMemorySources([MILL, LAKE]) as opened:
        yield opened


@pytest.fixture
def run(make_run, sources):
    odds = lambda messages, labels, forced: LabelOdds({"Local": 1, "Global": 0}, 1.0)  # noqa: E731
    made, _ = make_run(sources, say, labels=odds)
    return made


@dataclass
class Counting:
    """The search itself, counted; it fails at the queries in `fails`, after a call."""

    name = "counting"
    asked: list[str] = field(default_factory=list)
    fails: tuple[str, ...] = ()
    chats: int = 0

    async def retrieve(self, query, run, *, k, documents=None):
        self.asked.append(query)
        for _ in range(self.chats):
            await run.chat([Message("user", query)], max_tokens=100)
        if query in self.fails:
            raise ServerFailed("the retriever fails", "503")
        return await run.search(query, k=k, documents=documents, mode=SearchMode.SPARSE)


def test_a_name_brings_its_parameters():
    assert make_retriever("dense") is SearchMode.DENSE
    assert make_retriever("longrefiner:budget=512") == LongRefiner(budget=512)
    assert make_retriever("rdr2:skipped=also,notes,k=2") == RDR2(skipped=("also", "notes"), k=2)
    assert make_retriever("sfs:beta=0, documents=5") == SFS(beta=0, documents=5)


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("longrefine", "did you mean 'longrefiner'"),
        ("nonsense-of-mine", "and http:URL"),
        ("sparse:k=3", "has no parameters"),
        ("sfs:delta=1", "has no parameter 'delta'"),
        ("longrefiner:budget=many", "cannot set budget"),
    ],
)
def test_a_wrong_name_is_explained(name, problem):
    with pytest.raises(UsageError, match=problem):
        make_retriever(name)


# The same passages as by hand


async def test_longrefiner_returns_what_refine_keeps(run):
    refiner = LongRefiner(budget=60, least_words=1, mode=SearchMode.SPARSE)
    by_hand = await refiner.refine(QUESTION, run)
    run.retriever = refiner
    hits = await run.search(QUESTION, k=1)
    assert sorted(places(hits)) == sorted(passage.span for passage in by_hand.passages)
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    inside = await run.search(QUESTION, k=1, documents=["lake"])
    assert {span.document_id for span in places(inside)} == {"lake"}


async def test_rdr2_returns_the_blocks_that_the_router_accepts(run):
    run.retriever = RDR2(mode=SearchMode.SPARSE)
    hits = await run.search(QUESTION, k=5)
    assert [hit.passage.text for hit in hits] == ["Ada Holm bought the mill in 1901."]
    assert await run.search(QUESTION, k=5, documents=["lake"]) == []


async def test_sfs_orders_a_search_by_its_signals(make_run, sources):
    likely = lambda before, _: [-1.0 if "oak" in before else -9.0]  # noqa: E731
    capabilities = (Capability.CHAT, Capability.STRUCTURED, Capability.LIKELIHOOD)
    run, _ = make_run(sources, say, likelihood=likely, capabilities=capabilities)
    found = await run.find("mill lake", k=20, mode=SearchMode.SPARSE)
    run.retriever = SFS(alpha=0, gamma=0, mode=SearchMode.SPARSE)
    hits = await run.search("mill lake", k=2)
    assert "It has two wheels of oak." in hits[0].passage.text
    assert set(places(hits)) <= set(places(found))
    assert len(hits) == 2


async def test_the_search_in_another_mode(run):
    run.retriever = SearchMode.SPARSE
    await run.search(QUESTION, k=2, mode=SearchMode.HYBRID)
    assert [event.how for event in events(run, Retrieved)] == ["sparse"]


async def test_equal_queries_are_asked_once(run):
    run.retriever = counting = Counting()
    first = await run.search(QUESTION, k=2)
    assert await run.search(QUESTION, k=2) == first
    await run.search(QUESTION, k=2, documents=["lake"])
    assert counting.asked == [QUESTION, QUESTION]


async def test_its_calls_are_metered_and_shown(run):
    run.retriever = Counting(chats=1)
    await run.search(QUESTION, k=2)
    assert run.meter.report().by_step["counting"]["calls"] == 1
    assert [event.how for event in events(run, Retrieved)] == ["sparse", "counting"]


async def test_a_failure_after_a_paid_call_leaves_the_search(run):
    run.retriever = Counting(fails=(QUESTION,))
    with pytest.raises(ServerFailed):
        await run.search(QUESTION, k=2, mode=SearchMode.SPARSE)
    run.retriever = Counting(fails=(QUESTION,), chats=1)
    hits = await run.search(QUESTION, k=2, mode=SearchMode.SPARSE)
    assert "Ada Holm bought" in hits[0].passage.text
    assert "counting found nothing" in run.warnings[0]


async def test_a_budget_keeps_room_for_the_answer(make_run, sources):
    read = lambda call: quoting(call) if "Question: " in call.prompt else "Hm."  # noqa: E731
    run, _ = make_run(sources, read, max_tokens=8000)
    run.retriever = Counting(chats=999)
    answer = await RetrieveRead(mode=SearchMode.SPARSE).answer("Who bought the mill in 1901", run)
    assert answer.found
    assert run.meter.tokens <= 8000
    assert any("the token budget" in each for each in answer.warnings + run.warnings)


async def test_a_strategy_that_does_not_search_says_so(tmp_path):
    async with Engine(
        model=ScriptedModel(quoting), library=tmp_path / "l", settings=Settings(), check="none"
    ) as engine:
        (tmp_path / "mill.md").write_text(MILL.text)
        asked = {"strategy": "full-context", "retriever": "sfs"}
        answer = await engine.ask(QUESTION, tmp_path / "mill.md", **asked)
    assert "full-context does not search: no retriever is used" in answer.warnings


class SearchR1(BaseHTTPRequestHandler):
    """Answers as the servers do; `asked` are the bodies."""

    asked: ClassVar[list[dict]] = []
    reply: ClassVar[object] = None

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.asked.append({"path": self.path, **body})
        texts = ['"Mill"\nAda Holm bought the mill in 1901.', '"Lake"\nCarp live in the lake.']
        passages = [{"id": str(n), "contents": text} for n, text in enumerate(texts)]
        reply: object = {"result": [[{"document": p, "score": 0.5} for p in passages]]}
        if self.path == "/search":  # FlashRAG's
            reply = [passages, [0.9, 0.4]]
        sent = json.dumps(reply if self.reply is None else self.reply).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(sent)))
        self.end_headers()
        self.wfile.write(sent)


@pytest.fixture
def server():
    SearchR1.asked, SearchR1.reply = [], None
    loopback = Loopback(SearchR1)
    yield loopback
    loopback.close()


async def ask(tmp_path, retriever, paths=(), **options):
    model = ScriptedModel(quoting)
    named = {"library": tmp_path / "library", "settings": Settings(), "check": "none"}
    async with Engine(model=model, retriever=retriever, **named) as engine:
        question = "Who bought the mill in 1901"
        return await engine.ask(question, paths, strategy="retrieve-read", **options)


@pytest.mark.parametrize("path", ["", "/retrieve", "/search"])
async def test_passages_of_a_server_are_cited(tmp_path, server, path):
    answer = await ask(tmp_path, f"http:{server.address}{path}")
    assert answer.found
    assert answer.citations[0].quote == "Ada Holm bought the mill in 1901."
    assert answer.citations[0].title == "Mill"
    assert answer.citations[0].source == f"{server.address}{path}"
    assert answer.usage.retrieval_rounds == 1
    (asked,) = SearchR1.asked
    assert asked["path"] == (path or "/retrieve")
    assert (asked["queries"], asked["topk"]) == ([asked["query"]], asked["top_n"])


async def test_documents_beside_a_server_are_refused(tmp_path, server):
    (tmp_path / "mill.md").write_text(MILL.text)
    with pytest.raises(UsageError, match="a corpus of its own"):
        await ask(tmp_path, f"http:{server.address}", [tmp_path / "mill.md"])


@pytest.mark.parametrize("reply", [{"detail": "no"}, [[1], [2]], {"result": []}, "words"])
async def test_a_reply_without_passages_is_an_error(tmp_path, server, reply):
    SearchR1.reply = reply
    with pytest.raises(Exception, match="it has no passages") as error:
        await ask(tmp_path, f"http:{server.address}")
    assert server.address in str(error.value)
