"""Embedders that need no weights."""

import zlib

import numpy as np

from colligate.errors import ServerFailed


class WordEmbedder:
    """Bags of hashed words: texts that share words are near. Keeps the passages it embeds."""

    def __init__(self, name="words", dimension=64):
        self.name = name
        self.dimension = dimension
        self.passages = []
        self.fails_after = None

    async def embed(self, texts, kind="passage"):
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

    async def aclose(self):
        pass


class SameEmbedder:
    """All texts have the same vector."""

    name, dimension = "same", 2

    async def embed(self, texts, kind="passage"):
        return np.tile(np.array([1, 0], np.float32), (len(texts), 1))

    async def aclose(self):
        pass


class Interrupted(WordEmbedder):
    """Calls a function before it first embeds passages."""

    meanwhile = None

    async def embed(self, texts, kind="passage"):
        if meanwhile := self.meanwhile:
            self.meanwhile = None
            await meanwhile()
        return await super().embed(texts, kind)
