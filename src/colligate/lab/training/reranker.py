"""Train a reranker on labelled groups of passages: `colligate train reranker`.

The folder of data has `train.jsonl` and, to judge by, `held_out.jsonl`, packed by gzip or not:

    {"question": ..., "right": [PASSAGE, ...], "wrong": [PASSAGE, ...]}

A passage begins with its title on a line of its own, as at inference (`models.pairs.join_title`).
The result is an int8 ONNX file with its tokenizer. A training that was stopped goes on from its
last checkpoint. Importing this module needs the extra `train`.
"""

from __future__ import annotations

import json
import math
import random
import shutil
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pydantic import Field

from colligate.core.events import Listener, Noted, Trace
from colligate.core.parameters import require_min, set_parameters
from colligate.errors import MissingExtra, UsageError
from colligate.lab.bench.datasets.records import RecordModel, parse_records, validate
from colligate.lab.jobs.files import lock_folder
from colligate.lab.jobs.identity import check_same, versions
from colligate.lab.training.fitting import CHECKPOINTS, RECORD, run_trainer
from colligate.lab.training.samples import HELD_OUT, TRAIN
from colligate.lab.training.trainer import (
    COMMON,
    explain_failures,
    find_checkpoint,
    transformers,
)
from colligate.models.hf.loading import cpu_has_bfloat16
from colligate.models.pairs import PASSAGE_TOKENS, QUESTION_TOKENS, cut_ids
from colligate.models.weights import hash_file, pull
from colligate.reporting import report_pull

try:
    import onnx
    import onnxscript  # noqa: F401  # what torch exports with
    import torch
    from onnxruntime.quantization import QuantType, quantize_dynamic
    from safetensors.torch import load_model
    from tokenizers import Tokenizer
    from torch import Tensor, nn
    from torch.nn import functional as F
    from torch.utils.data import DataLoader, IterableDataset
except ImportError as _error:
    raise MissingExtra(
        "training a reranker needs torch, transformers, onnx and onnxscript",
        f"{_error.name or 'one of them'} is not installed",
        "pip install 'colligate[train]'",
    ) from _error

BASE = "minilm-l6-v2"
"""The pinned weights that are trained on."""


class Group(RecordModel):
    """A question, passages that answer it, and others, the hardest first.

    It comes `weight` times in a pass.
    """

    question: str
    right: tuple[str, ...] = Field(min_length=1)
    wrong: tuple[str, ...] = Field(min_length=1)
    weight: float = Field(default=1.0, gt=0)


@dataclass(frozen=True)
class RerankerFit:
    """The numbers of a training.

    The rates are of AdamW, for the layers and for the head: they rise over the first `warmup` of
    the steps, then fall to zero. The attention between question and passage, of which the latter
    has at most `tokens` tokens, begins `closed` (added to its logits) and opens over the first
    `opening` of the steps. A step learns from `batch` groups: of each, one right passage and
    `distractors` wrong ones. For a share `unanswered` of them the right one is left out.
    """

    steps: int = 1300
    batch: int = 4
    tokens: int = 192
    rate: float = 8e-5
    head_rate: float = 6e-4
    opening: float = 0.15
    distractors: int = 7
    unanswered: float = 0.2
    warmup: float = 0.06
    closed: float = -6.0
    seed: int = 0
    save_every: int = 50

    def __post_init__(self) -> None:
        require_min(self, steps=1, batch=1, tokens=8, distractors=1, save_every=1)
        for name in ("warmup", "unanswered"):
            if not 0 <= getattr(self, name) < 1:
                why = "it must be 0 or more, and below 1"
                raise UsageError(f"{name} is {getattr(self, name)}", why)
        if not 0 <= self.opening <= 1:
            raise UsageError(f"opening is {self.opening}", "it must be from 0 to 1")


