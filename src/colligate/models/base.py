"""The protocols of models: one for each capability.

A backend implements `ChatModel` and as many of the other protocols as it can, and names them in
`capabilities`. A capability that is not named there is absent.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from enum import StrEnum
from pathlib import Path, PurePath
from typing import Any, Literal, Protocol, runtime_checkable
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray

from colligate.errors import UnknownModel


class Capability(StrEnum):
    """The abilities of a model; docs/models.md has the table of who needs which."""

    CHAT = "chat"  # messages in, text and usage out; streaming
    STRUCTURED = "structured"  # decoding is constrained to a JSON schema
    LIKELIHOOD = "likelihood"  # log-probability of each token of a continuation
    LABELS = "labels"  # probability of each of a few labels after a prefix
    ATTENTION = "attention"  # attention of the last token to spans of the prompt
    ADAPTERS = "adapters"  # one LoRA adapter per role over one base


class Role(StrEnum):
    """The use of a model in a strategy. `reader` fills every role without a model of its own."""

    READER = "reader"
    WORKER = "worker"
    SCORER = "scorer"
    JUDGE = "judge"


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation; half surrogate pairs in it become U+FFFD."""

    role: Literal["system", "user", "assistant"]
    content: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "content", encodable(self.content))


@dataclass(frozen=True)
class ChatRequest:
    """One chat call. Two equal requests to the same model have the same answer.

    `schema` is a JSON schema that the answer should satisfy: a backend with
    `Capability.STRUCTURED` constrains its decoding to it, another does its best and the caller
    repairs (`structured.py`). `temperature` 0 is greedy decoding.
    """

    messages: Sequence[Message]
    _: KW_ONLY
    max_tokens: int
    temperature: float = 0.0
    seed: int | None = None
    schema: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "messages", tuple(self.messages))

    @property
    def prompt(self) -> str:
        """The text of all messages, with blank lines between them."""
        return "\n\n".join(message.content for message in self.messages)

    @property
    def repeatable(self) -> bool:
        """Whether the answer is the same each time: greedy decoding, or a seed."""
        return self.temperature == 0 or self.seed is not None


@dataclass(frozen=True, slots=True)
class Usage:
    """The tokens of one call, estimated where the backend does not report them."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cached_tokens + other.cached_tokens,
        )


@dataclass(frozen=True)
class Completion:
    """The answer to one chat call. `text` has no `<think>` block: that is in `thinking`.

    `warnings` report what the backend did differently from the request (a parameter that the
    model refused, a schema that the server cannot enforce). `cached` is true for an answer from
    the reply cache, which costs nothing; `usage` is then what it cost the first time.
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
        """Whether the answer was cut off at `max_tokens`."""
        return self.finish_reason == "length"


class OnToken(Protocol):
    """Called with each piece of text as it arrives; passing one makes the call stream."""

    def __call__(self, piece: str) -> None: ...


@runtime_checkable
class ChatModel(Protocol):
    """A model that chats. Every backend is one.

    `name` is the model string, e.g. `openai:gpt-5@https://...`.
    """

    @property
    def name(self) -> str: ...

    @property
    def capabilities(self) -> frozenset[Capability]: ...

    @property
    def context_tokens(self) -> int | None:
        """How many tokens prompt and answer may have together; None when unknown."""

    async def chat(self, request: ChatRequest, on_token: OnToken | None = None) -> Completion:
        """Make one call.

        With `on_token` the call streams; the completion is the same. Cancelling the task stops
        the generation.

        Raises:
            ModelError: one of its subclasses, after the bounded retries.
        """

    async def count_tokens(self, text: str) -> int:
        """Count the tokens of a text: exactly with the backend's own tokenizer, else estimated."""

    async def count_prompt(self, messages: Sequence[Message]) -> int:
        """Count the tokens of messages as the model reads them, with its template.

        Exact or estimated as `count_tokens`.
        """

    async def token_spans(self, text: str) -> list[tuple[int, int]]:
        """Return the half-open character range of each token of a text, in order.

        There are as many as `count_tokens` counts. Neither starts nor ends ever decrease. Tokens
        that share a character (bytes of a rare letter) overlap; blanks may belong to no token.
        """

    async def aclose(self) -> None:
        """Stop calls in progress and free the model. Safe to call twice."""


