"""Train a reranker, a verifier or a sorter of questions: `colligate train head`.

The folder of data has `train.jsonl` and, to judge by, `held_out.jsonl`, packed by gzip or not:

    {"question": ..., "right": [PASSAGE, ...], "wrong": [PASSAGE, ...],          for the reranker
     "answer": [START, END]}
    {"claim": ..., "evidence": TEXT, "label": "supports|contradicts|neither"}    for the verifier
    {"question": ..., "kind": "fact|steps|each|overview|list|collection"}        for the kinds

A text begins with its title on a line of its own, as at inference (`models.pairs.join_title`). The
result is an int8 ONNX file with its tokenizer. A training that was stopped goes on from its last
checkpoint. Importing this module needs the extra `train`.
"""

from __future__ import annotations

import json
import random
import shutil
import warnings
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args

from pydantic import Field

from colligate.core.events import Listener, Noted, Trace
from colligate.core.parameters import require_min, set_parameters
from colligate.errors import MissingExtra, UsageError
from colligate.lab.bench.datasets.records import RecordModel, parse_records, validate
from colligate.lab.jobs.files import lock_folder
from colligate.lab.jobs.identity import check_same, versions
from colligate.lab.training.fitting import CHECKPOINTS, RECORD, run_trainer
from colligate.lab.training.samples import HELD_OUT, TRAIN
from colligate.lab.training.trainer import COMMON, explain_failures, find_checkpoint, transformers
from colligate.models.download import hash_file
from colligate.models.pairs import read_tokenizer
from colligate.models.weights import pull
from colligate.reporting import report_pull
from colligate.strategies.auto.prompts import QuestionKind

try:
    import onnx
    import onnxscript  # noqa: F401  # what torch exports with
    import torch
    from onnxruntime.quantization import quantize_dynamic
    from safetensors.torch import load_model
    from torch import Tensor, nn
    from torch.nn import functional as F
    from torch.utils.data import DataLoader, IterableDataset

    from colligate.lab.training.pair_network import (
        HIDDEN,
        NEVER,
        OnePair,
        PairHead,
        StateStore,
        mean,
    )
except ImportError as _error:
    raise MissingExtra(
        "training a head needs torch, transformers, onnx and onnxscript",
        f"{_error.name or 'one of them'} is not installed",
        "pip install 'colligate[train]'",
    ) from _error

BASE = "minilm-l6-v2"
"""The pinned weights that are trained on."""

Kind = Literal["reranker", "verifier", "kinds"]


class Labelled(RecordModel):
    """What is learnt from; it comes `weight` times in a pass."""

    weight: float = Field(default=1.0, gt=0)


@dataclass(frozen=True)
class HeadFit(ABC):
    """The numbers of a training, what is trained, and what it learns from.

    The rates are of AdamW, for the layers and for the head: they rise over the first `warmup` of
    the steps, then fall to zero. The attention between the two texts, of which the second has at
    most `tokens` tokens, begins `closed` (added to its logits) and opens over the first `opening`
    of the steps. A step learns from `batch` records.
    """

    name: ClassVar[Kind]
    record: ClassVar[type[Labelled]]
    network: ClassVar[type[PairHead]]

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
        _require_share(self, "warmup")
        if not 0 <= self.opening <= 1:
            raise UsageError(f"opening is {self.opening}", "it must be from 0 to 1")

    @abstractmethod
    def loss(self, store: StateStore, records: Any, drawn: random.Random) -> Tensor:
        """Return the loss of a batch of records."""

    @abstractmethod
    def judge(self, store: StateStore, records: Any) -> str:
        """Say how well records that were held out are scored."""


