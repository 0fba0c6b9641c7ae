"""What can be asked of a model, capability by capability.

A backend implements `ChatModel` and as many of the other protocols as it honestly can; it
says which in `capabilities`. Nothing is assumed: what is not declared is absent.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
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

    @property
    def cut(self) -> bool:
        """Whether there was more to say than the tokens it was allowed."""
        return self.finish_reason == "length"


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

    async def count_prompt(self, messages: Sequence[Message]) -> int:
        """Tokens of messages as the model reads them, its template included; exact or estimated
        as `count_tokens`.
        """
        ...

    async def token_spans(self, text: str) -> list[tuple[int, int]]:
        """The half-open character ranges of a text's tokens, in order; as many as `count_tokens`.

        Neither beginnings nor ends go back. Tokens that share a character (bytes of a rare
        letter) overlap; blanks may belong to no token.
        """
        ...

    async def aclose(self) -> None:
        """Free what the model holds. Safe to call twice."""
        ...


@runtime_checkable
class LikelihoodModel(Protocol):
    """`Capability.LIKELIHOOD`."""

    async def likelihood(self, prefix: str, continuation: str) -> list[float]:
        """Natural log-probability of each token of `continuation` after `prefix`.

        Both are literal text, without a chat template. They are tokenised apart, so the
        boundary is exact; an empty prefix stands for the beginning of a text.
        """
        ...

    async def likelihoods(self, pairs: Sequence[tuple[str, str]]) -> list[list[float]]:
        """`likelihood` of each (prefix, continuation), in the order given, together.

        What pairs share is computed once where the backend can: a prefix with many
        continuations, an instruction that many prefixes begin with.
        """
        ...


@dataclass(frozen=True)
class LabelOdds:
    """How likely each label is as what comes next.

    `odds` sum to 1 over the labels asked for, in their order. `mass` is the probability they
    had together before that: near 0, the model would rather say something else. `bounded` are
    labels that the backend did not show: each got the most it can have had.
    """

    odds: Mapping[str, float]
    mass: float
    bounded: tuple[str, ...] = ()


@runtime_checkable
class LabelModel(Protocol):
    """`Capability.LABELS`."""

    async def labels(
        self, messages: Sequence[Message], labels: Sequence[str], *, forced: str = ""
    ) -> LabelOdds:
        """Odds of each label as the answer's beginning, labels of several tokens scored whole.

        `forced` is how the answer already begins, e.g. "[" or "The passage is": the labels are
        scored after it. They come exactly as given, so one may need its leading blank.

        Raises:
            ValueError: there are no labels, an empty or a doubled one.
            MissingCapability: this model gives none, or none after a forced beginning.
        """
        ...


Prompt = str | Sequence[Message]
"""Literal text, or messages that the model's chat template is put around."""


@runtime_checkable
class AttentionModel(Protocol):
    """`Capability.ATTENTION`."""

    async def attention(
        self,
        prompt: Prompt,
        spans: Sequence[tuple[int, int]],
        *,
        query: int | None = None,
        layers: tuple[float, float] = (0.0, 1.0),
    ) -> list[float]:
        """Mean attention that query tokens pay to a token of each span, in the order given.

        Spans are half-open character ranges of the text, or of the last message's content; the
        query is the last token of that text or content, or all its tokens from the character
        `query` on. Probabilities of the whole row (they sum to 1 over all tokens before and at
        the query) are averaged over query tokens, heads and layers, then over the tokens that
        overlap the span; 0.0 for a span without tokens. `layers` are those that count, as
        shares of the depth: (0.5, 1) is the upper half.

        The pass is remembered: a chat whose prompt begins with the same tokens does not
        compute them again.

        Raises:
            ContextTooSmall: the prompt does not fit.
            ValueError: a span lies outside the text, the text or the query is empty, or no
                layer lies between these depths.
        """
        ...


@runtime_checkable
class AdapterModel(Protocol):
    """`Capability.ADAPTERS`."""

    async def with_adapter(self, adapter: str | Path) -> ChatModel:
        """The same weights with a LoRA adapter, from a folder or by hub name.

        A model with all the capabilities of this one; calls to both may be made side by side,
        each with its own adapter. Closing it leaves this one open.

        Raises:
            WeightsUnavailable: there is no such adapter, or it is made for another model.
        """
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


# Text as it can be sent to a model.

_SURROGATE = re.compile("[\ud800-\udfff]")

# <s>, <|im_end|>, <end_of_turn>, <｜User｜>, [INST]: within one line, looked for at each opening.
_MARK = re.compile(r"(?=(<[^<>\n]{1,98}>|\[[^\[\]\n]{1,98}\]))")
# Letters that no normalisation turns back into what they look like.
_LOOK_ALIKE = {"<": "\u2039", "[": "\u2045", "]": "\u2046", ">": "\u203a", "|": "\u01c0"}


def encodable(text: str) -> str:
    r"""The text with U+FFFD for each lone surrogate, which no encoding has.

    Python makes them of bytes that are no UTF-8, in an argument of the command line for one.

    >>> encodable("caf\udce9") == "caf\ufffd"
    True
    """
    return _SURROGATE.sub("\ufffd", text)


def marks(text: str) -> list[str]:
    """What could be a control token by its form: in `<>` or `[]`; each once, overlapping ones too.

    >>> marks("[a<b>] <|<s>|> 1 < 2")
    ['[a<b>]', '<b>', '<s>']
    """
    return list(dict.fromkeys(found[1] for found in _MARK.finditer(text)))


def blunt(text: str, controls: Iterable[str]) -> str:
    """The text with these control tokens made harmless: the first character of each a look-alike.

    The text reads the same to the model, has the same length, and spans of it stay valid.

    >>> blunt("<b>bold</b> <|im_end|>", ["<|im_end|>"])
    '<b>bold</b> ‹|im_end|>'
    """
    for control in controls:
        text = text.replace(control, _LOOK_ALIKE.get(control[0], "\ufffd") + control[1:])
    return text


# How long a context a model in process is given.

_LEAST = 2048


def window(
    trained: int | None, kv_bytes_per_token: int | None, *, most: int, parallel: int = 1
) -> int:
    """Tokens one call may use: what the model was trained with, at most `most`.

    It is halved, down to 2,048, until the keys and values of `parallel` calls fit a quarter of the
    machine's memory.
    """
    context = min(trained or most, most)
    memory = _memory_bytes()
    if memory is not None and kv_bytes_per_token is not None:
        while context > _LEAST and context * parallel * kv_bytes_per_token > memory / 4:
            context //= 2
    return context


def _memory_bytes() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # Not a POSIX system.
        return None
