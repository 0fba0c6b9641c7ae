"""A chat model that remembers: the same question to the same model is paid for once."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from colligate.errors import MissingCapability
from colligate.models.protocols import (
    Capability,
    ChatModel,
    Completion,
    LabelModel,
    LikelihoodModel,
    Message,
    OnToken,
    Usage,
)
from colligate.models.response_cache import ResponseCache


class CachedChat:
    """A chat model whose deterministic answers are kept; else the same as the model it wraps.

    Kept are chat answers at temperature 0 or with a seed, likelihoods and label odds; failures
    never. `tags` gives the ids of the documents in view when a call is made.
    """

    def __init__(
        self,
        model: ChatModel,
        cache: ResponseCache,
        tags: Collection[str] | Callable[[], Collection[str]] = (),
    ) -> None:
        self._model = model
        self._cache = cache
        self._tags = tags if callable(tags) else lambda: tags
        self._said = 0

    @property
    def name(self) -> str:
        """The wrapped model's."""
        return self._model.name

    @property
    def capabilities(self) -> frozenset[Capability]:
        """The wrapped model's."""
        return self._model.capabilities

    @property
    def context_tokens(self) -> int | None:
        """The wrapped model's."""
        return self._model.context_tokens

    async def chat(
        self,
        messages: Sequence[Message],
        *,
        max_tokens: int,
        temperature: float = 0.0,
        stop: Sequence[str] = (),
        seed: int | None = None,
        schema: Mapping[str, Any] | None = None,
        on_token: OnToken | None = None,
    ) -> Completion:
        """As `ChatModel.chat`; an answer out of the cache says `cached`."""
        fresh: list[Completion] = []

        async def ask() -> dict[str, Any]:
            completion = await self._model.chat(
                messages,
                max_tokens=max_tokens,
                temperature=temperature,
                stop=stop,
                seed=seed,
                schema=schema,
                on_token=on_token,
            )
            fresh.append(completion)
            return asdict(replace(completion, warnings=()))

        if temperature != 0 and seed is None:
            await ask()
            return fresh[0]
        request = {
            "messages": [asdict(message) for message in messages],
            "max_tokens": max_tokens,
            "temperature": temperature,
            "stop": list(stop),
            "seed": seed,
            "schema": schema,
        }
        value = await self._remember("chat", request, ask)
        warnings = tuple(self._cache.warnings[self._said :])
        self._said = len(self._cache.warnings)
        if fresh:
            return replace(fresh[0], warnings=fresh[0].warnings + warnings)
        if on_token is not None and value["text"]:
            on_token(value["text"])
        return Completion(
            **{**value, "usage": Usage(**value["usage"]), "warnings": warnings, "cached": True}
        )

    async def likelihood(self, prefix: str, continuation: str) -> list[float]:
        """As `LikelihoodModel.likelihood`."""
        model = self._model
        if not isinstance(model, LikelihoodModel):
            raise MissingCapability(f"{self.name} gives no likelihoods")
        request = {"prefix": prefix, "continuation": continuation}
        value: list[float] = await self._remember(
            "likelihood", request, lambda: model.likelihood(prefix, continuation)
        )
        return value

    async def labels(self, prefix: Sequence[Message], labels: Sequence[str]) -> dict[str, float]:
        """As `LabelModel.labels`."""
        model = self._model
        if not isinstance(model, LabelModel):
            raise MissingCapability(f"{self.name} gives no label probabilities")
        request = {"prefix": [asdict(message) for message in prefix], "labels": list(labels)}
        value: dict[str, float] = await self._remember(
            "labels", request, lambda: model.labels(prefix, labels)
        )
        return value

    async def _remember(
        self, kind: str, request: Mapping[str, Any], ask: Callable[[], Awaitable[Any]]
    ) -> Any:
        key = _key(kind, self._model, request)
        value = await asyncio.to_thread(self._cache.get, key)
        if value is None:
            value = await ask()
            await asyncio.to_thread(self._cache.put, key, value, self._tags())
        return value

    async def count_tokens(self, text: str) -> int:
        """The wrapped model's."""
        return await self._model.count_tokens(text)

    async def aclose(self) -> None:
        """Close the model; the cache is its owner's to close. Safe to call twice."""
        await self._model.aclose()


def _key(kind: str, model: ChatModel, request: Mapping[str, Any]) -> str:
    """SHA-256 of everything an answer depends on; the request itself is not stored.

    A model whose name may come to mean other weights says so in `version`.
    """
    whole = {
        "kind": kind,
        "model": model.name,
        "version": getattr(model, "version", ""),
        "request": request,
    }
    text = json.dumps(whole, sort_keys=True, ensure_ascii=False, default=asdict)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
