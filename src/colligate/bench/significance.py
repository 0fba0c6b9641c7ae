"""Intervals and differences over questions, by a seeded bootstrap.

Questions are drawn with replacement; for a difference the same ones for both sides. The draws are
made in pieces, so that 10,000 samples of 10,000 questions need tens of megabytes.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

RESAMPLES = 10_000

FEWEST = 6
"""Pairs below which no two-sided test of signs reaches .05, whatever the values are."""

_DRAWN_AT_ONCE = 2_000_000  # question indices in memory
_LAST_BITS = 1e-12
_STARS = ((0.001, "***"), (0.01, "**"), (0.05, "*"))


@dataclass(frozen=True)
class Difference:
    """The difference of the first from the second: mean, 95% interval, two-sided p.

    `questions` is the number of pairs. Resamples of a few questions agree by chance, so below
    `FEWEST` pairs the p means nothing and there are no stars.
    """

    mean: float
    low: float
    high: float
    p: float
    questions: int

    @property
    def enough(self) -> bool:
        """Whether there are enough pairs for the p to mean anything."""
        return self.questions >= FEWEST

    @property
    def sure(self) -> bool:
        """Whether the interval does not reach zero."""
        return self.low > 0 or self.high < 0

    @property
    def stars(self) -> str:
        """`***` for p below .001, `**` below .01, `*` below .05; empty for too few pairs."""
        found = (stars for below, stars in _STARS if self.p < below)
        return next(found, "") if self.enough else ""


def bootstrap(
    values: ArrayLike,
    seed: int,
    resamples: int = RESAMPLES,
    strata: Sequence[Hashable] | None = None,
) -> tuple[float, float]:
    """Return the 95% interval of a mean over questions.

    Where all values are equal it has no width: it tells nothing about questions not asked. With
    `strata`, one for each value, each stratum is drawn from separately and keeps its size.
    """
    means = resampled_means(_check(values), seed, resamples, strata)
    low, high = np.percentile(means, [2.5, 97.5])
    return float(low), float(high)


def paired_bootstrap(
    first: ArrayLike,
    second: ArrayLike,
    seed: int,
    resamples: int = RESAMPLES,
    strata: Sequence[Hashable] | None = None,
) -> Difference:
    """Return mean(first) - mean(second) over questions that both answered, in the same order.

    p is twice the share of samples whose difference has the opposite sign of the observed one,
    samples without a difference counted half; at most 1, at least one in the number of samples.
    """
    ours, theirs = _check(first), _check(second)
    if ours.shape != theirs.shape:
        raise ValueError(f"{len(ours)} values cannot be paired with {len(theirs)}")
    differences = ours - theirs
    means = resampled_means(differences, seed, resamples, strata)
    # Sums of the same parts in another order differ in the last bits; zero must be zero.
    least = _LAST_BITS * np.abs(differences).max()
    means[np.abs(means) <= least] = 0
    low, high = np.percentile(means, [2.5, 97.5])
    mean = float(differences.mean())
    observed = np.sign(mean) if abs(mean) > least else 0
    against = (np.sign(means) == -observed).mean() + (means == 0).mean() / 2 if observed else 0.5
    p = float(min(1.0, max(2 * against, 1 / resamples)))
    return Difference(mean, float(low), float(high), p, len(differences))


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
) -> NDArray[np.float64]:
    """Return the mean of each resample, [resamples]."""
    generator = np.random.default_rng(seed)
    sums = np.zeros(resamples)
    for members in _split_strata(values, strata):
        step = max(1, _DRAWN_AT_ONCE // len(members))
        for start in range(0, resamples, step):
            rows = min(step, resamples - start)
            drawn = generator.integers(len(members), size=(rows, len(members)))
            sums[start : start + rows] += members[drawn].sum(axis=1)
    return sums / len(values)


def _split_strata(
    values: NDArray[np.float64], strata: Sequence[Hashable] | None
) -> Iterator[NDArray[np.float64]]:
    if strata is None:
        yield values
        return
    if len(strata) != len(values):
        raise ValueError(f"{len(values)} values and {len(strata)} strata")
    for stratum in dict.fromkeys(strata):
        yield values[[each == stratum for each in strata]]
