"""Which model is asked what: roles, shared models, needs, keys."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

from colligate import Engine, ask
from colligate.core.answer import Answer
from colligate.core.events import Noted, Trace
from colligate.core.run import Run
from colligate.core.strategy import Needs, check_needs
from colligate.errors import EndpointUnreachable, MissingCapability
from colligate.models import Capability, Message, Role
from colligate.session import Session
from colligate.settings import Settings
from colligate.testing import ScriptedModel
from support.embedders import WordEmbedder

CHAT, STRUCTURED = Capability.CHAT, Capability.STRUCTURED
LIKELIHOOD, LABELS = Capability.LIKELIHOOD, Capability.LABELS
ATTENTION, ADAPTERS = Capability.ATTENTION, Capability.ADAPTERS
READER, WORKER, SCORER, JUDGE = Role.READER, Role.WORKER, Role.SCORER, Role.JUDGE


BY_HEART = Needs(searches=False, reads=False)
SEARCHING = Needs()


@dataclass(frozen=True)
class Roll:
    """Asks the model of each role once."""

    name: ClassVar[str] = "roll"
    needs: Needs = BY_HEART

    async def answer(self, question: str, run: Run) -> Answer:
        replies = [
            await run.chat([Message("user", f"I ask the {role}")], role=role, max_tokens=9)
            for role in Role
        ]
        return Answer(question, "roll", " ".join(reply.text for reply in replies), found=True)


@dataclass(frozen=True)
class Search(Roll):
    """Searches before it asks, and remembers its rerankers."""

    needs: Needs = SEARCHING
    rerankers: ClassVar[list[Any]] = []

    async def answer(self, question: str, run: Run) -> Answer:
        self.rerankers.append(run.reranker)
        await run.search(question, k=1, pool=2)
        return await super().answer(question, run)


pytestmark = pytest.mark.usefixtures("here")


@pytest.fixture
def served(openai_server: Any) -> Any:
    """A server whose models say their names."""
    openai_server.answer = lambda body: body["model"]
    return openai_server


def chats(server: Any) -> dict[str, str]:
    """Model -> what it was asked."""
    asked = [r for r in server.requests if r["path"] == "/chat/completions"]
    return {r["model"]: r["messages"][-1]["content"] for r in asked}


def test_each_role_reaches_its_own_model(served, here, monkeypatch):
    (here / "colligate.toml").write_text(
        f'[models]\nreader = "openai:file-reader@{served.url}"\n'
        f'worker = "openai:file-worker@{served.url}"\njudge = "openai:file-judge@{served.url}"\n'
    )
    monkeypatch.setenv("COLLIGATE_JUDGE", f"openai:env-judge@{served.url}")
    answer = ask("?", strategy=Roll(), model=f"openai:given-reader@{served.url}")
    assert chats(served) == {
        "given-reader": "I ask the scorer",  # it fills the role that has no model of its own
        "file-worker": "I ask the worker",
        "env-judge": "I ask the judge",
    }
    assert answer.text == "given-reader file-worker given-reader env-judge"
    assert answer.model == f"openai:given-reader@{served.url}"


async def test_a_file_found_here_is_not_trusted_with_the_key(served, here, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    monkeypatch.setenv("COLLIGATE_RERANKER_KEY", "rk-secret")
    (here / "notes.md").write_text("# Notes\n\nThe gate is green.\n")
    file = here / "colligate.toml"
    file.write_text(
        f'[models]\nreader = "openai:m@{served.url}"\nworker = "openai:w@{served.url}"\n'
        f'embedder = "openai:e@{served.url}"\nreranker = "http:r@{served.url}"\n'
    )

    seen: list[Any] = []
    async with Engine(on_event=seen.append) as engine:
        await engine.ask("gate", ["notes.md"], strategy=Search())
    reached = {request["path"] for request in served.requests}
    assert {"/chat/completions", "/embeddings", "/rerank"} <= reached
    assert "secret" not in str(served.requests)
    said = " ".join(event.text for event in seen if isinstance(event, Noted))
    assert "OPENAI_API_KEY is not sent there" in said
    assert "COLLIGATE_RERANKER_KEY is not sent there" in said

    served.requests.clear()
    async with Engine(settings=Settings.load(file), library=here / "other") as engine:
        await engine.ask("gate", ["notes.md"], strategy=Search())
    sent = {request["path"]: request["headers"]["authorization"] for request in served.requests}
    assert sent["/chat/completions"] == sent["/embeddings"] == "Bearer sk-secret"
    assert sent["/rerank"] == "Bearer rk-secret"


def having(**roles: set[Capability]) -> dict[Role, set[Capability]]:
    return {Role(role): {CHAT, *offers} for role, offers in roles.items()}


@pytest.mark.parametrize(
    ("capability", "models", "role", "is_met"),
    [
        (CHAT, having(reader=set()), READER, True),
        (STRUCTURED, having(reader={STRUCTURED}), READER, True),
        (STRUCTURED, having(reader={STRUCTURED}, worker=set()), WORKER, False),
        (STRUCTURED, having(reader={STRUCTURED}, judge=set()), JUDGE, False),
        (STRUCTURED, having(reader={STRUCTURED}, scorer=set()), READER, True),
        (STRUCTURED, having(reader=set(), worker={STRUCTURED}), READER, False),
        (LIKELIHOOD, having(reader={LIKELIHOOD}), READER, True),
        (LIKELIHOOD, having(reader={LIKELIHOOD}, scorer=set()), SCORER, False),
        (LIKELIHOOD, having(reader=set(), scorer={LIKELIHOOD}), SCORER, True),
        (LABELS, having(reader=set(), judge={LABELS}, worker={LABELS}), READER, False),
        (ATTENTION, having(reader=set(), scorer={ATTENTION}), SCORER, True),
        (ADAPTERS, having(reader={ADAPTERS}, worker=set()), READER, True),
        (ADAPTERS, having(reader=set(), worker={ADAPTERS}), WORKER, True),
        (ADAPTERS, having(reader=set(), scorer={ADAPTERS}), READER, False),
    ],
)
def test_a_need_is_met_by_the_role_it_is_asked_of(capability, models, role, is_met):
    for needs in (Needs(frozenset({capability})), Needs(frozenset(), frozenset({capability}))):
        (need,) = check_needs(needs, models)
        assert (need.capability, need.role, need.met) == (capability, role, is_met)
        assert need.required == (capability in needs.required)


def test_a_capability_of_the_judge_does_not_help_the_scorer():
    engine = {
        "model": ScriptedModel(lambda call: "x", "plain"),
        "judge": ScriptedModel(lambda call: "x", "able", capabilities=[CHAT, LIKELIHOOD]),
    }
    strict = Roll(Needs(frozenset({CHAT, LIKELIHOOD}), searches=False, reads=False))
    with pytest.raises(MissingCapability, match=r"the reader plain does not offer it.*--scorer"):
        ask("?", strategy=strict, **engine)
    lenient = Roll(Needs(optional=frozenset({LIKELIHOOD}), searches=False, reads=False))
    answer = ask("?", strategy=lenient, **engine)
    assert "likelihood is not used, because the reader plain does not offer it" in answer.warnings
    answer = ask("?", strategy=lenient, scorer=engine["judge"], **engine)
    assert "not used" not in " ".join(answer.warnings)


LABELLING = Needs(optional=frozenset({LABELS}), searches=False, reads=False)


async def test_a_server_is_asked_what_it_offers_only_where_that_counts(served):
    served.logprobs = {"yes": 0.9, "no": 0.1}
    model = f"openai:m@{served.url}"
    ask("?", strategy=Roll(), model=model)
    assert not [request for request in served.requests if "logprobs" in request]
    async with Engine(model=model, scorer=f"openai:s@{served.url}") as engine:
        for _ in range(2):
            answer = await engine.ask("?", strategy=Roll(LABELLING))
            assert answer.warnings == ()
    asked = [request["model"] for request in served.requests if "logprobs" in request]
    assert set(asked) == {"s"}, "the scorer's server, and no other"
    first = len(asked)
    async with Engine(model=model, scorer=f"openai:s@{served.url}") as engine:
        await engine.ask("?", strategy=Roll(LABELLING))
    asked = [request["model"] for request in served.requests if "logprobs" in request]
    assert len(asked) == 2 * first, "two questions to one engine ask it once"


@dataclass(frozen=True)
class Names(Roll):
    """Answers with the names of the run's reader and check."""

    async def answer(self, question: str, run: Run) -> Answer:
        assert run.reader
        assert run.check
        return Answer(question, "roll", f"{run.reader.name} {run.check.name}", found=True)


