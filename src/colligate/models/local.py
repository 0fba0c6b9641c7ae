"""Models through torch, for the extra `local`: sentence-transformers by name or folder.

A name that is not a folder is looked up in the hub, as sentence-transformers does.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from colligate.errors import MissingExtra, WeightsUnavailable
from colligate.models.cores import wait_without_spinning
from colligate.models.threads import Threads

T = TypeVar("T")


class SentenceTransformerEmbedder:
    """A bi-encoder of sentence-transformers; texts longer than it takes are cut.

    Raises:
        MissingExtra: if sentence-transformers is not installed.
        WeightsUnavailable: if the model cannot be loaded.
    """

    def __init__(self, name_or_path: str) -> None:
        self._name = name_or_path
        self._model = _Worker("SentenceTransformer", name_or_path)
        self._dimension = int(self._model.loaded().get_embedding_dimension())

    @property
    def name(self) -> str:
        """What a library records."""
        return f"st:{self._name}"

    @property
    def dimension(self) -> int:
        """Length of each vector."""
        return self._dimension

    async def embed(
        self, texts: Sequence[str], kind: Literal["passage", "query"] = "passage"
    ) -> NDArray[np.float32]:
        """One row a text, float32, unit length; with the model's own prompt for queries."""
        if not texts:
            return np.empty((0, self._dimension), np.float32)

        def encode(model: Any) -> NDArray[np.float32]:
            how = model.encode_query if kind == "query" else model.encode_document
            vectors = how(list(texts), normalize_embeddings=True, show_progress_bar=False)
            return np.asarray(vectors, np.float32)

        return await self._model.run(encode)

    async def aclose(self) -> None:
        """Free the model. Safe to call twice."""
        await self._model.aclose()


class CrossEncoderReranker:
    """A cross-encoder of sentence-transformers: reads query and passage together.

    Raises:
        MissingExtra: if sentence-transformers is not installed.
        WeightsUnavailable: if the model cannot be loaded.
    """

    def __init__(self, name_or_path: str) -> None:
        self._name = name_or_path
        self._model = _Worker("CrossEncoder", name_or_path)

    @property
    def name(self) -> str:
        """As given on the command line."""
        return f"cross-encoder:{self._name}"

    async def score(self, query: str, texts: Sequence[str]) -> list[float]:
        """One score a text, in the order given; higher is better."""
        if not texts:
            return []
        pairs = [(query, text) for text in texts]

        def predict(model: Any) -> list[float]:
            return [float(score) for score in model.predict(pairs, show_progress_bar=False)]

        return await self._model.run(predict)

    async def aclose(self) -> None:
        """Free the model. Safe to call twice."""
        await self._model.aclose()


class _Worker:
    """One model and the thread it runs in; torch itself uses all cores."""

    def __init__(self, kind: str, name_or_path: str) -> None:
        os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
        wait_without_spinning()
        try:
            library = import_module("sentence_transformers")
            logging = import_module("transformers.utils.logging")
        except ImportError as error:
            raise MissingExtra(
                f"{name_or_path} needs sentence-transformers",
                "it is not installed",
                "pip install 'colligate[local]'",
            ) from error
        logging.set_verbosity_error()
        logging.disable_progress_bar()
        self._class = getattr(library, kind)
        self._name = name_or_path
        self._lock = threading.Lock()
        self._model: Any = None
        self._threads = Threads(name_or_path)

    def loaded(self) -> Any:
        with self._lock:
            if self._model is None:
                try:
                    self._model = self._class(self._name)
                except Exception as error:  # Hub, torch and transformers raise as they like.
                    raise WeightsUnavailable(
                        f"cannot load {self._name}", str(error), "give a folder or a hub name"
                    ) from error
            return self._model

    async def run(self, work: Callable[[Any], T]) -> T:
        return await self._threads.run(lambda: work(self.loaded()))

    async def aclose(self) -> None:
        await self._threads.aclose()
        self._model = None
