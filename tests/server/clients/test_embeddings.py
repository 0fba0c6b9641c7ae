"""Embeddings through the clients of OpenAI and Ollama."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import openai
import pytest
from ollama import Client, ResponseError
from openai import OpenAI

from support.http_server import RULES

TEXTS = ["Bicycles stand in the yard.", ""]


@pytest.fixture
def client(served: Any) -> Iterator[OpenAI]:
    with OpenAI(base_url=served.url + "v1", api_key=served.reader, timeout=30) as opened:
        yield opened


@pytest.fixture
def ollama(served: Any) -> Iterator[Client]:
    headers = {"Authorization": f"Bearer {served.reader}"}
    with Client(served.url, headers=headers, timeout=30) as opened:
        yield opened


def test_texts_have_the_vectors_of_the_librarys_embedder(client, ollama):
    given = client.embeddings.create(model="embedder", input=TEXTS)  # as base64
    vectors = np.array([each.embedding for each in given.data])
    assert (vectors.shape, given.model) == ((2, 256), "static")
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    assert 0 < given.usage.prompt_tokens == given.usage.total_tokens < 20
    plain = client.embeddings.create(
        model="colligate/embedder@default", input=TEXTS[0], encoding_format="float", dimensions=256
    )
    assert np.allclose(plain.data[0].embedding, vectors[0])
    other = ollama.embed("embedder:latest", TEXTS, truncate=True)
    assert (other.model, other.prompt_eval_count) == ("static", given.usage.prompt_tokens)
    assert np.allclose(other.embeddings, vectors)


@pytest.mark.parametrize(
    ("wrong", "status", "param"),
    [
        ({"model": "text-embedding-3-small"}, 404, "model"),
        ({"model": "duquad"}, 404, "model"),
        ({"model": "embedder@nowhere"}, 404, "model"),
        ({"dimensions": 64}, 400, "dimensions"),
        ({"input": []}, 400, "input"),
        ({"input": [[1, 2]]}, 400, "input.0"),
        ({"input": ["x"] * 2049}, 400, "input"),
        ({"encoding_format": "int8"}, 400, "encoding_format"),
    ],
)
def test_what_cannot_be_done_is_refused(client, wrong, status, param):
    body = {"model": "embedder", "input": "x", **wrong}
    with pytest.raises(openai.APIStatusError) as error:
        client.embeddings.create(**body)
    assert (error.value.status_code, error.value.param) == (status, param)


def test_ollamas_client_is_refused_in_its_own_form(ollama):
    for wrong, why in (
        ({"model": "all-minilm"}, "no embedder 'all-minilm'; write embedder"),
        ({"truncate": False}, "truncate: what the embedder cannot read is cut off"),
    ):
        with pytest.raises(ResponseError) as error:
            ollama.embed(**{"model": "embedder", "input": "x", **wrong})
        assert error.value.error.startswith(why)


async def test_a_library_without_documents_has_no_embedder_yet(serve):
    """It is chosen by the languages of the first ones."""
    half_a_pair = b'{"model": "embedder", "input": "\\ud83d"}'
    headers = {"Content-Type": "application/json"}
    async with serve() as client:
        for path in ("/v1/embeddings", "/api/embed"):
            refused = await client.post(path, content=half_a_pair, headers=headers)
            assert refused.status_code == 409
            assert "the library default has no documents yet" in refused.text
        await client.add(RULES)
        accepted = await client.post("/api/embed", content=half_a_pair, headers=headers)
        assert accepted.status_code == 200
