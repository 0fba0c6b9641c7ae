"""Every backend keeps the promises of the protocols."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from colligate.errors import ModelError
from colligate.models import (
    Capability,
    ChatModel,
    ChatRequest,
    Embedder,
    Reranker,
)
from colligate.models.cache import CachedChat, ResponseCache
from colligate.models.embedders import MiniLM, StaticEmbedder
from colligate.models.llama.model import LlamaCpp
from colligate.models.openai import OpenAIChat, OpenAIEmbedder
from colligate.models.openai_http import Policy
from colligate.models.pairs import MiniLMReranker
from colligate.models.rerankers import EmbeddingReranker, HTTPReranker, LikelihoodReranker
from colligate.models.weights import pull
from colligate.testing import (
    CHAT_MODEL_CHECKS,
    EMBEDDER_CHECKS,
    QUESTION,
    RERANKER_CHECKS,
    ScriptedModel,
)
from support.models import ask

real = pytest.mark.model


def names(checks: tuple[Callable[..., Awaitable[None]], ...]) -> list[str]:
    return [check.__name__.removeprefix("check_") for check in checks]


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[ResponseCache]:
    cache = ResponseCache(tmp_path / "responses.db")
    yield cache
    cache.close()


def say(asked: Any) -> str:
    """What the loopback server and the scripted model say: thinking, and what the schema wants."""
    schema = asked.schema if isinstance(asked, ChatRequest) else asked.get("response_format")
    return json.dumps({"found": True}) if schema else "<think>hm</think>\nRed, white and blue."


IN_PROCESS = {"hf": "smollm2_hf", "llama.cpp": "smollm2_llama"}  # these serve all tests
CHAT_MODELS = [
    pytest.param("hf", marks=real),
    pytest.param("cached hf", marks=real),
    pytest.param("llama.cpp", marks=real),
    pytest.param("cached llama.cpp", marks=real),
    "openai",
    "cached openai",
    "scripted",
    "cached scripted",
]


@pytest.fixture(params=CHAT_MODELS)
async def chat_model(
    request: pytest.FixtureRequest, openai_server: Any, policy: Policy
) -> AsyncIterator[ChatModel]:
    kind = request.param.removeprefix("cached ")
    model: ChatModel
    if kind in IN_PROCESS:
        model = request.getfixturevalue(IN_PROCESS[kind])
    elif kind == "openai":
        openai_server.answer, openai_server.logprobs = say, {"Yes": 0.6, "No": 0.3}
        openai_server.models = ["m"]
        model = OpenAIChat("m", openai_server.url, policy=policy, context_tokens=4096)
        await model.probe()
    else:
        model = ScriptedModel(say, capabilities=[Capability.CHAT, Capability.STRUCTURED])
    if request.param != kind:
        model = CachedChat(model, request.getfixturevalue("cache"))
    yield model
    if kind not in IN_PROCESS:
        await model.aclose()
        await model.aclose()


@pytest.mark.parametrize("check", CHAT_MODEL_CHECKS, ids=names(CHAT_MODEL_CHECKS))
async def test_chat_model(chat_model, check):
    assert Capability.STRUCTURED in chat_model.capabilities
    await check(chat_model)


async def test_one_event_loop_after_another(chat_model):
    here = (await ask(chat_model, QUESTION)).text

    async def elsewhere() -> str:
        try:
            return (await ask(chat_model, QUESTION)).text
        finally:
            if isinstance(chat_model, OpenAIChat):  # its connections are the loop's
                await chat_model.aclose()

    for _ in range(2):
        assert await asyncio.to_thread(lambda: asyncio.run(elsewhere())) == here


EMBEDDERS = [pytest.param("minilm", marks=real), pytest.param("static", marks=real), "openai"]


@pytest.fixture(params=EMBEDDERS)
async def embedder(
    request: pytest.FixtureRequest, openai_server: Any, policy: Policy
) -> AsyncIterator[Embedder]:
    makers: dict[str, Callable[[], Embedder]] = {
        "minilm": MiniLM,
        "static": StaticEmbedder,
        "openai": lambda: OpenAIEmbedder("e", openai_server.url, policy=policy),
    }
    weights = {"minilm": "minilm-l6-v2-int8", "static": "wordllama-256"}
    if request.param in weights:
        pull(weights[request.param])
    embedder = makers[request.param]()
    yield embedder
    await embedder.aclose()
    await embedder.aclose()


@pytest.mark.parametrize("check", EMBEDDER_CHECKS, ids=names(EMBEDDER_CHECKS))
async def test_embedder(embedder, check):
    await check(embedder)


RERANKERS = [
    pytest.param("embedding", marks=real),
    pytest.param("likelihood", marks=real),
    "minilm",
    "http",
]


@pytest.fixture(params=RERANKERS)
async def reranker(
    request: pytest.FixtureRequest, openai_server: Any, policy: Policy
) -> AsyncIterator[Reranker]:
    reranker: Reranker
    if request.param == "embedding":
        pull("wordllama-256")
        reranker = EmbeddingReranker(StaticEmbedder())
    elif request.param == "likelihood":
        reranker = LikelihoodReranker(request.getfixturevalue("smollm2_llama"))
    elif request.param == "minilm":
        reranker = MiniLMReranker()
    else:
        reranker = HTTPReranker(openai_server.url, "r", policy=policy)
    yield reranker
    await reranker.aclose()
    await reranker.aclose()


@pytest.mark.parametrize("check", RERANKER_CHECKS, ids=names(RERANKER_CHECKS))
async def test_reranker(reranker, check):
    await check(reranker)


@real
async def test_a_closed_model_says_so():
    model = LlamaCpp(pull("smollm2-135m")["model"], name="closed", context_tokens=256)
    pull("minilm-l6-v2-int8")
    embedder = MiniLM()
    for closed in (model, embedder):
        await closed.aclose()
        await closed.aclose()
    with pytest.raises(ModelError, match="closed was closed"):
        await ask(model)
    with pytest.raises(ModelError, match="was closed"):
        await embedder.embed(["text"])
