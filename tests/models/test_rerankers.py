"""Rerankers give one score a text, in the order of the texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import pytest
from numpy.typing import NDArray

from colligate.errors import MalformedOutput, NotAuthorised
from colligate.models import Reranker
from colligate.models.rerankers import EmbeddingReranker, HTTPReranker, LikelihoodReranker

TEXTS = ["about cats", "nothing", "about big cats and dogs"]


class Letters:
    """An embedder of two dimensions: how often `a` and `b` occur."""

    name, dimension = "letters", 2

    async def embed(
        self, texts: Sequence[str], kind: Literal["passage", "query"] = "passage"
    ) -> NDArray[np.float32]:
        rows = np.array([[t.count("a"), t.count("b")] for t in texts], dtype=np.float32)
        return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), dtype=np.float32)

    async def aclose(self) -> None: ...


class Overlap:
    """A likelihood: each word of the continuation is likelier when the prefix has it."""

    def __init__(self) -> None:
        self.asked: list[list[tuple[str, str]]] = []

    async def likelihoods(self, pairs: Sequence[tuple[str, str]]) -> list[list[float]]:
        self.asked.append(list(pairs))
        return [
            [-1.0 if word in prefix.split() else -5.0 for word in continuation.split()]
            for prefix, continuation in pairs
        ]


async def test_embedding_similarity():
    reranker = EmbeddingReranker(Letters())
    assert isinstance(reranker, Reranker)
    assert await reranker.score("a", ["b", "a", "ab"]) == pytest.approx([0, 1, 0.5**0.5])
    assert await reranker.score("a", []) == []


async def test_question_likelihood():
    model = Overlap()
    reranker = LikelihoodReranker(model)
    assert isinstance(reranker, Reranker)
    scores = await reranker.score("big cats", ["Cats\nabout big cats", "Dogs\nabout dogs"])
    assert scores == pytest.approx([-1.0, -5.0])
    [together] = model.asked
    assert together[0] == ("Cats\nabout big cats\n\nQuestion:", " big cats")
    assert together[1] == ("Dogs\nabout dogs\n\nQuestion:", " big cats")


async def test_question_likelihood_of_no_texts_and_of_no_question():
    model = Overlap()
    reranker = LikelihoodReranker(model)
    assert await reranker.score("big cats", []) == []
    assert not model.asked
    assert await reranker.score("", TEXTS) == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("ending", ["", "/rerank"])
async def test_http(openai_server, policy, ending):
    reranker = HTTPReranker(openai_server.url + ending, "r", "key", policy=policy)
    assert isinstance(reranker, Reranker)
    assert await reranker.score("big cats", TEXTS) == [1.0, 0.0, 2.0]
    sent = openai_server.requests[0]
    assert sent["path"] == "/rerank"
    assert (sent["model"], sent["query"], sent["documents"]) == ("r", "big cats", TEXTS)
    assert sent["headers"]["authorization"] == "Bearer key"
    assert reranker.name == f"http:r@{openai_server.url}"
    assert await reranker.score("big cats", []) == []
    await reranker.aclose()


@pytest.mark.parametrize(
    "body",
    [
        b"{}",
        b'{"results": [{"index": 0, "relevance_score": 1}]}',
        b'{"results": [{"index": 0, "relevance_score": 1}, {"index": 2, "relevance_score": 1}]}',
        b'{"results": [{"index": 0, "relevance_score": 1}, {"index": 0, "relevance_score": 1}]}',
        b'{"results": [{"index": 0, "score": 1}, {"index": 1, "score": 1}]}',
        b'{"results": [{"index": 0, "relevance_score": "x"}]}',
        b'{"results": [{"index": Infinity, "relevance_score": 1}]}',
        b'{"results": [{"index": 0, "relevance_score": 1}, {"index": 1, "relevance_score": NaN}]}',
    ],
)
async def test_http_wrong_answers(openai_server, policy, body):
    openai_server.garble(body, times=3)
    reranker = HTTPReranker(openai_server.url, "r", policy=policy)
    with pytest.raises(MalformedOutput):
        await reranker.score("q", ["a", "b"])
    await reranker.aclose()


async def test_http_wrong_key_names_its_variable(openai_server, policy):
    openai_server.key = "wanted"
    reranker = HTTPReranker(openai_server.url, "r", policy=policy)
    with pytest.raises(NotAuthorised, match="COLLIGATE_RERANKER_KEY"):
        await reranker.score("q", ["a"])
    await reranker.aclose()
