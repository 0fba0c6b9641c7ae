"""A deterministic embedder that needs no weights, and folders of documents."""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from colligate.errors import ServerFailed
from colligate.library import AsyncLibrary


class WordEmbedder:
    """Bags of hashed words: texts that share words are near. Counts what it embeds."""

    def __init__(self, name: str = "words", dimension: int = 64) -> None:
        self.name = name
        self.dimension = dimension
        self.passages: list[str] = []
        self.fails_after: int | None = None

    async def embed(self, texts: Sequence[str], kind: str = "passage") -> Any:
        if kind == "passage":
            if self.fails_after is not None and len(self.passages) >= self.fails_after:
                raise ServerFailed("no embeddings", "the server failed", "try again")
            self.passages.extend(texts)
        vectors = np.zeros((len(texts), self.dimension), dtype=np.float32)
        for row, text in zip(vectors, texts, strict=True):
            row[0] = 0.01
            for word in text.lower().split():
                row[zlib.crc32(word.encode()) % self.dimension] += 1
            row /= np.linalg.norm(row)
        return vectors

    async def aclose(self) -> None:
        pass


@pytest.fixture(scope="session")
def new_embedder() -> type[WordEmbedder]:
    return WordEmbedder


@pytest.fixture
def embedder() -> WordEmbedder:
    return WordEmbedder()


@pytest.fixture
async def library(tmp_path: Path, embedder: WordEmbedder) -> AsyncIterator[AsyncLibrary]:
    async with AsyncLibrary(tmp_path / "library", embedder=embedder) as opened:
        yield opened


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """`write("a.md", text)` puts a file into a folder of documents and returns its path."""

    def put(name: str, text: str) -> Path:
        path = tmp_path / "documents" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
        return path

    return put


@pytest.fixture
def folder(tmp_path: Path, write: Callable[..., Path]) -> Path:
    """Three documents about three animals."""
    write("badger.md", "# Badgers\n\nBadgers dig setts.\n\n## Diet\n\nThey eat earthworms.\n")
    write("heron.md", "# Herons\n\nHerons wade in rivers.\n\n## Diet\n\nThey eat fish.\n")
    write("otter.md", "# Otters\n\nOtters swim in rivers.\n\n## Diet\n\nThey eat fish too.\n")
    return tmp_path / "documents"
