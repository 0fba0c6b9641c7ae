"""Log-probabilities of given tokens: many at once, what they share computed once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from threading import Event
from typing import Any

from colligate.models.hf.loading import Runtime
from colligate.models.hf.prefix_cache import common
from colligate.models.hf.prompts import Prompts

# Sequences of tokens computed together: what they begin with in common once, and no padding.
#
# Sorted, each sequence goes on from some token of the one before it. What it adds, its run, is
# appended to one row, and the model reads that row as if it were a single sequence: its linear
# layers see every token once. Only attention has to know better, and does in `attend`: a token
# sees the tokens that lead to it. Those are easily told, for what follows from a token stands
# right after it in the row, up to where its branch ends.

Slices = tuple[tuple[int, int], ...]
"""Half-open ranges of positions, in order."""

ATTENTION = "colligate_forest"
"""The name of `attend` among the attention functions of transformers."""

_SMALL = 128  # tokens: short runs attend together up to here, to spare calls; not over _LARGE
_LARGE = 512  # tokens: longer runs that take a mask attend piece by piece, to spare memory
_STRIP = 64  # tokens: the pieces in which a processor computes what takes no mask as a whole


@dataclass(frozen=True)
class Block:
    """The positions of some queries, and of all keys that any of them sees.

    `plain`: each query sees those before it and itself, so that no mask is needed.
    """

    start: int
    end: int
    keys: Slices
    plain: bool = False


@dataclass(frozen=True)
class _Run:
    start: int
    end: int
    path: Slices  # what leads to it


class Forest:
    """Sequences in one row. The first `known` tokens are the same in all, and in a cache.

    Positions count from the beginning of the cache. `ids` are the tokens to compute, and
    `depths` the place each has in its sequences, which is the position the model is told.
    """

    def __init__(self, sequences: Sequence[Sequence[int]], known: int = 0) -> None:
        self.known = known
        self.ids: list[int] = []
        self.depths: list[int] = []
        self._ends = [0] * known  # of the branch that begins with each token
        self._runs: list[_Run] = []
        self._paths: list[Slices] = [()] * len(sequences)
        self._blocks: dict[tuple[int | None, bool], list[Block]] = {}
        self._masks: dict[Any, Any] = {}
        path: Slices = ((0, known),) if known else ()
        before: Sequence[int] = ()
        for index in sorted(range(len(sequences)), key=lambda i: tuple(sequences[i])):
            ids = sequences[index]
            shared = max(known, common(before, ids))
            self._close(cut(path, shared, len(before)))
            path = cut(path, 0, shared)
            if shared < len(ids):
                run = _Run(self._end, self._end + len(ids) - shared, path)
                self._runs.append(run)
                self.ids += ids[shared:]
                self.depths += range(shared, len(ids))
                self._ends += [0] * (len(ids) - shared)
                path = joined(path, (run.start, run.end))
            self._paths[index] = path
            before = ids
        self._close(path)

    @property
    def _end(self) -> int:
        return self.known + len(self.ids)

    def _close(self, branch: Slices) -> None:
        for start, end in branch:
            self._ends[start:end] = [self._end] * (end - start)

    def positions(self, index: int, first: int, last: int) -> list[int]:
        """Where the half-open range of a sequence's tokens stands."""
        return [p for start, end in cut(self._paths[index], first, last) for p in range(start, end)]

    def blocks(self, window: int | None = None, *, strips: bool = False) -> list[Block]:
        """The row in pieces that attend one after the other.

        A token sees at most `window` tokens, itself among them. `strips` are for kernels that
        compute the unseen half of a plain block too, and then leave it out.
        """
        if (window, strips) not in self._blocks:
            self._blocks[window, strips] = list(self._cut(window, strips))
        return self._blocks[window, strips]

    def _cut(self, window: int | None, strips: bool) -> Iterator[Block]:
        groups: list[list[_Run]] = []
        for run in self._runs:
            if groups and run.end - groups[-1][0].start <= _SMALL:
                groups[-1].append(run)
            else:
                groups.append([run])
        for group in groups:
            start, end, path = group[0].start, group[-1].end, group[0].path
            plain = not path and len(group) == 1 and (window is None or end - start <= window)
            step = _LARGE if not plain else _STRIP if strips else end - start
            for a in range(start, end, step):
                b = min(a + step, end)
                # What leads to the first token of a block holds all keys before the block: what
                # leads to a later one and stands before the first leads to the first as well.
                lead = joined(path, (start, a))
                shallowest = min(self.depths[a - self.known : b - self.known])
                first = max(0, shallowest + 1 - window) if window else 0
                keys = joined(cut(lead, first, self.depths[a - self.known]), (a, b))
                yield Block(a, b, keys, plain and a == start)

    def mask(self, block: Block, window: int | None, like: Any) -> Any:
        """What a block adds to its scores, [1, 1, queries, keys]: 0, or -inf where unseen."""
        key = block, window, like.device, like.dtype
        if key not in self._masks:
            torch = import_module("torch")
            positions = [p for start, end in block.keys for p in range(start, end)]
            depths = [*range(self.known), *self.depths]
            there = {"device": like.device}
            queries = torch.arange(block.start, block.end, **there)[:, None]
            keys = torch.tensor(positions, **there)
            seen = keys <= queries
            seen &= queries < torch.tensor([self._ends[p] for p in positions], **there)
            if window:
                far = torch.tensor(depths[block.start : block.end], **there)[:, None] - window
                seen &= torch.tensor([depths[p] for p in positions], **there) > far
            zeros = torch.zeros(seen.shape, device=like.device, dtype=like.dtype)
            self._masks[key] = zeros.masked_fill_(~seen, float("-inf"))[None, None]
        return self._masks[key]


