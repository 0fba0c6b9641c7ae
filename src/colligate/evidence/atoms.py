"""Atomic self-consistency: the sentences of many sampled answers, and which of them agree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.cluster.hierarchy import fcluster, linkage

from colligate.documents.sentences import sentences


@dataclass(frozen=True)
class Atom:
    """A sentence of the answer number `sample`."""

    sample: int
    text: str


@dataclass(frozen=True)
class Agreed:
    """What several samples say: a sentence for all, and the share of samples, in (0, 1]."""

    text: str
    support: float


def atoms(samples: Sequence[str], language: str = "und") -> list[Atom]:
    """The sentences of each sample, in their order.

    >>> [each.text for each in atoms(["It is red. It is old.", ""])]
    ['It is red.', 'It is old.']
    """
    return [
        Atom(number, " ".join(text[start:end].split()))
        for number, text in enumerate(samples)
        for start, end in sentences(text, language)
    ]


def agreed(
    found: Sequence[Atom],
    vectors: ArrayLike,
    samples: int,
    *,
    distance: float,
    least: float,
    most: int,
) -> list[Agreed]:
    """What at least a share `least` of the samples say, in the order it comes up.

    `vectors` is [atoms, d], of unit length. Clusters are of average linkage, no wider than the
    cosine `distance`; the longest sentence stands for its cluster. Where none has enough support,
    those with the most are taken; of more than `most`, those with the most support.
    """
    clusters: dict[int, list[Atom]] = {}
    for label, atom in zip(_labels(vectors, distance), found, strict=True):
        clusters.setdefault(label, []).append(atom)
    made = [
        Agreed(
            max((atom.text for atom in cluster), key=len),
            len({atom.sample for atom in cluster}) / samples,
        )
        for cluster in clusters.values()
    ]
    bar = min(least, max((each.support for each in made), default=0.0))
    ranked = sorted(range(len(made)), key=lambda at: -made[at].support)
    return [made[at] for at in sorted(ranked[:most]) if made[at].support >= bar]


def _labels(vectors: ArrayLike, distance: float) -> list[int]:
    rows = np.asarray(vectors, dtype=np.float64)
    if len(rows) < 2:
        return list(range(len(rows)))
    above = np.triu_indices(len(rows), 1)
    apart = np.maximum(0, 1 - (rows @ rows.T)[above])
    labels = fcluster(linkage(apart, method="average"), t=distance, criterion="distance")
    return [int(label) for label in labels]
