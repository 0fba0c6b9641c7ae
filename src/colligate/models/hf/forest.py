"""Sequences of tokens computed together: what they begin with in common once, and no padding.

Sorted, each sequence goes on from some token of the one before it. What it adds, its run, is
appended to one row, and the model reads that row as if it were a single sequence: its linear
layers see every token once. Only attention has to know better, and does in `attend`: a token
sees the tokens that lead to it. Those are easily told, for what follows from a token stands
right after it in the row, up to where its branch ends.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import takewhile
from typing import Any

Slices = tuple[tuple[int, int], ...]
"""Half-open ranges of positions, in order."""

ATTENTION = "colligate_forest"
"""The name of `attend` among the attention functions of transformers."""

_SMALL = 128  # tokens: short runs attend together up to here, to spare calls
_LARGE = 512  # tokens: longer runs that take a mask attend piece by piece, to spare memory


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
        self._blocks: dict[int | None, list[Block]] = {}
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

    def blocks(self, window: int | None = None) -> list[Block]:
        """The row in pieces that attend one after the other.

        A token sees at most `window` tokens, itself among them.
        """
        if window not in self._blocks:
            self._blocks[window] = list(self._cut(window))
        return self._blocks[window]

    def _cut(self, window: int | None) -> Iterator[Block]:
        groups: list[list[_Run]] = []
        for run in self._runs:
            if groups and run.end - groups[-1][0].start <= _SMALL:
                groups[-1].append(run)
            else:
                groups.append([run])
        for group in groups:
            start, end, path = group[0].start, group[-1].end, group[0].path
            if not path and len(group) == 1 and (window is None or end - start <= window):
                yield Block(start, end, ((start, end),), plain=True)
                continue
            for a in range(start, end, _LARGE):
                b = min(a + _LARGE, end)
                # What leads to the first token of a block holds all keys before the block: what
                # leads to a later one and stands before the first leads to the first as well.
                lead = joined(path, (start, a))
                shallowest = min(self.depths[a - self.known : b - self.known])
                first = max(0, shallowest + 1 - window) if window else 0
                keys = joined(cut(lead, first, self.depths[a - self.known]), (a, b))
                yield Block(a, b, keys)

    def mask(self, block: Block, window: int | None, like: Any) -> Any:
        """What a block adds to its scores, [1, 1, queries, keys]: 0, or -inf where unseen."""
        key = block.start, window, like.device, like.dtype
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


def attend(
    module: Any,
    query: Any,
    key: Any,
    value: Any,
    attention_mask: Any,
    *,
    forest: Forest,
    scaling: float | None = None,
    sliding_window: int | None = None,
    **options: Any,
) -> tuple[Any, None]:
    """The attention of one layer over a forest, block by block; for `AttentionInterface`.

    Query is [1, heads, new tokens, width], keys and values [1, heads, all tokens, width].

    Raises:
        RuntimeError: the model asks of attention what this does not do.
    """
    if attention_mask is not None or any(options.get(name) is not None for name in _UNKNOWN):
        raise RuntimeError("its attention takes more than a forest knows of")
    torch = import_module("torch")
    sdpa = import_module("transformers").AttentionInterface()["sdpa"]

    def gathered(states: Any, slices: Slices) -> Any:
        parts = [states[:, :, start:end] for start, end in slices]
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=2)

    results = []
    for block in forest.blocks(sliding_window):
        result, _ = sdpa(
            module,
            query[:, :, block.start - forest.known : block.end - forest.known],
            gathered(key, block.keys),
            gathered(value, block.keys),
            None if block.plain else forest.mask(block, sliding_window, query),
            scaling=scaling,
            is_causal=block.plain,
        )
        results.append(result)
    return torch.cat(results, dim=1), None


_UNKNOWN = ("softcap", "s_aux", "sinks", "position_bias", "indices", "block_indices")


def fits(model: Any) -> bool:
    """Whether `attend` is all the attention a model has.

    It does not know capped scores, sinks, chunks, or layers that are no attention; nor
    rotations that depend on the longest sequence of a pass. Those models are computed
    sequence by sequence.
    """
    config = model.config.get_text_config()
    rope = getattr(config, "rope_parameters", None) or {}
    ropes = rope.values() if all(isinstance(value, dict) for value in rope.values()) else [rope]
    layers = set(getattr(config, "layer_types", None) or ())
    return (
        bool(model._supports_attention_backend)
        and layers <= {"full_attention", "sliding_attention"}
        and getattr(config, "attn_logit_softcapping", None) is None
        and not any(name.rpartition(".")[2] == "sinks" for name, _ in model.named_parameters())
        and not any(r.get("rope_type") in ("dynamic", "longrope") for r in ropes)
    )


def common(one: Sequence[int], other: Sequence[int]) -> int:
    """How many tokens two sequences begin with in common."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


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
