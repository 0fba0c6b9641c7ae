"""Models in this process: what their backends share.

A backend computes with tokens; here are the text around them and the threads.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from functools import cached_property
from pathlib import Path
from threading import Event, Lock
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from colligate.concurrency import Threads
from colligate.errors import ModelError
from colligate.models.base import (
    Capability,
    ChatRequest,
    Completion,
    LabelOdds,
    Message,
    OnToken,
    Usage,
)
from colligate.models.decoding import GeneratedText, GenerationRequest, PassStopped, Request
from colligate.models.grammar import Grammars
from colligate.models.label_odds import odds_of, require_labels
from colligate.models.prompts import Prompts
from colligate.models.thinking import ThinkingFilter, split_thinking

T = TypeVar("T")

Pair = tuple[list[int], list[int]]
"""Tokens, and those whose log-probabilities after them are wanted."""


class LocalModel:
    """A model in this process with all capabilities. It is loaded at the first call.

    Simultaneous calls are computed together. `context_tokens` is the limit for prompt and answer
    of one call together.
    """

    capabilities = frozenset(Capability)

    def __init__(
        self, backend: LocalBackend, *, name: str, version: str, context_tokens: int
    ) -> None:
        self.name = name
        self.version = version  # changes with the files, the adapter's included
        self.context_tokens = context_tokens
        self._backend = backend
        self._adapter = ""

    async def chat(self, request: ChatRequest, on_token: OnToken | None = None) -> Completion:
        """Answer messages. With a schema the text satisfies it, unless it is cut at the limit."""
        backend = self._backend
        # In the tokenizer's thread: a prompt must not wait for the answers in progress.
        generation, inside = await backend.reading.run(lambda: self._encode(request))
        with backend.stoppable(generation.halt):
            generated = await self._generate(generation, on_token, inside)
        text, thinking = generated.text, ""
        if request.schema is None:  # no thinking comes in JSON: such marks in it are its text
            text, thinking = split_thinking(("<think>" if inside else "") + text)
        usage = Usage(generated.input_tokens, generated.output_tokens, generated.cached_tokens)
        warnings = () if backend.prompts.has_template else (f"{self.name} {_NO_TEMPLATE}",)
        return Completion(text, usage, self.name, generated.finish_reason, thinking, warnings)

    def _encode(self, request: ChatRequest) -> tuple[GenerationRequest, bool]:
        """Return what to generate, and whether the answer begins inside a block of thinking."""
        prompts, schema = self._backend.prompts, request.schema
        rendered = prompts.render(request.messages, think=schema is None)
        generation = GenerationRequest(
            prompts.encode(rendered),
            request.max_tokens,
            temperature=request.temperature,
            seed=request.seed,
            grammar=None if schema is None else self._backend.grammars.compile(schema),
            adapter=self._adapter,
        )
        return generation, prompts.opens_thinking(rendered)

    async def _generate(
        self, request: GenerationRequest, on_token: OnToken | None, inside: bool
    ) -> GeneratedText:
        """Generate text in the model's thread, and pass its pieces to `on_token` in this loop."""
        loop = asyncio.get_running_loop()
        pieces: asyncio.Queue[str | None] = asyncio.Queue()

        def forward(piece: str) -> None:
            try:
                loop.call_soon_threadsafe(pieces.put_nowait, piece)
            except RuntimeError:  # the loop was closed
                request.halt.set()

        request.on_piece = forward
        await self._backend.open()
        answer = asyncio.ensure_future(self._backend.generate(request))
        answer.add_done_callback(lambda _: pieces.put_nowait(None))
        visible = ThinkingFilter(inside=inside)
        try:
            while (piece := await pieces.get()) is not None:
                shown = visible.feed(piece) if request.grammar is None else piece
                if on_token and shown:
                    on_token(shown)
            if on_token and (shown := visible.close()):
                on_token(shown)
            return await answer
        except PassStopped:
            raise self._backend.closed() from None
        finally:
            request.halt.set()  # the caller was cancelled, or `on_token` raised an error
            answer.cancel()  # has no effect if it is done

    async def likelihoods(self, pairs: Sequence[tuple[str, str]]) -> list[list[float]]:
        """Return likelihoods; what the texts begin with is computed once."""

        def read(prompts: Prompts) -> list[Pair]:
            prefixes = {p: prompts.encode_literal(p, beginning=True) for p, _ in pairs}
            return [(prefixes[prefix], prompts.encode_literal(text)) for prefix, text in pairs]

        return await self._score(read)

    async def labels(
        self, messages: Sequence[Message], labels: Sequence[str], *, forced: str = ""
    ) -> LabelOdds:
        """Return the odds of each label, scored by all its tokens."""
        require_labels(labels)

        def read(prompts: Prompts) -> list[Pair]:
            prefix = prompts.encode(prompts.render(messages, think=False))
            prefix += prompts.encode_literal(forced)
            return [(prefix, prompts.encode_literal(label)) for label in labels]

        scores = await self._score(read)
        return odds_of({label: sum(s) for label, s in zip(labels, scores, strict=True)})

    async def _score(self, read: Callable[[Prompts], list[Pair]]) -> list[list[float]]:
        backend, pairs = self._backend, await self._read(read)
        return await backend.compute(lambda halt: backend.score(pairs, self._adapter, halt))

    async def _read(self, work: Callable[[Prompts], T]) -> T:
        """Do some work with the tokenizer, in its thread."""
        return await self._backend.reading.run(lambda: work(self._backend.prompts))

    async def attention(self, text: str, spans: Sequence[tuple[int, int]]) -> list[float]:
        check_spans(text, spans)
        backend = self._backend
        ids, covered = await self._read(lambda prompts: prompts.encode_whole(text))
        row = await backend.compute(lambda halt: backend.attend(ids, self._adapter, halt))
        return [average_span(row, covered, span) for span in spans]

    async def with_adapter(self, adapter: str | Path) -> Self:
        backend = self._backend
        await backend.open()
        view = copy(self)
        view._adapter = await backend.computing.run(lambda: backend.load_adapter(adapter))
        view.name = f"{backend.name}+{adapter}"
        view.version = f"{self.version}+{view._adapter}"
        return view

    async def count_tokens(self, text: str) -> int:
        return await self._read(lambda prompts: len(prompts.encode_literal(text)))

    async def count_prompt(self, messages: Sequence[Message]) -> int:
        return await self._read(lambda prompts: len(prompts.encode(prompts.render(messages))))

    async def token_spans(self, text: str) -> list[tuple[int, int]]:
        return await self._read(lambda prompts: prompts.token_spans(text))

    async def aclose(self) -> None:
        if not self._adapter:  # the base owns the weights
            await self._backend.aclose()