def train_reranker(
    data: Path,
    out: Path,
    settings: Sequence[str] = (),
    on_event: Listener = lambda event: None,
    *,
    base: Path | None = None,
) -> bool:
    """Train on the labelled groups in the folder `data`, and write the model into `out`.

    Return whether it is finished: Ctrl-C saves and stops, and the same call resumes. `settings` are
    `NAME=VALUE` of `RerankerFit`. `base` is the folder of a BERT model with its tokenizer; by
    default all-MiniLM-L6-v2, which is pulled. Blocks, in the main thread.

    Raises:
        UsageError: a setting is wrong, or `out` holds another training.
        MissingPath, FaultyRecord: the data are missing, or a line of them is wrong.
        WeightsUnavailable: the base cannot be pulled.
        ColligateError: training fails.
    """
    numbers = set_parameters(RerankerFit, settings)
    files = [data / name for name in (TRAIN, HELD_OUT) if name == TRAIN or (data / name).exists()]
    train, *held_out = (
        list(parse_records(file, lambda each: validate(Group, each))) for file in files
    )
    folder = base or pull(BASE, report_pull(Trace([on_event])))["model"].parent
    made_of = {
        "base": hash_file(folder / "model.safetensors"),
        "data": {file.name: hash_file(file) for file in files},
        "numbers": asdict(numbers),
    }
    with lock_folder(out), explain_failures():
        _check_record(out / RECORD, made_of)
        torch.manual_seed(numbers.seed)
        head = load_head(folder)
        store = StateStore(head, read_tokenizer(folder), numbers.tokens)
        trainer = RerankerTrainer(store, numbers, train, out / CHECKPOINTS)
        resume = find_checkpoint(out / CHECKPOINTS, on_event)
        done = run_trainer(trainer, resume, out, on_event).global_step
        if done < numbers.steps:
            return False
        load_model(head, out / CHECKPOINTS / f"checkpoint-{done}" / "model.safetensors")
        head.eval()
        with torch.no_grad():
            on_event(Noted(_judge(store, *held_out)))
        export(head, folder, out)
    return True


def _check_record(file: Path, made_of: dict[str, Any]) -> None:
    """Write what a training is made of, or check that it is the same as before."""
    if file.exists():
        check_same(json.loads(file.read_text("utf-8"))["made_of"], made_of, file.parent)
    else:
        record = {"made_of": made_of, "versions": versions()}
        file.write_text(json.dumps(record, indent=2) + "\n", "utf-8")


class RerankerTrainer(transformers.Trainer):  # type: ignore[misc]
    """Trains a head. Its loss is minus the log share of the right passage among those of its
    question and "none of them", whose logit is zero. So a score says something alone: below zero,
    rather none.
    """

    def __init__(
        self, store: StateStore, numbers: RerankerFit, train: Sequence[Group], folder: Path
    ) -> None:
        self._store, self._numbers = store, numbers
        layers, own = trained_parameters(store.head)
        rates = [{"params": layers, "lr": numbers.rate}, {"params": own, "lr": numbers.head_rate}]
        super().__init__(
            store.head,
            transformers.TrainingArguments(
                output_dir=str(folder),
                max_steps=numbers.steps,
                lr_scheduler_type="linear",
                warmup_steps=numbers.warmup,
                logging_steps=numbers.save_every,
                save_steps=numbers.save_every,
                seed=numbers.seed,
                use_cpu=True,
                dataloader_pin_memory=False,
                **COMMON,
            ),
            train_dataset=_Batches(train, numbers),
            optimizers=(torch.optim.AdamW(rates, weight_decay=0.01), None),
        )

    def get_train_dataloader(self) -> DataLoader[Any]:
        return DataLoader(self.train_dataset, batch_size=None)

    def compute_loss(self, model: Any, inputs: list[Group], *_: Any, **__: Any) -> Tensor:
        numbers, step = self._numbers, self.state.global_step
        closed = numbers.closed * max(0.0, 1 - step / max(1.0, numbers.opening * numbers.steps))
        drawn = random.Random(f"{numbers.seed} {step}")
        pairs: list[tuple[str, str]] = []
        sizes, answers = [], []
        for group in inputs:
            places = range(len(group.wrong))
            keys = [drawn.random() ** (1 + place / _SPREAD) for place in places]
            wrong = sorted(places, key=lambda place: -keys[place])[: numbers.distractors]
            right = [] if drawn.random() < numbers.unanswered else [drawn.choice(group.right)]
            texts = [*right, *(group.wrong[place] for place in wrong)]
            pairs += [(group.question, text) for text in texts]
            sizes.append(len(texts))
            answers.append(len(right))  # the place of what is right, after "none" in place 0
        # Pairs of like length are computed together: less padding.
        order = sorted(range(len(pairs)), key=lambda place: len(pairs[place][1]))
        half = len(order) // 2
        parts = [
            self._store.score([pairs[place] for place in part], closed)
            for part in (order[:half], order[half:])
        ]
        scores = torch.cat(parts)[torch.argsort(torch.tensor(order))]
        losses = [
            -F.pad(each, (1, 0)).log_softmax(0)[right]
            for each, right in zip(scores.split(sizes), answers, strict=True)
        ]
        return torch.stack(losses).mean()