def _require_share(numbers: HeadFit, name: str) -> None:
    if not 0 <= getattr(numbers, name) < 1:
        raise UsageError(f"{name} is {getattr(numbers, name)}", "it must be 0 or more, and below 1")


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
    `NAME=VALUE` of `RerankerFit`, `VerifierFit` or `KindFit`. `base` is the folder of a BERT model
    with its tokenizer; by default all-MiniLM-L6-v2, which is pulled. Blocks, in the main thread.
    UsageError if a setting is wrong, or `out` holds another training.
    """
    numbers = set_parameters(_FITS[kind], settings)
    files = [data / name for name in (TRAIN, HELD_OUT) if name == TRAIN or (data / name).exists()]
    train, *held_out = (
        list(parse_records(file, lambda each: validate(numbers.record, each))) for file in files
    )
    folder = base or pull(BASE, report_pull(Trace([on_event])))["model"].parent
    made_of = {
        "head": kind,
        "base": hash_file(folder / "model.safetensors"),
        "data": {file.name: hash_file(file) for file in files},
        "numbers": asdict(numbers),
    }
    with lock_folder(out), explain_failures():
        if (file := out / RECORD).exists():
            check_same(json.loads(file.read_text("utf-8"))["made_of"], made_of, out)
        else:
            record = {"made_of": made_of, "versions": versions()}
            file.write_text(json.dumps(record, indent=2) + "\n", "utf-8")
        torch.manual_seed(numbers.seed)
        head = load_head(folder, kind)
        store = StateStore(head, read_tokenizer(folder / "tokenizer.json"), numbers.tokens)
        trainer = HeadTrainer(store, numbers, train, out / CHECKPOINTS)
        resume = find_checkpoint(out / CHECKPOINTS, on_event)
        done = run_trainer(trainer, resume, out, on_event).global_step
        if done < numbers.steps:
            return False
        load_model(head, out / CHECKPOINTS / f"checkpoint-{done}" / "model.safetensors")
        head.eval()
        store.closed = 0.0
        for records in filter(None, held_out):
            with torch.no_grad():
                on_event(Noted(numbers.judge(store, records)))
        export(head, folder, out)
    return True


class HeadTrainer(transformers.Trainer):  # type: ignore[misc]
    """Trains a head by the loss of its kind."""

    def __init__(
        self, store: StateStore, numbers: HeadFit, train: Sequence[Labelled], folder: Path
    ) -> None:
        self._store, self._numbers = store, numbers
        named = [each for each in store.head.named_parameters() if each[1].requires_grad]
        layers = [each for name, each in named if name.startswith("high.")]
        own = [each for name, each in named if not name.startswith("high.")]
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

    def compute_loss(self, model: Any, inputs: list[Labelled], *_: Any, **__: Any) -> Tensor:
        numbers, step = self._numbers, self.state.global_step
        opened = min(1.0, step / max(1.0, numbers.opening * numbers.steps))
        self._store.closed = numbers.closed * (1 - opened)
        return numbers.loss(self._store, inputs, random.Random(f"{numbers.seed} {step}"))


class _Batches(IterableDataset):  # type: ignore[misc]
    """Batches of records without end."""

    def __init__(self, train: Sequence[Labelled], numbers: HeadFit) -> None:
        self._train, self._size, self._seed = train, numbers.batch, numbers.seed

    def __iter__(self) -> Iterator[list[Labelled]]:
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


def load_head(base: Path, kind: Kind) -> PairHead:
    """Make a head on the BERT model of a folder. Its layers drop nothing out."""
    none = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    # torch's fused attention is slower to train on a CPU
    bert = transformers.BertModel.from_pretrained(base, attn_implementation="eager", **none)
    return _FITS[kind].network(bert)


# The reranker. The score of a question and a passage is the sum of three:
#
#     a cos(mean of question, mean of passage)           the similarity that MiniLM was trained for
#     b sum_i w_i max_j cos(token i, token j)            late interaction (ColBERT), w by attention
#     MLP([CLS] of question, product of means, [CLS] of passage)
#
# The MLP's last layer starts at zero, so the first score is MiniLM's own. A second network sees
# each token of the passage beside the nearest ones of the question. It gives two logits: that the
# answer begins with this token, and that it ends with it.

_SCALE = 8.0  # of both similarities at the start: their softmax over passages is then not flat
_NONE = 13.0  # what both come to at the start, where a passage neither answers nor is far away
_SPREAD = 8.0  # wrong passages are drawn with weight 1 / (1 + place / 8): the hardest more often


class RerankerHead(PairHead):
    """Scores pairs of question and passage, and finds the answer, [pairs, 1 + tokens, 2].

    In row 0 the first logit is the score. A further row is a token of the passage: the logits of
    the answer's first and last token.
    """

    def __init__(self, bert: Any) -> None:
        super().__init__(bert)
        self.focus = nn.Linear(self.width, 1)
        self.scale = nn.Parameter(torch.full((2,), _SCALE))
        self.hidden, self.out = nn.Linear(3 * self.width, HIDDEN), nn.Linear(HIDDEN, 1)
        self.beside, self.ends = nn.Linear(3 * self.width, HIDDEN), nn.Linear(HIDDEN, 2)
        for zero in (self.focus.weight, self.out.weight):
            nn.init.zeros_(zero)
        nn.init.constant_(self.out.bias, -_NONE)

    def compare(self, a: Tensor, a_real: Tensor, b: Tensor, b_real: Tensor) -> Tensor:
        mean_a, mean_b = mean(a, a_real), mean(b, b_real)
        near = F.normalize(a, dim=-1) @ F.normalize(b, dim=-1).transpose(1, 2)
        best = near.masked_fill(~b_real[:, None, :], NEVER).max(-1).values
        weights = self.focus(a).squeeze(-1).masked_fill(~a_real, NEVER).softmax(-1)
        both = self.drop(torch.cat([a[:, 0], mean_a * mean_b * _SCALE, b[:, 0]], -1))
        learnt = self.out(F.gelu(self.hidden(both))).squeeze(-1)
        similarity = F.cosine_similarity(mean_a, mean_b)
        score = self.scale[0] * similarity + self.scale[1] * (weights * best).sum(-1) + learnt
        sharp = (_SCALE * near).masked_fill(~a_real[:, :, None], NEVER)
        nearest = sharp.transpose(1, 2).softmax(-1) @ a
        tokens = self.ends(F.gelu(self.beside(self.drop(torch.cat([b, nearest, b * nearest], -1)))))
        tokens = tokens.masked_fill(~b_real[..., None], NEVER)
        return torch.cat([score[:, None, None].expand(-1, 1, 2), tokens], 1)


class Group(Labelled):
    """A question, passages that answer it, and others, the hardest first; the `answer` in one."""

    question: str
    right: tuple[str, ...]
    wrong: tuple[str, ...] = Field(min_length=1)
    answer: tuple[int, int] | None = None


@dataclass(frozen=True)
class RerankerFit(HeadFit):
    """Of a question one right passage, or none (`unanswered`), and `distractors` are learnt."""

    name, record, network = "reranker", Group, RerankerHead

    steps: int = 4000
    batch: int = 8
    tokens: int = 192
    rate: float = 1.5e-4
    head_rate: float = 8e-4
    opening: float = 0.1
    distractors: int = 3
    unanswered: float = 0.05
    save_every: int = 200

    def __post_init__(self) -> None:
        super().__post_init__()
        require_min(self, distractors=1)
        _require_share(self, "unanswered")

    def loss(self, store: StateStore, records: Sequence[Group], drawn: random.Random) -> Tensor:
        """Return minus the log share of the right passage, and of the answer's ends in it.

        The share of a passage is among those of its question and "none", whose logit is zero. So a
        score says something alone: below zero, rather none.
        """
        pairs: list[tuple[str, str]] = []
        sizes, answers, spans = [], [], []
        for group in records:
            places = range(len(group.wrong))
            keys = [drawn.random() ** (1 + place / _SPREAD) for place in places]
            wrong = sorted(places, key=lambda place: -keys[place])[: self.distractors]
            left_out = not group.right or drawn.random() < self.unanswered
            right = [] if left_out else [drawn.choice(group.right)]
            if group.answer and right == [group.right[0]]:
                spans.append((len(pairs), store.find(right[0], *group.answer)))
            texts = [*right, *(group.wrong[place] for place in wrong)]
            pairs += [(group.question, text) for text in texts]
            sizes.append(len(texts))
            answers.append(len(right))  # the place of what is right, after "none" in place 0
        logits = store.score(pairs)
        rows = nn.utils.rnn.pad_sequence(logits[:, 0, 0].split(sizes), True, NEVER)
        loss = F.cross_entropy(F.pad(rows, (1, 0)), torch.tensor(answers))
        ends = [(at, *found) for at, found in spans if found]
        if ends:
            at, first, last = torch.tensor(ends).T
            tokens = logits[at, 1:]
            for side, target in ((0, first), (1, last)):
                loss = loss + F.cross_entropy(tokens[..., side], target) / 2
        return loss

    def judge(self, store: StateStore, records: Sequence[Group]) -> str:
        """Say how often the best passage of at most 20 is right, and answers are found whole."""
        first = found = 0
        asked = [each for each in records if each.right]
        if not asked:
            return "no held-out question has an answer"
        spans = []
        for group in asked:
            texts = [*group.right, *group.wrong][:20]
            logits = store.score([(group.question, text) for text in texts])
            first += int(logits[:, 0, 0].argmax()) < len(group.right)
            if group.answer and (span := store.find(texts[0], *group.answer)):
                spans.append(span)
                found += tuple(logits[0, 1:].argmax(0).tolist()) == span
        return (
            f"the right passage is first for {first / len(asked):.2f} of {len(asked)} held-out "
            f"questions; {found} of {len(spans)} answers are found whole"
        )


# The verifier compares each token of a claim with what is nearest to it in the source, and each of
# the source with the claim (as in ESIM: Chen et al. 2017): "after" beside "before" shows in the
# difference, although both have like states.

_SHARP = 12.0  # of the nearness of tokens at the start
_COMPARED = 128
_SMOOTH = 0.05  # of the labels


class LabelledClaim(Labelled):
    """A claim, a text, and what the text does with the claim."""

    claim: str
    evidence: str
    label: Literal["supports", "contradicts", "neither"]


LABELS: tuple[str, ...] = get_args(LabelledClaim.model_fields["label"].annotation)
"""In the order of the verifier's logits."""


