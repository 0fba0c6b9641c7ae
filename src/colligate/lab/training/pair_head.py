"""The networks of colligate's reranker and verifier: heads on the layers of MiniLM. Needs torch.

The first layers read the two texts apart, with MiniLM's weights as they are, so that the
states of a text can be kept (as in PreTTR: MacAvaney et al. 2020). The last ones read them
together. The reranker's score of a question and a passage is the sum of three:

    a cos(mean of question, mean of passage)           the similarity that MiniLM was trained for
    b sum_i w_i max_j cos(token i, token j)            late interaction (ColBERT), w by attention
    MLP([CLS] of question, product of means, [CLS] of passage)

The MLP's last layer starts at zero and the attention between the two starts closed, so the first
score is MiniLM's own; training opens it step by step. A few thousand questions are enough then,
where a cross-encoder from scratch needs tens of thousands.

The verifier compares each token of a claim with what is nearest to it in the source, and each of
the source with the claim (as in ESIM: Chen et al. 2017): "after" beside "before" shows in the
difference, although both have like states.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import torch
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import BertModel

from colligate.models.hf.loading import cpu_has_bfloat16
from colligate.models.pairs import PASSAGE_TOKENS, QUESTION_TOKENS, cut_ids

APART = 3
"""Layers that read question and passage apart; they and the word embeddings are not trained."""

_NEVER = -1e4
_SCALE = 8.0  # of both similarities at the start: their softmax over 8 passages is then not flat
_NONE = 13.0  # what both come to at the start, where a passage neither answers nor is far away
_SHARP = 12.0  # of the nearness of tokens at the start
_HIDDEN, _COMPARED = 96, 128
_AT_ONCE = 16  # texts that the first layers read together


class Trunk(nn.Module):  # type: ignore[misc]
    """The layers of MiniLM: the first for each text alone, the last for both."""

    def __init__(self, bert: Any) -> None:
        super().__init__()
        self.heads, self.width = bert.config.num_attention_heads, bert.config.hidden_size
        self.embeddings = bert.embeddings
        self.low = nn.ModuleList(bert.encoder.layer[:APART])
        self.high = nn.ModuleList(bert.encoder.layer[APART:])
        for part in (self.embeddings, self.low):
            part.requires_grad_(False)
        self.side = nn.Parameter(torch.zeros(self.width))  # marks the second text
        self.drop = nn.Dropout(0.1)

    def read_apart(self, ids: Tensor, real: Tensor) -> Tensor:
        """Return the states of texts after the first layers, [texts, tokens, width]."""
        return self.read_layers(
            self.embeddings(input_ids=ids), torch.where(real, 0.0, _NEVER)[:, None, None, :]
        )

    def read_layers(self, states: Tensor, mask: Tensor) -> Tensor:
        """Return the states after the layers that read question and passage apart."""
        for layer in self.low:
            states = self._attend(layer, states, mask)
        return states

    def read_together(
        self, first: Tensor, first_real: Tensor, second: Tensor, second_real: Tensor, closed: float
    ) -> tuple[Tensor, Tensor]:
        """Return the states of both texts after the last layers.

        `closed` is added to the logits of attention between the two.
        """
        length = first.shape[1]
        states = torch.cat([first, second + self.side], 1)
        mask = torch.where(torch.cat([first_real, second_real], 1), 0.0, _NEVER)
        mask = mask[:, None, None, :]
        if closed:
            here = torch.arange(states.shape[1]) < length
            mask = mask + torch.where(here[:, None] == here[None], 0.0, closed)
        for layer in self.high:
            states = self._attend(layer, states, mask)
        states = states.float()
        return states[:, :length], states[:, length:]

    def _attend(self, layer: Any, states: Tensor, mask: Tensor) -> Tensor:
        """Apply a layer of BERT. By hand: torch's fused attention is slower to train on a CPU."""
        own = layer.attention.self
        q, k, v = (
            part(states).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for part in (own.query, own.key, own.value)
        )
        logits = q @ k.transpose(2, 3) * q.shape[-1] ** -0.5 + mask.to(q.dtype)
        seen = (logits.softmax(-1).to(q.dtype) @ v).transpose(1, 2).flatten(2)
        states = layer.attention.output(seen, states)
        return layer.output(layer.intermediate(states), states)


