"""The scripted model does what it is told, and the checks find a backend that breaks a promise."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest

from colligate.core import Answer, Calls, Needs, Run
from colligate.errors import UsageError
from colligate.models import Capability, ChatRequest, Completion, LabelOdds, Message
from colligate.testing import (
    ScriptedModel,
    backend_suite,
    check_completion,
    check_embedding,
    check_reranking,
    check_stream,
    check_token_spans,
    embedder_suite,
    reranker_suite,
    strategy_suite,
)
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


async def test_functions_add_capabilities():
    model = ScriptedModel(
        likelihood=lambda prefix, continuation: [-float(len(prefix))] * len(continuation.split()),
        labels=lambda messages, labels, forced: LabelOdds({labels[0]: 1.0}, 0.5, (forced,)),
        attention=lambda prompt, spans: [end - start for start, end in spans],
    )
    assert model.capabilities == {
        Capability.CHAT,
        Capability.LIKELIHOOD,
        Capability.LABELS,
        Capability.ATTENTION,
    }
    assert await model.likelihoods([("a", "b c"), ("aa", "b")]) == [[-1.0, -1.0], [-2.0]]
    assert await model.labels(HELLO, ["yes"], forced="[") == LabelOdds({"yes": 1.0}, 0.5, ("[",))
    assert await model.attention("text", [(0, 3)]) == [3]


class Talkative(ScriptedModel):
    """Ignores `max_tokens`."""

    def __init__(self) -> None:
        super().__init__(lambda _: "word " * 30)


class Thinking(ScriptedModel):
    """Shows what it thinks."""

    def __init__(self) -> None:
        super().__init__(lambda _: Completion("<think>so</think>Yes.", model="scripted"))


class Silent(ScriptedModel):
    """Does not stream."""

    def __init__(self) -> None:
        super().__init__(lambda _: "Red, white and blue.")

    async def chat(self, request: ChatRequest, on_token: Any = None) -> Completion:
        return await super().chat(request)


class Blind(Silent):
    """Does not know where its tokens are."""

    async def token_spans(self, text: str) -> list[tuple[int, int]]:
        return []


@pytest.mark.parametrize(
    ("model", "check"),
    [
        (Talkative, check_completion),
        (Thinking, check_completion),
        (Silent, check_stream),
        (Blind, check_token_spans),
    ],
)
async def test_a_broken_chat_model_fails(model, check):
    assert check in backend_suite
    with pytest.raises(AssertionError):
        await check(model())


class Unscaled:
    """An embedder whose vectors are not of unit length, and a reranker that ignores the query."""

    name = "unscaled"
    dimension = 2

    async def embed(self, texts: Any, kind: str = "passage") -> Any:
        await asyncio.sleep(0)
        return np.full((len(texts), 2), 3, np.float32)

    async def score(self, query: str, texts: Any) -> list[float]:
        return [0.0] * len(texts)

    async def aclose(self) -> None:
        pass


@pytest.mark.parametrize("check", [check_embedding, check_reranking])
async def test_a_broken_embedder_or_reranker_fails(check):
    assert check in embedder_suite + reranker_suite
    with pytest.raises(AssertionError):
        await check(Unscaled())


@dataclass(frozen=True)
class Careless:
    """Say what the model says of raw text, and cite nothing."""

    name: ClassVar[str] = "careless"
    needs: ClassVar[Needs] = Needs()
    calls: ClassVar[Calls] = Calls(1)

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