class VerifierHead(PairHead):
    """Tells what a source does with a claim: the logits of `LABELS`, [pairs, 3]."""

    def __init__(self, bert: Any) -> None:
        super().__init__(bert)
        self.sharp = nn.Parameter(torch.tensor(_SHARP))
        self.beside = nn.Linear(4 * self.width, _COMPARED)
        self.hidden = nn.Linear(4 * _COMPARED + 2 * self.width, HIDDEN)
        self.out = nn.Linear(HIDDEN, len(LABELS))

    def compare(self, a: Tensor, a_real: Tensor, b: Tensor, b_real: Tensor) -> Tensor:
        near = self.sharp * F.normalize(a, dim=-1) @ F.normalize(b, dim=-1).transpose(1, 2)
        found = [a[:, 0], b[:, 0]]
        for own, own_real, other, other_real, nearness in (
            (a, a_real, b, b_real, near),
            (b, b_real, a, a_real, near.transpose(1, 2)),
        ):
            # How tokens differ from what is nearest to them: the largest, and the mean.
            nearest = nearness.masked_fill(~other_real[:, None, :], NEVER).softmax(-1) @ other
            both = torch.cat([own, nearest, (own - nearest).abs(), own * nearest], -1)
            apart = F.gelu(self.beside(both))
            largest = apart.masked_fill(~own_real[..., None], NEVER).max(1).values
            found += [largest, mean(apart, own_real)]
        logits: Tensor = self.out(F.gelu(self.hidden(self.drop(torch.cat(found, -1)))))
        return logits


