"""Generate answers to prompts: continuous batching with a decoding loop of our own.

Requests of any thread join between two tokens of those in progress, each with its own seed,
grammar, stop strings and adapter. The work is done in the model's thread, by any call that waits.
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
from colligate.models.hf.prompts import Prompts
from colligate.models.hf.runtime import Layers, PassStopped, Runtime

FinishReason = Literal["stop", "length"]


@dataclass(frozen=True)
class GeneratedText:
    """An answer. `output_tokens` includes the token that ended it, if the model wrote one."""

    text: str
    finish_reason: FinishReason
    input_tokens: int
    output_tokens: int
    cached_tokens: int


@dataclass(eq=False)
class GenerationRequest:
    """A prompt of at least one token, and how to answer it.

    The text ends before the first string of `stop`. `on_piece` is called in the model's thread
    with each piece of text that is certain. Setting `halt` cancels the request.
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
    outcome: GeneratedText | Exception | None = field(default=None, init=False, repr=False)


class BatchGenerator:
    """Decodes up to `limit` requests together."""

    def __init__(self, runtime: Runtime, prompts: Prompts, limit: int = 8) -> None:
        self._runtime = runtime
        self._tokenizer = prompts.tokenizer.backend_tokenizer
        self._ends = _find_end_tokens(runtime.model, prompts.tokenizer)
        self._limit = limit
        self._submitted: deque[GenerationRequest] = deque()  # the only state other threads touch
        self._waiting: list[GenerationRequest] = []
        self._batches: dict[str, _Batch] = {}  # by adapter; the first is next

    def submit(self, request: GenerationRequest) -> None:
        """Queue a request; it joins before the next token. From any thread."""
        self._submitted.append(request)

    def run(self, request: GenerationRequest) -> GeneratedText:
        """Compute all submitted requests until this one is answered.

        Raises its error otherwise: PassStopped after `halt`, ContextTooSmall, RequestRefused,
        ServerFailed, or what its `on_piece` raised.
        """
        while request.outcome is None:
            if not (self._submitted or self._waiting or self._batches):
                raise ValueError("the request was never submitted")
            self._advance()
        if isinstance(request.outcome, Exception):
            raise request.outcome
        return request.outcome

    def _advance(self) -> None:
        """Drop cancelled requests, begin one request, then decode one token of one adapter's."""
        while self._submitted:
            self._waiting.append(self._submitted.popleft())
        active = [s.request for batch in self._batches.values() for s in batch.sequences]
        for request in (*self._waiting, *active):
            if request.halt.is_set():
                request.outcome = PassStopped()
        self._waiting = [request for request in self._waiting if request.outcome is None]
        if self._waiting and len(active) < self._limit:
            self._begin(self._waiting.pop(0))
        if self._batches:
            adapter = next(iter(self._batches))
            batch = self._batches.pop(adapter)
            self._step(batch)
            if batch.sequences:
                self._batches[adapter] = batch

    def _begin(self, request: GenerationRequest) -> None:
        """Read the prompt and write the first token."""
        try:
            sequence = self._prefill(request)
        except Exception as error:  # Of any class: it is for this request's caller only.
            _fail([request], error)
            return
        if request.outcome is None:
            new = _Batch(self._runtime, request.adapter)
            self._batches.setdefault(request.adapter, new).sequences.append(sequence)

    def _prefill(self, request: GenerationRequest) -> _BatchSequence:
        runtime, ids = self._runtime, request.ids
        runtime.check_fits(len(ids))
        if request.max_tokens < 0 or not 0 <= request.temperature < math.inf:
            raise RequestRefused(
                f"{runtime.name} cannot answer with these numbers",
                f"max_tokens {request.max_tokens}, temperature {request.temperature}",
                "neither may be below 0",
            )
        sequence = _BatchSequence(request, runtime, self._tokenizer, self._ends)
        if not sequence.max_tokens:
            sequence.finish("length")
            return sequence
        with runtime.inference(request.halt, request.adapter):
            sequence.cached_tokens = runtime.prefixes.find_longest(ids[:-1], request.adapter)[1]
            cache, logits = runtime.prefill(ids, adapter=request.adapter)
            sequence.layers = runtime.layers_of(cache)
            logits = logits.float().cpu()
        sequence.write(logits)
        return sequence

    def _step(self, batch: _Batch) -> None:
        """Write one more token for each sequence of a batch; finished ones leave it."""
        batch.sequences = [s for s in batch.sequences if s.request.outcome is None]
        if not batch.sequences:
            return
        try:
            with self._runtime.inference(adapter=batch.adapter):
                logits = batch.step()
        except Exception as error:  # Out of memory, for example: the whole batch is invalid.
            _fail([sequence.request for sequence in batch.sequences], error)
            batch.sequences = []
            return
        for sequence, row in zip(batch.sequences, logits, strict=True):
            try:
                sequence.write(row)
            except Exception as error:  # From the caller's `on_piece`, of any class.
                _fail([sequence.request], error)
        batch.sequences = [s for s in batch.sequences if s.request.outcome is None]


