"""A model that says what it is told to: for tests of control flow, demonstrations and dry runs."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from colligate.documents.tokens import estimate_tokens, token_spans
from colligate.errors import MissingCapability, UsageError
from colligate.models.base import Capability, Completion, LabelOdds, Message, OnToken, Prompt, Usage
from colligate.models.thinking import ThinkingFilter, split_thinking

Reply = str | Completion | BaseException

LikelihoodScript = Callable[[str, str], Sequence[float]]
"""Prefix and continuation in, a log-probability a token out."""
LabelScript = Callable[[Sequence[Message], Sequence[str], str], LabelOdds]
"""Messages, labels and what the answer is forced to begin with in, their odds out."""
AttentionScript = Callable[[Prompt, Sequence[tuple[int, int]]], Sequence[float]]
"""Prompt and spans in, a number a span out."""


@dataclass(frozen=True)
class ScriptedCall:
    """What one call asked for."""

    messages: tuple[Message, ...]
    max_tokens: int
    temperature: float
    stop: tuple[str, ...]
    seed: int | None
    schema: Mapping[str, Any] | None

    @property
    def prompt(self) -> str:
        """All the messages' text, blank lines between."""
        return "\n\n".join(message.content for message in self.messages)


class ScriptedModel:
    """Replies with the given replies in turn, or with what a function of the call returns.

    A reply is a text, a whole `Completion`, or an exception to raise. `calls` records every call.
    `likelihood`, `labels` and `attention` are functions that give what those calls return; each
    given one adds its capability.
    """

    def __init__(
        self,
        replies: Iterable[Reply] | Callable[[ScriptedCall], Reply] = (),
        name: str = "scripted",
        *,
        capabilities: Iterable[Capability] = (Capability.CHAT,),
        context_tokens: int | None = None,
        likelihood: LikelihoodScript | None = None,
        labels: LabelScript | None = None,
        attention: AttentionScript | None = None,
    ) -> None:
        self._reply = replies if callable(replies) else None
        self._replies = [] if callable(replies) else list(replies)
        self._name = name
        scripts = {
            Capability.LIKELIHOOD: likelihood,
            Capability.LABELS: labels,
            Capability.ATTENTION: attention,
        }
        scripted = {capability for capability, script in scripts.items() if script is not None}
        self._capabilities = frozenset(capabilities) | scripted
        self._likelihood, self._labels, self._attention = likelihood, labels, attention
        self._context_tokens = context_tokens
        self.calls: list[ScriptedCall] = []

    @property
    def name(self) -> str:
        """As given."""
        return self._name

    @property
    def capabilities(self) -> frozenset[Capability]:
        """As given, and what functions were given for."""
        return self._capabilities

    @property
    def context_tokens(self) -> int | None:
        """As given."""
        return self._context_tokens

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
        """The next reply; `on_token` gets it word by word.

        Raises:
            UsageError: the list of replies is used up.
        """
        call = ScriptedCall(tuple(messages), max_tokens, temperature, tuple(stop), seed, schema)
        self.calls.append(call)
        await asyncio.sleep(0)  # like any other model, it lets others run
        if self._reply is not None:
            reply = self._reply(call)
        elif self._replies:
            reply = self._replies.pop(0)
        else:
            raise UsageError(
                f"model {self._name!r} has no reply left",
                f"this is call {len(self.calls)}",
                "script more replies",
            )
        if isinstance(reply, BaseException):
            raise reply
        if on_token is not None:
            _stream(reply if isinstance(reply, str) else reply.text, on_token)
        if isinstance(reply, Completion):
            return reply
        text, thinking = split_thinking(reply)
        return Completion(
            text=text,
            usage=Usage(
                input_tokens=await self.count_prompt(messages),
                output_tokens=estimate_tokens(text) + estimate_tokens(thinking),
                estimated=True,
            ),
            model=self._name,
            thinking=thinking,
        )

    async def likelihood(self, prefix: str, continuation: str) -> list[float]:
        """What the function says."""
        return (await self.likelihoods([(prefix, continuation)]))[0]

    async def likelihoods(self, pairs: Sequence[tuple[str, str]]) -> list[list[float]]:
        """What the function says of each pair."""
        if self._likelihood is None:
            raise MissingCapability(f"{self._name} gives no likelihoods")
        await asyncio.sleep(0)
        return [list(self._likelihood(prefix, continuation)) for prefix, continuation in pairs]

    async def labels(
        self, messages: Sequence[Message], labels: Sequence[str], *, forced: str = ""
    ) -> LabelOdds:
        """What the function says."""
        if self._labels is None:
            raise MissingCapability(f"{self._name} gives no label probabilities")
        await asyncio.sleep(0)
        return self._labels(messages, labels, forced)

    async def attention(
        self,
        prompt: Prompt,
        spans: Sequence[tuple[int, int]],
        *,
        query: int | None = None,
        layers: tuple[float, float] = (0.0, 1.0),
    ) -> list[float]:
        """What the function says."""
        if self._attention is None:
            raise MissingCapability(f"{self._name} gives no attention")
        await asyncio.sleep(0)
        return list(self._attention(prompt, spans))

    async def count_tokens(self, text: str) -> int:
        """An estimate (`estimate_tokens`)."""
        return estimate_tokens(text)

    async def count_prompt(self, messages: Sequence[Message]) -> int:
        """An estimate, with four tokens a message for a template."""
        return sum(estimate_tokens(message.content) + 4 for message in messages)

    async def token_spans(self, text: str) -> list[tuple[int, int]]:
        """An estimate (`token_estimate.token_spans`)."""
        return token_spans(text)

    async def aclose(self) -> None:
        """Nothing to free."""


def _stream(text: str, on_token: OnToken) -> None:
    visible = ThinkingFilter()
    for word in re.findall(r"\S*\s*", text):
        if piece := visible.feed(word):
            on_token(piece)
    if last := visible.close():
        on_token(last)
