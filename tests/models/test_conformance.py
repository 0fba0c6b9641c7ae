"""Every backend, embedder and reranker passes its suite."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from colligate.models import Capability, ChatModel, ChatRequest, Embedder, Reranker
from colligate.models.cache import CachedChat, ResponseCache
from colligate.models.embedders import MiniLM, StaticEmbedder
from colligate.models.hf.model import HFModel
from colligate.models.llama.model import LlamaCpp
from colligate.models.openai import OpenAIChat, OpenAIEmbedder
from colligate.models.openai_http import Policy
from colligate.models.pairs import MiniLMReranker
from colligate.models.rerankers import EmbeddingReranker, HTTPReranker, LikelihoodReranker
from colligate.models.weights import pull
from colligate.testing import (
    ScriptedModel,
    backend_suite,
    embedder_suite,
    reranker_suite,
)

Suite = tuple[Callable[..., Awaitable[None]], ...]


def each_of(suite: Suite) -> pytest.MarkDecorator:
    ids = [check.__name__.removeprefix("check_") for check in suite]
    return pytest.mark.parametrize("check", suite, ids=ids)


def say(asked: Any) -> str:
    """What the loopback server and the scripted model say: thinking, and what the schema wants."""
    schema = asked.schema if isinstance(asked, ChatRequest) else asked.get("response_format")
    return json.dumps({"found": True}) if schema else "<think>hm</think>\nRed, white and blue."


KINDS = ("hf", "llama.cpp", "openai", "scripted")
TRAINED = {"trained hf": "smollm2_hf", "trained llama.cpp": "smollm2_llama"}  # these serve all


@pytest.fixture(
    params=[
        *KINDS,
        *(f"cached {kind}" for kind in KINDS),
        *(pytest.param(kind, marks=[pytest.mark.model, pytest.mark.real]) for kind in TRAINED),
    ]
)
async def chat_model(
    request: pytest.FixtureRequest, openai_server: Any, policy: Policy, tmp_path: Path
) -> AsyncIterator[ChatModel]:
    kind = request.param.removeprefix("cached ")
    model: ChatModel
    if kind in TRAINED:
        yield request.getfixturevalue(TRAINED[kind])
        return
    if kind == "hf":
        folder = request.getfixturevalue("tiny_folder")("llama", endless=True)
        model = HFModel(str(folder), name="hf:tiny", dtype="float32")
    elif kind == "llama.cpp":
        file = request.getfixturevalue("tiny_gguf")("llama", endless=True)
        model = LlamaCpp(file, name="gguf:tiny", context_tokens=512, threads=1)
    elif kind == "openai":
        openai_server.answer, openai_server.logprobs = say, {"Yes": 0.6, "No": 0.3}
        openai_server.models = ["m"]
        model = OpenAIChat("m", openai_server.url, policy=policy, context_tokens=4096)
        await model.probe()
    else:
        model = ScriptedModel(say, capabilities=[Capability.CHAT, Capability.STRUCTURED])
    cache = ResponseCache(tmp_path / "responses.db")
    yield model if request.param == kind else CachedChat(model, cache)
    cache.close()
    await model.aclose()
    await model.aclose()


@each_of(backend_suite)
async def test_chat_model(chat_model, check):
    assert Capability.STRUCTURED in chat_model.capabilities
    await check(chat_model)


EMBEDDERS: dict[str, Callable[..., Embedder]] = {
    "minilm-l6-v2-int8": lambda *_: MiniLM(),
    "wordllama-256": lambda *_: StaticEmbedder(),
    "openai": lambda url, policy: OpenAIEmbedder("e", url, policy=policy),
}


@pytest.fixture(params=EMBEDDERS)
async def embedder(
    request: pytest.FixtureRequest, openai_server: Any, policy: Policy
) -> AsyncIterator[Embedder]:
    if request.param != "openai":
        pull(request.param)
    embedder = EMBEDDERS[request.param](openai_server.url, policy)
    yield embedder
    await embedder.aclose()
    await embedder.aclose()


@each_of(embedder_suite)
async def test_embedder(embedder, check):
    await check(embedder)


@pytest.fixture(
    params=[
        "embedding",
        pytest.param("likelihood", marks=[pytest.mark.model, pytest.mark.real]),
        "minilm",
        "http",
    ]
)
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


@each_of(reranker_suite)
async def test_reranker(reranker, check):
    await check(reranker)