@dataclass(frozen=True)
class VerifierFit(HeadFit):
    """A claim and its text are learnt as they are."""

    name, record, network = "verifier", LabelledClaim, VerifierHead

    steps: int = 800
    batch: int = 64
    tokens: int = 80
    rate: float = 1e-4
    head_rate: float = 8e-4
    opening: float = 0.1

    def loss(
        self, store: StateStore, records: Sequence[LabelledClaim], drawn: random.Random
    ) -> Tensor:
        """Return the cross-entropy over the labels."""
        labels = torch.tensor([LABELS.index(each.label) for each in records])
        logits = store.score([(each.claim, each.evidence) for each in records])
        return F.cross_entropy(logits, labels, label_smoothing=_SMOOTH)

    def judge(self, store: StateStore, records: Sequence[LabelledClaim]) -> str:
        """Say how many labels are right."""
        told = store.score([(each.claim, each.evidence) for each in records]).argmax(-1).tolist()
        right = sum(LABELS[i] == each.label for i, each in zip(told, records, strict=True))
        return f"of {len(records)} held-out claims {right / len(records):.2f} are judged rightly"


# The kinds of questions: one layer above those that read a text alone is enough. The second text is
# empty, so that the same file is exported.
_KINDS = list(QuestionKind)


class KindHead(PairHead):
    """Tells what the answer to a question takes: the logits of `QuestionKind`, [questions, 6]."""

    def __init__(self, bert: Any) -> None:
        super().__init__(bert)
        self.high = self.high[:1]
        self.hidden = nn.Linear(3 * self.width, HIDDEN)
        self.out = nn.Linear(HIDDEN, len(_KINDS))

    def compare(self, a: Tensor, a_real: Tensor, b: Tensor, b_real: Tensor) -> Tensor:
        largest = a.masked_fill(~a_real[..., None], NEVER).max(1).values
        states = torch.cat([a[:, 0], mean(a, a_real), largest], -1)
        logits: Tensor = self.out(F.gelu(self.hidden(self.drop(states))))
        return logits


