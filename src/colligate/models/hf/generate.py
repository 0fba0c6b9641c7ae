"""Answers to prompts: those asked for at the same time are decoded together.

A request may come from any thread; all the work is done in the model's, by whichever call waits
there. New requests join between two tokens of those under way.
"""

from __future__ import annotations

import math
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from threading import Event
from typing import Any, Literal

from colligate.errors import RequestRefused, ServerFailed
from colligate.models.hf.grammar import Grammar
from colligate.models.hf.loading import Runtime, Stopped
from colligate.models.hf.prefix_cache import Layers
from colligate.models.hf.prompts import Prompts

# Answers decoded together: one forward pass computes the next token of each.

_ROOM = 256  # tokens that fit after the longest row before everything is copied again


@dataclass(eq=False)
class Row:
    """A text of which `length` tokens are computed, and the token that follows them.

    `layers` are the keys and values of those computed, until a batch holds them.
    """

    layers: Layers
    length: int
    token: int


class Batch:
    """Keys and values of rows of different lengths, padded on the left.

    Whoever is given to `step` is decoded: when others than before are, their keys and values are
    put together anew. A batch that failed is good for nothing more.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._rows: list[Row] = []
        self._cache: Any = None

    def step(self, rows: Sequence[Row]) -> Any:
        """Compute each row's token; the logits after it, [rows, vocabulary] in float32 on the CPU.

        To be called while `working`, with at least one row.
        """
        if self._rows != list(rows) or not self._cache.layers[0].room:
            self._arrange(rows)
        torch, model = self._runtime.torch, self._runtime.model
        lengths = torch.tensor([[row.length] for row in rows], device=model.device)
        longest = max(row.length for row in rows)
        places = torch.arange(longest + 1, device=model.device)
        logits = model(
            input_ids=torch.tensor([[row.token] for row in rows], device=model.device),
            attention_mask=(places >= longest - lengths).long(),
            position_ids=lengths,
            past_key_values=self._cache,
            use_cache=True,
            logits_to_keep=1,
        ).logits
        for row in rows:
            row.length += 1
        return logits[:, -1].float().cpu()

    def _arrange(self, rows: Sequence[Row]) -> None:
        """Hold these rows and no others, without padding that all of them have."""
        before = self._cache.layers if self._cache is not None else []
        places = {row: place for place, row in enumerate(self._rows)}
        longest = max(row.length for row in rows)
        layers = []
        for index in range(len(before or rows[0].layers)):
            parts = [
                row.layers[index] if row.layers else before[index].part(places[row], row.length)
                for row in rows
            ]
            layers.append(_layer()(parts, longest))
            if before:
                before[index] = None  # so that never more than one layer is held twice
        for row in rows:
            row.layers = ()
        self._rows = list(rows)
        self._cache = import_module("transformers.cache_utils").Cache(layers=layers)


@cache
def _layer() -> Any:
    base: Any = import_module("transformers.cache_utils").DynamicLayer

    class Roomy(base):  # type: ignore[misc]
        """A layer of a cache that writes new keys and values into room it has.

        What it derives from copies all there are at every token.
        """

        def __init__(self, parts: Layers, longest: int) -> None:
            super().__init__()
            self._keys, self._values = (
                self._padded([part[side] for part in parts], longest) for side in (0, 1)
            )
            self.dtype, self.device = self._keys.dtype, self._keys.device
            self.is_initialized = True
            self._hold(longest)

        @property
        def room(self) -> int:
            """Tokens that can still be written."""
            return int(self._keys.shape[2] - self.keys.shape[2])

        def part(self, row: int, length: int) -> tuple[Any, Any]:
            """Keys and values of the last `length` tokens of a row, [1, heads, length, width]."""
            return (
                self.keys[row : row + 1, :, self.keys.shape[2] - length :],
                self.values[row : row + 1, :, self.values.shape[2] - length :],
            )

        def update(self, keys: Any, values: Any, *_: Any, **__: Any) -> tuple[Any, Any]:
            """Write keys and values after those held; all there are then."""
            start = self.keys.shape[2]
            self._hold(start + keys.shape[2])
            self.keys[:, :, start:] = keys
            self.values[:, :, start:] = values
            return self.keys, self.values

        def _hold(self, tokens: int) -> None:
            self.keys, self.values = self._keys[:, :, :tokens], self._values[:, :, :tokens]

        def _padded(self, tensors: Sequence[Any], longest: int) -> Any:
            _, heads, _, width = tensors[0].shape
            padded = tensors[0].new_zeros(len(tensors), heads, longest + _ROOM, width)
            for row, tensor in enumerate(tensors):
                padded[row, :, longest - tensor.shape[2] : longest] = tensor[0]
            return padded

    return Roomy


def choose(torch: Any, logits: Any, temperature: float, generator: Any) -> int:
    """A token by its float32 logits [vocabulary]: the best at temperature 0, else drawn.

    At least one of the logits must be finite, and none NaN.
    """
    if temperature <= 0:
        return int(logits.argmax())
    # From the largest down: a low temperature then leaves only that one, never infinities.
    weights = torch.softmax((logits - logits.max()) / temperature, dim=-1)
    return int(torch.multinomial(weights, 1, generator=generator))


# The text of an answer while its tokens come.

_SEEN = 6  # tokens that the next one is read with


class Written:
    """Text of tokens, as far as it is certain: `shown` is what `add` and `close` gave, joined.

    Held back are the bytes of a character that is not whole yet, and what may become a string
    that ends the text.
    """

    def __init__(self, tokenizer: Any, before: Sequence[int], stop: Iterable[str]) -> None:
        self.shown = ""
        self.stopped = False
        self._tokenizer = tokenizer
        self._stop = [string for string in stop if string]
        self._held = ""
        # A token is read with those before it: SentencePiece drops the first blank of a text.
        self._ids = list(before)[-_SEEN:]
        self._known = self._decode()

    def add(self, token: int) -> str:
        """What is certain now that was not before."""
        self._ids.append(token)
        text = self._decode()
        if text.endswith("\ufffd"):
            return ""
        fresh = text[len(self._known) :]
        self._ids = self._ids[-_SEEN:]
        self._known = self._decode()
        return self._certain(self._held + fresh)

    def close(self) -> str:
        """What was held back and is text after all. A character cut in the middle is not."""
        if self.stopped:
            return ""
        rest = self._decode()[len(self._known) :].rstrip("\ufffd")
        certain = self._certain(self._held + rest)
        rest, self._held = self._held, ""
        self.shown += rest
        return certain + rest

    def _certain(self, text: str) -> str:
        found = [(start + len(s), start) for s in self._stop if (start := text.find(s)) >= 0]
        if found:
            self.stopped = True
            certain, self._held = text[: min(found)[1]], ""  # by which is complete first
        else:
            keep = max((_overlap(text, string) for string in self._stop), default=0)
            certain, self._held = text[: len(text) - keep], text[len(text) - keep :]
        self.shown += certain
        return certain

    def _decode(self) -> str:
        return str(self._tokenizer.decode(self._ids, skip_special_tokens=True))


def _overlap(text: str, string: str) -> int:
    """How many of the last characters of a text are the first of a string, though not all."""
    lengths = range(min(len(text), len(string) - 1), 0, -1)
    return next((length for length in lengths if text.endswith(string[:length])), 0)


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
