"""Generate answers to prompts: continuous batching with a decoding loop of our own.

Requests of any thread join between two tokens of those in progress, each with its own seed,
grammar and adapter. The work is done in the model's thread, by any call that waits.
"""

from __future__ import annotations

import traceback
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Any

from colligate.models.decoding import AnswerInProgress, GenerationRequest, PassStopped
from colligate.models.hf.runtime import Layers, Runtime


class BatchGenerator:
    """Decodes up to `limit` requests together, with the tokenizer of transformers."""

    def __init__(self, runtime: Runtime, tokenizer: Any, limit: int = 8) -> None:
        self._runtime = runtime
        self._decode = partial(tokenizer.backend_tokenizer.decode, skip_special_tokens=True)
        self._ends = _find_end_tokens(runtime.model, tokenizer)
        self._limit = limit
        self._submitted: deque[GenerationRequest] = deque()  # the only state other threads touch
        self._waiting: list[GenerationRequest] = []
        self._batches: dict[str, _Batch] = {}  # by adapter; the first is next

    def submit(self, request: GenerationRequest) -> None:
        """Queue a request; it joins before the next token. From any thread."""
        self._submitted.append(request)

    def advance(self) -> None:
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
        sequence = _BatchSequence(
            request,
            decode=self._decode,
            ends=self._ends,
            name=runtime.name,
            context=runtime.context,
        )
        if request.outcome is not None:
            return sequence
        with runtime.inference(request.halt, request.adapter):
            sequence.cached_tokens = runtime.prefixes.find_longest(ids[:-1], request.adapter)[1]
            cache, logits = runtime.prefill(ids, adapter=request.adapter)
            sequence.layers, sequence.length = runtime.layers_of(cache), len(ids)
            logits = logits.float().cpu().numpy()
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
    each: BaseException | None = error
    while each is not None:  # Its frames hold tensors, and memory that others need.
        traceback.clear_frames(each.__traceback__)
        each = each.__cause__
    for request in requests:
        request.outcome = error


# Tokens that end a turn in the templates of model families, if a configuration omits them.
_TURN_ENDS = ("<|im_end|>", "<end_of_turn>", "<|eot_id|>", "<|endoftext|>", "<|end_of_text|>")


def _find_end_tokens(model: Any, tokenizer: Any) -> frozenset[int]:
    ends = {tokenizer.eos_token_id}
    for config in (model.generation_config, model.config, model.config.get_text_config()):
        given = getattr(config, "eos_token_id", None)
        ends.update(given if isinstance(given, list | tuple) else [given])
    for token, added in tokenizer.added_tokens_decoder.items():
        if added.special and added.content in _TURN_ENDS:
            ends.add(token)
    return frozenset(ends - {None})


class _BatchSequence(AnswerInProgress):
    """An answer in progress, and its state in a batch.

    `length` tokens are computed, and the last one written follows them. `layers` are the keys and
    values of those computed, until a batch holds them.
    """

    layers: Layers = ()
    length: int = 0


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
        """Return the logits after each sequence's token, [rows, vocabulary] in float32.

        To be called within `inference`, with at least one sequence.
        """
        if self._cached != self.sequences:
            self._arrange()
        torch, model, rows = self._runtime.torch, self._runtime.model, self.sequences
        lengths = torch.tensor([[row.length] for row in rows], device=model.device)
        longest = max(row.length for row in rows)
        positions = torch.arange(longest + 1, device=model.device)
        logits = model(
            input_ids=torch.tensor([[row.written[-1]] for row in rows], device=model.device),
            attention_mask=(positions >= longest - lengths).long(),
            position_ids=lengths,
            use_cache=True,
            logits_to_keep=1,
            **{self._runtime.cache_name: self._cache},
        ).logits
        for row in rows:
            row.length += 1
        return logits[:, -1].float().cpu().numpy()

    def _arrange(self) -> None:
        """Copy keys and values of the sequences into a new cache, without common padding."""
        pad, torch = self._runtime.torch.nn.functional.pad, self._runtime.torch
        before = () if self._cache is None else self._runtime.layers_of(self._cache)
        index_of = {row: index for index, row in enumerate(self._cached)}
        longest = max(row.length for row in self.sequences)
        layers = []
        for index in range(len(before or self.sequences[0].layers)):
            rows = []
            for row in self.sequences:
                at = index_of.get(row, 0)
                pair = row.layers[index] if row.layers else before[index]
                if not row.layers:
                    pair = tuple(each[at : at + 1, :, -row.length :] for each in pair)
                rows.append([pad(each, (0, 0, longest - row.length, 0)) for each in pair])
            keys, values = (torch.cat(each) for each in zip(*rows, strict=True))
            layers.append((keys, values))
        for row in self.sequences:
            row.layers = ()
        self._cached = list(self.sequences)
        self._cache = self._runtime.new_cache(layers)