class Unfit(Exception):
    """A layer attends in a way that `attend` does not know: to be computed without a forest."""


def fits(model: Any) -> bool:
    """Whether a model may be computed over a forest, as far as its configuration tells.

    Not if it has layers that are no attention, or attend to chunks; nor if its rotations depend
    on the longest sequence of a pass. `attend` sees the rest, layer by layer.
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
    """The attention of one layer over a forest, block by block; for `AttentionInterface`.

    Query is [1, heads, new tokens, width]; keys and values are [1, heads, all tokens, width].

    Raises:
        Unfit: the layer asks for more: capped scores, sinks, a window it does not tell.
    """
    window = options.get("sliding_window")
    windowed = getattr(getattr(module, "config", None), "sliding_window", None)
    if (
        forest is None
        or attention_mask is not None
        or any(options[name] is not None for name in options.keys() - _KNOWN)
        or (windowed and "sliding_window" not in options)
        or False in (options.get("is_causal"), getattr(module, "is_causal", True))
    ):
        raise Unfit
    torch = import_module("torch")
    on_cpu = query.device.type == "cpu"
    groups = query.shape[1] // key.shape[1]
    if groups > 1 and not on_cpu:  # There a mask and shared heads together have no fast kernel.
        key, value = (states.repeat_interleave(groups, dim=1) for states in (key, value))

    def gathered(states: Any, slices: Slices) -> Any:
        parts = [states[:, :, start:end] for start, end in slices]
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=2)

    results = [
        torch.nn.functional.scaled_dot_product_attention(
            query[:, :, block.start - forest.known : block.end - forest.known],
            gathered(key, block.keys),
            gathered(value, block.keys),
            None if block.plain else forest.mask(block, window, query),
            is_causal=block.plain,
            scale=scaling,
            enable_gqa=groups > 1 and on_cpu,
        )
        for block in forest.blocks(window, strips=on_cpu)
    ]
    return torch.cat(results, dim=2).transpose(1, 2), None


# What a layer may be told besides; positions are in its queries and keys already.
_KNOWN = {
    "sliding_window", "is_causal", "dropout", "position_ids", "use_cache", "cache_position",
    "output_attentions", "output_hidden_states", "output_router_logits",
}  # fmt: skip


def cut(path: Slices, first: int, last: int) -> Slices:
    """The slices of a path's tokens in a half-open range."""
    parts, depth = [], 0
    for start, end in path:
        a, b = max(start, start + first - depth), min(end, start + last - depth)
        if a < b:
            parts.append((a, b))
        depth += end - start
    return tuple(parts)


def joined(path: Slices, more: tuple[int, int]) -> Slices:
    """A path that goes on, in as few slices as can be."""
    if more[0] == more[1]:
        return path
    if path and path[-1][1] == more[0]:
        return (*path[:-1], (path[-1][0], more[1]))
    return (*path, more)


_TOKENS = 2048  # in one forward pass: enough for fast products, few enough for their memory
_LOGITS = 1 << 28  # bytes of one pass's logits in float32
_SLICE = 1 << 25  # bytes of logits turned into log-probabilities at a time
_WORTH = 64  # tokens: a shared beginning from here on is remembered for other calls

Ids = Sequence[int]


@dataclass(frozen=True, order=True)
class _Scored:
    """A sequence, and where the continuation to be scored begins in it."""

    ids: tuple[int, ...]
    first: int


