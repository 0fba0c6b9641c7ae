"""Embeddings from any OpenAI-compatible `/embeddings`."""

from __future__ import annotations

import asyncio
import base64
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal

import numpy as np
import openai
from numpy.typing import NDArray
from openai import AsyncOpenAI

from colligate.models.failures import Garbled, is_context_error
from colligate.models.text import encodable
from colligate.models.transport import Endpoint, Policy
from colligate.token_estimate import estimate_tokens


class OpenAIEmbedder:
    """An embedder behind an OpenAI-compatible endpoint.

    Requests hold at most `batch` texts and about `batch_tokens` tokens, several in flight at
    once. Passages and queries are embedded alike: the protocol knows no difference.
    """

    def __init__(
        self,
        model: str,
        base_url: str | None = None,
        api_key: str | None = None,
        *,
        dimension: int | None = None,
        batch: int = 64,
        batch_tokens: int = 16_000,
        policy: Policy | None = None,
    ) -> None:
        self._model = model
        self._endpoint = Endpoint(
            base_url or os.environ.get("OPENAI_BASE_URL"), api_key, policy=policy
        )
        self._dimension = dimension
        self._batch = batch
        self._batch_tokens = batch_tokens
        self._encoding: str | None = "base64"  # a quarter of the bytes; None once refused

    @property
    def name(self) -> str:
        """`openai:MODEL`, with `@URL` where it is not OpenAI's own."""
        return f"openai:{self._model}" + (
            "" if self._endpoint.is_openai else f"@{self._endpoint.url}"
        )

    @property
    def dimension(self) -> int:
        """Length of each vector: as given, as first seen, else asked for now (this blocks)."""
        if self._dimension is None:
            with ThreadPoolExecutor(1) as thread:
                thread.submit(asyncio.run, self._discover()).result()
        assert self._dimension is not None
        return self._dimension

    async def _discover(self) -> None:
        try:
            await self.embed(["dimension"])
        finally:
            await self.aclose()

    def __repr__(self) -> str:
        return f"OpenAIEmbedder({self.name!r})"

    async def embed(
        self, texts: Sequence[str], kind: Literal["passage", "query"] = "passage"
    ) -> NDArray[np.float32]:
        """Vectors of unit length, (texts, dimension) float32, in the order of the texts.

        Raises:
            ModelError: one of its subclasses; ContextTooSmall for a text over the model's limit.
        """
        if not texts:
            return np.zeros((0, self.dimension), dtype=np.float32)
        asked = [
            asyncio.ensure_future(self._endpoint.call(self._attempt(batch), model=self._model))
            for batch in self._batches(texts)
        ]
        try:
            rows = np.concatenate(await asyncio.gather(*asked))
        finally:
            for call in asked:
                call.cancel()
        return rows

    def _batches(self, texts: Sequence[str]) -> Iterator[list[str]]:
        batch: list[str] = []
        tokens = 0
        for text in texts:
            size = estimate_tokens(text)
            if batch and (len(batch) == self._batch or tokens + size > self._batch_tokens):
                yield batch
                batch, tokens = [], 0
            batch.append(encodable(text) if text.strip() else " ")  # an empty input is refused
            tokens += size
        yield batch

    def _attempt(self, batch: list[str]) -> Any:
        async def attempt(client: AsyncOpenAI) -> NDArray[np.float32]:
            while True:
                encoding = self._encoding
                body: dict[str, Any] = {"model": self._model, "input": batch}
                if encoding is not None:
                    body["encoding_format"] = encoding
                try:
                    answer = await client.post("/embeddings", body=body, cast_to=object)
                except (openai.BadRequestError, openai.UnprocessableEntityError) as error:
                    if encoding is None or is_context_error(error):
                        raise
                    self._encoding = None  # perhaps it was this; if not, it is refused again
                    continue
                return self._rows(answer, len(batch))

        return attempt

    def _rows(self, answer: Any, count: int) -> NDArray[np.float32]:
        """The vectors in the order asked, checked and scaled to unit length."""
        try:
            entries = answer["data"]
            by_place = {
                int(entry.get("index", at)): _vector(entry["embedding"])
                for at, entry in enumerate(entries)
            }
        except (KeyError, TypeError, AttributeError, ValueError, OverflowError):
            raise Garbled("it holds no embeddings") from None
        if len(entries) != count or sorted(by_place) != list(range(count)):
            raise Garbled(f"it has embeddings {sorted(by_place)} for {count} texts")
        vectors = [by_place[at] for at in range(count)]
        length = self._dimension or vectors[0].size
        if any(vector.shape != (length,) for vector in vectors):
            raise Garbled(f"its embeddings are not all of length {length}")
        rows = np.stack(vectors)
        norms = np.linalg.norm(rows, axis=1, keepdims=True)
        if not (np.isfinite(norms).all() and (norms > 0).all()):
            raise Garbled("an embedding is zero or not finite")
        self._dimension = length
        rows /= norms
        return rows

    async def aclose(self) -> None:
        """Close the connections. Safe to call twice."""
        await self._endpoint.aclose()


def _vector(embedding: object) -> NDArray[np.float32]:
    if isinstance(embedding, str):
        return np.frombuffer(base64.b64decode(embedding, validate=True), dtype="<f4")
    return np.asarray(embedding, dtype=np.float32)