@pytest.mark.parametrize("given", [True, False])
async def test_what_needs_odds_is_replaced_where_a_server_gives_none(served, given):
    served.logprobs = {"Yes": 0.6} if given else None
    named = {"reader": "pointwise", "check": "odds"}
    async with Engine(model=f"openai:m@{served.url}", **named) as engine:
        answer = await engine.ask("?", strategy=Names())
    assert answer.text == ("pointwise odds" if given else "quoting model")
    used = [warning.rpartition(": ")[2] for warning in answer.warnings]
    assert used == ([] if given else ["quoting is used instead", "model is used instead"])


async def test_asking_what_a_server_offers_takes_bounded_time(monkeypatch):
    class Silent(ScriptedModel):
        async def probe(self) -> frozenset[Capability]:
            await asyncio.Event().wait()
            raise AssertionError

    @dataclass(frozen=True)
    class ReaderOnly(Roll):
        async def answer(self, question: str, run: Run) -> Answer:
            return Answer(question, "roll", "done", found=True)

    monkeypatch.setattr("colligate.session._SECONDS_TO_PROBE", 0.05)
    model = Silent(name="silent")
    answer = ask("?", strategy=ReaderOnly(LABELLING), model=model)
    assert answer.text == "done"
    assert "labels is not used" in answer.warnings[0]
    assert "no answer within 0.05 seconds" in answer.warnings[0]
    needed = Needs(frozenset({LABELS}), searches=False, reads=False)
    with pytest.raises(EndpointUnreachable, match="what it offers"):
        ask("?", strategy=ReaderOnly(needed), model=model)