class Scorer:
    """Scores continuations; to be called in the model's thread."""

    def __init__(self, runtime: Runtime, prompts: Prompts) -> None:
        self._runtime = runtime
        self._prompts = prompts
        self._packs = fits(runtime.model)
        vocabulary = runtime.model.config.get_text_config().vocab_size
        self._rows = max(1, _LOGITS // (4 * vocabulary))
        self._slice = max(1, _SLICE // (4 * vocabulary))
        self._torch = runtime.torch
        import_module("transformers").AttentionInterface.register(ATTENTION, attend)

    def likelihoods(
        self, pairs: Sequence[tuple[str, str]], *, adapter: str = "", stop: Event | None = None
    ) -> list[list[float]]:
        """Natural log-probability of each token of each (prefix, continuation), in their order.

        Raises:
            ContextTooSmall: one of them does not fit; nothing was computed.
            Stopped: `stop` was set.
        """
        return self._score(
            [
                (self._prompts.literal(prefix, beginning=True), self._prompts.literal(continuation))
                for prefix, continuation in pairs
            ],
            adapter,
            stop,
        )

    def continuations(
        self,
        prefix_ids: Ids,
        continuations_ids: Sequence[Ids],
        *,
        adapter: str = "",
        stop: Event | None = None,
    ) -> list[list[float]]:
        """Natural log-probability of each token of each continuation of one prefix.

        Raises:
            ValueError: the prefix is empty.
            ContextTooSmall, Stopped: as `likelihoods`.
        """
        if not prefix_ids:
            raise ValueError("something must come before a continuation")
        return self._score([(prefix_ids, ids) for ids in continuations_ids], adapter, stop)

    def _score(
        self, pairs: Sequence[tuple[Ids, Ids]], adapter: str, stop: Event | None
    ) -> list[list[float]]:
        scored = [_Scored((*prefix, *continuation), len(prefix)) for prefix, continuation in pairs]
        for one in scored:
            self._runtime.must_fit(len(one.ids))
        asked = sorted({one for one in scored if one.first < len(one.ids)})
        found: dict[_Scored, list[float]] = {}
        with self._runtime.working(stop, adapter):
            if self._packs and asked:
                try:
                    self._together(asked, adapter, found)
                except Unfit:  # its first such layer tells; known from then on
                    self._packs = False
            for one in asked:
                if one not in found:
                    found[one] = self._alone(one, adapter)
        return [list(found.get(one, ())) for one in scored]

    def _together(
        self, asked: Sequence[_Scored], adapter: str, found: dict[_Scored, list[float]]
    ) -> None:
        """Score sorted sequences in one pass; in several if that would be too large a one."""
        shared = min(common(asked[0].ids, asked[-1].ids), *(one.first - 1 for one in asked))
        beginning = asked[0].ids[:shared] if shared >= _WORTH else ()
        forest = Forest([one.ids[:-1] for one in asked], len(beginning))
        # Each token is predicted at the one before it.
        where = [
            forest.positions(i, one.first - 1, len(one.ids) - 1) for i, one in enumerate(asked)
        ]
        row = {position: i for i, position in enumerate(sorted({p for ps in where for p in ps}))}
        if len(forest.ids) > _TOKENS or len(row) > self._rows:
            if len(asked) == 1:
                found[asked[0]] = self._alone(asked[0], adapter)
            else:
                half = len(asked) // 2
                self._together(asked[:half], adapter, found)
                self._together(asked[half:], adapter, found)
            return
        cache = self._cache(beginning, adapter) if beginning else None
        there = {"device": self._runtime.model.device}
        with self._runtime.attending(ATTENTION):
            logits = self._runtime.forward(
                forest.ids,
                cache,
                forest=forest,
                position_ids=self._torch.tensor([forest.depths], **there),
                logits_to_keep=self._torch.tensor([p - forest.known for p in row], **there),
            ).logits[0]
        values = self._log_probabilities(
            logits,
            [row[p] for positions in where for p in positions],
            [token for one in asked for token in one.ids[one.first :]],
        )
        for one in asked:
            count = len(one.ids) - one.first
            found[one], values = values[:count], values[count:]

    def _alone(self, one: _Scored, adapter: str) -> list[float]:
        """Score one sequence with the model's own attention, in as many passes as it takes."""
        start = one.first - 1  # what predicts the first token
        cache = self._cache(one.ids[:start], adapter)
        values: list[float] = []
        while start < len(one.ids) - 1:
            piece = one.ids[start : min(start + self._rows, start + _TOKENS, len(one.ids) - 1)]
            logits = self._runtime.forward(piece, cache, logits_to_keep=0).logits[0]
            following = one.ids[start + 1 : start + 1 + len(piece)]
            values += self._log_probabilities(logits, range(len(piece)), following)
            start += len(piece)
        return values

    def _cache(self, beginning: Ids, adapter: str) -> Any:
        if not beginning:
            return self._runtime.cache()
        layers, known = self._runtime.remembered.longest(beginning, adapter)
        if known == len(beginning):
            return self._runtime.cache(layers)
        return self._runtime.prefill(beginning, adapter=adapter)[0]

    def _log_probabilities(self, logits: Any, rows: Ids, tokens: Ids) -> list[float]:
        """Of a token each, by a row of logits each; without a copy of all logits in float32."""
        sums = [part.float().logsumexp(-1) for part in logits.split(self._slice)]
        there = {"device": logits.device}
        index = self._torch.tensor(list(rows), **there)
        chosen = logits[index, self._torch.tensor(list(tokens), **there)].float()
        values: list[float] = (chosen - self._torch.cat(sums)[index]).tolist()
        return values