_SPREAD = 8.0  # wrong passages are drawn with weight 1 / (1 + place / 8): the hardest more often


class _Batches(IterableDataset):  # type: ignore[misc]
    """Batches of groups without end."""

    def __init__(self, train: Sequence[Group], numbers: RerankerFit) -> None:
        self._train, self._size, self._seed = train, numbers.batch, numbers.seed

    def __iter__(self) -> Iterator[list[Group]]:
        passes = 0
        while True:
            passes += 1
            drawn = random.Random(f"{self._seed} {passes}")
            order = [
                each
                for each in self._train
                for _ in range(int(each.weight) + (drawn.random() < each.weight % 1))
            ]
            if len(order) < self._size:
                why = f"a step takes {self._size}, and there are {len(order)}"
                raise UsageError("too few records to train on", why, "label more, or set batch")
            drawn.shuffle(order)
            for at in range(0, len(order) - self._size + 1, self._size):
                yield order[at : at + self._size]


def _judge(store: StateStore, groups: Sequence[Group] = ()) -> str:
    """Say how often the best passage of at most 20 is a right one."""
    first = []
    for group in groups:
        texts = [*group.right, *group.wrong][:20]
        best = int(store.score([(group.question, text) for text in texts]).argmax())
        first.append(best < len(group.right))
    right = sum(first) / len(first) if first else math.nan
    return f"the right passage is first for {right:.2f} of {len(groups)} held-out questions"


# The network.
#
# The first layers read the two texts apart, with MiniLM's weights as they are, so that the
# states of a text can be kept (as in PreTTR: MacAvaney et al. 2020). The last ones read them
# together. The reranker's score of a question and a passage is the sum of three:
#
#     a cos(mean of question, mean of passage)           the similarity that MiniLM was trained for
#     b sum_i w_i max_j cos(token i, token j)            late interaction (ColBERT), w by attention
#     MLP([CLS] of question, product of means, [CLS] of passage)
#
# The MLP's last layer starts at zero and the attention between the two starts closed, so the first
# score is MiniLM's own; training opens it step by step. A few thousand questions are enough then,
# where a cross-encoder from scratch needs tens of thousands.

APART = 3
"""Layers that read question and passage apart; they and the word embeddings are not trained."""

_NEVER = -1e4
_SCALE = 8.0  # of both similarities at the start: their softmax over 8 passages is then not flat
_NONE = 13.0  # what both come to at the start, where a passage neither answers nor is far away
_HIDDEN = 96
_AT_ONCE = 16  # texts that the first layers read together


class PairHead(nn.Module):  # type: ignore[misc]
    """Scores pairs of question and passage by the layers of MiniLM and a head."""

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
        self.focus = nn.Linear(self.width, 1)
        self.scale = nn.Parameter(torch.full((2,), _SCALE))
        self.hidden, self.out = nn.Linear(3 * self.width, _HIDDEN), nn.Linear(_HIDDEN, 1)
        for zero in (self.focus.weight, self.out.weight):
            nn.init.zeros_(zero)
        nn.init.constant_(self.out.bias, -_NONE)

    def read_apart(self, ids: Tensor, real: Tensor) -> Tensor:
        """Return the states of texts after the first layers, [texts, tokens, width]."""
        return self.read_layers(
            self.embeddings(input_ids=ids), torch.where(real, 0.0, _NEVER)[:, None, None, :]
        )

    def read_layers(self, states: Tensor, mask: Tensor) -> Tensor:
        """Return the states after the layers that read question and passage apart."""
        for layer in self.low:
            states = layer(states, mask)
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
            states = layer(states, mask)
        states = states.float()
        return states[:, :length], states[:, length:]

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


