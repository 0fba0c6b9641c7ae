"""Readers trained on SQuAD: the words of a text that answer a question, or none. Extra `local`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colligate.models.hf.encoder import Encoder, Loaded
from colligate.models.text import blunt, encodable

# As in the question-answering pipeline of transformers 4.
_WINDOW = 384
_STRIDE = 128
_LONGEST = 15  # tokens of an answer
_QUESTION = 64  # words of a question that are read

Scores = NDArray[np.float64]


@dataclass(frozen=True)
class Found:
    """The best answer of a window: how likely, from which token to which, and no answer's odds."""

    score: float
    start: int
    end: int
    nothing: float


class ExtractiveReader:
    """A model for extractive question answering, from a folder or by hub name.

    Raises:
        MissingExtra: torch or transformers is not installed.
        UnknownModel, WeightsUnavailable: there is no such model, or it cannot be loaded.
    """

    def __init__(self, name_or_path: str) -> None:
        self._encoder = Encoder(name_or_path, "AutoModelForQuestionAnswering")

    @property
    def name(self) -> str:
        """As given."""
        return self._encoder.name

    async def read(self, question: str, context: str) -> str:
        """The answer in the words of the context; empty where no answer is the likeliest."""
        if not context.strip():
            return ""
        return await self._encoder.run(lambda loaded: _read(question, context, loaded))

    async def aclose(self) -> None:
        """Free the model. Safe to call twice."""
        await self._encoder.aclose()


def best_span(starts: Scores, ends: Scores, allowed: Sequence[bool]) -> Found:
    """The likeliest answer among tokens of the context, by logits [tokens] of start and end.

    Probabilities are over the context and the first token, which stands for no answer.
    """
    among = np.array([True, *allowed[1:]])
    start, end = (
        _softmax(np.where(among, starts, -np.inf)),
        _softmax(np.where(among, ends, -np.inf)),
    )
    nothing = float(start[0] * end[0])
    start[0] = end[0] = 0.0
    spans = np.tril(np.triu(np.outer(start, end)), _LONGEST - 1)
    first, last = np.unravel_index(int(spans.argmax()), spans.shape)
    return Found(float(spans[first, last]), int(first), int(last), nothing)


def _read(question: str, context: str, loaded: Loaded) -> str:
    tokenizer, torch = loaded.tokenizer, loaded.torch
    controls = tokenizer.all_special_tokens
    given = tokenizer(
        blunt(encodable(" ".join(question.split()[:_QUESTION])), controls),
        blunt(encodable(context), controls),
        truncation="only_second",
        max_length=_WINDOW,
        stride=_STRIDE,
        return_overflowing_tokens=True,
    )
    best, nothing = (0.0, ""), 1.0
    for window, ids in enumerate(given["input_ids"]):
        logits = loaded.model(input_ids=torch.tensor([ids], device=loaded.device))
        encoding = given.encodings[window]
        found = best_span(
            logits.start_logits[0].double().cpu().numpy(),
            logits.end_logits[0].double().cpu().numpy(),
            [part == 1 for part in encoding.sequence_ids],
        )
        nothing = min(nothing, found.nothing)
        if found.score > best[0]:
            start, end = _whole_words(encoding, found)
            best = found.score, context[start:end]
    return best[1] if best[0] > nothing else ""


def _whole_words(encoding: Any, found: Found) -> tuple[int, int]:
    """Where the words that hold the answer's tokens begin and end in the context."""
    words = encoding.token_to_word(found.start), encoding.token_to_word(found.end)
    first, last = (encoding.word_to_chars(word, 1) for word in words)
    return int(first[0]), int(last[1])


def _softmax(logits: Scores) -> Scores:
    powers = np.exp(logits - logits.max())
    return np.asarray(powers / powers.sum())