class PairHead(Trunk):
    """Scores pairs of question and passage."""

    def __init__(self, bert: Any) -> None:
        super().__init__(bert)
        self.focus = nn.Linear(self.width, 1)
        self.scale = nn.Parameter(torch.full((2,), _SCALE))
        self.hidden, self.out = nn.Linear(3 * self.width, _HIDDEN), nn.Linear(_HIDDEN, 1)
        for zero in (self.focus.weight, self.out.weight):
            nn.init.zeros_(zero)
        nn.init.constant_(self.out.bias, -_NONE)

    def forward(
        self,
        question: Tensor,
        question_real: Tensor,
        passage: Tensor,
        passage_real: Tensor,
        closed: float = 0.0,
    ) -> Tensor:
        """Return a logit for each pair of states; `..._real` are False at padding."""
        q, p = self.read_together(question, question_real, passage, passage_real, closed)
        mean_q, mean_p = _mean(q, question_real), _mean(p, passage_real)
        near = F.normalize(q, dim=-1) @ F.normalize(p, dim=-1).transpose(1, 2)
        best = near.masked_fill(~passage_real[:, None, :], _NEVER).max(-1).values
        weights = self.focus(q).squeeze(-1).masked_fill(~question_real, _NEVER).softmax(-1)
        both = self.drop(torch.cat([q[:, 0], mean_q * mean_p * _SCALE, p[:, 0]], -1))
        similarity = F.cosine_similarity(mean_q, mean_p)
        learnt = self.out(F.gelu(self.hidden(both))).squeeze(-1)
        return self.scale[0] * similarity + self.scale[1] * (weights * best).sum(-1) + learnt