def _fail(requests: Sequence[GenerationRequest], error: Exception) -> None:
    """Make an error the outcome of requests."""
    each: BaseException | None = error
    while each is not None:  # Its frames hold tensors, and memory that others need.
        traceback.clear_frames(each.__traceback__)
        each = each.__cause__
    for request in requests:
        request.outcome = error


# Tokens that end a turn in the templates of model families, if a configuration omits them.
_TURN_ENDS = ("<|im_end|>", "<end_of_turn>", "<|eot_id|>", "<|endoftext|>", "<|end_of_text|>")


def _find_end_tokens(model: Any, tokenizer: Any) -> frozenset[int]:
    """Return the ids of the tokens that end an answer."""
    ends = {tokenizer.eos_token_id}
    for config in (model.generation_config, model.config, model.config.get_text_config()):
        given = getattr(config, "eos_token_id", None)
        ends.update(given if isinstance(given, list | tuple) else [given])
    for token, added in tokenizer.added_tokens_decoder.items():
        if added.special and added.content in _TURN_ENDS:
            ends.add(token)
    return frozenset(ends - {None})


class _BatchSequence:
    """A request in progress: its text, and its state in a batch.

    `length` tokens are computed, and `token` follows them. `layers` are the keys and values of
    those computed, until a batch holds them.
    """

    def __init__(
        self, request: GenerationRequest, runtime: Runtime, tokenizer: Any, ends: frozenset[int]
    ) -> None:
        self.request = request
        self.layers: Layers = ()
        self.length = len(request.ids)
        self.token = 0
        self.max_tokens = min(request.max_tokens, runtime.context - len(request.ids))
        self.cached_tokens = 0
        self._model = runtime.name
        self._torch = runtime.torch
        self._ends = ends
        self._tokens = 0
        self._text = _Detokenizer(tokenizer, request.ids, request.stop)
        self._grammar = request.grammar and request.grammar.copy()
        self._random = runtime.torch.Generator()
        if request.seed is None:
            self._random.seed()
        else:
            self._random.manual_seed(request.seed % (1 << 64))

    def write(self, logits: Any) -> None:
        """Choose a token by its logits and add it; if the answer ends, set the outcome."""
        if not math.isfinite(logits.max()):
            raise ServerFailed(
                f"{self._model} could not compute",
                "its logits are not finite",
                "compute in another dtype, such as float32",
            )
        if self._grammar is not None:
            allowed = self._grammar.compute_mask(len(logits), self._ends)
            logits = logits.masked_fill(~self._torch.from_numpy(allowed), -math.inf)
        self.token = self._choose_token(logits)
        self._tokens += 1
        if self.token in self._ends:
            self.finish("stop")
            return
        if self._grammar is not None:
            self._grammar.advance(self.token)
        self._emit(self._text.add(self.token))
        if self._text.stopped or (self._grammar is not None and self._grammar.complete):
            self.finish("stop")
        elif self._tokens == self.max_tokens:
            self.finish("length")

    def finish(self, reason: FinishReason) -> None:
        """Set the request's outcome."""
        self._emit(self._text.close())
        if self._text.stopped:
            reason = "stop"
        self.request.outcome = GeneratedText(
            self._text.text, reason, len(self.request.ids), self._tokens, self.cached_tokens
        )

    def _choose_token(self, logits: Any) -> int:
        """Choose a token by float32 logits [vocabulary]; the best at temperature 0."""
        if self.request.temperature <= 0:
            return int(logits.argmax())
        # Shifted so that the largest is 0: a low temperature then makes no infinities.
        scaled = (logits - logits.max()) / self.request.temperature
        weights = self._torch.softmax(scaled, dim=-1)
        return int(self._torch.multinomial(weights, 1, generator=self._random))

    def _emit(self, piece: str) -> None:
        if piece and self.request.on_piece is not None:
            self.request.on_piece(piece)


_CONTEXT = 6  # tokens before the next one that it is decoded with


class _Detokenizer:
    """Turns tokens into text; `text` is the text that `add` and `close` returned, joined.

    Bytes of an incomplete character and text that may become a stop string are held back.
    """

    def __init__(self, tokenizer: Any, before: Sequence[int], stop: Iterable[str]) -> None:
        self.text = ""
        self.stopped = False
        self._tokenizer = tokenizer
        self._stop = [string for string in stop if string]
        self._held = ""
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
        return self._release(self._held + fresh)

    def close(self) -> str:
        """Return the text that was held back. A character cut in the middle is left out."""
        if self.stopped:
            return ""
        rest = self._decode()[len(self._known) :].rstrip("\ufffd")
        certain = self._release(self._held + rest)
        rest, self._held = self._held, ""
        self.text += rest
        return certain + rest

    def _release(self, text: str) -> str:
        found = [(start + len(s), start) for s in self._stop if (start := text.find(s)) >= 0]
        if found:
            self.stopped = True
            certain, self._held = text[: min(found)[1]], ""  # the string that is complete first
        else:
            keep = max((_count_overlap(text, string) for string in self._stop), default=0)
            certain, self._held = text[: len(text) - keep], text[len(text) - keep :]
        self.text += certain
        return certain

    def _decode(self) -> str:
        return str(self._tokenizer.decode(self._ids, skip_special_tokens=True))


