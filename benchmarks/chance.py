"""Texts and vectors made by chance, to measure with."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

VOCABULARY = 50_000


class RandomVectors:
    """Embed texts as random unit vectors, which takes almost no time."""

    name = "random"
    dimension = 384

    def __init__(self) -> None:
        self._random = np.random.default_rng(1)

    async def embed(self, texts: Sequence[str], kind: str = "passage") -> NDArray[np.float32]:
        size = len(texts), self.dimension
        vectors = self._random.standard_normal(size, dtype=np.float32)
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    async def aclose(self) -> None:
        pass


class Words:
    """Draw words with the frequencies of Zipf's law."""

    def __init__(self) -> None:
        self._random = np.random.default_rng(2)
        letters = self._random.integers(97, 123, (VOCABULARY, 9)).astype(np.uint8)
        lengths = self._random.integers(3, 10, VOCABULARY)
        self.known = [bytes(row[:n]).decode() for row, n in zip(letters, lengths, strict=True)]
        weights = 1 / np.arange(1, VOCABULARY + 1)
        self._chances = np.cumsum(weights / weights.sum())

    def draw(self, count: int) -> str:
        """Return a text of so many words."""
        at = np.searchsorted(self._chances, self._random.random(count))
        return " ".join(self.known[i] for i in at)
