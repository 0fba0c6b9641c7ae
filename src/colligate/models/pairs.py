"""Heads on MiniLM that are carried in the package: reranker, verifier, and sorter of questions.

Their first layers are the same, so the files of the last two hold only their own: the rest is read
from the reranker's (external data of ONNX, `benchmarks/heads/package.py`).
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from tokenizers import Tokenizer

from colligate.concurrency import Threads, physical_cores
from colligate.errors import WeightsUnavailable
from colligate.models.base import encodable

QUESTION_TOKENS = 64
"""The most tokens of a question that are read."""
PASSAGE_TOKENS = 256
"""The most tokens of a passage, with its title, that are read."""

_SLICE = 4  # pairs that one thread takes at a time


class MiniLMReranker:
    """Scores question and passage together: `--reranker minilm`.

    The first layers of MiniLM read the two apart, the last ones together; its data card is beside
    its weights (`minilm/reranker.md`). Scores are logits: they order the passages of one question
    and say nothing on another scale. Each pair runs alone, so its score is the same in any company.
    `folder` holds the `model.onnx` and `tokenizer.json` of a training of one's own.

    Raises:
        WeightsUnavailable: at the first call, if the files are missing or damaged.
    """

    name = "minilm"
    language = "en"
    beside_search = 0.5  # measured on sets it was not trained on, see the data card

    def __init__(self, folder: Path | None = None, threads: int | None = None) -> None:
        self._folder = folder
        if folder is not None:
            self.name = f"onnx:{folder}"
        self._lock = threading.Lock()
        self._loaded: tuple[Tokenizer, Any] | None = None
        self._threads = Threads(self.name, threads or physical_cores())

    async def score(self, query: str, texts: Sequence[str]) -> list[float]:
        slices = [
            self._threads.run(partial(self._score, query, texts[start : start + _SLICE]))
            for start in range(0, len(texts), _SLICE)
        ]
        return [score for scores in await asyncio.gather(*slices) for score in scores]

    async def aclose(self) -> None:
        await self._threads.aclose()
        self._loaded = None

    def _score(self, query: str, texts: Sequence[str]) -> list[float]:
        tokenizer, session = self._load()
        question = cut_ids(tokenizer, query, QUESTION_TOKENS)
        scores = []
        for text in texts:
            inputs = {"question": question, "passage": cut_ids(tokenizer, text, PASSAGE_TOKENS)}
            [score] = session.run(None, inputs)
            scores.append(float(score[0]))
        return scores

    def _load(self) -> tuple[Tokenizer, Any]:
        with self._lock:
            if self._loaded is None:
                self._loaded = _read("reranker", self._folder)
            return self._loaded


class MiniLMVerifier:
    """Tells whether a source says the opposite of a claim, in English.

    It is built like the reranker, and compares each token of the claim with what is nearest to it
    in the source; its data card is `minilm/verifier.md`. `folder` holds the `model.onnx` and
    `tokenizer.json` of a training of one's own. `limit` is the probability from which a claim
    counts as contradicted.

    Raises:
        WeightsUnavailable: the files are missing or damaged.
    """

    limit = 0.85

    def __init__(self, folder: Path | None = None) -> None:
        self.name = f"onnx:{folder}" if folder else "head"
        self._tokenizer, self._session = _read("verifier", folder)

    def score(self, claim: str, title: str, source: str) -> tuple[float, float, float]:
        inputs = {
            "question": cut_ids(self._tokenizer, claim, QUESTION_TOKENS),
            "passage": cut_ids(self._tokenizer, join_title(title, source), PASSAGE_TOKENS),
        }
        supports, contradicts, neither = _share(self._session.run(None, inputs))
        return supports, contradicts, neither

    async def aclose(self) -> None: ...  # the session is freed with the object


class MiniLMKinds:
    """Tells what the answer to an English question takes; its data card is `minilm/kinds.md`.

    `folder` holds the `model.onnx` and `tokenizer.json` of a training of one's own.

    Raises:
        WeightsUnavailable: the files are missing or damaged.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._tokenizer, self._session = _read("kinds", folder)

    def score(self, question: str) -> list[float]:
        """Return the odds of each kind, in the order of the labels that were trained."""
        inputs = {
            "question": cut_ids(self._tokenizer, question, QUESTION_TOKENS),
            "passage": cut_ids(self._tokenizer, "", PASSAGE_TOKENS),
        }
        return _share(self._session.run(None, inputs))


def _share(outputs: Any) -> list[float]:
    """Return the odds of the logits that a model gives for one pair."""
    [[logits]] = outputs
    odds = np.exp(logits - logits.max())
    shares: list[float] = (odds / odds.sum()).tolist()
    return shares


def join_title(title: str, text: str) -> str:
    """Return a text under its title, as these models read it."""
    return f"{title}\n{text}"


def cut_ids(tokenizer: Tokenizer, text: str, tokens: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return the ids of a text's first tokens, with both ends marked, [1, n]."""
    ids = tokenizer.encode(encodable(text)).ids
    return np.array([ids if len(ids) <= tokens else [*ids[: tokens - 1], ids[-1]]], np.int64)


def _read(which: str, given: Path | None) -> tuple[Tokenizer, Any]:
    with resources.as_file(resources.files(__package__) / "minilm") as own:
        folder = given or own
        model = folder / ("model.onnx" if given else f"{which}.onnx")
        try:
            return open_onnx(folder / "tokenizer.json", model)
        except Exception as error:  # both libraries raise bare exceptions of their own
            what = f"the {which} in {folder} cannot be loaded"
            hint = "give the folder of a training" if given else "install colligate again"
            raise WeightsUnavailable(what, str(error), hint) from error


def read_tokenizer(file: Path) -> Tokenizer:
    """Load a tokenizer that neither pads nor cuts."""
    tokenizer = Tokenizer.from_file(str(file))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def open_onnx(tokenizer_file: Path, model: Path) -> tuple[Tokenizer, Any]:
    """Load a tokenizer that neither pads nor cuts, and a model that runs in one thread."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    return read_tokenizer(tokenizer_file), onnxruntime.InferenceSession(
        model, options, providers=["CPUExecutionProvider"]
    )
