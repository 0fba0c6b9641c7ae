"""Rerankers behind an endpoint."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

from colligate.models.base import encodable
from colligate.models.openai_http import Endpoint, Garbled, Policy


class HTTPReranker:
    """A `/rerank` endpoint in Cohere's form, as Cohere, Jina, vLLM and llama-server have it.

    `url` is the base URL, with or without the final `/rerank`.
    """

    def __init__(
        self, url: str, model: str, key: str | None = None, *, policy: Policy | None = None
    ) -> None:
        self._model = model
        url = url.rstrip("/").removesuffix("/rerank")
        policy = policy or Policy(key_variable="COLLIGATE_RERANKER_KEY")
        self._endpoint = Endpoint(url, key, policy=policy)
        self.name = f"http:{model}@{self._endpoint.url}"

    def __repr__(self) -> str:
        return f"HTTPReranker({self.name!r})"

    async def score(self, query: str, texts: Sequence[str]) -> list[float]:
        if not texts:
            return []
        body = {
            "model": self._model,
            "query": encodable(query),
            "documents": [encodable(text) for text in texts],
            "top_n": len(texts),
        }
        read = partial(_read_scores, count=len(texts))
        return await self._endpoint.post("/rerank", body, read, model=self._model)

    async def aclose(self) -> None:
        await self._endpoint.aclose()


def _read_scores(answer: Any, count: int) -> list[float]:
    try:
        results = answer["results"]
        scores = {int(result["index"]): float(result["relevance_score"]) for result in results}
    except (KeyError, TypeError, ValueError, OverflowError):
        raise Garbled("it has no rerank results") from None
    if len(results) != count or sorted(scores) != list(range(count)):
        raise Garbled(f"it scores texts {sorted(scores)} of {count}")
    if not all(map(math.isfinite, scores.values())):
        raise Garbled("a score is not finite")
    return [scores[index] for index in range(count)]