_NO_TEMPLATE = "has no chat template: it is not an instruction model, and was given plain text"


class LocalBackend(ABC):
    """The weights and tokenizer that a model and its adapted views share, loaded when needed.

    The tokenizer is used in the thread `reading`, the weights in `computing`, so that reading a
    prompt and counting its tokens never wait for answers in progress. `generate`, `score` and
    `attend` are called after `open`, and end with PassStopped after `halt`. A backend that computes
    several calls together has `advance`, and awaits `finish`.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.reading = Threads(name)
        self.computing = Threads(name)
        self._halts: set[Event] = set()
        self._lock = Lock()  # one thread loads the tokenizer
        self._prompts: Prompts | None = None
        self._opened = False

    @abstractmethod
    def load(self) -> None:
        """Load the weights. In `computing`."""

    @abstractmethod
    def load_prompts(self) -> Prompts:
        """Load the tokenizer."""

    @abstractmethod
    def load_vocabulary(self) -> Any:
        """Return the tokens for llguidance."""

    @abstractmethod
    def load_adapter(self, adapter: str | Path) -> str:
        """Load an adapter; return the digest of its content, its name here. In `computing`."""

    @abstractmethod
    async def generate(self, request: GenerationRequest) -> GeneratedText:
        """Write an answer."""

    @abstractmethod
    async def score(self, pairs: Sequence[Pair], adapter: str, halt: Event) -> list[list[float]]:
        """Compute the log-probability of each token of each second list."""

    @abstractmethod
    async def attend(self, ids: list[int], adapter: str, halt: Event) -> list[float]:
        """Compute the mean attention of the last token to each token."""

    @abstractmethod
    def free(self) -> None:
        """Free the memory. Nothing is computed any more. Safe to call twice."""

    @property
    def prompts(self) -> Prompts:
        """The tokenizer and its template. In either thread."""
        with self._lock:
            if self._prompts is None:
                self._prompts = self.load_prompts()
            return self._prompts

    @cached_property
    def grammars(self) -> Grammars:
        """The compiler of schemas. In `reading`."""
        return Grammars(self.load_vocabulary)

    async def open(self) -> None:
        """Load the weights if they are not loaded."""
        if not self._opened:
            await self.computing.run(self._load_once)

    def _load_once(self) -> None:
        if not self._opened:
            self.load()
            self._opened = True

    async def compute(self, begin: Callable[[Event], Awaitable[T]]) -> T:
        """Begin some work and wait for it; it is stopped when nobody waits for it any more."""
        await self.open()
        with self.stoppable(Event()) as halt:
            try:
                return await begin(halt)
            except PassStopped:
                raise self.closed() from None

    def advance(self) -> None:
        """Compute one more batch of all that is asked. In `computing`."""
        raise NotImplementedError

    async def finish(self, requests: Sequence[Request[T]]) -> list[T]:
        """Advance until requests have their outcomes; raise the first that is an error.

        A batch serves all calls that wait. Then the thread begins the next batch by itself, unless
        another call has come: a short answer does not wait for a long one.
        """

        def advance() -> None:
            while any(request.outcome is None for request in requests):
                self.advance()
                if self.computing.wanted:
                    break

        while any(request.outcome is None for request in requests):
            await self.computing.run(advance)
        outcomes = []
        for request in requests:
            if isinstance(request.outcome, Exception):
                raise request.outcome
            assert request.outcome is not None
            outcomes.append(request.outcome)
        return outcomes

    @contextmanager
    def stoppable(self, halt: Event) -> Iterator[Event]:
        """Set `halt` when the block is left, or when the model is closed meanwhile."""
        self._halts.add(halt)
        try:
            yield halt
        finally:
            halt.set()
            self._halts.discard(halt)

    def closed(self) -> ModelError:
        """Make the error of a call during which the model was closed."""
        return ModelError(f"{self.name} was closed", "during a call", "create the model again")

    async def aclose(self) -> None:
        """Stop the calls in progress and free the memory. Safe to call twice."""
        for halt in list(self._halts):
            halt.set()
        await self.computing.aclose()
        await self.reading.aclose()
        await asyncio.to_thread(self.free)


Tokens = Sequence[int] | NDArray[np.int32]


def count_shared(first: Tokens, second: Tokens) -> int:
    """Return how many tokens two sequences begin with in common."""
    size = min(len(first), len(second))
    differ = np.flatnonzero(np.not_equal(first[:size], second[:size]))
    return int(differ[0]) if len(differ) else size


def check_spans(text: str, spans: Sequence[tuple[int, int]]) -> None:
    """Raise ValueError if there is no text, or if a span is not of it."""
    if not text:
        raise ValueError("there is no text to attend to")
    for start, end in spans:
        if not 0 <= start <= end <= len(text):
            raise ValueError(f"no span {start}-{end} in a text of {len(text)} characters")


def average_span(
    row: Sequence[float], covered: Sequence[tuple[int, int]], span: tuple[int, int]
) -> float:
    """Return the mean attention to the tokens that overlap a span; 0 without any."""
    start, end = span
    inside = [
        mass for mass, (a, b) in zip(row, covered, strict=True) if max(a, start) < min(b, end)
    ]
    return sum(inside) / len(inside) if inside else 0.0
