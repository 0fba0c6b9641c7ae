"""Answers to prompts: those asked for at the same time are decoded together.

A request may come from any thread; all the work is done in the model's, by whichever call waits
there. New requests join between two tokens of those under way.
"""

from __future__ import annotations

import math
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from threading import Event
from typing import Any, Literal

from colligate.errors import RequestRefused, ServerFailed
from colligate.models.hf.decoding import Batch, Row, choose
from colligate.models.hf.grammar import Grammar
from colligate.models.hf.prompts import Prompts
from colligate.models.hf.runtime import Runtime, Stopped
from colligate.models.hf.written import Written

# What ends a turn in the templates of model families, where a configuration forgets to say so.
_TURN_ENDS = ("<|im_end|>", "<end_of_turn>", "<|eot_id|>", "<|endoftext|>", "<|end_of_text|>")

FinishReason = Literal["stop", "length"]


@dataclass(frozen=True)
class Generated:
    """An answer. `output_tokens` counts the one that ended it too, if the model wrote one."""

    text: str
    finish_reason: FinishReason
    input_tokens: int
    output_tokens: int
    cached_tokens: int


@dataclass(eq=False)
class Request:
    """What to answer: a prompt of at least one token, and how.

    The text ends before the first string of `stop`. `on_piece` is given the text as it becomes
    certain, in the model's thread.
    """

    ids: list[int]
    max_tokens: int
    temperature: float = 0.0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    grammar: Grammar | None = None
    adapter: str = ""
    on_piece: Callable[[str], None] | None = None
    halt: Event = field(default_factory=Event)
    outcome: Generated | Exception | None = field(default=None, init=False, repr=False)


class Generator:
    """Decodes up to `most` requests together."""

    def __init__(self, runtime: Runtime, prompts: Prompts, most: int = 8) -> None:
        self._runtime = runtime
        self._tokenizer = prompts.tokenizer.backend_tokenizer
        self._ends = _ends(runtime.model, prompts.tokenizer)
        self._most = most
        self._submitted: deque[Request] = deque()  # the only thing other threads touch
        self._waiting: list[Request] = []
        self._lanes: dict[str, _Lane] = {}  # by adapter; the first is next

    def submit(self, request: Request) -> None:
        """Put a request where the next token's turn finds it. From any thread."""
        self._submitted.append(request)

    def run(self, request: Request) -> Generated:
        """Go on with all that was submitted until this request is answered.

        Raises:
            Stopped: its `halt` was set.
            ContextTooSmall: its prompt does not fit.
            RequestRefused: it cannot be answered so.
            ServerFailed: memory ran out, or the model's numbers are none.
        """
        while request.outcome is None:
            if not (self._submitted or self._waiting or self._lanes):
                raise ValueError("the request was never submitted")
            self._advance()
        if isinstance(request.outcome, Exception):
            raise request.outcome
        return request.outcome

    def _advance(self) -> None:
        """Drop what is not wanted any more, begin one request, then one token of one adapter's."""
        while self._submitted:
            self._waiting.append(self._submitted.popleft())
        under_way = [answer.request for lane in self._lanes.values() for answer in lane.answers]
        for request in (*self._waiting, *under_way):
            if request.halt.is_set():
                request.outcome = Stopped()
        self._waiting = [request for request in self._waiting if request.outcome is None]
        if self._waiting and len(under_way) < self._most:
            self._begin(self._waiting.pop(0))
        if self._lanes:
            adapter = next(iter(self._lanes))
            lane = self._lanes.pop(adapter)
            self._step(lane, adapter)
            if lane.answers:
                self._lanes[adapter] = lane

    def _begin(self, request: Request) -> None:
        """Read the prompt and write the first token."""
        try:
            answer = self._prefill(request)
        except Exception as error:  # Whatever it is, it is for this request's caller alone.
            _fail([request], error)
            return
        if request.outcome is None:
            lane = self._lanes.setdefault(request.adapter, _Lane(Batch(self._runtime)))
            lane.answers.append(answer)

    def _prefill(self, request: Request) -> _Answer:
        runtime, ids = self._runtime, request.ids
        runtime.must_fit(len(ids))
        if request.max_tokens < 0 or not 0 <= request.temperature < math.inf:
            raise RequestRefused(
                f"{runtime.name} cannot answer so",
                f"max_tokens {request.max_tokens}, temperature {request.temperature}",
                "neither may be below 0",
            )
        answer = _Answer(request, runtime, self._tokenizer, self._ends)
        if not answer.limit:
            answer.finish("length")
            return answer
        with runtime.working(request.halt, request.adapter):
            answer.cached_tokens = runtime.remembered.longest(ids[:-1], request.adapter)[1]
            cache, logits = runtime.prefill(ids, adapter=request.adapter)
            answer.row.layers = runtime.layers_of(cache)
            logits = logits.float().cpu()
        answer.write(logits)
        return answer

    def _step(self, lane: _Lane, adapter: str) -> None:
        """One more token for every answer of a lane; those that end leave it."""
        lane.answers = [answer for answer in lane.answers if answer.request.outcome is None]
        if not lane.answers:
            return
        try:
            with self._runtime.working(adapter=adapter):
                logits = lane.batch.step([answer.row for answer in lane.answers])
        except Exception as error:  # Out of memory for one: nothing of the batch can be trusted.
            _fail([answer.request for answer in lane.answers], error)
            lane.answers = []
            return
        for answer, row in zip(lane.answers, logits, strict=True):
            try:
                answer.write(row)
            except Exception as error:  # From the caller's `on_piece`, whatever that raises.
                _fail([answer.request], error)
        lane.answers = [answer for answer in lane.answers if answer.request.outcome is None]