class SortedQuestion(Labelled):
    """A question and what its answer takes."""

    question: str
    kind: QuestionKind


@dataclass(frozen=True)
class KindFit(HeadFit):
    """A share `bare` of the questions is learnt in lower case without the mark at its end."""

    name, record, network = "kinds", SortedQuestion, KindHead

    steps: int = 900
    batch: int = 64
    tokens: int = 8
    rate: float = 1e-4
    head_rate: float = 1e-3
    opening: float = 0.0
    bare: float = 0.15

    def __post_init__(self) -> None:
        super().__post_init__()
        _require_share(self, "bare")

    def loss(
        self, store: StateStore, records: Sequence[SortedQuestion], drawn: random.Random
    ) -> Tensor:
        """Return the cross-entropy over the kinds."""
        asked = [
            each.question.lower().rstrip("?. ") if drawn.random() < self.bare else each.question
            for each in records
        ]
        labels = torch.tensor([_KINDS.index(each.kind) for each in records])
        logits = store.score([(question, "") for question in asked])
        return F.cross_entropy(logits, labels, label_smoothing=_SMOOTH)

    def judge(self, store: StateStore, records: Sequence[SortedQuestion]) -> str:
        """Say how many questions of each kind are told."""
        told = store.score([(each.question, "") for each in records]).argmax(-1).tolist()
        of = Counter(each.kind for each in records)
        right = Counter(r.kind for i, r in zip(told, records, strict=True) if _KINDS[i] == r.kind)
        shares = ", ".join(f"{kind} {right[kind] / of[kind]:.2f}" for kind in _KINDS if of[kind])
        return f"of {len(records)} held-out questions are told rightly: {shares}"


_FITS: dict[Kind, type[HeadFit]] = {each.name: each for each in (RerankerFit, VerifierFit, KindFit)}


def export(head: PairHead, base: Path, out: Path) -> None:
    """Write `model.onnx` (int8, dynamic quantisation), `float.onnx` and `tokenizer.json`."""
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
        quantize_dynamic(whole, out / "model.onnx", ["MatMul", "Gather"], per_channel=True)
    shutil.copyfile(base / "tokenizer.json", out / "tokenizer.json")
