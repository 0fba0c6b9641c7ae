"""Train a reranker or a verifier on labelled pairs of texts: `colligate train head`.

The folder of data has `train.jsonl` and, to judge by, `held_out.jsonl`, packed by gzip or not:

    {"question": ..., "right": [PASSAGE, ...], "wrong": [PASSAGE, ...]}          for the reranker
    {"claim": ..., "evidence": TEXT, "label": "supports|contradicts|neither"}    for the verifier

A text begins with its title on a line of its own, as at inference (`models.pairs.join_title`). The
result is an int8 ONNX file with its tokenizer. A training that was stopped goes on from its last
checkpoint. Importing this module needs the extra `train`.
"""

from __future__ import annotations

import json
import math
import random
import shutil
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from pydantic import Field

from colligate.core.events import Listener, Noted, Trace
from colligate.core.parameters import require_min, set_parameters
from colligate.errors import MissingExtra, UsageError
from colligate.lab.bench.datasets.records import RecordModel, parse_records, validate
from colligate.lab.jobs.files import lock_folder
from colligate.lab.jobs.identity import check_same, versions
from colligate.lab.training.samples import HELD_OUT, TRAIN
from colligate.models.weights import hash_file, pull
from colligate.reporting import report_pull

try:
    import onnx
    import onnxscript  # noqa: F401  # what torch exports with
    import torch
    from onnxruntime.quantization import QuantType, quantize_dynamic
    from safetensors.torch import load_model
    from torch import Tensor
    from torch.nn import functional as F
    from torch.utils.data import DataLoader, IterableDataset

    from colligate.lab.training.fitting import CHECKPOINTS, RECORD, run_trainer
    from colligate.lab.training.pair_head import (
        ClaimHead,
        OnePair,
        PairHead,
        StateStore,
        Trunk,
        load_head,
        read_tokenizer,
        trained_parameters,
    )
    from colligate.lab.training.trainer import (
        COMMON,
        explain_failures,
        find_checkpoint,
        transformers,
    )
except ImportError as _error:
    raise MissingExtra(
        "training a reranker or a verifier needs torch, transformers, onnx and onnxscript",
        f"{_error.name or 'one of them'} is not installed",
        "pip install 'colligate[train]'",
    ) from _error

BASE = "minilm-l6-v2"
"""The pinned weights that are trained on."""

Kind = Literal["reranker", "verifier"]


class Pairs(RecordModel):
    """What is learnt from; it comes `weight` times in a pass."""

    weight: float = Field(default=1.0, gt=0)

    @property
    def length(self) -> int:
        """About how long its texts are."""
        return 0


class Group(Pairs):
    """A question, passages that answer it, and others, the hardest first."""

    question: str
    right: tuple[str, ...] = Field(min_length=1)
    wrong: tuple[str, ...] = Field(min_length=1)


class Claim(Pairs):
    """A claim, a text, and what the text does with the claim."""

    claim: str
    evidence: str
    label: Literal["supports", "contradicts", "neither"]

    @property
    def length(self) -> int:
        return len(self.claim) + len(self.evidence)


LABELS: tuple[str, ...] = get_args(Claim.model_fields["label"].annotation)
"""In the order of the verifier's logits."""


@dataclass(frozen=True)
class HeadFit:
    """The numbers of a training.

    The rates are of AdamW, for the layers and for the head: they rise over the first `warmup` of
    the steps, then fall to zero. The attention between the two texts, of which the second has at
    most `tokens` tokens, begins `closed` (added to its logits) and opens over the first `opening`
    of the steps. A step learns from `batch` records.
    """

    steps: int
    batch: int
    tokens: int
    rate: float
    head_rate: float
    opening: float
    warmup: float = 0.06
    closed: float = -6.0
    seed: int = 0
    save_every: int = 50

    def __post_init__(self) -> None:
        require_min(self, steps=1, batch=1, tokens=8, save_every=1)
        if not 0 <= self.warmup < 1:
            raise UsageError(f"warmup is {self.warmup}", "it must be 0 or more, and below 1")
        if not 0 <= self.opening <= 1:
            raise UsageError(f"opening is {self.opening}", "it must be from 0 to 1")


@dataclass(frozen=True)
class RerankerFit(HeadFit):
    """Of each question one right passage and `distractors` wrong ones are learnt from.

    For a share `unanswered` of them the right one is left out.
    """

    steps: int = 1300
    batch: int = 4
    tokens: int = 192
    rate: float = 8e-5
    head_rate: float = 6e-4
    opening: float = 0.15
    distractors: int = 7
    unanswered: float = 0.2

    def __post_init__(self) -> None:
        super().__post_init__()
        require_min(self, distractors=1)
        if not 0 <= self.unanswered < 1:
            raise UsageError(f"unanswered is {self.unanswered}", "it must be 0 or more, below 1")


