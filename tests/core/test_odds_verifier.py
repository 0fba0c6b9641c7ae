"""`--verifier odds`: the reader's label odds drop what a cited sentence denies."""

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from colligate import Engine
from colligate.core.meaning import Meaning
from colligate.errors import MissingCapability, ServerFailed
from colligate.models import LabelOdds
from colligate.strategies.retrieve_read import RetrieveRead
from colligate.testing import ScriptedModel
from support.models import statement_reply

QUESTION = "Where do bicycles stand?"
SOURCE = "Bicycles of tenants may stand in the yard and under the northern roof."
SAID = "Under the northern roof and in the yard bicycles of tenants may stand."


@pytest.fixture
def ask(tmp_path):
    """`ask(odds, said)`: the answer of a reader that says this, and gives these odds or raises."""
    wrapped = SOURCE.replace(" yard ", " yard\n")  # it reaches the prompt in one line
    (tmp_path / "rules.md").write_text(f"# Rules\n\n{wrapped}\n")
    prompts = []

    def judge(messages, labels, forced):
        prompts.append(messages[-1].content)
        if isinstance(odds, Exception):
            raise odds
        return LabelOdds(dict(zip(labels, odds, strict=True)), 1.0)

    odds = ()

    async def asked(given, said=SAID, *, times=1, name="scripted", verifier="odds", cache=False):
        nonlocal odds
        odds = given
        reply = json.loads(statement_reply(SOURCE, said, "yard"))
        reply["statements"] *= times
        model = ScriptedModel(lambda call: json.dumps(reply), name, labels=judge)
        library, strategy = tmp_path / "library", RetrieveRead(reading="together")
        kept = {"verifier": verifier, "library": library, "cache": cache}
        async with Engine(model, embedder="static", **kept) as engine:
            answer = await engine.ask(QUESTION, [tmp_path / "rules.md"], strategy=strategy)
        return answer, prompts

    return asked


@pytest.mark.parametrize(
    ("odds", "meaning"),
    [
        ((0.9, 0.05, 0.05), Meaning.SUPPORTS),
        ((0.4, 0.6, 0.0), Meaning.UNCLEAR),
        ((0.0, 0.1, 0.9), Meaning.UNCLEAR),
    ],
)
async def test_what_is_not_denied_is_cited(ask, odds, meaning):
    answer, prompts = await ask(odds)
    assert [each.meaning for each in answer.citations] == [meaning]
    assert SOURCE in prompts[0]
    assert SAID in prompts[0]


async def test_what_is_stated_several_times_is_judged_once(ask):
    answer, prompts = await ask((0.9, 0.05, 0.05), times=3)
    assert answer.text.count(SAID[:-1]) == 1
    assert len(prompts) == 1


async def test_the_check_needs_no_thread_that_its_own_calls_wait_for(ask):
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    async with asyncio.timeout(20):
        answer, prompts = await ask((0.9, 0.05, 0.05), cache=True)
    assert (answer.found, len(prompts)) == (True, 1)


async def test_what_is_denied_is_not_in_the_answer(ask):
    answer, _ = await ask((0.05, 0.95, 0.0))
    assert SAID not in answer.text


async def test_a_model_that_fails_leaves_the_answer_and_a_warning(ask):
    answer, _ = await ask(ServerFailed("it is down"))
    assert [each.meaning for each in answer.citations] == [Meaning.UNCLEAR]
    assert any("not verified: it is down" in warning for warning in answer.warnings)


async def test_words_of_the_document_cost_nothing(ask):
    answer, prompts = await ask((0.0, 1.0, 0.0), SOURCE)
    assert [each.meaning for each in answer.citations] == [Meaning.SUPPORTS]
    assert prompts == []


@pytest.mark.parametrize(
    ("name", "verifier", "asked"),
    [("bundled", None, 1), ("bundled", "none", 0), ("bundled+mine", None, 0), ("other", None, 0)],
)
async def test_the_bundled_model_is_asked_by_default(ask, name, verifier, asked):
    _, prompts = await ask((0.9, 0.1, 0.0), name=name, verifier=verifier)
    assert len(prompts) == asked


async def test_a_reader_without_odds_is_refused_before_it_is_asked(tmp_path):
    (tmp_path / "rules.md").write_text(SOURCE)
    model = ScriptedModel([])
    async with Engine(model, embedder="static", verifier="odds", library=tmp_path / "l") as engine:
        with pytest.raises(MissingCapability, match="--verifier none"):
            await engine.ask(QUESTION, [tmp_path / "rules.md"], strategy="retrieve-read")
    assert model.calls == []
