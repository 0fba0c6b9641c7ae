"""Intervals and differences over questions: a seeded bootstrap, and a test that is exact.

Questions are drawn with replacement; for a difference the same ones for both sides. Values of one
question (`clusters`) are drawn together. The bootstrap gives intervals; at few questions its p is
too small, so the p of a difference is never below that of the sign-flip test. The draws are made in
pieces, so that 10,000 samples of 10,000 questions need tens of megabytes.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypedDict, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

RESAMPLES = 10_000

FEWEST = 6
"""Questions below which no two-sided test of signs reaches .05, whatever the values are."""

_DRAWN_AT_ONCE = 2_000_000  # question indices in memory
_ALL_SIGNS = 16  # differences of which all combinations of signs are computed
_LAST_BITS = 1e-12
_STARS = ((0.001, "***"), (0.01, "**"), (0.05, "*"))


class Resampling(TypedDict, total=False):
    """How samples are drawn: how many, and which values are not independent."""

    resamples: int
    strata: Sequence[Hashable]
    clusters: Sequence[Hashable]


@dataclass(frozen=True)
class Difference:
    """The difference of the first from the second: mean, 95% interval, two-sided p of the pairs.

    `corrected` is p corrected for several comparisons. The interval is the bootstrap's: of few
    questions it may leave out zero where p is above .05, and then p counts.
    """

    mean: float
    low: float
    high: float
    p: float
    questions: int
    corrected: float | None = None

    @property
    def stars(self) -> str:
        """`***` for p below .001, `**` below .01, `*` below .05; of the corrected p if any.

        Fewer than six pairs that differ (`FEWEST`) never have stars: their p is .0625 or more.
        """
        p = self.p if self.corrected is None else self.corrected
        return next((stars for below, stars in _STARS if p < below), "")

    def to_json(self) -> dict[str, Any]:
        """Return the difference for programs."""
        names = ("low", "high", "p", "stars")
        return {"difference": self.mean, **{name: getattr(self, name) for name in names}}


def bootstrap(values: ArrayLike, seed: int, **drawn: Unpack[Resampling]) -> tuple[float, float]:
    """Return the 95% interval of a mean over questions.

    Where all values are equal it has no width: it tells nothing about questions not asked. With
    `strata`, one for each value, each stratum is drawn from separately and keeps its size. Values
    with the same of `clusters`, one for each value, are drawn together.
    """
    means = resampled_means(_check(values), seed, **drawn)
    low, high = np.percentile(means, [2.5, 97.5])
    return float(low), float(high)


def paired_bootstrap(
    first: ArrayLike, second: ArrayLike, seed: int, **drawn: Unpack[Resampling]
) -> Difference:
    """Return mean(first) - mean(second) over questions that both answered, in the same order.

    p is the larger of two. The bootstrap's is twice the share of samples whose difference has the
    opposite sign of the observed one (without a difference: half), at least 1 / `resamples`. The
    sign-flip test's is the share of all ways to swap the sides of each question (or cluster) whose
    difference is at least as large: for right and wrong answers the exact test of McNemar. Of more
    than 16 unequal differences 10,000 ways are drawn.
    """
    ours, theirs = _check(first), _check(second)
    if ours.shape != theirs.shape:
        raise ValueError(f"{len(ours)} values cannot be paired with {len(theirs)}")
    differences = ours - theirs
    means = resampled_means(differences, seed, **drawn)
    # Sums of the same parts in another order differ in the last bits; zero must be zero.
    least = _LAST_BITS * np.abs(differences).max()
    means[np.abs(means) <= least] = 0
    low, high = np.percentile(means, [2.5, 97.5])
    mean = float(differences.mean())
    observed = np.sign(mean) if abs(mean) > least else 0
    against = (np.sign(means) == -observed).mean() + (means == 0).mean() / 2 if observed else 0.5
    sums, _ = _sum_clusters(differences, drawn.get("clusters"))
    exact = _flip_signs(sums[np.abs(sums) > least], seed)
    p = float(min(1.0, max(2 * against, 1 / len(means), exact)))
    return Difference(mean, float(low), float(high), p, len(differences))


def _flip_signs(sums: NDArray[np.float64], seed: int) -> float:
    """Return the two-sided p of the sign-flip test; no difference may be zero."""
    sizes = np.abs(sums)
    if not len(sums):
        return 1.0
    if np.ptp(sizes) <= _LAST_BITS * sizes.max():
        fewer, count = int(min(np.sum(sums > 0), np.sum(sums < 0))), len(sums)
        tail = sum(math.comb(count, heads) for heads in range(fewer + 1))  # the sign test's, exact
        return min(1.0, 2 * tail / (1 << count))
    reached = np.abs(sums.sum()) - _LAST_BITS * sizes.sum()
    if len(sums) <= _ALL_SIGNS:
        totals = np.zeros(1)
        for size in sizes:
            totals = np.concatenate([totals + size, totals - size])
        return float(np.mean(np.abs(totals) >= reached))
    generator, count = np.random.default_rng(seed), 0
    for rows in _split_rows(RESAMPLES, len(sizes)):
        flips = generator.integers(2, size=(rows, len(sizes)), dtype=np.int8)
        count += int(np.sum(np.abs(2 * (flips @ sizes) - sizes.sum()) >= reached))
    return (1 + count) / (1 + RESAMPLES)


def correct_for_many(found: Sequence[Difference], comparisons: int) -> list[Difference]:
    """Return differences with p corrected by Holm's method, as the smallest of `comparisons` p.

    So the chance of any star is at most .05 if nothing differs, also where those that are shown
    were chosen among all comparisons by their results.
    """
    corrected, largest = list(found), 0.0
    for rank, at in enumerate(sorted(range(len(found)), key=lambda at: found[at].p)):
        largest = max(largest, min(1.0, (comparisons - rank) * found[at].p))
        corrected[at] = replace(found[at], corrected=largest)
    return corrected


def _check(given: ArrayLike) -> NDArray[np.float64]:
    values = np.asarray(given, np.float64)
    if values.ndim != 1 or not len(values):
        raise ValueError("expected at least one value, in one row")
    if not np.isfinite(values).all():
        raise ValueError("expected finite numbers")
    return values


def resampled_means(
    values: NDArray[np.float64],
    seed: int,
    resamples: int = RESAMPLES,
    strata: Sequence[Hashable] | None = None,
    clusters: Sequence[Hashable] | None = None,
) -> NDArray[np.float64]:
    """Return the mean of each resample, [resamples]."""
    generator = np.random.default_rng(seed)
    totals = np.zeros(resamples)
    for sums, sizes in _split_strata(values, strata, clusters):
        start = 0
        for rows in _split_rows(resamples, len(sums)):
            drawn = generator.integers(len(sums), size=(rows, len(sums)))
            found = sums[drawn].sum(axis=1)
            if np.ptp(sizes):  # clusters of other sizes were drawn than there are
                found *= sizes.sum() / sizes[drawn].sum(axis=1)
            totals[start : start + rows] += found
            start += rows
    return totals / len(values)


def _split_rows(rows: int, width: int) -> Iterator[int]:
    """Yield how many rows of a width are drawn at once."""
    step = max(1, _DRAWN_AT_ONCE // width)
    for start in range(0, rows, step):
        yield min(step, rows - start)


def _split_strata(
    values: NDArray[np.float64],
    strata: Sequence[Hashable] | None,
    clusters: Sequence[Hashable] | None,
) -> Iterator[tuple[NDArray[np.float64], NDArray[np.int64]]]:
    """Yield the sums and sizes of clusters, of those alike in strata together."""
    sums, codes = _sum_clusters(values, clusters)
    sizes = np.bincount(codes)
    if strata is None:
        yield sums, sizes
        return
    if len(strata) != len(values):
        raise ValueError(f"{len(values)} values and {len(strata)} strata")
    members: list[Counter[Hashable]] = [Counter() for _ in sums]
    for code, stratum in zip(codes, strata, strict=True):
        members[code][stratum] += 1
    kinds = _number(frozenset(each.items()) for each in members)
    for kind in range(kinds.max() + 1):
        yield sums[kinds == kind], sizes[kinds == kind]


def _sum_clusters(
    values: NDArray[np.float64], clusters: Sequence[Hashable] | None
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return the sum of each cluster, and each value's cluster by number."""
    if clusters is None:
        return values, np.arange(len(values))
    if len(clusters) != len(values):
        raise ValueError(f"{len(values)} values and {len(clusters)} clusters")
    codes = _number(clusters)
    return np.bincount(codes, weights=values).astype(np.float64), codes


def _number(keys: Iterable[Hashable]) -> NDArray[np.int64]:
    """Return the number of each key, in the order in which they first come."""
    numbers: dict[Hashable, int] = {}
    return np.array([numbers.setdefault(key, len(numbers)) for key in keys])