@dataclass
class _Lane:
    """Answers under one adapter."""

    batch: Batch
    answers: list[_Answer] = field(default_factory=list)


class _Answer:
    """A request being answered."""

    def __init__(
        self, request: Request, runtime: Runtime, tokenizer: Any, ends: frozenset[int]
    ) -> None:
        self.request = request
        self.row = Row((), len(request.ids), 0)
        self.limit = min(request.max_tokens, runtime.context - len(request.ids))
        self.cached_tokens = 0
        self._model = runtime.name
        self._torch = runtime.torch
        self._ends = ends
        self._tokens = 0
        self._text = Written(tokenizer, request.ids, request.stop)
        self._grammar = request.grammar and request.grammar.copy()
        self._random = runtime.torch.Generator()
        if request.seed is None:
            self._random.seed()
        else:
            self._random.manual_seed(request.seed % (1 << 64))

    def write(self, logits: Any) -> None:
        """Choose a token by the logits and write it; the request has its outcome if it ends.

        Raises:
            ServerFailed: the logits are not numbers.
        """
        if not math.isfinite(logits.max()):
            raise ServerFailed(
                f"{self._model} could not compute",
                "its logits are not finite",
                "compute in another dtype, such as float32",
            )
        if self._grammar is not None:
            allowed = self._grammar.allowed(len(logits), self._ends)
            logits = logits.masked_fill(~self._torch.from_numpy(allowed), -math.inf)
        token = choose(self._torch, logits, self.request.temperature, self._random)
        self._tokens += 1
        self.row.token = token
        if token in self._ends:
            self.finish("stop")
            return
        if self._grammar is not None:
            self._grammar.take(token)
        self._show(self._text.add(token))
        if self._text.stopped or (self._grammar is not None and self._grammar.complete):
            self.finish("stop")
        elif self._tokens == self.limit:
            self.finish("length")

    def finish(self, reason: FinishReason) -> None:
        """Give the request its outcome."""
        self._show(self._text.close())
        if self._text.stopped:
            reason = "stop"
        self.request.outcome = Generated(
            self._text.shown, reason, len(self.request.ids), self._tokens, self.cached_tokens
        )

    def _show(self, piece: str) -> None:
        if piece and self.request.on_piece is not None:
            self.request.on_piece(piece)


def _fail(requests: Sequence[Request], error: Exception) -> None:
    """Give requests an error for their outcome."""
    each: BaseException | None = error
    while each is not None:  # Its frames hold tensors, and memory that others need.
        traceback.clear_frames(each.__traceback__)
        each = each.__cause__
    for request in requests:
        request.outcome = error


def _ends(model: Any, tokenizer: Any) -> frozenset[int]:
    """Ids of the tokens that end an answer."""
    ends = {tokenizer.eos_token_id}
    for config in (model.generation_config, model.config, model.config.get_text_config()):
        given = getattr(config, "eos_token_id", None)
        ends.update(given if isinstance(given, list | tuple) else [given])
    for token, added in tokenizer.added_tokens_decoder.items():
        if added.special and added.content in _TURN_ENDS:
            ends.add(token)
    return frozenset(ends - {None})
