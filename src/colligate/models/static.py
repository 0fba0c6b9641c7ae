"""The fast embedder: WordLlama's static token vectors, averaged. No network is run at all."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from colligate.errors import WeightsUnavailable
from colligate.models import weights
from colligate.models.text import encodable

NAME = "wordllama-256"
_DIMENSION = 256
_TENSOR = "embedding.weight"


class StaticEmbedder:
    """The mean of a text's token vectors, at unit length: 256 dimensions, any length of text.

    Hundreds of times as fast as a transformer and worse at meaning beyond the words. A text without
    tokens has the vector of the unknown token.

    Raises:
        WeightsUnavailable: if the weights were not pulled, or (at the first call) are damaged.
    """

    def __init__(self) -> None:
        files = weights.find(NAME)
        if files is None:
            raise WeightsUnavailable(
                f"the embedder {NAME} is not here", "", f"run colligate models pull {NAME}"
            )
        self._files = files
        self._lock = threading.Lock()
        self._loaded: tuple[Tokenizer, NDArray[np.float16]] | None = None

    @property
    def name(self) -> str:
        """What a library records."""
        return NAME

    @property
    def dimension(self) -> int:
        """256."""
        return _DIMENSION

    async def embed(
        self, texts: Sequence[str], kind: Literal["passage", "query"] = "passage"
    ) -> NDArray[np.float32]:
        """One row a text: (n, 256), float32, unit length. Queries and passages alike."""
        return await asyncio.to_thread(self._embed, texts)

    async def aclose(self) -> None:
        """Free the vectors. Safe to call twice."""
        self._loaded = None

    def _embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        tokenizer, table = self._load()
        vectors = np.empty((len(texts), _DIMENSION), np.float32)
        for i, text in enumerate(texts):
            ids = tokenizer.encode(encodable(text), add_special_tokens=False).ids or [0]
            mean = table[ids].mean(axis=0, dtype=np.float32)
            vectors[i] = mean / np.linalg.norm(mean)
        return vectors

    def _load(self) -> tuple[Tokenizer, NDArray[np.float16]]:
        with self._lock:
            if self._loaded is None:
                try:
                    tokenizer = Tokenizer.from_file(str(self._files["tokenizer"]))
                    self._loaded = tokenizer, _read_table(self._files["model"])
                except Exception as error:  # tokenizers raises bare exceptions.
                    raise WeightsUnavailable(
                        f"the embedder {NAME} cannot be loaded",
                        str(error),
                        f"run colligate models remove {NAME}, then colligate models pull {NAME}",
                    ) from error
            return self._loaded


def _read_table(path: Path) -> NDArray[np.float16]:
    """The one tensor of a safetensors file: header length, JSON header, raw values."""
    with path.open("rb") as stream:
        header_bytes = int.from_bytes(stream.read(8), "little")
        tensor = json.loads(stream.read(header_bytes))[_TENSOR]
        start, end = tensor["data_offsets"]
        stream.seek(8 + header_bytes + start)
        return np.frombuffer(stream.read(end - start), "<f2").reshape(tensor["shape"])
