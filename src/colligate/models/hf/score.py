"""Log-probabilities of given tokens: many sequences in one pass, shared prefixes computed once.

Sequences are packed into one row without padding (`Forest`), which needs an attention function of
its own (`attend`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from threading import Event
from typing import Any

from colligate.models.hf.runtime import Runtime
from colligate.models.local import count_shared
from colligate.models.prompts import Prompts

_PASS_TOKENS = 2048  # in one pass: enough for fast products, few enough for their memory
_LOGIT_BYTES = 1 << 28  # of one pass's logits in float32
_SLICE_BYTES = 1 << 25  # of logits turned into log-probabilities at a time
_MIN_PREFIX = 64  # tokens: a shared prefix from this length is remembered for other calls

Ids = Sequence[int]


@dataclass(frozen=True, order=True)
class _Continuation:
    """A sequence, and where the tokens to score begin in it."""

    ids: tuple[int, ...]
    first: int


class LikelihoodScorer:
    """Scores continuations; to be called in the model's thread."""

    def __init__(self, runtime: Runtime, prompts: Prompts) -> None:
        self._runtime = runtime
        self._prompts = prompts
        self._packs = supports_forest(runtime.model)
        vocabulary = runtime.model.config.get_text_config().vocab_size
        self._logit_rows = max(1, _LOGIT_BYTES // (4 * vocabulary))
        self._slice_rows = max(1, _SLICE_BYTES // (4 * vocabulary))
        self._torch = runtime.torch
        import_module("transformers").AttentionInterface.register(ATTENTION, attend)

    def score_texts(
        self, pairs: Sequence[tuple[str, str]], *, adapter: str = "", stop: Event | None = None
    ) -> list[list[float]]:
        """Return the natural log-probability of each token of each (prefix, continuation).

        ContextTooSmall, before anything is computed, if one of them does not fit; PassStopped
        after `stop`.
        """
        encode = self._prompts.encode_literal
        ids = [(encode(before, beginning=True), encode(after)) for before, after in pairs]
        return self.score(ids, adapter=adapter, stop=stop)

    def score(
        self, pairs: Sequence[tuple[Ids, Ids]], *, adapter: str = "", stop: Event | None = None
    ) -> list[list[float]]:
        """Return the same for pairs of tokens; no prefix may be empty."""
        if not all(prefix for prefix, _ in pairs):
            raise ValueError("a continuation needs a token before it")
        wanted = [_Continuation((*prefix, *ids), len(prefix)) for prefix, ids in pairs]
        for each in wanted:
            self._runtime.check_fits(len(each.ids))
        distinct = sorted({each for each in wanted if each.first < len(each.ids)})
        scores: dict[_Continuation, list[float]] = {}
        with self._runtime.inference(stop, adapter):
            if self._packs and distinct:
                try:
                    self._score_packed(distinct, adapter, scores)
                except UnsupportedAttention:  # raised by its first such layer; known from then on
                    self._packs = False
            for each in distinct:
                if each not in scores:
                    scores[each] = self._score_alone(each, adapter)
        return [list(scores.get(each, ())) for each in wanted]

    def _score_packed(
        self,
        wanted: Sequence[_Continuation],
        adapter: str,
        scores: dict[_Continuation, list[float]],
    ) -> None:
        """Score sorted sequences in one pass; in several if that would be too large."""
        shared = min(count_shared(wanted[0].ids, wanted[-1].ids), *(c.first - 1 for c in wanted))
        prefix = wanted[0].ids[:shared] if shared >= _MIN_PREFIX else ()
        forest = Forest([each.ids[:-1] for each in wanted], len(prefix))
        # Each token is predicted at the one before it.
        predicting = [
            forest.positions(i, each.first - 1, len(each.ids) - 1) for i, each in enumerate(wanted)
        ]
        positions = sorted({position for each in predicting for position in each})
        if len(forest.ids) > _PASS_TOKENS or len(positions) > self._logit_rows:
            if len(wanted) == 1:
                scores[wanted[0]] = self._score_alone(wanted[0], adapter)
            else:
                half = len(wanted) // 2
                self._score_packed(wanted[:half], adapter, scores)
                self._score_packed(wanted[half:], adapter, scores)
            return
        cache = self._prefix_cache(prefix, adapter) if prefix else None
        device = self._runtime.model.device
        with self._runtime.use_attention(ATTENTION):
            logits = self._runtime.forward(
                forest.ids,
                cache,
                forest=forest,
                position_ids=self._torch.tensor([forest.depths], device=device),
                logits_to_keep=self._torch.tensor(
                    [position - forest.known for position in positions], device=device
                ),
            ).logits[0]
        row_of = {position: row for row, position in enumerate(positions)}
        values = self._log_probabilities(
            logits,
            [row_of[position] for each in predicting for position in each],
            [token for each in wanted for token in each.ids[each.first :]],
        )
        for each in wanted:
            count = len(each.ids) - each.first
            scores[each], values = values[:count], values[count:]

    def _score_alone(self, wanted: _Continuation, adapter: str) -> list[float]:
        """Score one sequence with the model's own attention, in as many passes as needed."""
        ids, start = wanted.ids, wanted.first - 1  # from the token that predicts the first
        cache = self._prefix_cache(ids[:start], adapter)
        values: list[float] = []
        while start < len(ids) - 1:
            end = min(start + self._logit_rows, start + _PASS_TOKENS, len(ids) - 1)
            logits = self._runtime.forward(ids[start:end], cache, logits_to_keep=0).logits[0]
            values += self._log_probabilities(logits, range(end - start), ids[start + 1 : end + 1])
            start = end
        return values

    def _prefix_cache(self, prefix: Ids, adapter: str) -> Any:
        if not prefix:
            return self._runtime.new_cache()
        layers, known = self._runtime.prefixes.find_longest(prefix, adapter)
        if known == len(prefix):
            return self._runtime.new_cache(layers)
        return self._runtime.prefill(prefix, adapter=adapter)[0]

    def _log_probabilities(self, logits: Any, rows: Ids, tokens: Ids) -> list[float]:
        """Take each token's from its row of logits, without copying all logits to float32."""
        sums = [part.float().logsumexp(-1) for part in logits.split(self._slice_rows)]
        index = self._torch.tensor(list(rows), device=logits.device)
        columns = self._torch.tensor(list(tokens), device=logits.device)
        chosen = logits[index, columns].float()
        values: list[float] = (chosen - self._torch.cat(sums)[index]).tolist()
        return values


# Sequences packed into one row

Slices = tuple[tuple[int, int], ...]
"""Half-open ranges of positions, in order."""

_GROUP_TOKENS = 128  # short runs attend together up to here, to save calls; not over _MASK_TOKENS
_MASK_TOKENS = 512  # longer runs that need a mask attend piece by piece, to save memory
_STRIP_TOKENS = 64  # the pieces in which a processor computes a block without a mask


@dataclass(frozen=True)
class AttentionBlock:
    """The positions of some queries, and of all keys that any of them sees.

    `plain`: each query sees those before it and itself, so no mask is needed.
    """

    start: int
    end: int
    keys: Slices
    plain: bool = False


@dataclass(frozen=True)
class _Run:
    """The tokens that one sequence adds to the row; `path` leads to the first of them."""

    start: int
    end: int
    path: Slices


class Forest:
    """Sequences in one row, prefixes in common only once and no padding.

    Sorted, each sequence continues from some token of the one before it. The tokens it adds, its
    run, are appended to the row, which the model reads as if it were a single sequence: its linear
    layers see every token once. Only attention must know the structure (`attend`): a token sees
    the tokens that lead to it. They are easy to find, since what follows from a token comes right
    after it in the row, up to the end of its branch.

    The first `known` tokens are the same in all sequences, and in a cache. Positions count from
    the beginning of the cache. `ids` are the tokens to compute, and `depths` the place of each in
    its sequences, which is the position that the model is given.
    """

    def __init__(self, sequences: Sequence[Ids], known: int = 0) -> None:
        self.known = known
        self.ids: list[int] = []
        self.depths: list[int] = []
        self._ends = [0] * known  # of the branch that begins with each token
        self._runs: list[_Run] = []
        self._paths: list[Slices] = [()] * len(sequences)
        self._blocks: dict[tuple[int | None, bool], list[AttentionBlock]] = {}
        self._masks: dict[Any, Any] = {}
        path: Slices = ((0, known),) if known else ()
        before: Ids = ()
        for index in sorted(range(len(sequences)), key=lambda i: tuple(sequences[i])):
            ids = sequences[index]
            shared = max(known, count_shared(before, ids))
            self._end_branch(_cut_path(path, shared, len(before)))
            path = _cut_path(path, 0, shared)
            if shared < len(ids):
                run = _Run(self._end, self._end + len(ids) - shared, path)
                self._runs.append(run)
                self.ids += ids[shared:]
                self.depths += range(shared, len(ids))
                self._ends += [0] * (len(ids) - shared)
                path = _extend_path(path, (run.start, run.end))
            self._paths[index] = path
            before = ids
        self._end_branch(path)

    @property
    def _end(self) -> int:
        return self.known + len(self.ids)

    def _end_branch(self, branch: Slices) -> None:
        for start, end in branch:
            self._ends[start:end] = [self._end] * (end - start)

    def positions(self, index: int, first: int, last: int) -> list[int]:
        """Return the positions of the half-open range of a sequence's tokens."""
        path = _cut_path(self._paths[index], first, last)
        return [position for start, end in path for position in range(start, end)]

    def blocks(self, window: int | None = None, *, strips: bool = False) -> list[AttentionBlock]:
        """Cut the row into blocks that attend one after the other.

        A token sees at most `window` tokens, itself included. `strips` are for kernels that
        compute the unseen half of a plain block too, and then discard it.
        """
        if (window, strips) not in self._blocks:
            self._blocks[window, strips] = list(self._cut(window, strips))
        return self._blocks[window, strips]

    def _cut(self, window: int | None, strips: bool) -> Iterator[AttentionBlock]:
        groups: list[list[_Run]] = []
        for run in self._runs:
            if groups and run.end - groups[-1][0].start <= _GROUP_TOKENS:
                groups[-1].append(run)
            else:
                groups.append([run])
        for group in groups:
            start, end, path = group[0].start, group[-1].end, group[0].path
            plain = not path and len(group) == 1 and (window is None or end - start <= window)
            step = _MASK_TOKENS if not plain else _STRIP_TOKENS if strips else end - start
            for a in range(start, end, step):
                b = min(a + step, end)
                # The path to a block's first token holds all keys before the block: what leads
                # to a later token and comes before the first one leads to the first one too.
                lead = _extend_path(path, (start, a))
                shallowest = min(self.depths[a - self.known : b - self.known])
                first = max(0, shallowest + 1 - window) if window else 0
                seen = _cut_path(lead, first, self.depths[a - self.known])
                yield AttentionBlock(a, b, _extend_path(seen, (a, b)), plain and a == start)

    def mask(self, block: AttentionBlock, window: int | None, like: Any) -> Any:
        """Return what a block adds to its scores, [1, 1, queries, keys]: 0, or -inf if unseen."""
        key = block, window, like.device, like.dtype
        if key not in self._masks:
            torch = import_module("torch")
            positions = [p for start, end in block.keys for p in range(start, end)]
            depths = [*range(self.known), *self.depths]
            on = {"device": like.device}
            queries = torch.arange(block.start, block.end, **on)[:, None]
            keys = torch.tensor(positions, **on)
            seen = keys <= queries
            seen &= queries < torch.tensor([self._ends[p] for p in positions], **on)
            if window:
                far = torch.tensor(depths[block.start : block.end], **on)[:, None] - window
                seen &= torch.tensor([depths[p] for p in positions], **on) > far
            zeros = torch.zeros(seen.shape, device=like.device, dtype=like.dtype)
            self._masks[key] = zeros.masked_fill_(~seen, float("-inf"))[None, None]
        return self._masks[key]


def _cut_path(path: Slices, first: int, last: int) -> Slices:
    """Return the slices of a path's tokens in a half-open range."""
    parts, depth = [], 0
    for start, end in path:
        a, b = max(start, start + first - depth), min(end, start + last - depth)
        if a < b:
            parts.append((a, b))
        depth += end - start
    return tuple(parts)


def _extend_path(path: Slices, more: tuple[int, int]) -> Slices:
    """Append a slice to a path, joined to the last one if they touch."""
    if more[0] == more[1]:
        return path
    if path and path[-1][1] == more[0]:
        return (*path[:-1], (path[-1][0], more[1]))
    return (*path, more)


# Attention over a packed row

ATTENTION = "colligate_forest"
"""The name of `attend` among the attention functions of transformers."""

# Options a layer may be called with: positions are in its queries and keys already.
_KNOWN_OPTIONS = {
    "sliding_window", "is_causal", "dropout", "position_ids", "use_cache", "cache_position",
    "output_attentions", "output_hidden_states", "output_router_logits",
}  # fmt: skip


class UnsupportedAttention(Exception):
    """A layer attends in a way that `attend` does not know: compute it without a forest."""


def supports_forest(model: Any) -> bool:
    """Whether a model can be computed over a forest, according to its configuration.

    Not if it has layers without attention or with chunked attention, nor if its rotations depend
    on the longest sequence of a pass. `attend` checks the rest, layer by layer.
    """
    config = model.config.get_text_config()
    layers = set(getattr(config, "layer_types", None) or ())
    ropes = getattr(config, "rope_parameters", None) or {}
    kinds = {ropes.get("rope_type")}
    kinds |= {rope.get("rope_type") for rope in ropes.values() if isinstance(rope, dict)}
    return (
        bool(model._supports_attention_backend)
        and layers <= {"full_attention", "sliding_attention"}
        and not kinds & {"dynamic", "longrope"}
    )


def attend(
    module: Any,
    query: Any,
    key: Any,
    value: Any,
    attention_mask: Any,
    *,
    forest: Forest | None = None,
    scaling: float | None = None,
    **options: Any,
) -> tuple[Any, None]:
    """Compute the attention of one layer over a forest, block by block; for `AttentionInterface`.

    Query is [1, heads, new tokens, width]; keys and values are [1, heads, all tokens, width].
    UnsupportedAttention if the layer needs more: capped scores, sinks, an undeclared window.
    """
    window = options.get("sliding_window")
    windowed = getattr(getattr(module, "config", None), "sliding_window", None)
    if (
        forest is None
        or attention_mask is not None
        or any(options[name] is not None for name in options.keys() - _KNOWN_OPTIONS)
        or (windowed and "sliding_window" not in options)
        or False in (options.get("is_causal"), getattr(module, "is_causal", True))
    ):
        raise UnsupportedAttention
    torch = import_module("torch")
    on_cpu = query.device.type == "cpu"
    groups = query.shape[1] // key.shape[1]
    if groups > 1 and not on_cpu:  # GPUs have no fast kernel for a mask with shared heads.
        key, value = (states.repeat_interleave(groups, dim=1) for states in (key, value))

    def select(states: Any, slices: Slices) -> Any:
        parts = [states[:, :, start:end] for start, end in slices]
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=2)

    results = [
        torch.nn.functional.scaled_dot_product_attention(
            query[:, :, block.start - forest.known : block.end - forest.known],
            select(key, block.keys),
            select(value, block.keys),
            None if block.plain else forest.mask(block, window, query),
            is_causal=block.plain,
            scale=scaling,
            enable_gqa=groups > 1 and on_cpu,
        )
        for block in forest.blocks(window, strips=on_cpu)
    ]
    return torch.cat(results, dim=2).transpose(1, 2), None
