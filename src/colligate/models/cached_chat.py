"""A chat model that remembers: the same question to the same model is paid for once."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from colligate.errors import MissingCapability
from colligate.models.protocols import (
    AdapterModel,
    AttentionModel,
    Capability,
    ChatModel,
    Completion,
    LabelModel,
    LabelOdds,
    LikelihoodModel,
    Message,
    OnToken,
    Prompt,
    Usage,
)
from colligate.models.response_cache import ResponseCache

_recalls: ContextVar[list[bool] | None] = ContextVar("recalls", default=None)


@contextmanager
def recalls() -> Iterator[list[bool]]:
    """Notes for each thing scored inside, in order, whether it was remembered and cost nothing.

    Scores are plain numbers, which cannot say so themselves as a `Completion` does. The list
    stays empty where the model scored is no `CachedChat`.
    """
    noted: list[bool] = []
    token = _recalls.set(noted)
    try:
        yield noted
    finally:
        _recalls.reset(token)


def _note(remembered: Iterable[bool]) -> None:
    noted = _recalls.get()
    if noted is not None:
        noted.extend(remembered)


class CachedChat:
    """A chat model whose deterministic answers are kept; else the same as the model it wraps.

    Kept are chat answers at temperature 0 or with a seed, likelihoods (pair by pair), label odds
    and attention; failures never. Equal calls made at the same time are asked once, those that
    stream excepted. `tags` gives the ids of the documents in view when a call is made. What the
    model cannot do is not in `capabilities`, and its method here raises MissingCapability.
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
        # Of the weights, for others that keep what this model said.
        self.version = str(getattr(model, "version", ""))

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
        value, _ = await self._remember("chat", request, ask, alone=on_token is not None)
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
        return (await self.likelihoods([(prefix, continuation)]))[0]

    async def likelihoods(self, pairs: Sequence[tuple[str, str]]) -> list[list[float]]:
        """As `LikelihoodModel.likelihoods`; the model is asked for the pairs not known yet."""
        model = self._model
        if not isinstance(model, LikelihoodModel):
            raise MissingCapability(f"{self.name} gives no likelihoods")
        requests = ({"prefix": prefix, "continuation": after} for prefix, after in pairs)
        keys = [_key("likelihood", self._model, request) for request in requests]
        unknown: dict[str, tuple[str, str]] = {}

        async def recall() -> dict[str, list[float]]:
            known = await asyncio.to_thread(self._cache.get_all, dict.fromkeys(keys))
            unknown.update(
                {key: pair for key, pair in zip(keys, pairs, strict=True) if key not in known}
            )
            if unknown:
                scores = await model.likelihoods(list(unknown.values()))
                asked = dict(zip(unknown, scores, strict=True))
                await asyncio.to_thread(self._cache.put_all, asked, self._tags())
                known |= asked
            return known

        values, _ = await self._cache.in_flight.share("likelihoods " + " ".join(keys), recall)
        _note(unknown.pop(key, None) is None for key in keys)
        return [list(values[key]) for key in keys]

    async def labels(
        self, messages: Sequence[Message], labels: Sequence[str], *, forced: str = ""
    ) -> LabelOdds:
        """As `LabelModel.labels`."""
        model = self._model
        if not isinstance(model, LabelModel):
            raise MissingCapability(f"{self.name} gives no label probabilities")

        async def ask() -> dict[str, Any]:
            odds = await model.labels(messages, labels, forced=forced)
            return {"odds": dict(odds.odds), "mass": odds.mass, "bounded": list(odds.bounded)}

        request = {
            "messages": [asdict(message) for message in messages],
            "labels": list(labels),
            "forced": forced,
        }
        value, remembered = await self._remember("labels", request, ask)
        _note([remembered] * len(labels))
        return LabelOdds(dict(value["odds"]), value["mass"], tuple(value["bounded"]))

    async def attention(
        self,
        prompt: Prompt,
        spans: Sequence[tuple[int, int]],
        *,
        query: int | None = None,
        layers: tuple[float, float] = (0.0, 1.0),
    ) -> list[float]:
        """As `AttentionModel.attention`."""
        model = self._model
        if not isinstance(model, AttentionModel):
            raise MissingCapability(f"{self.name} gives no attention")
        request = {
            "prompt": prompt if isinstance(prompt, str) else [asdict(turn) for turn in prompt],
            "spans": [list(span) for span in spans],
            "query": query,
            "layers": list(layers),
        }
        value, remembered = await self._remember(
            "attention",
            request,
            lambda: model.attention(prompt, spans, query=query, layers=layers),
        )
        _note([remembered])
        return list(value)

    async def with_adapter(self, adapter: str | Path) -> CachedChat:
        """As `AdapterModel.with_adapter`; what it answers is remembered apart from this one's."""
        model = self._model
        if not isinstance(model, AdapterModel):
            raise MissingCapability(f"{self.name} takes no adapters")
        return CachedChat(await model.with_adapter(adapter), self._cache, self._tags)

    async def _remember(
        self,
        kind: str,
        request: Mapping[str, Any],
        ask: Callable[[], Awaitable[Any]],
        *,
        alone: bool = False,
    ) -> tuple[Any, bool]:
        """The answer, and whether it was known or on its way already.

        What is asked `alone` waits for an equal call under way, and lets no other wait for it.
        """
        key = _key(kind, self._model, request)
        asked = False

        async def recall() -> Any:
            nonlocal asked
            value = await asyncio.to_thread(self._cache.get, key)
            if value is None:
                asked = True
                value = await ask()
                await asyncio.to_thread(self._cache.put, key, value, self._tags())
            return value

        if alone and key not in self._cache.in_flight:
            return await recall(), not asked
        value, _ = await self._cache.in_flight.share(key, recall)
        return value, not asked

    async def count_tokens(self, text: str) -> int:
        """The wrapped model's."""
        return await self._model.count_tokens(text)

    async def count_prompt(self, messages: Sequence[Message]) -> int:
        """The wrapped model's."""
        return await self._model.count_prompt(messages)

    async def token_spans(self, text: str) -> list[tuple[int, int]]:
        """The wrapped model's."""
        return await self._model.token_spans(text)

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