@dataclass(frozen=True)
class VerifierFit(HeadFit):
    """The numbers of the verifier."""

    steps: int = 800
    batch: int = 64
    tokens: int = 80
    rate: float = 1e-4
    head_rate: float = 8e-4
    opening: float = 0.1


def train_head(
    kind: Kind,
    data: Path,
    out: Path,
    settings: Sequence[str] = (),
    on_event: Listener = lambda event: None,
    *,
    base: Path | None = None,
) -> bool:
    """Train on the labelled pairs in the folder `data`, and write the model into `out`.

    Return whether it is finished: Ctrl-C saves and stops, and the same call resumes. `settings` are
    `NAME=VALUE` of `RerankerFit` or `VerifierFit`. `base` is the folder of a BERT model with its
    tokenizer; by default all-MiniLM-L6-v2, which is pulled. Blocks, in the main thread.

    Raises:
        UsageError: a setting is wrong, or `out` holds another training.
        ColligateError: training fails.
        MissingPath, FaultyRecord: the data are missing, or a line of them is wrong.
        WeightsUnavailable: the base cannot be pulled.
    """
    lesson = _LESSONS[kind]
    numbers = set_parameters(lesson.numbers, settings)
    train, held_out = (
        list(parse_records(data / name, lambda each: validate(lesson.record, each)))
        if name == TRAIN or (data / name).exists()
        else []
        for name in (TRAIN, HELD_OUT)
    )
    folder = base or pull(BASE, report_pull(Trace([on_event])))["model"].parent
    with lock_folder(out), explain_failures():
        _check_record(folder, data, numbers, out)
        torch.manual_seed(numbers.seed)
        head = load_head(folder, lesson.network)
        store = StateStore(head, read_tokenizer(folder), numbers.tokens)
        batches = _Batches(train, numbers, lesson.alike)
        loss_of = partial(lesson.loss, store, numbers)
        trainer = HeadTrainer(head, numbers, batches, loss_of, out / CHECKPOINTS)
        resume = find_checkpoint(out / CHECKPOINTS, on_event)
        done = run_trainer(trainer, resume, out, on_event).global_step
        if done < numbers.steps:
            return False
        load_model(head, out / CHECKPOINTS / f"checkpoint-{done}" / "model.safetensors")
        head.eval()
        with torch.no_grad():
            on_event(Noted(lesson.judge(store, held_out)))
        export(head, folder, out)
    return True


def _check_record(base: Path, data: Path, numbers: HeadFit, out: Path) -> None:
    """Write what a training is made of, or check that it is the same as before."""
    files = [data / name for name in (TRAIN, HELD_OUT) if (data / name).exists()]
    now = {
        "base": hash_file(base / "model.safetensors"),
        "data": {file.name: hash_file(file) for file in files},
        "numbers": asdict(numbers),
    }
    file = out / RECORD
    if file.exists():
        check_same(json.loads(file.read_text("utf-8"))["made_of"], now, out)
    else:
        record = {"made_of": now, "versions": versions()}
        file.write_text(json.dumps(record, indent=2) + "\n", "utf-8")


class _Batches(IterableDataset):  # type: ignore[misc]
    """Batches of records without end."""

    def __init__(self, train: Sequence[Pairs], numbers: HeadFit, alike: int) -> None:
        self._given = train, numbers, alike

    def __iter__(self) -> Iterator[list[Pairs]]:
        return _iterate(*self._given)


class HeadTrainer(transformers.Trainer):  # type: ignore[misc]
    """The trainer of a head; `loss_of` returns the loss of a batch in a step."""

    def __init__(
        self,
        head: Trunk,
        numbers: HeadFit,
        batches: _Batches,
        loss_of: Callable[[Any, int], Tensor],
        folder: Path,
    ) -> None:
        layers, own = trained_parameters(head)
        rates = [{"params": layers, "lr": numbers.rate}, {"params": own, "lr": numbers.head_rate}]
        arguments = transformers.TrainingArguments(
            output_dir=str(folder),
            max_steps=numbers.steps,
            lr_scheduler_type="linear",
            warmup_steps=numbers.warmup,
            max_grad_norm=1.0,
            logging_steps=numbers.save_every,
            save_steps=numbers.save_every,
            seed=numbers.seed,
            use_cpu=True,
            dataloader_pin_memory=False,
            **COMMON,
        )
        optimiser = torch.optim.AdamW(rates, weight_decay=0.01)
        super().__init__(head, arguments, train_dataset=batches, optimizers=(optimiser, None))
        self._loss_of = loss_of

    def get_train_dataloader(self) -> DataLoader[Any]:
        return DataLoader(self.train_dataset, batch_size=None)

    def compute_loss(self, model: Any, inputs: Any, *_: Any, **__: Any) -> Tensor:
        return self._loss_of(inputs, self.state.global_step)


