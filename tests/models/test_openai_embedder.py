"""Embeddings over HTTP: order, length and norm hold whatever the server does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from colligate.errors import ContextTooSmall, MalformedOutput
from colligate.models import Embedder
from colligate.models.openai import OpenAIEmbedder
from colligate.models.openai_http import Policy

TEXTS = [f"text number {number}" for number in range(10)]


@pytest.fixture
async def embedder(openai_server: Any, policy: Policy) -> Any:
    embedder = OpenAIEmbedder("e", openai_server.url, policy=policy, batch=4)
    yield embedder
    await embedder.aclose()
    await embedder.aclose()


async def test_batches_keep_the_order(openai_server: Any, embedder: OpenAIEmbedder) -> None:
    rows = await embedder.embed(TEXTS)
    assert rows.dtype == np.float32
    assert rows.shape == (10, 8)
    assert np.allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-6)
    assert sorted(len(sent["input"]) for sent in openai_server.requests) == [2, 4, 4]
    one_by_one = [(await embedder.embed([text], "query"))[0] for text in TEXTS]
    assert np.allclose(rows, one_by_one, atol=1e-6)
    assert len({row.tobytes() for row in rows}) == 10
    assert isinstance(embedder, Embedder)


async def test_batches_by_tokens(openai_server: Any, policy: Policy) -> None:
    embedder = OpenAIEmbedder("e", openai_server.url, policy=policy, batch_tokens=100)
    await embedder.embed(["long " * 60, "long " * 60, "short", "short"])
    assert sorted(len(sent["input"]) for sent in openai_server.requests) == [1, 3]
    await embedder.aclose()


async def test_floats_where_base64_is_refused(openai_server: Any, embedder: OpenAIEmbedder) -> None:
    packed = await embedder.embed(TEXTS[:1])
    openai_server.refused = {"encoding_format"}
    plain = await embedder.embed(TEXTS[:1])
    assert np.allclose(packed, plain, atol=1e-6)
    await embedder.embed(TEXTS[:1])
    assert len(openai_server.requests) == 4


async def test_dimension_is_discovered(openai_server: Any, embedder: OpenAIEmbedder) -> None:
    openai_server.dimension = 48
    assert embedder.dimension == 48
    assert embedder.dimension == 48
    assert len(openai_server.requests) == 1


def test_dimension_given_asks_nobody() -> None:
    embedder = OpenAIEmbedder("e", "http://127.0.0.1:9/v1", dimension=3)
    assert embedder.dimension == 3
    assert embedder.name == "openai:e@http://127.0.0.1:9/v1"


@pytest.mark.parametrize(
    "body",
    [
        b"[]",
        b'{"data": []}',
        b'{"data": [{"index": 1, "embedding": [1.0]}]}',
        b'{"data": [{"index": 0, "embedding": [0.0, 0.0]}]}',
        b'{"data": [{"index": 0, "embedding": "%%%"}]}',
        b'{"data": [{"index": 0, "embedding": ["a"]}]}',
        b'{"data": [{"index": 0, "embedding": [1.0]}, {"index": 0, "embedding": [1.0]}]}',
        b'{"data": [{"index": "x", "embedding": [1.0]}]}',
        b'{"data": [{"index": Infinity, "embedding": [1.0]}]}',
        b'{"data": [{"index": 0, "embedding": [[1.0]]}]}',
        b'{"data": [{"index": 0, "embedding": 1.0}]}',
    ],
)
async def test_wrong_answers(openai_server: Any, embedder: OpenAIEmbedder, body: bytes) -> None:
    openai_server.garble(body, times=3)
    with pytest.raises(MalformedOutput):
        await embedder.embed(["a"])


async def test_another_length_later(openai_server: Any, embedder: OpenAIEmbedder) -> None:
    await embedder.embed(["a"])
    openai_server.dimension = 9
    with pytest.raises(MalformedOutput, match="length 8"):
        await embedder.embed(["b"])


async def test_one_failing_batch_fails_the_call(
    openai_server: Any, embedder: OpenAIEmbedder
) -> None:
    openai_server.fail(400, "context length exceeded")
    with pytest.raises(ContextTooSmall):
        await embedder.embed(TEXTS)


async def test_entries_of_mixed_kinds(openai_server: Any, embedder: OpenAIEmbedder) -> None:
    body = b'{"data": [{"index": 0, "embedding": [1.0]}, {"index": null, "embedding": [1.0]}]}'
    openai_server.garble(body, times=3)
    with pytest.raises(MalformedOutput):
        await embedder.embed(["a", "b"])
