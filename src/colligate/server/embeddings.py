"""Vectors of a library's embedder, in OpenAI's form and in Ollama's.

`model` is `embedder`, alone or after `colligate/`, and may end in `@` and the name of a library.
"""

from __future__ import annotations

import asyncio
import base64
from typing import Annotated, Any, Literal

import numpy as np
from fastapi import APIRouter
from numpy.typing import NDArray
from pydantic import BaseModel, BeforeValidator, Field
from starlette.responses import Response

from colligate.documents.document import clean_text
from colligate.documents.tokens import estimate_tokens
from colligate.errors import NoDocuments
from colligate.server.errors import NotHere, Refused
from colligate.server.openai import parse_model
from colligate.server.state import ServerState, State
from colligate.server.stream import AsciiJSONResponse

router = APIRouter()

_NAME = "embedder"
_MOST_TEXTS = 2048  # as at OpenAI


def _as_list(given: object) -> object:
    return [given] if isinstance(given, str) else given


class EmbeddingRequest(BaseModel):
    """Texts to embed; fields that are not named here are accepted and change nothing."""

    model: str = Field(min_length=1, max_length=200, examples=[_NAME])
    input: Annotated[
        list[str],
        Field(min_length=1, max_length=_MOST_TEXTS),
        BeforeValidator(_as_list, json_schema_input_type=str | list[str]),
    ]
    encoding_format: Literal["float", "base64"] | None = None  # OpenAI's
    dimensions: int | None = None
    truncate: bool | None = None  # Ollama's


@router.post("/v1/embeddings", tags=["OpenAI"], summary="Embed texts")
async def create_embeddings(body: EmbeddingRequest, server: State) -> Response:
    """Return the vectors that a search would compare; `model` names the embedder."""
    name, vectors = await _embed(body, server)

    def respond() -> Response:
        form, tokens = body.encoding_format, _count_tokens(body)
        data = [
            {"object": "embedding", "index": at, "embedding": _encode(vector, form)}
            for at, vector in enumerate(vectors)
        ]
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        return AsciiJSONResponse({"object": "list", "data": data, "model": name, "usage": usage})

    return await asyncio.to_thread(respond)  # a large reply takes half a second


@router.post("/api/embed", tags=["Ollama"], summary="Embed texts")
async def embed(body: EmbeddingRequest, server: State) -> Response:
    """Return the vectors that a search would compare; `model` names the embedder."""
    name, vectors = await _embed(body, server)

    def respond() -> Response:
        reply = {"model": name, "embeddings": vectors.tolist()}
        return AsciiJSONResponse(reply | {"prompt_eval_count": _count_tokens(body)})

    return await asyncio.to_thread(respond)


async def _embed(body: EmbeddingRequest, server: ServerState) -> tuple[str, NDArray[np.float32]]:
    """Return the name of the library's embedder, and a vector for each text."""
    _, name = parse_model(body.model, server, _check_name)
    library = await server.libraries.open_library(name)
    embedder = await library.embedder_name()
    if embedder is None:  # one chosen now would not be chosen by the documents' languages
        why = "its embedder is set with the first ones"
        raise NoDocuments(f"the library {name} has no documents yet", why, "add some")
    vectors = await library.embed([clean_text(text) for text in body.input])
    length = vectors.shape[1]
    for param, possible, why in (
        ("dimensions", body.dimensions in (None, length), f"the vectors have {length}"),
        ("truncate", body.truncate is not False, "what the embedder cannot read is cut off"),
    ):
        if not possible:
            raise Refused(400, f"{param}: {why}", param=param, code="unsupported_value")
    return embedder, vectors


def _check_name(name: str) -> None:
    if name != _NAME:
        raise NotHere(f"no embedder {name!r}", "", f"write {_NAME}, or {_NAME}@LIBRARY")


def _count_tokens(body: EmbeddingRequest) -> int:
    return sum(map(estimate_tokens, body.input))  # embedders do not tell


def _encode(vector: NDArray[np.float32], form: str | None) -> Any:
    if form == "base64":
        return base64.b64encode(vector.astype("<f4").tobytes()).decode()
    return vector.tolist()