class OnePair(nn.Module):  # type: ignore[misc]
    """A head for the ids of one question and one passage, both [1, tokens]; what is exported.

    The first layers get both in one row, blind to each other: each weight is used once, and the
    quantisation finds all of them.
    """

    def __init__(self, head: PairHead) -> None:
        super().__init__()
        self.head = head

    def forward(self, question: Tensor, passage: Tensor) -> Tensor:
        """Return the logit, [1]."""
        length, ids = question.shape[1], torch.cat([question, passage], 1)
        places = [torch.arange(text.shape[1]) for text in (question, passage)]
        first = torch.cat([torch.ones_like(question[0]), torch.zeros_like(passage[0])])
        apart = torch.where(first[:, None] == first[None], 0.0, _NEVER)[None, None]
        states = self.head.embeddings(input_ids=ids, position_ids=torch.cat(places)[None])
        states = self.head.read_layers(states, apart)
        real = [torch.ones_like(text, dtype=torch.bool) for text in (question, passage)]
        score: Tensor = self.head(states[:, :length], real[0], states[:, length:], real[1])
        return score


def load_head(base: Path) -> PairHead:
    """Make a head on the BERT model of a folder. Its layers drop nothing out."""
    none = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    # torch's fused attention is slower to train on a CPU
    bert = transformers.BertModel.from_pretrained(base, attn_implementation="eager", **none)
    return PairHead(bert)


def read_tokenizer(base: Path) -> Tokenizer:
    """Load the tokenizer of a folder, without its padding and its limit."""
    tokenizer = Tokenizer.from_file(str(base / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


class StateStore:
    """States after the first layers, computed once for each text."""

    def __init__(self, head: PairHead, tokenizer: Tokenizer, passage_tokens: int = PASSAGE_TOKENS):
        # A processor that has no bfloat16 needs ten times as long for it.
        self._type = torch.bfloat16 if cpu_has_bfloat16(torch) else torch.float32
        self.head, self._tokenizer = head, tokenizer
        self._most = {True: QUESTION_TOKENS, False: passage_tokens}
        self._kept: dict[tuple[bool, str], Tensor] = {}

    def score(self, pairs: Sequence[tuple[str, str]], closed: float = 0.0) -> Tensor:
        """Return the logits of pairs of texts, in bfloat16 if the processor has it."""
        parts = [_pad(self._read([pair[i] for pair in pairs], i == 0)) for i in (0, 1)]
        with self._compute():
            scores: Tensor = self.head(*parts[0], *parts[1], closed)
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
                states = self.head.read_apart(ids, real).to(self._type)
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


def trained_parameters(head: PairHead) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    """Return what is trained: the layers that read both together, and the head."""
    trained = [(name, each) for name, each in head.named_parameters() if each.requires_grad]
    layers = [each for name, each in trained if name.startswith("high.")]
    return layers, [each for name, each in trained if not name.startswith("high.")]


# From torch to int8 ONNX


def export(head: PairHead, base: Path, out: Path) -> None:
    """Write `model.onnx` (int8) and `tokenizer.json`; `float.onnx` beside them.

    Weights of matrix products and word embeddings are quantised once, activations at each pair
    (dynamic quantisation), so no calibration data are needed.
    """
    ids = tuple(torch.randint(1000, 2000, (1, length)) for length in (12, 90))
    whole = out / "float.onnx"
    lengths = {
        name: {1: torch.export.Dim(f"{name}_tokens", min=2, max=511)}
        for name in ("question", "passage")
    }
    with warnings.catch_warnings(action="ignore"), torch.no_grad():
        torch.onnx.export(
            OnePair(head.eval()),
            ids,
            whole,
            input_names=list(lengths),
            output_names=["score"],
            dynamic_shapes=lengths,
            dynamo=True,
            external_data=False,
            verbose=False,
        )
        model = onnx.load(whole)
        del model.graph.value_info[:]  # onnx infers other shapes for what is folded
        onnx.save(model, whole)
        quantize_dynamic(
            whole,
            out / "model.onnx",
            op_types_to_quantize=["MatMul", "Gather"],
            per_channel=True,
            weight_type=QuantType.QInt8,
        )
    shutil.copyfile(base / "tokenizer.json", out / "tokenizer.json")
