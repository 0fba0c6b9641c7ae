"""The scripted model does what it is told, and the checks find a backend that breaks a promise."""

from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

from colligate.core.answer import Answer
from colligate.core.run import Run
from colligate.core.strategy import Needs
from colligate.errors import UsageError
from colligate.models import ChatRequest, Completion, Message
from colligate.testing import ScriptedModel, backend_suite, strategy_suite
from colligate.testing.backends import check_completion, check_stream, check_token_spans
from support.models import HELLO, ask


async def test_replies_come_in_turn_and_requests_are_kept():
    model = ScriptedModel(["one", Completion("two"), ValueError("three")])
    assert [(await ask(model)).text for _ in range(2)] == ["one", "two"]
    with pytest.raises(ValueError, match="three"):
        await ask(model)
    with pytest.raises(UsageError, match="no reply left"):
        await ask(model)
    assert model.calls == [ChatRequest(HELLO, max_tokens=9)] * 4
    assert model.calls[0].prompt == "Hello?"


class Silent(ScriptedModel):
    """Does not stream."""

    async def chat(self, request: ChatRequest, on_token: Any = None) -> Completion:
        return await super().chat(request)


class Blind(ScriptedModel):
    """Does not know where its tokens are."""

    async def token_spans(self, text: str) -> list[tuple[int, int]]:
        return []


@pytest.mark.parametrize(
    ("kind", "says", "check"),
    [
        (ScriptedModel, "word " * 30, check_completion),  # ignores `max_tokens`
        (ScriptedModel, Completion("<think>so</think>Yes.", model="scripted"), check_completion),
        (Silent, "Red, white and blue.", check_stream),
        (Blind, "Red, white and blue.", check_token_spans),
    ],
)
async def test_a_broken_chat_model_fails(kind, says, check):
    assert check in backend_suite
    with pytest.raises(AssertionError):
        await check(kind(lambda _: says))


@dataclass(frozen=True)
class Careless:
    """Say what the model says of raw text, and cite nothing."""

    name: ClassVar[str] = "careless"
    needs: ClassVar[Needs] = Needs()

    async def answer(self, question: str, run: Run) -> Answer:
        found = await run.search(question, k=3)
        shown = "\n".join(f"<passage>{hit.passage.text}</passage>" for hit in found)
        reply = await run.chat([Message("user", f"{shown}\n{question}")], max_tokens=50)
        return Answer(question, "", reply.text, True)


async def test_the_suite_finds_a_strategy_that_breaks_its_promises():
    broken = set()
    for check in strategy_suite(Careless, seeds=[0]):
        try:
            await check()
        except AssertionError:
            broken.add(str(check).partition("-")[0])
    assert {"answering", "without_documents", "refusal", "budgets", "spoilt_replies"} <= broken
    assert "declaration" not in broken
