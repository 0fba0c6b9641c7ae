"""What a strategy is given: the sources in view, the models by role, the budget, the trace.

Every search and every model call of a strategy goes through its `Run`, which checks the budget,
records the call in the meter and in the trace, and raises before a prompt that cannot fit.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

from pydantic import BaseModel

from colligate.documents import Document, Hit, Passage
from colligate.errors import BudgetExceeded, ContextTooSmall
from colligate.library.sources import SearchMode, Sources
from colligate.models import ChatModel, Completion, Message, Reranker, Role
from colligate.models.metering import Meter
from colligate.models.structured import Structured, structured
from colligate.strategies.trace import Asked, Event, Noted, Retrieved, Scored, Trace

T = TypeVar("T", bound=BaseModel)


@dataclass(frozen=True)
class Budget:
    """What a run may spend: tokens in and out together. None is without limit."""

    max_tokens: int | None = None


@dataclass
class Run:
    """One run of one strategy over one question."""

    sources: Sources
    models: Mapping[Role, ChatModel]
    meter: Meter
    trace: Trace = field(default_factory=Trace)
    budget: Budget = Budget()
    reranker: Reranker | None = None
    _documents: dict[str, Document] = field(default_factory=dict, repr=False)

    def model(self, role: Role) -> ChatModel:
        """The model of a role; the reader fills roles that have none of their own."""
        return self.models.get(role) or self.models[Role.READER]

    def emit(self, event: Event) -> None:
        """Record an event in the trace."""
        self.trace.emit(event)

    def warn(self, text: str) -> None:
        """Say something the person asking should know; it reaches `Answer.warnings`."""
        if text not in self.warnings:
            self.emit(Noted(text, warning=True))

    @property
    def warnings(self) -> tuple[str, ...]:
        """What was warned of so far, in order."""
        return tuple(e.text for _, e in self.trace.events if isinstance(e, Noted) and e.warning)

    async def document(self, document_id: str) -> Document:
        """A document in view, read once per run."""
        if document_id not in self._documents:
            self._documents[document_id] = await self.sources.document(document_id)
        return self._documents[document_id]

    async def documents_of(self, passages: Sequence[Passage]) -> dict[str, Document]:
        """The documents that passages stand in, by id."""
        return {p.document_id: await self.document(p.document_id) for p in passages}

    async def search(
        self,
        query: str,
        *,
        k: int,
        pool: int | None = None,
        mode: SearchMode = SearchMode.HYBRID,
        documents: Collection[str] | None = None,
    ) -> list[Hit]:
        """The `k` best passages for a query.

        With a reranker, `pool` passages are searched and the best `k` by the reranker's score
        are kept; without one, the search's own order stands.
        """
        rerank = self.reranker is not None and pool is not None and pool > k
        began = time.perf_counter()
        hits = await self.sources.search(
            query, k=pool if rerank and pool else k, mode=mode, documents=documents
        )
        self.meter.retrieval()
        self.emit(_retrieved(query, hits, SearchMode(mode).value, time.perf_counter() - began))
        if rerank and hits:
            hits = await self._reranked(query, hits)
        return hits[:k]

    async def _reranked(self, query: str, hits: list[Hit]) -> list[Hit]:
        assert self.reranker is not None
        began = time.perf_counter()
        scores = await self.reranker.score(query, [shown(h.passage) for h in hits])
        seconds = time.perf_counter() - began
        self.meter.scoring(Role.SCORER, self.reranker.name, passes=len(hits), seconds=seconds)
        spans = tuple(h.passage.span for h in hits)
        self.emit(Scored(self.reranker.name, spans, tuple(scores), seconds))
        ranked = sorted(zip(scores, hits, strict=True), key=lambda pair: -pair[0])
        return [replace(hit, score=score) for score, hit in ranked]

    async def chat(
        self, messages: Sequence[Message], *, role: Role = Role.READER, max_tokens: int
    ) -> Completion:
        """One chat call, greedy."""
        return await self._ask(role, messages, max_tokens=max_tokens)

    async def structured(
        self,
        messages: Sequence[Message],
        schema: type[T],
        *,
        role: Role = Role.READER,
        max_tokens: int,
    ) -> Structured[T]:
        """One chat call whose reply is a `schema`, and at most two more if it is not.

        Each is checked against the budget and metered, whatever comes of it.
        """
        ask = partial(self._ask, role)
        result = await structured(ask, messages, schema, max_tokens=max_tokens)
        for warning in result.warnings:
            self.warn(warning)
        return result

    async def _ask(
        self, role: Role, messages: Sequence[Message], *, max_tokens: int, **options: Any
    ) -> Completion:
        model = self.model(role)
        await self._must_fit(model, messages, max_tokens)
        began = time.perf_counter()
        completion = await model.chat(messages, max_tokens=max_tokens, **options)
        seconds = time.perf_counter() - began
        usage = completion.usage
        self.meter.chat(role, model.name, usage, seconds=seconds, cached=completion.cached)
        for warning in completion.warnings:
            self.warn(warning)
        self.emit(Asked(role, model.name, tuple(messages), completion.text, usage, seconds))
        return completion

    async def room(self, role: Role, messages: Sequence[Message], max_tokens: int) -> int | None:
        """Tokens left in the model's window beside a prompt and its reply; None if unbounded."""
        model = self.model(role)
        if model.context_tokens is None:
            return None
        # A template adds a few tokens around each message; sixteen covers those in use.
        prompt = sum([await model.count_tokens(m.content) + 16 for m in messages])
        return model.context_tokens - prompt - max_tokens

    async def _must_fit(
        self, model: ChatModel, messages: Sequence[Message], max_tokens: int
    ) -> None:
        prompt = sum([await model.count_tokens(m.content) + 16 for m in messages])
        window = model.context_tokens
        if window is not None and prompt + max_tokens > window:
            raise ContextTooSmall(
                f"the prompt does not fit {model.name}",
                f"it has about {prompt} tokens and the reply {max_tokens}, the window is {window}",
                "take fewer documents, retrieve-read, or a model with a larger window",
            )
        limit = self.budget.max_tokens
        used = self.meter.tokens
        if limit is not None and used + prompt + max_tokens > limit:
            raise BudgetExceeded(
                "the token budget is spent",
                f"{used} tokens are used and the next call may take "
                f"{prompt + max_tokens}, the limit is {limit}",
                "raise --max-tokens-total",
            )


def shown(passage: Passage) -> str:
    """A passage with its title and heading path, as rerankers see it."""
    return "\n".join([" > ".join([passage.title, *passage.section]), passage.text])


def _retrieved(query: str, hits: Sequence[Hit], how: str, seconds: float) -> Retrieved:
    return Retrieved(
        query=query,
        spans=tuple(h.passage.span for h in hits),
        scores=tuple(h.score for h in hits),
        how=how,
        seconds=seconds,
    )
