"""What can be asked of a model, capability by capability.

A backend implements `ChatModel` and as many of the other protocols as it honestly can; it
says which in `capabilities`. Nothing is assumed: what is not declared is absent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray


class Capability(StrEnum):
    """What a model can do; the table in docs/models.md says who needs which."""

    CHAT = "chat"  # messages in, text and usage out; streaming
    STRUCTURED = "structured"  # output held to a JSON schema while it is decoded
    LIKELIHOOD = "likelihood"  # log-probability of each token of a continuation
    LABELS = "labels"  # probability of each of a few labels after a prefix
    ATTENTION = "attention"  # attention the last token pays to spans of the prompt
    ADAPTERS = "adapters"  # a LoRA adapter per role over one base


class Role(StrEnum):
    """What a strategy uses a model for. `reader` fills any role that has no model of its own."""

    READER = "reader"
    WORKER = "worker"
    SCORER = "scorer"
    JUDGE = "judge"


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation."""

    role: Literal["system", "user", "assistant"]
    content: str


@dataclass(frozen=True, slots=True)
class Usage:
    """What one call cost, in tokens. `estimated` when the backend did not say."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    estimated: bool = False

    def __add__(self, other: Usage) -> Usage:
        """What two calls cost together."""
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cached_tokens + other.cached_tokens,
            self.estimated or other.estimated,
        )


@dataclass(frozen=True)
class Completion:
    """The answer to one chat call. `text` carries no `<think>` block: that is in `thinking`.

    `warnings` say what the backend did differently from what was asked (a parameter the
    model refused, a schema the server cannot hold). `cached` when it was answered before and
    cost nothing now; `usage` is then what it cost the first time.
    """

    text: str
    usage: Usage = Usage()
    model: str = ""
    finish_reason: str = "stop"
    thinking: str = ""
    warnings: tuple[str, ...] = ()
    cached: bool = False


class OnToken(Protocol):
    """Called with each piece of text as it arrives; streaming is asked for by giving one."""

    def __call__(self, piece: str) -> None: ...


@runtime_checkable
class ChatModel(Protocol):
    """A model that chats. All backends are this."""

    @property
    def name(self) -> str:
        """The model string that names it, e.g. `openai:gpt-5@https://...`."""
        ...

    @property
    def capabilities(self) -> frozenset[Capability]:
        """What it can do."""
        ...

    @property
    def context_tokens(self) -> int | None:
        """How many tokens prompt and answer may have together; None when unknown."""
        ...

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
        """One call.

        `schema` is a JSON schema the answer should satisfy. A backend with
        `Capability.STRUCTURED` holds the decoding to it; another does its best and the caller
        repairs (`structured.py`). `on_token` makes the call stream; the completion is the
        same. Cancelling the task stops the generation.

        Raises:
            ModelError: one of its subclasses, once the bounded retries are spent.
        """
        ...

    async def count_tokens(self, text: str) -> int:
        """Tokens of a text: exact with the backend's own tokenizer, else an estimate."""
        ...

    async def aclose(self) -> None:
        """Free what the model holds. Safe to call twice."""
        ...


@runtime_checkable
class LikelihoodModel(Protocol):
    """`Capability.LIKELIHOOD`."""

    async def likelihood(self, prefix: str, continuation: str) -> list[float]:
        """Natural log-probability of each token of `continuation` after `prefix`.

        The two are tokenised apart, so the boundary is exact.
        """
        ...


@runtime_checkable
class LabelModel(Protocol):
    """`Capability.LABELS`."""

    async def labels(self, prefix: Sequence[Message], labels: Sequence[str]) -> dict[str, float]:
        """Probability of each label as the answer's beginning; they sum to 1."""
        ...


@runtime_checkable
class Embedder(Protocol):
    """Texts to vectors."""

    @property
    def name(self) -> str:
        """What a library records: vectors of different names never mix."""
        ...

    @property
    def dimension(self) -> int:
        """Length of each vector."""
        ...

    async def embed(
        self, texts: Sequence[str], kind: Literal["passage", "query"] = "passage"
    ) -> NDArray[np.float32]:
        """One row a text, float32, of unit length. Empty texts are allowed."""
        ...

    async def aclose(self) -> None:
        """Free what the embedder holds. Safe to call twice."""
        ...


@runtime_checkable
class Reranker(Protocol):
    """Scores passages for a query; higher is better, scores compare within one call only."""

    @property
    def name(self) -> str:
        """As given on the command line."""
        ...

    async def score(self, query: str, texts: Sequence[str]) -> list[float]:
        """One score a text, in the order given."""
        ...

    async def aclose(self) -> None:
        """Free what the reranker holds. Safe to call twice."""
        ...


@dataclass(frozen=True)
class Price:
    """US dollars for a million tokens."""

    input: float = 0.0
    output: float = 0.0
    cached: float | None = None
    source: str = field(default="", compare=False)

    def of(self, usage: Usage) -> float:
        """What a call cost, in US dollars."""
        cached_price = self.input if self.cached is None else self.cached
        fresh = max(0, usage.input_tokens - usage.cached_tokens)
        return (
            fresh * self.input
            + usage.cached_tokens * cached_price
            + usage.output_tokens * self.output
        ) / 1e6