def _iterate(train: Sequence[Pairs], numbers: HeadFit, alike: int) -> Iterator[list[Pairs]]:
    """Yield batches without end; records of like length come together among `alike` batches."""
    passes = 0
    while True:
        passes += 1
        drawn = random.Random(f"{numbers.seed} {passes}")
        order = [
            each
            for each in train
            for _ in range(int(each.weight) + (drawn.random() < each.weight % 1))
        ]
        drawn.shuffle(order)
        size, span = numbers.batch, alike * numbers.batch
        for at in range(0, len(order), span):
            order[at : at + span] = sorted(order[at : at + span], key=lambda each: each.length)
        batches = [order[at : at + size] for at in range(0, len(order) - size + 1, size)]
        if not batches:
            why = f"a step takes {size}, and there are {len(order)}"
            raise UsageError("too few records to train on", why, "label more, or set batch")
        drawn.shuffle(batches)
        yield from batches


def _closed_at(step: int, numbers: HeadFit) -> float:
    """Return what is added to the logits of attention between the two texts in a step."""
    return numbers.closed * max(0.0, 1 - step / max(1.0, numbers.opening * numbers.steps))


# The reranker: minus the log share of the right passage among those of its question and "none of
# them", whose logit is zero. So a score says something alone: below zero, rather none.

_SPREAD = 8.0  # wrong passages are drawn with weight 1 / (1 + place / 8): the hardest more often


def _rank_loss(store: StateStore, numbers: RerankerFit, batch: list[Group], step: int) -> Tensor:
    drawn = random.Random(f"{numbers.seed} {step}")
    pairs: list[tuple[str, str]] = []
    sizes, answers = [], []
    for group in batch:
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
        store.score([pairs[place] for place in part], _closed_at(step, numbers))
        for part in (order[:half], order[half:])
    ]
    scores = torch.cat(parts)[torch.argsort(torch.tensor(order))]
    losses = [
        -F.pad(each, (1, 0)).log_softmax(0)[right]
        for each, right in zip(scores.split(sizes), answers, strict=True)
    ]
    return torch.stack(losses).mean()


def _judge_reranker(store: StateStore, groups: Sequence[Group]) -> str:
    """Say how often the best passage of at most 20 is a right one."""
    first = []
    for group in groups:
        texts = [*group.right, *group.wrong][:20]
        best = int(store.score([(group.question, text) for text in texts]).argmax())
        first.append(best < len(group.right))
    right = _share(first)
    return f"the right passage is first for {right:.2f} of {len(groups)} held-out questions"


# The verifier: cross-entropy over its labels.

_SMOOTH = 0.05
_AT_ONCE = 32  # claims that are judged together


def _claim_logits(store: StateStore, claims: Sequence[Claim], closed: float = 0.0) -> Tensor:
    return store.score([(each.claim, each.evidence) for each in claims], closed)


def _claim_loss(store: StateStore, numbers: HeadFit, batch: list[Claim], step: int) -> Tensor:
    logits = _claim_logits(store, batch, _closed_at(step, numbers))
    labels = torch.tensor([LABELS.index(each.label) for each in batch])
    return F.cross_entropy(logits, labels, label_smoothing=_SMOOTH)


def _judge_verifier(store: StateStore, claims: Sequence[Claim]) -> str:
    """Say how many labels are right."""
    right = []
    for start in range(0, len(claims), _AT_ONCE):
        part = claims[start : start + _AT_ONCE]
        told = _claim_logits(store, part).argmax(-1).tolist()
        right += [LABELS[place] == each.label for place, each in zip(told, part, strict=True)]
    return f"of {len(claims)} held-out claims {_share(right):.2f} are judged rightly"


def _share(found: Sequence[bool]) -> float:
    return sum(found) / len(found) if found else math.nan


class _Lesson(NamedTuple):
    """What is read, trained, learnt from and measured for one kind of head."""

    record: type[Pairs]
    numbers: type[HeadFit]
    network: type[Trunk]
    alike: int  # batches whose records are sorted by length: less padding
    loss: Callable[..., Tensor]
    judge: Callable[..., str]


_LESSONS: dict[Kind, _Lesson] = {
    "reranker": _Lesson(Group, RerankerFit, PairHead, 1, _rank_loss, _judge_reranker),
    "verifier": _Lesson(Claim, VerifierFit, ClaimHead, 16, _claim_loss, _judge_verifier),
}


# From torch to int8 ONNX


def export(head: Trunk, base: Path, out: Path) -> None:
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
