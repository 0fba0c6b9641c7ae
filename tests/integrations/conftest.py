"""A library of two documents, as code without an event loop has it."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from colligate import Library


class WordEmbedder:
    """Bags of hashed words: texts that share words are near."""

    name = "words"
    dimension = 64

    async def embed(self, texts: Sequence[str], kind: str = "passage") -> Any:
        vectors = np.zeros((len(texts), self.dimension), dtype=np.float32)
        for row, text in zip(vectors, texts, strict=True):
            row[0] = 0.01
            for word in text.lower().split():
                row[zlib.crc32(word.encode()) % self.dimension] += 1
            row /= np.linalg.norm(row)
        return vectors

    async def aclose(self) -> None:
        pass


@pytest.fixture
def embedder() -> WordEmbedder:
    return WordEmbedder()


@pytest.fixture
def library(tmp_path: Path, embedder: WordEmbedder) -> Iterator[Library]:
    folder = tmp_path / "documents"
    folder.mkdir()
    (folder / "heron.md").write_text("# Herons\n\nHerons wade.\n\n## Diet\n\nThey eat fish.\n")
    (folder / "otter.md").write_text("# Otters\n\nOtters swim.\n\n## Diet\n\nThey eat fish too.\n")
    with Library(tmp_path / "library", embedder=embedder) as opened:
        opened.add(folder)
        yield opened
