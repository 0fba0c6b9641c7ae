"""A dual encoder as Contriever is one: mean-pooled vectors whose dot product is the relevance."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from colligate.models.hf.encoder import Encoder, Loaded
from colligate.models.text import encodable

_BATCH = 16


class DualEncoder:
    """One model for questions and texts; no more than `window` tokens of a text are read."""

    def __init__(self, name_or_path: str, *, window: int = 256) -> None:
        self._encoder = Encoder(name_or_path, "AutoModel")
        self._window = window

    @property
    def name(self) -> str:
        """As given."""
        return self._encoder.name

    async def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """One row a text, float32, as long as the model makes them."""
        return await self._encoder.run(lambda loaded: self._embed(texts, loaded))

    async def scores(self, query: str, texts: Sequence[str]) -> list[float]:
        """The dot product of the query and each text, in the order given."""
        if not texts:
            return []
        vectors = await self.embed([query, *texts])
        return [float(score) for score in vectors[1:] @ vectors[0]]

    async def aclose(self) -> None:
        """Free the model. Safe to call twice."""
        await self._encoder.aclose()

    def _embed(self, texts: Sequence[str], loaded: Loaded) -> NDArray[np.float32]:
        # Texts of like length together: less padding is computed.
        order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
        rows: dict[int, NDArray[np.float32]] = {}
        for start in range(0, len(order), _BATCH):
            places = order[start : start + _BATCH]
            vectors = self._batch([encodable(texts[i]) for i in places], loaded)
            rows.update(zip(places, vectors, strict=True))
        return np.stack([rows[i] for i in range(len(texts))])

    def _batch(self, texts: list[str], loaded: Loaded) -> NDArray[np.float32]:
        before, after = loaded.around()
        room = loaded.room(self._window)
        rows = [[*before, *loaded.tokens(text).ids[:room], *after] for text in texts]
        longest = max(1, *map(len, rows))
        padding = loaded.tokenizer.pad_token_id or 0
        torch = loaded.torch
        ids = torch.tensor([row + [padding] * (longest - len(row)) for row in rows])
        mask = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in rows])
        ids, mask = ids.to(loaded.device), mask.to(loaded.device)
        states = loaded.model(input_ids=ids, attention_mask=mask).last_hidden_state.float()
        of_token = mask.unsqueeze(-1)
        mean = (states * of_token).sum(1) / of_token.sum(1).clamp(min=1)
        vectors: NDArray[np.float32] = mean.cpu().numpy()
        return vectors


@lru_cache(maxsize=2)
def dual_encoder(name_or_path: str) -> DualEncoder:
    """The encoder of this name, the same one for the whole process: it loads once."""
    return DualEncoder(name_or_path)