class WrappedModel:
    """A model around another: it passes on what it does not change."""

    def __init__(self, model: ChatModel) -> None:
        self._model = model

    @property
    def name(self) -> str:
        return self._model.name

    @property
    def capabilities(self) -> frozenset[Capability]:
        return self._model.capabilities

    @property
    def context_tokens(self) -> int | None:
        return self._model.context_tokens

    @property
    def weights(self) -> int | None:
        return getattr(self._model, "weights", None)

    async def count_tokens(self, text: str) -> int:
        return await self._model.count_tokens(text)

    async def count_prompt(self, messages: Sequence[Message]) -> int:
        return await self._model.count_prompt(messages)

    async def token_spans(self, text: str) -> list[tuple[int, int]]:
        return await self._model.token_spans(text)


@runtime_checkable
class LikelihoodModel(Protocol):
    """`Capability.LIKELIHOOD`."""

    async def likelihoods(self, pairs: Sequence[tuple[str, str]]) -> list[list[float]]:
        """Return the natural log-probability of each token of each continuation.

        Pairs are (prefix, continuation), both literal text without a chat template. They are
        tokenised apart, so the boundary is exact; an empty prefix is the beginning of a text.
        What pairs share is computed once where the backend can: a prefix with many
        continuations, an instruction that many prefixes begin with.
        """


@dataclass(frozen=True)
class LabelOdds:
    """How likely each label is as what comes next.

    `odds` sum to 1 over the labels that were asked for, in their order. `mass` is the
    probability they had together before that: near 0, the model would rather write something
    else. `bounded` are labels that the backend did not return: each got the most it can have had.
    `cached` is true for odds from the reply cache.
    """

    odds: Mapping[str, float]
    mass: float
    bounded: tuple[str, ...] = ()
    cached: bool = False


@runtime_checkable
class LabelModel(Protocol):
    """`Capability.LABELS`."""

    async def labels(
        self, messages: Sequence[Message], labels: Sequence[str], *, forced: str = ""
    ) -> LabelOdds:
        """Return the odds of each label as the answer's beginning.

        Labels of several tokens are scored whole. `forced` is how the answer already begins,
        e.g. "[" or "The passage is": the labels are scored after it. They are used exactly as
        given, so one may need its leading blank.

        Raises:
            ValueError: there are no labels, or one is empty or given twice.
            MissingCapability: this model has no label odds, or none after a forced beginning.
        """


@runtime_checkable
class AttentionModel(Protocol):
    """`Capability.ATTENTION`."""

    async def attention(self, text: str, spans: Sequence[tuple[int, int]]) -> list[float]:
        """Return the mean attention that the last token pays to a token of each span, in order.

        The text is literal, without a chat template; spans are half-open character ranges of it.
        Probabilities of the whole row (they sum to 1 over all tokens) are averaged over heads and
        layers, then over the tokens that overlap the span; 0.0 for a span without tokens.

        Raises:
            ContextTooSmall: the text does not fit.
            ValueError: a span lies outside the text, or the text is empty.
        """


@runtime_checkable
class AdapterModel(Protocol):
    """`Capability.ADAPTERS`."""

    async def with_adapter(self, adapter: str | Path) -> ChatModel:
        """Return the same weights with a LoRA adapter, given by path or hub name.

        The result has all the capabilities of this model. Both can be called at the same time,
        each with its own adapter. Closing it leaves this one open.

        Raises:
            WeightsUnavailable: there is no such adapter, or it is made for another model.
        """


TextKind = Literal["passage", "query"]
Vectors = NDArray[np.float32]


@runtime_checkable
class Embedder(Protocol):
    """Turns texts into vectors of length `dimension`.

    A library records `name`: vectors of different names never mix.
    """

    @property
    def name(self) -> str: ...

    @property
    def dimension(self) -> int: ...

    async def embed(self, texts: Sequence[str], kind: TextKind = "passage") -> Vectors:
        """Return one row per text, float32, of unit length. Empty texts are allowed."""

    async def aclose(self) -> None:
        """Free what the embedder holds. Safe to call twice."""


# Before queries and before passages, as the model cards say, by the model's name.
_EMBEDDER_PREFIXES = {
    r"\bbge-(small|base|large)-en\b": (
        "Represent this sentence for searching relevant passages: ",
        "",
    ),
    r"\be5-(small|base|large)\b(?!.*instruct)": ("query: ", "passage: "),
    r"\bnomic-embed-text\b": ("search_query: ", "search_document: "),
}