class ClaimHead(Trunk):
    """Tells what a source does with a claim: three logits for each pair."""

    def __init__(self, bert: Any) -> None:
        super().__init__(bert)
        self.sharp = nn.Parameter(torch.tensor(_SHARP))
        self.compare = nn.Linear(4 * self.width, _COMPARED)
        self.hidden = nn.Linear(4 * _COMPARED + 2 * self.width, _HIDDEN)
        self.out = nn.Linear(_HIDDEN, 3)

    def forward(
        self,
        claim: Tensor,
        claim_real: Tensor,
        source: Tensor,
        source_real: Tensor,
        closed: float = 0.0,
    ) -> Tensor:
        """Return the logits of supports, contradicts and neither, [pairs, 3]."""
        c, s = self.read_together(claim, claim_real, source, source_real, closed)
        near = self.sharp * F.normalize(c, dim=-1) @ F.normalize(s, dim=-1).transpose(1, 2)
        found = [
            *self._compare(c, claim_real, s, source_real, near),
            *self._compare(s, source_real, c, claim_real, near.transpose(1, 2)),
        ]
        both = self.drop(torch.cat([*found, c[:, 0], s[:, 0]], -1))
        logits: Tensor = self.out(F.gelu(self.hidden(both)))
        return logits

    def _compare(
        self, own: Tensor, own_real: Tensor, other: Tensor, other_real: Tensor, near: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the largest and the mean difference of tokens from what is nearest to them."""
        beside = near.masked_fill(~other_real[:, None, :], _NEVER).softmax(-1) @ other
        compared = F.gelu(
            self.compare(torch.cat([own, beside, (own - beside).abs(), own * beside], -1))
        )
        largest = compared.masked_fill(~own_real[..., None], _NEVER).max(1).values
        return largest, _mean(compared, own_real)


class OnePair(nn.Module):  # type: ignore[misc]
    """A head for the ids of one question and one passage, both [1, tokens]; what is exported.

    The first layers get both in one row, blind to each other: each weight is used once, and the
    quantisation finds all of them.
    """

    def __init__(self, head: Trunk) -> None:
        super().__init__()
        self.head = head

    def forward(self, question: Tensor, passage: Tensor) -> Tensor:
        """Return the logit, [1], or the logits."""
        length, ids = question.shape[1], torch.cat([question, passage], 1)
        places = [torch.arange(text.shape[1]) for text in (question, passage)]
        first = torch.cat([torch.ones_like(question[0]), torch.zeros_like(passage[0])])
        apart = torch.where(first[:, None] == first[None], 0.0, _NEVER)[None, None]
        states = self.head.embeddings(input_ids=ids, position_ids=torch.cat(places)[None])
        states = self.head.read_layers(states, apart)
        real = [torch.ones_like(text, dtype=torch.bool) for text in (question, passage)]
        score: Tensor = self.head(states[:, :length], real[0], states[:, length:], real[1])
        return score


H = TypeVar("H", bound=Trunk)


def load_head(base: Path, kind: type[H]) -> H:
    """Make a head on the BERT model of a folder. Its layers drop nothing out."""
    return kind(BertModel.from_pretrained(base, hidden_dropout_prob=0.0))


def read_tokenizer(base: Path) -> Tokenizer:
    """Load the tokenizer of a folder, without its padding and its limit."""
    tokenizer = Tokenizer.from_file(str(base / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


class StateStore:
    """States after the first layers, computed once for each text."""

    def __init__(self, head: Trunk, tokenizer: Tokenizer, passage_tokens: int = PASSAGE_TOKENS):
        # A processor that has no bfloat16 needs ten times as long for it.
        self._type = torch.bfloat16 if cpu_has_bfloat16(torch) else torch.float32
        self._head, self._tokenizer = head, tokenizer
        self._most = {True: QUESTION_TOKENS, False: passage_tokens}
        self._kept: dict[tuple[bool, str], Tensor] = {}

    def score(self, pairs: Sequence[tuple[str, str]], closed: float = 0.0) -> Tensor:
        """Return the logits of pairs of texts, in bfloat16 if the processor has it."""
        parts = [_pad(self._read([pair[i] for pair in pairs], i == 0)) for i in (0, 1)]
        with self._compute():
            scores: Tensor = self._head(*parts[0], *parts[1], closed)
        return scores.float()

    def _compute(self) -> torch.autocast:
        return torch.autocast("cpu", torch.bfloat16, enabled=self._type == torch.bfloat16)

    def _read(self, texts: Sequence[str], questions: bool) -> list[Tensor]:
        keys = [(questions, text) for text in texts]
        new = sorted({key for key in keys if key not in self._kept}, key=lambda key: len(key[1]))
        for start in range(0, len(new), _AT_ONCE):
            part = new[start : start + _AT_ONCE]
            rows = [
                torch.tensor(cut_ids(self._tokenizer, text, self._most[questions])[0])
                for _, text in part
            ]
            ids, real = _pad(rows)
            with torch.no_grad(), self._compute():
                states = self._head.read_apart(ids, real).to(self._type)
            for key, row, state in zip(part, rows, states, strict=True):
                self._kept[key] = state[: len(row)].clone()
        return [self._kept[key] for key in keys]


def _pad(rows: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Return rows of unlike length as one tensor, and where it is no padding."""
    padded = nn.utils.rnn.pad_sequence(list(rows), batch_first=True)
    lengths = torch.tensor([len(row) for row in rows])
    return padded, torch.arange(padded.shape[1]) < lengths[:, None]


def _mean(states: Tensor, real: Tensor) -> Tensor:
    weights = real[..., None].to(states.dtype)
    return (states * weights).sum(1) / weights.sum(1)


def trained_parameters(head: Trunk) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    """Return what is trained: the layers that read both together, and the head."""
    trained = [(name, each) for name, each in head.named_parameters() if each.requires_grad]
    layers = [each for name, each in trained if name.startswith("high.")]
    return layers, [each for name, each in trained if not name.startswith("high.")]
