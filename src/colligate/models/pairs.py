"""Heads on MiniLM that are carried in the package: reranker, verifier, and sorter of questions.

Their first layers are the same, so the files of the last two hold only their own: the rest is read
from the reranker's (external data of ONNX, `benchmarks/heads/package.py`).
"""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass
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
_LONGEST_ANSWER = 40  # tokens

_Floats = np.ndarray[Any, np.dtype[np.float32]]


@dataclass(frozen=True, eq=False)
class Found:
    """Where a text may answer a question.

    `score` is a logit: below zero the text rather does not answer it. `places` are the characters
    of each token of the text, [tokens, 2]; `ends` are the logarithms of the odds that the answer
    begins, and that it ends, with each, [tokens, 2], if the text answers the question. `whole` is
    False where only the beginning of the text was read.
    """

    score: float
    places: np.ndarray[Any, np.dtype[np.int64]]
    ends: _Floats
    whole: bool = True

    def best(self, after: int = 0) -> tuple[int, int] | None:
        """Return the start and end of the likeliest answer that begins at a character or later.

        None if nothing of the text is there.
        """
        begins, stops = np.where(self.places[:, :1] >= after, self.ends, -np.inf).T
        if not np.isfinite(begins).any():
            return None
        both = begins[:, None] + stops[None]
        apart = np.arange(len(both))[None] - np.arange(len(both))[:, None]
        both[(apart < 0) | (apart >= _LONGEST_ANSWER)] = -np.inf
        first, last = np.unravel_index(both.argmax(), both.shape)
        return int(self.places[first, 0]), int(self.places[last, 1])

    def log_share(self, start: int, end: int) -> float:
        """Return the logarithm of the odds that the answer begins and ends in these characters."""
        inside = (self.places[:, 0] < end) & (self.places[:, 1] > start)
        if not inside.any():
            return -math.inf
        begins, stops = self.ends[inside].T
        return float(np.logaddexp.reduce(begins) + np.logaddexp.reduce(stops))


class MiniLMReranker:
    """Scores question and passage together: `--reranker minilm`.

    The first layers of MiniLM read the two apart, the last ones together; its data card is beside
    its weights (`minilm/reranker.md`). Scores are logits: above zero a passage rather answers, and
    `find` tells where. Each pair runs alone, so its score is the same in any company.
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
        return [found.score for found in await self.find(query, texts)]

    async def find(self, query: str, texts: Sequence[str]) -> list[Found]:
        """Return where each text may answer the question, in the order given."""
        slices = [
            self._threads.run(partial(self._find, query, texts[start : start + _SLICE]))
            for start in range(0, len(texts), _SLICE)
        ]
        return [found for part in await asyncio.gather(*slices) for found in part]

    async def aclose(self) -> None:
        await self._threads.aclose()
        self._loaded = None

    def _find(self, query: str, texts: Sequence[str]) -> list[Found]:
        tokenizer, session = self._load()
        question = cut_ids(tokenizer, query, QUESTION_TOKENS)
        found = []
        for text in texts:
            ids, places = cut(tokenizer, text, PASSAGE_TOKENS)
            [[logits]] = session.run(None, {"question": question, "passage": ids})
            ends = logits[2:-1]  # after the score, without the marks at both ends
            ends = ends - np.logaddexp.reduce(ends, 0) if len(ends) else ends
            whole = len(places) < PASSAGE_TOKENS
            inner = np.array(places[1:-1], np.int64).reshape(-1, 2)
            found.append(Found(float(logits[0, 0]), inner, ends, whole))
        return found

    def _load(self) -> tuple[Tokenizer, Any]:
        with self._lock:
            if self._loaded is None:
                loaded = _read("reranker", self._folder)
                if len(loaded[1].get_outputs()[0].shape) != 3:
                    what = f"{self.name} is no reranker that finds answers"
                    hint = "train it with `colligate train head reranker`"
                    raise WeightsUnavailable(what, "", hint)
                self._loaded = loaded
            return self._loaded


class MiniLMVerifier:
    """Tells whether a source says the opposite of a claim, in English.

    It is built like the reranker, and compares each token of the claim with what is nearest to it
    in the source; its data card is `minilm/verifier.md`. `folder` holds the `model.onnx` and
    `tokenizer.json` of a training of one's own. `limit` is the probability from which a claim
    counts as contradicted. WeightsUnavailable if the files are missing or damaged.
    """

    limit = 0.85

    def __init__(self, folder: Path | None = None) -> None:
        self.name = f"onnx:{folder}" if folder else "head"
        self._model = _read("verifier", folder)

    def score(self, claim: str, title: str, source: str) -> tuple[float, float, float]:
        supports, contradicts, neither = _rate(self._model, claim, join_title(title, source))
        return supports, contradicts, neither

    async def aclose(self) -> None: ...  # the session is freed with the object


class MiniLMKinds:
    """Tells what the answer to an English question takes; its data card is `minilm/kinds.md`.

    `folder` holds the `model.onnx` and `tokenizer.json` of a training of one's own.
    WeightsUnavailable if the files are missing or damaged.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._model = _read("kinds", folder)

    def score(self, question: str) -> list[float]:
        """Return the odds of each kind, in the order of the labels that were trained."""
        return _rate(self._model, question, "")


def _rate(model: tuple[Tokenizer, Any], question: str, passage: str) -> list[float]:
    """Return the odds of a pair's labels, in the order of their training."""
    tokenizer, session = model
    asked = cut_ids(tokenizer, question, QUESTION_TOKENS)
    read = cut_ids(tokenizer, passage, PASSAGE_TOKENS)
    [[logits]] = session.run(None, {"question": asked, "passage": read})
    odds = np.exp(logits - logits.max())
    shares: list[float] = (odds / odds.sum()).tolist()
    return shares


def join_title(title: str, text: str) -> str:
    """Return a text under its title, as these models read it."""
    return f"{title}\n{text}"


def cut_ids(tokenizer: Tokenizer, text: str, tokens: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return the ids of a text's first tokens, with both ends marked, [1, n]."""
    return cut(tokenizer, text, tokens)[0]


def cut(
    tokenizer: Tokenizer, text: str, tokens: int
) -> tuple[np.ndarray[Any, np.dtype[np.int64]], list[tuple[int, int]]]:
    """Return the ids of a text's first tokens, with both ends marked, [1, n], and their places."""
    read = tokenizer.encode(encodable(text))
    ids, places = read.ids, read.offsets
    if len(ids) > tokens:
        ids, places = [*ids[: tokens - 1], ids[-1]], [*places[: tokens - 1], places[-1]]
    return np.array([ids], np.int64), places


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
