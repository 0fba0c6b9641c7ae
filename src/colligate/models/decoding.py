"""Decode one answer: choose each token by its logits, and turn the tokens into text.

A backend computes the logits, of as many answers together as it can.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from threading import Event
from typing import Generic, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from colligate.errors import RequestRefused, ServerFailed
from colligate.models.grammar import Grammar
from colligate.models.prompts import check_fits

FinishReason = Literal["stop", "length"]
T = TypeVar("T")


@dataclass(frozen=True)
class GeneratedText:
    """An answer. `output_tokens` includes the token that ended it, if the model wrote one."""

    text: str
    finish_reason: FinishReason
    input_tokens: int
    output_tokens: int
    cached_tokens: int


@dataclass(eq=False, kw_only=True)
class Request(Generic[T]):
    """Something to compute: it has its outcome at the end, and ends early when `halt` is set."""

    adapter: str = ""
    halt: Event = field(default_factory=Event)
    outcome: T | Exception | None = field(default=None, init=False, repr=False)


@dataclass(eq=False)
class GenerationRequest(Request[GeneratedText]):
    """A prompt of at least one token, and how to answer it.

    `on_piece` is called in the model's thread with each piece of text that is certain.
    """

    ids: list[int]
    max_tokens: int
    temperature: float = 0.0
    seed: int | None = None
    grammar: Grammar | None = None
    on_piece: Callable[[str], None] | None = None


class PassStopped(Exception):
    """The caller gave up, and the computation was left before its end."""


class AnswerInProgress:
    """The answer to a request, token by token; the request has its outcome at the end.

    `written` are the tokens so far, the one that ended the answer included. `max_tokens` is the
    request's, or less where the window ends. `cached_tokens` of the prompt were not computed.

    `decode` returns the text of tokens, control tokens left out; `ends` are the tokens that end an
    answer. ContextTooSmall if the prompt does not fit the window, RequestRefused for numbers below
    0. An answer of no tokens has its outcome at once.
    """

    def __init__(
        self,
        request: GenerationRequest,
        *,
        decode: Callable[[Sequence[int]], str],
        ends: frozenset[int],
        name: str,
        context: int,
    ) -> None:
        check_fits(len(request.ids), context, name)
        if request.max_tokens < 0 or not 0 <= request.temperature < math.inf:
            what = f"{name} cannot answer with these numbers"
            why = f"max_tokens {request.max_tokens}, temperature {request.temperature}"
            raise RequestRefused(what, why, "neither may be below 0")
        self.request = request
        self.written: list[int] = []
        self.max_tokens = min(request.max_tokens, context - len(request.ids))
        self.cached_tokens = 0
        self._name = name
        self._ends = ends
        self._text = Detokenizer(decode, request.ids)
        self._grammar = request.grammar and request.grammar.copy()
        seed = None if request.seed is None else request.seed % (1 << 64)
        self._random = np.random.Generator(np.random.PCG64(seed))
        if not self.max_tokens:
            self.finish("length")

    def write(self, logits: NDArray[np.float32]) -> None:
        """Choose the next token by its logits [vocabulary] and add it."""
        self.add(self.choose(logits))

    def choose(self, logits: NDArray[np.float32]) -> int:
        """Return the next token by its logits [vocabulary]: the best at temperature 0.

        The same seed chooses the same tokens if each call is followed by `add` of its token.
        ServerFailed if the logits are not finite.
        """
        if self._grammar is not None:
            allowed = self._grammar.compute_mask(len(logits), self._ends)
            logits = np.where(allowed, logits, np.float32(-np.inf))
        best = int(logits.argmax())
        if not math.isfinite(logits[best]):
            hint = "compute in another dtype, such as float32"
            raise ServerFailed(f"{self._name} could not compute", "its logits are not finite", hint)
        if self.request.temperature <= 0:
            return best
        # Shifted so that the largest is 0: a low temperature then makes no infinities.
        shifted = logits.astype(np.float64) - logits[best]
        with np.errstate(over="ignore"):
            weights = np.exp(shifted / self.request.temperature)
        # A draw for each token, not one for all: a seed then chooses the same token although
        # logits computed in another batch differ a little.
        return int((weights / self._random.standard_exponential(len(weights))).argmax())

    def forced_tokens(self) -> list[int]:
        """Return what the grammar forces to come next, in one spelling of it."""
        return [] if self._grammar is None else self._grammar.forced_tokens()

    def add(self, token: int) -> None:
        """Add a token, which the grammar must allow; if the answer ends, set the outcome.

        Raises what the request's `on_piece` raises.
        """
        self.written.append(token)
        if token in self._ends:
            self.finish("stop")
            return
        if self._grammar is not None:
            self._grammar.advance(token)
        self._emit(self._text.add(token))
        if self._grammar is not None and self._grammar.complete:
            self.finish("stop")
        elif len(self.written) == self.max_tokens:
            self.finish("length")

    def finish(self, reason: FinishReason) -> None:
        self._emit(self._text.close())
        self.request.outcome = GeneratedText(
            self._text.text, reason, len(self.request.ids), len(self.written), self.cached_tokens
        )

    def _emit(self, piece: str) -> None:
        if piece and self.request.on_piece is not None:
            self.request.on_piece(piece)


_CONTEXT = 6  # tokens before the next one that it is decoded with


class Detokenizer:
    """Turns tokens into text; `text` is the text that `add` and `close` returned, joined.

    `decode` returns the text of tokens, control tokens left out, U+FFFD for incomplete bytes; the
    text begins after the tokens `before`. Bytes of an incomplete character are held back.
    """

    def __init__(self, decode: Callable[[Sequence[int]], str], before: Sequence[int]) -> None:
        self.text = ""
        self._decode_ids = decode
        # A token is decoded with those before it: SentencePiece drops the first blank of a text.
        self._ids = list(before)[-_CONTEXT:]
        self._known = self._decode()

    def add(self, token: int) -> str:
        """Add a token, and return the text that became certain."""
        self._ids.append(token)
        text = self._decode()
        if text.endswith("\ufffd"):
            return ""
        fresh = text[len(self._known) :]
        self._ids = self._ids[-_CONTEXT:]
        self._known = self._decode()
        self.text += fresh
        return fresh

    def close(self) -> str:
        """Return the text that was held back. A character cut in the middle is left out."""
        rest = self._decode()[len(self._known) :].rstrip("\ufffd")
        self.text += rest
        return rest

    def _decode(self) -> str:
        return self._decode_ids(self._ids)
