"""The default embedder: all-MiniLM-L6-v2 as int8 ONNX, on onnxruntime without torch."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from functools import partial
from typing import Any, Literal

import numpy as np
import onnxruntime
from numpy.typing import NDArray
from tokenizers import Tokenizer

from colligate.errors import WeightsUnavailable
from colligate.models import weights
from colligate.models.cores import physical_cores
from colligate.models.text import encodable
from colligate.models.threads import Threads

NAME = "minilm-l6-v2-int8"
_DIMENSION = 384
_MAX_TOKENS = 256  # what the model was made for; the rest of a longer text is not read
_SLICE = 16  # texts that one thread takes at a time


class MiniLM:
    """Mean-pooled, unit-length vectors of 384 dimensions from the first 256 tokens of a text.

    Each text runs alone, on one of `threads` threads (the physical cores by default). For
    passages this is faster than batches, whose padding is computed too, and a text has
    exactly the same vector whatever comes with it. The file holds int8 weights, which
    onnxruntime turns into float32 as it loads: small to fetch, no quicker to run.

    Raises:
        WeightsUnavailable: if the weights were not pulled, or (at the first call) are damaged.
    """

    def __init__(self, threads: int | None = None) -> None:
        files = weights.find(NAME)
        if files is None:
            raise WeightsUnavailable(
                f"the embedder {NAME} is not here", "", f"run colligate models pull {NAME}"
            )
        self._files = files
        self._lock = threading.Lock()
        self._loaded: tuple[Tokenizer, Any] | None = None
        self._threads = Threads(NAME, threads or physical_cores())

    @property
    def name(self) -> str:
        """What a library records."""
        return NAME

    @property
    def dimension(self) -> int:
        """384."""
        return _DIMENSION

    async def embed(
        self, texts: Sequence[str], kind: Literal["passage", "query"] = "passage"
    ) -> NDArray[np.float32]:
        """One row a text: (n, 384), float32, unit length. Queries and passages alike."""
        vectors = np.empty((len(texts), _DIMENSION), np.float32)
        slices = [
            self._threads.run(partial(self._embed, texts, vectors, start))
            for start in range(0, len(texts), _SLICE)
        ]
        await asyncio.gather(*slices)
        return vectors

    async def aclose(self) -> None:
        """Free the model, once the calls under way are done. Safe to call twice."""
        await self._threads.aclose()
        self._loaded = None

    def _embed(self, texts: Sequence[str], vectors: NDArray[np.float32], start: int) -> None:
        tokenizer, session = self._load()
        for i in range(start, min(start + _SLICE, len(texts))):
            ids = np.array([tokenizer.encode(encodable(texts[i])).ids], np.int64)
            (states,) = session.run(
                None,
                {
                    "input_ids": ids,
                    "attention_mask": np.ones_like(ids),
                    "token_type_ids": np.zeros_like(ids),
                },
            )
            mean = states[0].mean(axis=0)
            vectors[i] = mean / np.linalg.norm(mean)

    def _load(self) -> tuple[Tokenizer, Any]:
        with self._lock:
            if self._loaded is None:
                self._loaded = self._read()
            return self._loaded

    def _read(self) -> tuple[Tokenizer, Any]:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 4
        try:
            tokenizer = Tokenizer.from_file(str(self._files["tokenizer"]))
            session = onnxruntime.InferenceSession(
                self._files["model"], options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # Both libraries raise bare exceptions of their own.
            raise WeightsUnavailable(
                f"the embedder {NAME} cannot be loaded",
                str(error),
                f"run colligate models remove {NAME}, then colligate models pull {NAME}",
            ) from error
        # The tokenizer's file pads everything to 128.
        tokenizer.no_padding()
        tokenizer.enable_truncation(_MAX_TOKENS)
        return tokenizer, session