def find_embedder_prefix(model: str, kind: TextKind) -> str:
    """Return what texts of a kind begin with for an embedder that was trained so.

    >>> find_embedder_prefix("intfloat/multilingual-e5-large", "query")
    'query: '
    """
    name = PurePath(model).name.lower()
    for pattern, (query, passage) in _EMBEDDER_PREFIXES.items():
        if re.search(pattern, name):
            return query if kind == "query" else passage
    return ""


@runtime_checkable
class Verifier(Protocol):
    """Tells what a sentence of a document does with a claim.

    From a probability of `limit` on a claim counts as contradicted. `score` is called in a thread,
    and may block.
    """

    @property
    def name(self) -> str: ...
    @property
    def limit(self) -> float: ...

    def score(self, claim: str, title: str, source: str) -> tuple[float, float, float]:
        """Return the probabilities that a source supports a claim, contradicts it, or neither."""

    async def aclose(self) -> None:
        """Free what the verifier holds. Safe to call twice."""


@runtime_checkable
class Reranker(Protocol):
    """Scores passages for a query; higher is better, scores compare within one call only.

    `name` is as given on the command line. One with a number `beside_search` orders the hits of a
    search by their z-scores in the search plus so many times its own; others by their own alone.
    """

    @property
    def name(self) -> str: ...

    async def score(self, query: str, texts: Sequence[str]) -> list[float]:
        """Return one score per text, in the order given."""

    async def aclose(self) -> None:
        """Free what the reranker holds. Safe to call twice."""


# Text as it can be sent to a model

_SURROGATE = re.compile("[\ud800-\udfff]")

# <s>, <|im_end|>, <end_of_turn>, <｜User｜>, [INST]: on one line, found at each opening bracket.
_MARK = re.compile(r"(?=(<[^<>\n]{1,98}>|\[[^\[\]\n]{1,98}\]))")
# Letters that no normalisation turns back into what they look like.
_LOOK_ALIKE = {"<": "\u2039", "[": "\u2045", "]": "\u2046", ">": "\u203a", "|": "\u01c0"}


def encodable(text: str) -> str:
    r"""Return the text with U+FFFD for each lone surrogate, which no encoding has.

    Python makes them from bytes that are not UTF-8, for example in a command line argument.

    >>> encodable("caf\udce9") == "caf\ufffd"
    True
    """
    return _SURROGATE.sub("\ufffd", text)


def marks(text: str) -> list[str]:
    """Return each text in the form of a control token, in `<>` or `[]`, once, with overlaps.

    >>> marks("[a<b>] <|<s>|> 1 < 2")
    ['[a<b>]', '<b>', '<s>']
    """
    return list(dict.fromkeys(found[1] for found in _MARK.finditer(text)))


def blunt(text: str, controls: Iterable[str]) -> str:
    """Make these control tokens in a text harmless: the first character becomes a look-alike.

    The text reads the same to the model and has the same length, so its spans stay valid.

    >>> blunt("<b>bold</b> <|im_end|>", ["<|im_end|>"])
    '<b>bold</b> ‹|im_end|>'
    """
    for control in controls:
        text = text.replace(control, _LOOK_ALIKE.get(control[0], "\ufffd") + control[1:])
    return text


OPENAI_URL = "https://api.openai.com/v1"


def redact_url(url: str) -> str:
    """Return the URL as it may be shown: without user, password and query."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        parts, host, port = urlsplit(""), None, None
    if parts.scheme not in ("http", "https") or not host:
        what, why = "an endpoint needs a full URL", "no http:// or https:// one was given"
        raise UnknownModel(what, why, "write openai:MODEL@http://HOST:PORT/v1")
    host = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{host}" + (f":{port}" if port else "") + parts.path.rstrip("/")


_LEAST = 2048


def window(trained: int | None, kv_bytes_per_token: int | None, *, most: int) -> int:
    """Return how many tokens one call may use: the trained length, at most `most`.

    It is halved, down to 2,048, until their keys and values fit into a quarter of the machine's
    memory.
    """
    context = min(trained or most, most)
    memory = memory_bytes()
    if memory is not None and kv_bytes_per_token is not None:
        while context > _LEAST and context * kv_bytes_per_token > memory / 4:
            context //= 2
    return context


def memory_bytes() -> int | None:
    """Return the memory of this machine, None where it is not known."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # not a POSIX system
        return None