class Base(ScriptedModel):
    """Says its name, takes adapters, and writes down when it is closed."""

    closed: ClassVar[list[str]] = []

    def __init__(self, name: str, **how: Any) -> None:
        super().__init__(lambda call: name, name, capabilities=list(Capability))
        self.how = how

    async def with_adapter(self, adapter: str | Path) -> Base:
        return Base(f"{self.name}+{adapter}")

    async def aclose(self) -> None:
        self.closed.append(self.name)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Base]:
    """Every model that was opened by name, in order."""
    made: list[Base] = []

    def open_model(name: str, **how: Any) -> Base:
        made.append(Base(name, **how))
        return made[-1]

    monkeypatch.setattr("colligate.session.open_model", open_model)
    monkeypatch.setattr(Base, "closed", [])
    return made


async def test_a_name_is_opened_once_and_adapters_share_their_base(opened):
    others = {"worker_model": "hf:base+one", "scorer": "hf:base", "judge": "hf:base+two"}
    async with Engine(model="hf:base", **others) as engine:
        answers = await asyncio.gather(*(engine.ask("?", strategy=Roll()) for _ in range(5)))
    assert {answer.text for answer in answers} == {"hf:base hf:base+one hf:base hf:base+two"}
    assert [model.name for model in opened] == ["hf:base"]
    assert sorted(Base.closed) == ["hf:base", "hf:base+one", "hf:base+two"]
    assert Base.closed[-1] == "hf:base", "what stands on it is closed before it"


def test_an_adapter_alone_opens_its_base_as_the_file_says(opened, here):
    (here / "colligate.toml").write_text(
        '[models]\nreader = "hf:org/base+org/one"\n[options."hf:org/base"]\ndtype = "float16"\n'
    )
    assert (ask("?", strategy=Roll())).text.startswith("hf:org/base+org/one ")
    (model,) = opened
    assert (model.name, model.how["options"]) == ("hf:org/base", {"dtype": "float16"})
    assert Base.closed == ["hf:org/base+org/one", "hf:org/base"]


async def test_a_closed_engine_opens_its_models_anew(opened):
    engine = Engine(model="hf:base")
    for _ in range(2):
        await engine.ask("?", strategy=Roll())
        await engine.aclose()
        await engine.aclose()
    assert Base.closed == ["hf:base", "hf:base"]


@pytest.mark.parametrize(("embedder", "fetched"), [("static", ["static"]), (WordEmbedder(), [])])
async def test_weights_are_those_of_the_librarys_own_embedder(here, monkeypatch, embedder, fetched):
    (here / "gates.md").write_text("# Gates\n\nThe gate is green.\n")
    async with Session(embedder=embedder) as session:
        await session.add([here])
    pulled = []
    monkeypatch.setattr("colligate.session.pull_embedder", lambda name, **_: pulled.append(name))
    async with Session() as session:
        assert await (await session.open_sources((), SEARCHING, Trace())).documents()
    assert pulled == fetched


@pytest.mark.parametrize(("named", "used"), [(None, "minilm"), ("none", None)])
async def test_a_strategys_own_reranker_is_used_unless_another_is_named(here, named, used):
    (here / "gates.md").write_text("# Gates\n\nThe gate is green.\n")
    Search.rerankers.clear()
    strategy = Search(needs=replace(SEARCHING, reranker="minilm"))
    options = {"model": ScriptedModel(lambda _: "x"), "embedder": "static"}
    async with Engine(**options, reranker=named) as engine:
        await engine.ask("gate", ["gates.md"], strategy=strategy)
        await engine.ask("gate", ["gates.md"], strategy=Search())
    first, other = Search.rerankers
    assert (first and first.name) == used
    assert (other and other.name) == (None if named is None else used)
