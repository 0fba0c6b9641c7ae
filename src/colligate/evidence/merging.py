"""What SPD-RAG synthesises together: the most similar texts, as many as a budget of tokens allows.

All here is arithmetic on vectors and token counts. Texts are named by their place in a list.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.cluster.hierarchy import linkage

_SHORTEST = 1e-12  # of a vector that has a direction
_MOST_COMPARED = 1024  # texts whose distances, each to each, are held at once


@dataclass(frozen=True)
class Grouping:
    """The texts of each synthesis, each text in one of them.

    `forced`: no two texts fit the budget together, and all are put together nevertheless.
    """

    groups: tuple[tuple[int, ...], ...]
    forced: bool = False


def grouped(vectors: ArrayLike, tokens: Sequence[int], budget: int) -> Grouping:
    """The texts in groups of similar ones, of at most `budget` tokens each if not `forced`.

    There are always fewer groups than texts, one text apart, so that going on must end. A text
    that is longer than the budget stays by itself. More than a thousand texts are first halved
    across the direction in which they differ most: memory would grow with their square.
    """
    rows = np.asarray(vectors, dtype=np.float32)
    groups = []
    for part in _parts(rows, np.arange(len(tokens))):
        tree = merge_tree(rows[part])
        found = group_by_tokens([tokens[i] for i in part], tree, budget)
        groups += [tuple(int(part[i]) for i in group) for group in found]
    if len(groups) >= len(tokens) > 1:
        return Grouping((tuple(range(len(tokens))),), forced=True)
    return Grouping(tuple(sorted(groups, key=min)))


def _parts(rows: NDArray[np.float32], places: NDArray[np.intp]) -> list[NDArray[np.intp]]:
    """The places in parts of similar rows, few enough to compare each with each."""
    if len(places) <= _MOST_COMPARED:
        return [places]
    centred = rows[places] - rows[places].mean(axis=0)
    _, axes = np.linalg.eigh(centred.T @ centred)
    order = np.argsort(centred @ axes[:, -1], kind="stable")
    half = len(places) // 2
    return [
        part
        for side in (order[:half], order[half:])
        for part in _parts(rows, np.sort(places[side]))
    ]


def merge_tree(vectors: ArrayLike) -> list[tuple[int, int]]:
    """The merges of average linkage (UPGMA) over cosine distance, the nearest first.

    `vectors` is [n, d]. A merge joins two nodes: a text is its place, the k-th merge n + k. A
    vector without direction is at distance 1 from all others.
    """
    rows = np.asarray(vectors, dtype=np.float32)
    count = len(rows)
    if count < 2:
        return []
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    rows = np.divide(rows, norms, out=np.zeros_like(rows), where=norms > _SHORTEST)
    distances: NDArray[np.float64] = np.empty(count * (count - 1) // 2)
    at = 0
    for i in range(count - 1):  # by rows: the square of them is never held
        distances[at : at + count - 1 - i] = 1 - rows[i + 1 :] @ rows[i]
        at += count - 1 - i
    merges = linkage(np.maximum(distances, 0, out=distances), method="average")
    return [(int(left), int(right)) for left, right in merges[:, :2]]


def group_by_tokens(
    tokens: Sequence[int], tree: Sequence[tuple[int, int]], budget: int
) -> tuple[tuple[int, ...], ...]:
    """The largest sub-trees of at most `budget` tokens, in the order of their first text.

    A merge beyond the budget is refused, and with it all that are built on it. The texts of a
    group stand in the order of the tree.
    """
    nodes: dict[int, tuple[tuple[int, ...], int]] = {
        text: ((text,), count) for text, count in enumerate(tokens)
    }
    roots = set(nodes)
    for number, (left, right) in enumerate(tree, len(tokens)):
        if left not in nodes or right not in nodes:
            continue
        count = nodes[left][1] + nodes[right][1]
        if count <= budget:
            nodes[number] = nodes[left][0] + nodes[right][0], count
            roots -= {left, right}
            roots.add(number)
    return tuple(sorted((nodes[root][0] for root in roots), key=min))


def split_by_tokens(tokens: Sequence[int], budget: int) -> list[range]:
    """Things in order, cut into runs of at most `budget` tokens; one that is longer is a run."""
    runs, start, used = [], 0, 0
    for at, count in enumerate(tokens):
        if at > start and used + count > budget:
            runs.append(range(start, at))
            start, used = at, 0
        used += count
    return [*runs, range(start, len(tokens))]


def fair_shares(tokens: Sequence[Sequence[int]], budget: int) -> list[int]:
    """How many of the first parts of each text are kept within a budget for all of them.

    The first parts of all come before any second one. A text whose next part does not fit gets no
    further one.
    """
    kept = [0] * len(tokens)
    used = 0
    ended: set[int] = set()
    for turn in range(max(map(len, tokens), default=0)):
        for text, parts in enumerate(tokens):
            if text in ended or turn >= len(parts):
                continue
            if used + parts[turn] > budget:
                ended.add(text)
            else:
                used += parts[turn]
                kept[text] += 1
    return kept
