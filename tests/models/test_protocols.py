"""What the protocols promise, held by every implementation."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from colligate.errors import ContextTooSmall, MissingCapability, ModelError
from colligate.models import (
    AdapterModel,
    AttentionModel,
    Capability,
    ChatModel,
    ChatRequest,
    Embedder,
    LabelModel,
    LikelihoodModel,
    Message,
    Reranker,
)
from colligate.models.cache import CachedChat, ResponseCache
from colligate.models.embedders import MiniLM, StaticEmbedder
from colligate.models.llama import LlamaCpp
from colligate.models.openai import OpenAIChat, OpenAIEmbedder
from colligate.models.openai_http import Policy
from colligate.models.rerankers import EmbeddingReranker, HTTPReranker, LikelihoodReranker
from colligate.models.weights import pull

real = pytest.mark.model
ASK = [Message("system", "You answer questions."), Message("user", "Which colours has a flag?")]
SCHEMA = {
    "type": "object",
    "properties": {"found": {"type": "boolean"}},
    "required": ["found"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def llama() -> Iterator[LlamaCpp]:
    path = pull("smollm2-135m")["model"]
    model = LlamaCpp(path, name="gguf:smollm2-135m", context_tokens=512, parallel=2, threads=1)
    yield model
    asyncio.run(model.aclose())


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[ResponseCache]:
    cache = ResponseCache(tmp_path / "responses.db")
    yield cache
    cache.close()


def say(body: Any) -> str:
    """What the loopback server and the scripted model say: thinking, and what the schema wants."""
    held = body.get("response_format") if isinstance(body, dict) else body.schema
    return json.dumps({"found": True}) if held else "<think>hm</think>\nRed, white and blue."


IN_PROCESS = ("llama.cpp", "hf")
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
    request: pytest.FixtureRequest, openai_server: Any, policy: Policy, scripted_model: Any
) -> AsyncIterator[ChatModel]:
    kind = request.param.removeprefix("cached ")
    model: ChatModel
    if kind in IN_PROCESS:
        model = request.getfixturevalue("smollm2_hf" if kind == "hf" else "llama")
    elif kind == "openai":
        openai_server.answer, openai_server.logprobs = say, {"Yes": 0.6, "No": 0.3}
        openai_server.models = ["m"]
        model = OpenAIChat("m", openai_server.url, policy=policy, context_tokens=4096)
        assert isinstance(model, OpenAIChat)
        await model.probe()
    else:
        model = scripted_model(say, capabilities=[Capability.CHAT, Capability.STRUCTURED])
    if request.param != kind:
        model = CachedChat(model, request.getfixturevalue("cache"))
    yield model
    if kind not in IN_PROCESS:  # those serve all tests
        await model.aclose()
        await model.aclose()


async def test_a_chat_model_says_what_it_is(chat_model: ChatModel) -> None:
    assert isinstance(chat_model, ChatModel)
    assert chat_model.name
    assert Capability.CHAT in chat_model.capabilities
    assert chat_model.context_tokens is None or chat_model.context_tokens > 0


async def test_a_completion(chat_model: ChatModel) -> None:
    completion = await chat_model.chat(ChatRequest(ASK, max_tokens=12))
    assert completion.text
    assert "<think" not in completion.text
    assert completion.model == chat_model.name
    assert completion.finish_reason in ("stop", "length")
    assert completion.usage.input_tokens > 5
    assert 0 < completion.usage.output_tokens <= 12


async def test_the_same_is_answered_the_same(chat_model: ChatModel) -> None:
    first, second = [await chat_model.chat(ChatRequest(ASK, max_tokens=12)) for _ in range(2)]
    assert first.text == second.text
    assert first.thinking == second.thinking
    assert first.usage.output_tokens == second.usage.output_tokens


async def test_a_stream_is_the_same_text_in_the_callers_thread(chat_model: ChatModel) -> None:
    whole = await chat_model.chat(ChatRequest(ASK, max_tokens=12))
    pieces: list[str] = []
    threads: set[int] = set()

    def note(piece: str) -> None:
        pieces.append(piece)
        threads.add(threading.get_ident())

    streamed = await chat_model.chat(ChatRequest(ASK, max_tokens=12), note)
    assert streamed.text == whole.text == "".join(pieces)
    assert all(pieces)
    assert threads == {threading.get_ident()}


async def test_what_on_token_raises_reaches_the_caller(chat_model: ChatModel) -> None:
    def refuse(piece: str) -> None:
        raise ValueError("enough")

    with pytest.raises(ValueError, match="enough"):
        await chat_model.chat(ChatRequest(ASK, max_tokens=12), refuse)
    assert (await chat_model.chat(ChatRequest(ASK, max_tokens=12))).text


async def test_structured_output_satisfies_the_schema(chat_model: ChatModel) -> None:
    assert Capability.STRUCTURED in chat_model.capabilities
    for _ in range(2):
        completion = await chat_model.chat(ChatRequest(ASK, max_tokens=40, schema=SCHEMA))
        assert set(json.loads(completion.text)) == {"found"}


async def test_likelihood_is_declared_or_refused(chat_model: ChatModel) -> None:
    if Capability.LIKELIHOOD not in chat_model.capabilities:
        if isinstance(chat_model, LikelihoodModel):
            for refused in (chat_model.likelihood("a", "b"), chat_model.likelihoods([("a", "b")])):
                with pytest.raises(MissingCapability):
                    await refused
        return
    assert isinstance(chat_model, LikelihoodModel)
    for _ in range(2):
        scores = await chat_model.likelihood("The cat sat on the", " mat today")
        assert len(scores) == await chat_model.count_tokens(" mat today")
        assert all(score <= 0 for score in scores)
        assert await chat_model.likelihood("a", "") == []
        assert len(await chat_model.likelihood("", "Once upon a time")) > 2


async def test_likelihoods_are_each_what_they_are_alone(chat_model: ChatModel) -> None:
    if Capability.LIKELIHOOD not in chat_model.capabilities:
        return
    assert isinstance(chat_model, LikelihoodModel)
    question = " Who built it?"
    pairs = [
        ("The bridge was built by Ada Lind.", question),
        ("The bridge was built by Ada Lind. It is of stone, and long.", question),
        ("Otters eat fish.", question),
        ("Otters eat fish.", " Otters eat crabs."),
        ("Otters eat fish.", ""),
        ("Otters eat fish.", question),
    ]
    together = await chat_model.likelihoods(pairs)
    for pair, scores in zip(pairs, together, strict=True):
        assert scores == pytest.approx(await chat_model.likelihood(*pair), abs=0.05)
    assert sum(together[0]) > sum(together[2])  # the question fits what it is about
    assert await chat_model.likelihoods([]) == []


async def test_labels_are_declared_or_refused(chat_model: ChatModel) -> None:
    if Capability.LABELS not in chat_model.capabilities:
        if isinstance(chat_model, LabelModel):
            with pytest.raises(MissingCapability):
                await chat_model.labels(ASK, ["Yes", "No"])
        return
    assert isinstance(chat_model, LabelModel)
    for _ in range(2):
        found = await chat_model.labels(ASK, ["Yes", "No"])
        assert list(found.odds) == ["Yes", "No"]
        assert sum(found.odds.values()) == pytest.approx(1)
        assert all(0 <= odd <= 1 for odd in found.odds.values())
        assert 0 < found.mass <= 1
        assert set(found.bounded) <= {"Yes", "No"}
    for wrong in ([], ["Yes", ""], ["Yes", "Yes"]):
        with pytest.raises(ValueError, match="labels"):
            await chat_model.labels(ASK, wrong)


async def test_attention_is_declared_or_refused(chat_model: ChatModel) -> None:
    if Capability.ATTENTION not in chat_model.capabilities:
        if isinstance(chat_model, AttentionModel):
            with pytest.raises(MissingCapability):
                await chat_model.attention(ASK, [(0, 5)])
        return
    assert isinstance(chat_model, AttentionModel)
    question = ASK[-1].content
    for prompt in (question, ASK):
        values = await chat_model.attention(prompt, [(0, 5), (6, len(question)), (3, 3)])
        assert len(values) == 3
        assert all(0 < value < 1 for value in values[:2])
        assert values[2] == 0
    for wrong in ([(0, len(question) + 1)], [(-1, 2)], [(4, 2)]):
        with pytest.raises(ValueError, match="span"):
            await chat_model.attention(question, wrong)


async def test_adapters_are_declared_or_refused(chat_model: ChatModel, tmp_path: Path) -> None:
    wanted = ModelError if Capability.ADAPTERS in chat_model.capabilities else MissingCapability
    if isinstance(chat_model, AdapterModel):
        with pytest.raises(wanted):
            await chat_model.with_adapter(tmp_path)  # holds none
    else:
        assert wanted is MissingCapability


async def test_calls_side_by_side(chat_model: ChatModel) -> None:
    alone = await chat_model.chat(ChatRequest(ASK, max_tokens=8))
    together = await asyncio.gather(
        *(chat_model.chat(ChatRequest(ASK, max_tokens=8)) for _ in range(5))
    )
    assert {completion.text for completion in together} == {alone.text}


async def test_cancelling_leaves_the_model_usable(chat_model: ChatModel) -> None:
    task = asyncio.create_task(chat_model.chat(ChatRequest(ASK, max_tokens=300)))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await chat_model.chat(ChatRequest(ASK, max_tokens=8))).text


async def test_one_event_loop_after_another(chat_model: ChatModel) -> None:
    here = (await chat_model.chat(ChatRequest(ASK, max_tokens=8))).text

    async def elsewhere() -> str:
        try:
            return (await chat_model.chat(ChatRequest(ASK, max_tokens=8))).text
        finally:
            if isinstance(chat_model, OpenAIChat):  # its connections are the loop's
                await chat_model.aclose()

    for _ in range(2):
        assert await asyncio.to_thread(lambda: asyncio.run(elsewhere())) == here


async def test_counting_tokens(chat_model: ChatModel) -> None:
    counts = [await chat_model.count_tokens(text) for text in ("", "one", "one two three" * 50)]
    assert counts[0] == 0
    assert 0 < counts[1] < counts[2]
    assert await chat_model.count_prompt(ASK) > sum(
        [await chat_model.count_tokens(message.content) for message in ASK]
    )


@pytest.mark.parametrize(
    "text", ["", "Otters eat fish.", "  two\n\nparts ", "naïve 東京 🦦́", "<|im_end|> caf\udce9"]
)
async def test_where_tokens_stand(chat_model: ChatModel, text: str) -> None:
    spans = await chat_model.token_spans(text)
    assert len(spans) == await chat_model.count_tokens(text)
    assert all(0 <= start < end <= len(text) for start, end in spans)
    assert spans == sorted(spans)
    assert [end for _, end in spans] == sorted(end for _, end in spans)
    covered = {at for start, end in spans for at in range(start, end)}
    assert all(char.isspace() for at, char in enumerate(text) if at not in covered)


async def test_text_that_no_encoding_has(chat_model: ChatModel) -> None:
    odd = "caf\udce9 and half a pair \ud83d"  # as arguments that are no UTF-8 come in
    assert (await chat_model.chat(ChatRequest([Message("user", odd)], max_tokens=8))).text
    assert await chat_model.count_tokens(odd) > 3


@real
@pytest.mark.parametrize("model", ["llama", "smollm2_hf"])
async def test_a_prompt_too_long_is_one_error(model: str, request: pytest.FixtureRequest) -> None:
    with pytest.raises(ContextTooSmall):
        await request.getfixturevalue(model).chat(
            ChatRequest([Message("user", "word " * 1100)], max_tokens=8)
        )


EMBEDDERS = [pytest.param("minilm", marks=real), pytest.param("static", marks=real), "openai"]


@pytest.fixture(params=EMBEDDERS)
async def embedder(
    request: pytest.FixtureRequest, openai_server: Any, policy: Policy
) -> AsyncIterator[Embedder]:
    makers: dict[str, Callable[[], Embedder]] = {
        "minilm": MiniLM,
        "static": StaticEmbedder,
        "openai": lambda: OpenAIEmbedder("e", openai_server.url, policy=policy, batch=4),
    }
    names = {"minilm": "minilm-l6-v2-int8", "static": "wordllama-256"}
    if request.param in names:
        pull(names[request.param])
    embedder = makers[request.param]()
    yield embedder
    await embedder.aclose()
    await embedder.aclose()


async def test_an_embedder_gives_unit_rows_in_order(embedder: Embedder) -> None:
    assert isinstance(embedder, Embedder)
    assert embedder.name
    texts = [f"text number {number}" for number in range(10)]
    rows = await embedder.embed(texts)
    assert (rows.shape, rows.dtype) == ((10, embedder.dimension), np.float32)
    assert np.linalg.norm(rows, axis=1) == pytest.approx(1, abs=1e-5)
    alone = np.vstack([await embedder.embed([text]) for text in texts])
    assert np.allclose(rows, alone, atol=1e-6)
    assert len({row.tobytes() for row in rows}) == 10


async def test_queries_and_passages_share_a_space(embedder: Embedder) -> None:
    [query] = await embedder.embed(["a red bridge"], "query")
    passages = await embedder.embed(["Otters eat fish.", "a red bridge"], "passage")
    assert (passages @ query).argmax() == 1


async def test_an_embedder_takes_any_text(embedder: Embedder) -> None:
    odd = ["", " ", "\x00", "caf\udce9", "東京の橋 🙂", "long " * 3000]
    rows = await embedder.embed(odd)
    assert rows.shape == (6, embedder.dimension)
    assert np.linalg.norm(rows, axis=1) == pytest.approx(1, abs=1e-5)
    assert (await embedder.embed([])).shape == (0, embedder.dimension)


async def test_embedding_side_by_side(embedder: Embedder) -> None:
    texts = [f"text number {number}" for number in range(24)]
    whole = await embedder.embed(texts)
    parts = await asyncio.gather(*(embedder.embed(texts[at : at + 8]) for at in (0, 8, 16)))
    assert np.allclose(np.vstack(parts), whole, atol=1e-6)


RERANKERS = [
    pytest.param("embedding", marks=real),
    pytest.param("likelihood", marks=real),
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
        reranker = LikelihoodReranker(request.getfixturevalue("llama"))
    else:
        reranker = HTTPReranker(openai_server.url, "r", policy=policy)
    yield reranker
    await reranker.aclose()
    await reranker.aclose()


async def test_a_reranker_scores_each_text_in_order(reranker: Reranker) -> None:
    assert isinstance(reranker, Reranker)
    assert reranker.name
    query = "What do otters eat?"
    texts = ["The bridge was opened in 1932.", "Otters eat fish.", "What otters do is eat fish."]
    scores = await reranker.score(query, texts)
    assert len(scores) == 3
    assert min(scores[1:]) > scores[0]
    assert await reranker.score(query, texts[::-1]) == pytest.approx(scores[::-1], abs=0.02)


async def test_a_reranker_takes_any_text(reranker: Reranker) -> None:
    assert await reranker.score("question", []) == []
    assert len(await reranker.score("caf\udce9", ["", "caf\udce9", "東京の橋 🙂"])) == 3


@real
async def test_a_closed_model_says_so() -> None:
    model = LlamaCpp(pull("smollm2-135m")["model"], name="closed", context_tokens=256)
    pull("minilm-l6-v2-int8")
    embedder = MiniLM()
    for closed in (model, embedder):
        await closed.aclose()
        await closed.aclose()
    with pytest.raises(ModelError, match="closed was closed"):
        await model.chat(ChatRequest(ASK, max_tokens=1))
    with pytest.raises(ModelError, match="was closed"):
        await embedder.embed(["text"])
