"""What all heads are: layers of MiniLM under a part of their own.

The first layers read the two texts apart, with MiniLM's weights as they are, so that the
states of a text can be kept (as in PreTTR: MacAvaney et al. 2020). The last ones read them
together: the attention between the two starts closed, and training opens it step by step.
Importing this module needs the extra `train`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn import functional as F

from colligate.models.hf.loading import cpu_has_bfloat16
from colligate.models.pairs import PASSAGE_TOKENS, QUESTION_TOKENS, cut, cut_ids

APART = 3
"""Layers that read the two texts apart; they and the word embeddings are not trained."""

NEVER = -1e4
HIDDEN = 96
_AT_ONCE = 16  # texts, or pairs of them, that are computed together
_MOST_KEPT = 8_000_000  # tokens whose states are kept, 6 GB in bfloat16


class PairHead(nn.Module, ABC):  # type: ignore[misc]
    """Scores pairs of texts by the layers of MiniLM; `compare` is each head's own."""

    def __init__(self, bert: Any) -> None:
        super().__init__()
        self.width = bert.config.hidden_size
        self.embeddings = bert.embeddings
        self.low = nn.ModuleList(bert.encoder.layer[:APART])
        self.high = nn.ModuleList(bert.encoder.layer[APART:])
        for part in (self.embeddings, self.low):
            part.requires_grad_(False)
        self.side = nn.Parameter(torch.zeros(self.width))  # marks the second text
        self.drop = nn.Dropout(0.1)

    def read_apart(self, ids: Tensor, seen: Tensor, places: Tensor | None = None) -> Tensor:
        """Return states after the first layers, [texts, tokens, width]; `seen` masks attention."""
        states = self.embeddings(input_ids=ids, position_ids=places)
        for layer in self.low:
            states = layer(states, torch.where(seen, 0.0, NEVER)[:, None])
        return states

    def forward(
        self, first: Tensor, first_real: Tensor, second: Tensor, second_real: Tensor, closed: float
    ) -> Tensor:
        """Return the logits of pairs of states; `closed` is added to attention between the two."""
        length = first.shape[1]
        states = torch.cat([first, second + self.side], 1)
        mask = torch.where(torch.cat([first_real, second_real], 1), 0.0, NEVER)
        mask = mask[:, None, None, :]
        if closed:
            here = torch.arange(states.shape[1]) < length
            mask = mask + torch.where(here[:, None] == here[None], 0.0, closed)
        for layer in self.high:
            states = layer(states, mask)
        states = states.float()
        return self.compare(states[:, :length], first_real, states[:, length:], second_real)

    @abstractmethod
    def compare(self, a: Tensor, a_real: Tensor, b: Tensor, b_real: Tensor) -> Tensor:
        """Return the logits of pairs whose states, after the last layers, are `a` and `b`."""


def mean(states: Tensor, real: Tensor) -> Tensor:
    """Return the mean of states without padding, [texts, width]."""
    weights = real[..., None].to(states.dtype)
    return (states * weights).sum(1) / weights.sum(1)


class OnePair(nn.Module):  # type: ignore[misc]
    """A head for the ids of one question and one passage, both [1, tokens]; what is exported.

    The first layers get both in one row, blind to each other: each weight is used once, and the
    quantisation finds all of them.
    """

    def __init__(self, head: PairHead) -> None:
        super().__init__()
        self.head = head

    def forward(self, question: Tensor, passage: Tensor) -> Tensor:
        """Return what the head gives for the pair: [1, ...]."""
        length, ids = question.shape[1], torch.cat([question, passage], 1)
        places = torch.cat([torch.arange(text.shape[1]) for text in (question, passage)])
        first = torch.cat([torch.ones_like(question[0]), torch.zeros_like(passage[0])])
        states = self.head.read_apart(ids, (first[:, None] == first[None])[None], places[None])
        real = [torch.ones_like(text, dtype=torch.bool) for text in (question, passage)]
        score: Tensor = self.head(states[:, :length], real[0], states[:, length:], real[1], 0.0)
        return score


class StateStore:
    """Scores pairs; states of texts are kept. `closed` is added to attention between the two."""

    def __init__(self, head: PairHead, tokenizer: Tokenizer, passage_tokens: int = PASSAGE_TOKENS):
        # A processor that has no bfloat16 needs ten times as long for it.
        fast = cpu_has_bfloat16(torch)
        self._type = torch.bfloat16 if fast else torch.float32
        self._compute = partial(torch.autocast, "cpu", torch.bfloat16, enabled=fast)
        self.head, self._tokenizer = head, tokenizer
        self._most = (QUESTION_TOKENS, passage_tokens)
        self._kept: dict[tuple[int, str], Tensor] = {}
        self._tokens_kept = 0
        self.closed = 0.0

    def score(self, pairs: Sequence[tuple[str, str]]) -> Tensor:
        """Return the logits of pairs of texts, in bfloat16 if the processor has it.

        Logits of single tokens are -10,000 where a text has fewer tokens than another.
        """
        # Pairs of like length are computed together: less padding.
        order = sorted(range(len(pairs)), key=lambda place: len(pairs[place][1]))
        parts = []
        for start in range(0, len(order), _AT_ONCE):
            part = [pairs[place] for place in order[start : start + _AT_ONCE]]
            first, second = (_pad(self._read(i, [pair[i] for pair in part])) for i in (0, 1))
            with self._compute():
                parts.append(self.head(*first, *second, self.closed).float())
        if parts[0].dim() == 3:  # logits of tokens
            most = max(part.shape[1] for part in parts)
            parts = [F.pad(part, (0, 0, 0, most - part.shape[1]), value=NEVER) for part in parts]
        return torch.cat(parts)[torch.argsort(torch.tensor(order))]

    def find(self, text: str, start: int, end: int) -> tuple[int, int] | None:
        """Return the first and last token of a part of a passage; None if it is not read."""
        _, places = cut(self._tokenizer, text, self._most[1])
        inside = [at for at, (a, b) in enumerate(places) if a < end and b > start]
        return (inside[0], inside[-1]) if inside and places[inside[-1]][1] >= end else None

    def _read(self, side: int, texts: Sequence[str]) -> list[Tensor]:
        """Return the states of texts that are the first or the second (1) of a pair."""
        new = sorted({text for text in texts if (side, text) not in self._kept}, key=len)
        read: dict[tuple[int, str], Tensor] = {}
        for start in range(0, len(new), _AT_ONCE):
            part = new[start : start + _AT_ONCE]
            rows = [
                torch.tensor(cut_ids(self._tokenizer, text, self._most[side])[0]) for text in part
            ]
            ids, real = _pad(rows)
            with torch.no_grad(), self._compute():
                states = self.head.read_apart(ids, real[:, None]).to(self._type)
            for text, row, state in zip(part, rows, states, strict=True):
                read[side, text] = state[: len(row)].clone()
        if self._tokens_kept < _MOST_KEPT:
            self._kept |= read
            self._tokens_kept += sum(map(len, read.values()))
        return [read[key] if (key := (side, text)) in read else self._kept[key] for text in texts]


def _pad(rows: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Return rows of unlike length as one tensor, and where it is no padding."""
    padded = nn.utils.rnn.pad_sequence(list(rows), batch_first=True)
    lengths = torch.tensor([len(row) for row in rows])
    return padded, torch.arange(padded.shape[1]) < lengths[:, None]
