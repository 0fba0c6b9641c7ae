"""Every backend, embedder and reranker passes its suite."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import numpy as np
import pytest

from colligate.models import Capability, ChatModel, ChatRequest, Embedder, Reranker
from colligate.models.cache import CachedChat, ResponseCache
from colligate.models.embedders import MiniLM, StaticEmbedder
from colligate.models.hf.model import HFModel
from colligate.models.llama.model import LlamaCpp
from colligate.models.openai import OpenAIChat, OpenAIEmbedder
from colligate.models.pairs import MiniLMReranker
from colligate.models.rerankers import HTTPReranker
from colligate.models.weights import pull
from colligate.testing import ScriptedModel, backend_suite


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
async def chat_model(request, openai_server, policy, tmp_path) -> AsyncIterator[ChatModel]:
    kind = request.param.removeprefix("cached ")
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


@pytest.mark.parametrize("check", backend_suite, ids=lambda check: check.__name__[6:])
async def test_chat_model(chat_model, check):
    assert Capability.STRUCTURED in chat_model.capabilities
    await check(chat_model)


EMBEDDERS: dict[str, Callable[..., Embedder]] = {
    "minilm-l6-v2-int8": lambda *_: MiniLM(),
    "wordllama-256": lambda *_: StaticEmbedder(),
    "openai": lambda url, policy: OpenAIEmbedder("e", url, policy=policy),
}


@pytest.fixture(params=EMBEDDERS)
async def embedder(request, openai_server, policy) -> AsyncIterator[Embedder]:
    if request.param != "openai":
        pull(request.param)
    embedder = EMBEDDERS[request.param](openai_server.url, policy)
    yield embedder
    await embedder.aclose()
    await embedder.aclose()


async def test_rows_are_of_unit_length_in_order_whatever_else_is_embedded(embedder):
    assert isinstance(embedder, Embedder)
    assert embedder.name
    texts = [f"text number {number}" for number in range(24)]
    rows = await embedder.embed(texts)
    assert (rows.shape, rows.dtype) == ((24, embedder.dimension), np.float32)
    assert np.allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-5)
    alone = np.vstack([await embedder.embed([text]) for text in texts[:8]])
    assert np.allclose(rows[:8], alone, atol=1e-6)
    assert len({row.tobytes() for row in rows[:10]}) == 10
    parts = await asyncio.gather(*(embedder.embed(texts[at : at + 8]) for at in (0, 8, 16)))
    assert np.allclose(np.vstack(parts), rows, atol=1e-6)


async def test_queries_and_passages_are_compared_in_one_space(embedder):
    [query] = await embedder.embed(["a red bridge"], "query")
    passages = await embedder.embed(["Otters eat fish.", "a red bridge"], "passage")
    assert (passages @ query).argmax() == 1


async def test_empty_very_long_and_odd_texts_have_vectors_too(embedder):
    rows = await embedder.embed(["", " ", "\x00", "caf\udce9", "東京の橋 🙂", "long " * 3000])
    assert rows.shape == (6, embedder.dimension)
    assert np.allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-5)
    assert (await embedder.embed([])).shape == (0, embedder.dimension)


@pytest.fixture(params=["minilm", "http"])
async def reranker(request, openai_server, policy) -> AsyncIterator[Reranker]:
    http = request.param == "http"
    reranker = HTTPReranker(openai_server.url, "r", policy=policy) if http else MiniLMReranker()
    yield reranker
    await reranker.aclose()
    await reranker.aclose()


async def test_texts_about_the_question_score_higher_in_any_order(reranker):
    assert isinstance(reranker, Reranker)
    assert reranker.name
    query = "What do otters eat?"
    texts = ["The bridge was opened in 1932.", "Otters eat fish.", "What otters do is eat fish."]
    scores = await reranker.score(query, texts)
    assert len(scores) == 3
    assert min(scores[1:]) > scores[0]
    assert np.allclose(await reranker.score(query, texts[::-1]), scores[::-1], atol=0.02)


async def test_no_text_an_empty_text_and_odd_texts_are_scored(reranker):
    assert await reranker.score("question", []) == []
    assert len(await reranker.score("caf\udce9", ["", "caf\udce9", "東京の橋 🙂"])) == 3
