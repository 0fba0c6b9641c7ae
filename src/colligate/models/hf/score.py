"""Log-probabilities of given tokens: many sequences in one pass, shared prefixes computed once.

Sequences are padded on the right: a token sees only those before it, so the padding changes nothing
and no mask is needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from threading import Event
from typing import Any

from colligate.models.hf.runtime import Layers, Runtime
from colligate.models.local import count_shared

_PASS_TOKENS = 2048  # in one pass: enough for fast products, few enough for their memory
_PADDING_TOKENS = 256  # computed for nothing in a pass
_KEPT_TOKENS = 16384  # keys and values of a pass, those of the shared prefix in each row
_LOGIT_BYTES = 1 << 28  # of one pass's logits in float32
_SLICE_BYTES = 1 << 25  # of logits turned into log-probabilities at a time
_MIN_PREFIX = 64  # tokens: a shared prefix from this length is remembered for other calls

Ids = Sequence[int]


@dataclass(frozen=True)
class _Continuation:
    """A sequence, and where the tokens to score begin in it."""

    ids: tuple[int, ...]
    first: int

    @property
    def read(self) -> tuple[int, ...]:
        """The tokens to read: nothing is predicted after the last one."""
        return self.ids[:-1]

    @property
    def size(self) -> int:
        """How many tokens get a log-probability."""
        return len(self.ids) - self.first


class LikelihoodScorer:
    """Scores continuations; to be called in the model's thread."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._torch = runtime.torch
        self._pads = not _rotates_by_length(runtime.model)
        vocabulary = runtime.model.config.get_text_config().vocab_size
        self._logit_rows = max(1, _LOGIT_BYTES // (4 * vocabulary))
        self._slice_rows = max(1, _SLICE_BYTES // (4 * vocabulary))

    def score(
        self, pairs: Sequence[tuple[Ids, Ids]], *, adapter: str = "", stop: Event | None = None
    ) -> list[list[float]]:
        """Return the natural log-probability of each token after each prefix, which is not empty.

        ContextTooSmall, before anything is computed, if one of them does not fit; PassStopped
        after `stop`.
        """
        if not all(prefix for prefix, _ in pairs):
            raise ValueError("a continuation needs a token before it")
        wanted = [_Continuation((*prefix, *ids), len(prefix)) for prefix, ids in pairs]
        for each in wanted:
            self._runtime.check_fits(len(each.ids))
        distinct = dict.fromkeys(each for each in wanted if each.size)
        scores: dict[_Continuation, list[float]] = {}
        with self._runtime.inference(stop, adapter):
            if self._pads and distinct:
                self._score_together(list(distinct), adapter, scores)
            for each in distinct.keys() - scores.keys():
                scores[each] = self._score_alone(each, adapter)
        return [list(scores.get(each, ())) for each in wanted]

    def _score_together(
        self, rows: list[_Continuation], adapter: str, scores: dict[_Continuation, list[float]]
    ) -> None:
        """Score sequences in as few passes as fit; those too long for a pass are left out."""
        ids = [row.read for row in rows]
        first = min(row.first for row in rows)
        shared = min(count_shared(min(ids), max(ids)), first - 1)
        prefix = ids[0][:shared] if shared >= _MIN_PREFIX else ()
        layers = self._prefix_layers(prefix, adapter)
        for batch in self._split(rows, len(prefix)):
            self._score_batch(batch, len(prefix), layers, scores)

    def _split(self, rows: list[_Continuation], known: int) -> list[list[_Continuation]]:
        """Split sequences into batches that fit into a pass, those of similar length together."""

        def fits(batch: list[_Continuation]) -> bool:
            longest = len(batch[-1].read)
            return (
                len(batch) * (longest - known) <= _PASS_TOKENS
                and len(batch) * longest <= _KEPT_TOKENS
                and sum(longest - len(row.read) for row in batch) <= _PADDING_TOKENS
                and sum(row.size for row in batch) <= self._logit_rows
            )

        batches: list[list[_Continuation]] = []
        for row in sorted(rows, key=lambda row: len(row.read)):
            if batches and fits([*batches[-1], row]):
                batches[-1].append(row)
            elif fits([row]):
                batches.append([row])
        return batches

    def _score_batch(
        self,
        batch: list[_Continuation],
        known: int,
        layers: Layers,
        scores: dict[_Continuation, list[float]],
    ) -> None:
        """Score sequences in one pass after the keys and values of their first `known` tokens."""
        torch, model = self._torch, self._runtime.model
        longest = max(len(row.read) for row in batch)
        ids = [[*row.read[known:], *[0] * (longest - len(row.read))] for row in batch]
        # Each token is predicted at the one before it.
        places = [
            (number, position - 1 - known, row.ids[position])
            for number, row in enumerate(batch)
            for position in range(row.first, len(row.ids))
        ]
        numbers, positions, tokens = zip(*places, strict=True)

        def choose(_: Any, states: tuple[Any, ...]) -> tuple[Any, ...]:
            return (states[0][list(numbers), list(positions)][None],)  # logits of these alone

        cache = None
        if known:
            size = (len(batch), -1, -1, -1)
            cache = self._runtime.new_cache([(k.expand(size), v.expand(size)) for k, v in layers])
        handle = model.get_output_embeddings().register_forward_pre_hook(choose)
        try:
            logits = model(
                input_ids=torch.tensor(ids, device=model.device),
                use_cache=known > 0,
                **{self._runtime.cache_name: cache},
            ).logits[0]
        finally:
            handle.remove()
        values = self._log_probabilities(logits, range(len(tokens)), tokens)
        for row in batch:
            scores[row], values = values[: row.size], values[row.size :]

    def _score_alone(self, wanted: _Continuation, adapter: str) -> list[float]:
        """Score one sequence in as many passes as needed."""
        ids, start = wanted.ids, wanted.first - 1  # from the token that predicts the first
        cache = self._runtime.new_cache(self._prefix_layers(ids[:start], adapter))
        values: list[float] = []
        while start < len(ids) - 1:
            end = min(start + self._logit_rows, start + _PASS_TOKENS, len(ids) - 1)
            logits = self._runtime.forward(ids[start:end], cache, logits_to_keep=0).logits[0]
            values += self._log_probabilities(logits, range(end - start), ids[start + 1 : end + 1])
            start = end
        return values

    def _prefix_layers(self, prefix: Ids, adapter: str) -> Layers:
        if not prefix:
            return ()
        layers, known = self._runtime.prefixes.find_longest(prefix, adapter)
        if known == len(prefix):
            return layers
        return self._runtime.layers_of(self._runtime.prefill(prefix, adapter=adapter)[0])

    def _log_probabilities(self, logits: Any, rows: Ids, tokens: Ids) -> list[float]:
        """Take each token's from its row of logits, without copying all logits to float32."""
        sums = [part.float().logsumexp(-1) for part in logits.split(self._slice_rows)]
        index = self._torch.tensor(list(rows), device=logits.device)
        columns = self._torch.tensor(list(tokens), device=logits.device)
        chosen = logits[index, columns].float()
        values: list[float] = (chosen - self._torch.cat(sums)[index]).tolist()
        return values


def _rotates_by_length(model: Any) -> bool:
    """Whether positions depend on the longest sequence of a pass."""
    ropes = getattr(model.config.get_text_config(), "rope_parameters", None) or {}
    kinds = {ropes.get("rope_type")}
    kinds |= {rope.get("rope_type") for rope in ropes.values() if isinstance(rope, dict)}
    return bool(kinds & {"dynamic", "longrope"})