def _count_overlap(text: str, string: str) -> int:
    """Count the last characters of a text that are the first of a string, but not all of it."""
    lengths = range(min(len(text), len(string) - 1), 0, -1)
    return next((length for length in lengths if text.endswith(string[:length])), 0)


class _Batch:
    """Sequences of different lengths under one adapter, their keys and values padded on the left.

    The next step decodes `sequences`; if they changed, their keys and values are copied together
    again. A batch that failed cannot be used again.
    """

    def __init__(self, runtime: Runtime, adapter: str) -> None:
        self.adapter = adapter
        self.sequences: list[_BatchSequence] = []
        self._runtime = runtime
        self._cached: list[_BatchSequence] = []  # the rows of the cache
        self._cache: Any = None

    def step(self) -> Any:
        """Return the logits after each sequence's token, [rows, vocabulary] in float32 on the CPU.

        To be called within `inference`, with at least one sequence.
        """
        if self._cached != self.sequences or not self._cache.layers[0].room:
            self._arrange()
        torch, model, rows = self._runtime.torch, self._runtime.model, self.sequences
        lengths = torch.tensor([[row.length] for row in rows], device=model.device)
        longest = max(row.length for row in rows)
        positions = torch.arange(longest + 1, device=model.device)
        logits = model(
            input_ids=torch.tensor([[row.token] for row in rows], device=model.device),
            attention_mask=(positions >= longest - lengths).long(),
            position_ids=lengths,
            past_key_values=self._cache,
            use_cache=True,
            logits_to_keep=1,
        ).logits
        for row in rows:
            row.length += 1
        return logits[:, -1].float().cpu()

    def _arrange(self) -> None:
        """Copy keys and values of the sequences into a new cache, without common padding."""
        before = self._cache.layers if self._cache is not None else []
        index_of = {row: index for index, row in enumerate(self._cached)}
        longest = max(row.length for row in self.sequences)
        layers = []
        for index in range(len(before or self.sequences[0].layers)):
            parts = [
                row.layers[index] if row.layers else before[index].part(index_of[row], row.length)
                for row in self.sequences
            ]
            layers.append(_layer_class()(parts, longest))
            if before:
                before[index] = None  # so that at most one layer is in memory twice
        for row in self.sequences:
            row.layers = ()
        self._cached = list(self.sequences)
        self._cache = import_module("transformers.cache_utils").Cache(layers=layers)


_SPARE_TOKENS = 256  # that fit after the longest sequence before everything is copied again


@cache
def _layer_class() -> Any:
    base: Any = import_module("transformers.cache_utils").DynamicLayer

    class PreallocatedLayer(base):  # type: ignore[misc]
        """A cache layer that writes new keys and values into free room.

        Its base class copies all keys and values at every token.
        """

        def __init__(self, parts: Layers, longest: int) -> None:
            super().__init__()
            self._keys, self._values = (
                self._pad([part[side] for part in parts], longest) for side in (0, 1)
            )
            self.dtype, self.device = self._keys.dtype, self._keys.device
            self.is_initialized = True
            self._show(longest)

        @property
        def room(self) -> int:
            """The number of tokens that can still be written."""
            return int(self._keys.shape[2] - self.keys.shape[2])

        def part(self, row: int, length: int) -> tuple[Any, Any]:
            """Return the last `length` tokens of a row, [1, heads, length, width] each."""
            return (
                self.keys[row : row + 1, :, self.keys.shape[2] - length :],
                self.values[row : row + 1, :, self.values.shape[2] - length :],
            )

        def update(self, keys: Any, values: Any, *_: Any, **__: Any) -> tuple[Any, Any]:
            """Write keys and values after the others; return all."""
            start = self.keys.shape[2]
            self._show(start + keys.shape[2])
            self.keys[:, :, start:] = keys
            self.values[:, :, start:] = values
            return self.keys, self.values

        def _show(self, tokens: int) -> None:
            self.keys, self.values = self._keys[:, :, :tokens], self._values[:, :, :tokens]

        def _pad(self, tensors: Sequence[Any], longest: int) -> Any:
            _, heads, _, width = tensors[0].shape
            padded = tensors[0].new_zeros(len(tensors), heads, longest + _SPARE_TOKENS, width)
            for row, tensor in enumerate(tensors):
                padded[row, :, longest - tensor.shape[2] : longest] = tensor[0]
            return padded

    return PreallocatedLayer
