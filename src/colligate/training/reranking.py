"""Train colligate's reranker: `colligate train reranker`. Needs the extra `train`.

Groups of passages (`pairs.py`), a listwise softmax over one right passage and some wrong ones of
each question, then int8 weights as ONNX with a tokenizer, which `--reranker minilm` reads. A
training that was stopped goes on from its last checkpoint. Several processes (RANK, WORLD_SIZE and
MASTER_ADDR, as torchrun sets them) share each step; on a busy processor two processes of one
thread are faster than one of two, because they wait for each other once a step.
"""

from __future__ import annotations

import json
import math
import os
import random
import shutil
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from colligate.core.events import Listener, Noted, Progressed
from colligate.core.parameters import require_min, set_parameters
from colligate.errors import MissingExtra, UsageError
from colligate.jobs.files import json_line, lock_folder, make_folder
from colligate.jobs.identity import check_same, file_digest, versions
from colligate.models.weights import OnProgress, pull
from colligate.training.pairs import (
    CHECK,
    TRAIN,
    Group,
    count_groups,
    make_groups,
    read_groups,
    write_groups,
)

try:
    import onnx
    import onnxscript  # noqa: F401  # what torch exports with
    import torch
    from onnxruntime.quantization import QuantType, quantize_dynamic
    from torch import distributed, nn

    from colligate.training.pair_head import (
        OnePair,
        PairHead,
        StateStore,
        Trunk,
        load_head,
        read_tokenizer,
        trained_parameters,
    )
except ImportError as _error:
    raise MissingExtra(
        "training a reranker needs torch, transformers, onnx and onnxscript",
        f"{_error.name or 'one of them'} is not installed",
        "pip install 'colligate[train]'",
    ) from _error

BASE = "minilm-l6-v2"
"""The pinned weights that are trained on."""

GROUPS, RECORD, CURVE, CHECKPOINT = "groups.jsonl", "fit.json", "curve.jsonl", "checkpoint.pt"

_RARE = 0.5  # the share of made questions in a pass over the groups
_OFTEN = {"nq20": 2}  # times that a set's questions come in a pass
_SPREAD = 8.0  # wrong passages are drawn with weight 1 / (1 + place / 8): the hardest more often


@dataclass(frozen=True)
class HeadFit:
    """The numbers of a training of a head. `sets` are trained on.

    The rates are of AdamW, for the layers and for the head: they rise over the first `warmup` of
    the steps, then fall to zero. The attention between the two texts, of which `tokens` tokens are
    read, opens over the first `opening` of the steps.
    """

    sets: str = "nq20,asqa,hotpotqa,2wikimultihopqa,triviaqa"
    steps: int = 1300
    tokens: int = 192
    rate: float = 8e-5
    head_rate: float = 6e-4
    warmup: float = 0.06
    opening: float = 0.15
    closed: float = -6.0
    seed: int = 0
    save_every: int = 50

    def __post_init__(self) -> None:
        require_min(self, steps=1, tokens=8, save_every=1)
        if not 0 <= self.warmup < 1:
            raise UsageError(f"warmup is {self.warmup}", "it must be 0 or more, and below 1")
        if not 0 <= self.opening <= 1:
            raise UsageError(f"opening is {self.opening}", "it must be from 0 to 1")


@dataclass(frozen=True)
class PairFit(HeadFit):
    """The numbers of a training of the reranker.

    A step has `groups` questions in each process, each with one right passage and `wrong` wrong
    ones.
    """

    groups: int = 2
    wrong: int = 7

    def __post_init__(self) -> None:
        super().__post_init__()
        require_min(self, groups=1, wrong=1)


async def train_reranker(
    data: Path,
    out: Path,
    settings: Sequence[str],
    on_event: Listener,
    on_pull: OnProgress | None = None,
    *,
    base: Path | None = None,
) -> Path:
    """Train on the data sets in the folder `data`, and write the reranker into `out`.

    `settings` are `NAME=VALUE` of `PairFit`. `base` is the folder of a BERT model with its
    tokenizer; by default all-MiniLM-L6-v2, which is pulled.

    Raises:
        UsageError: a setting is wrong, or `out` holds another training.
        MissingPath: a data set is missing.
        WeightsUnavailable: the base cannot be pulled.
    """
    numbers = set_parameters(PairFit, settings)
    folder = base or pull(BASE, on_pull)["model"].parent
    make_folder(out)
    rank, processes = _join_processes()
    with lock_folder(out) if rank == 0 else nullcontext():
        if rank == 0:
            await _open_groups(data, numbers, out, on_event)
            groups = out / GROUPS
            check_record(folder, groups, count_groups(read_groups(groups)), numbers, out)
        if processes > 1:
            distributed.barrier()
        return _fit(folder, read_groups(out / GROUPS), numbers, out, rank, processes, on_event)


def _join_processes() -> tuple[int, int]:
    rank, processes = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    if processes > 1:
        torch.set_num_threads(1)
        # A process may be held for long: nothing is wrong then.
        distributed.init_process_group("gloo", timeout=timedelta(days=1))
    return rank, processes


async def _open_groups(data: Path, numbers: PairFit, out: Path, on_event: Listener) -> None:
    if not (out / GROUPS).exists():
        write_groups(out / GROUPS, await make_groups(data, numbers.sets.split(","), on_event))


def check_record(
    base: Path,
    data: Path,
    counts: Mapping[str, int],
    numbers: HeadFit,
    out: Path,
    without: Path | None = None,
) -> None:
    """Write what a training is made of, or check that it is the same as before."""
    now = {
        "base": file_digest(base / "model.safetensors"),
        data.stem: file_digest(data),
        "counts": dict(counts),
        "numbers": asdict(numbers),
    }
    if without is not None:
        now["without"] = file_digest(without)
    if (out / RECORD).exists():
        check_same(json.loads((out / RECORD).read_text("utf-8"))["made_of"], now, out)
    else:
        record = {"made_of": now, "versions": versions()}
        (out / RECORD).write_text(json.dumps(record, indent=2) + "\n", "utf-8")


def _fit(
    base: Path,
    groups: Sequence[Group],
    numbers: PairFit,
    out: Path,
    rank: int,
    processes: int,
    on_event: Listener,
) -> Path:
    torch.manual_seed(numbers.seed)
    head, tokenizer = load_head(base, PairHead), read_tokenizer(base)
    store = StateStore(head, tokenizer, numbers.tokens)
    train = [each for each in groups if each.split == TRAIN]
    check = [each for each in groups if each.split == CHECK]
    train_head(
        head,
        numbers,
        _iterate_batches(train, numbers, rank, processes),
        lambda batch, step: _learn(store, batch, numbers, step, rank, processes),
        out,
        on_event,
        rank,
        processes,
    )
    if rank == 0:
        right = share_first(head, store, check)
        on_event(
            Noted(f"the right passage is first for {right:.2f} of {len(check)} held-out questions")
        )
        export(head, base, out)
    return out


B = TypeVar("B")


def train_head(
    head: Trunk,
    numbers: HeadFit,
    batches: Iterable[B],
    learn: Callable[[B, int], torch.Tensor],
    out: Path,
    on_event: Listener,
    rank: int = 0,
    processes: int = 1,
) -> None:
    """Train a head on batches without end; `learn` returns the loss of a batch in a step.

    A training that was stopped goes on from its last checkpoint in `out`.
    """
    parameters = trained_parameters(head)
    trained = [each for part in parameters.values() for each in part]
    optimiser = torch.optim.AdamW(
        [
            {"params": parameters["layers"], "lr": numbers.rate},
            {"params": parameters["head"], "lr": numbers.head_rate},
        ],
        weight_decay=0.01,
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: _rate(step, numbers))
    step = _resume(out, head, optimiser, schedule)
    head.train()
    begun, first = time.monotonic(), step
    for at, batch in enumerate(batches):
        if at < step:  # learnt before
            continue
        if step == numbers.steps:
            break
        # What is dropped out depends on the step alone: a resumed training drops the same.
        torch.manual_seed(numbers.seed + step * processes + rank)
        loss = learn(batch, step)
        optimiser.zero_grad()
        loss.backward()
        _share_gradients(trained, processes)
        nn.utils.clip_grad_norm_(trained, 1.0)
        optimiser.step()
        schedule.step()
        step += 1
        if rank == 0:
            on_event(Progressed("training", step, numbers.steps, f"loss {loss.item():.3f}"))
        if rank == 0 and (step % numbers.save_every == 0 or step == numbers.steps):
            seconds = (time.monotonic() - begun) / (step - first)
            _save(out, step, loss.item(), seconds, head, optimiser, schedule)


def _rate(step: int, numbers: HeadFit) -> float:
    rising, falling = numbers.warmup * numbers.steps, (1 - numbers.warmup) * numbers.steps
    return min((step + 1) / max(1.0, rising), max(0.0, (numbers.steps - step) / falling))


def closed_at(step: int, numbers: HeadFit) -> float:
    """Return what is added to the logits of attention between question and passage in a step."""
    return numbers.closed * max(0.0, 1 - step / max(1.0, numbers.opening * numbers.steps))


Batch = list[tuple[Group, str]]
"""Groups, each with one of its right passages."""


def _iterate_batches(
    train: Sequence[Group], numbers: PairFit, rank: int, processes: int
) -> Iterator[Batch]:
    """Yield batches without end. A process always gets the same groups: it keeps their states."""
    if len(train) < processes * numbers.groups:
        raise UsageError("too few groups to train on", f"there are {len(train)}", "give more sets")
    own = [place for place in range(len(train)) if place % processes == rank]
    passes = 0
    while True:
        passes += 1
        drawn = random.Random(f"{numbers.seed} {passes} {rank}")
        order = [
            place
            for place in own
            for _ in range(_OFTEN.get(train[place].set, 1))
            if train[place].kind != "evidence" or drawn.random() < _RARE
        ]
        drawn.shuffle(order)
        for start in range(0, len(order) - numbers.groups + 1, numbers.groups):
            part = [train[place] for place in order[start : start + numbers.groups]]
            yield [(group, drawn.choice(group.gold)) for group in part]


def _learn(
    store: StateStore, batch: Batch, numbers: PairFit, step: int, rank: int, processes: int
) -> torch.Tensor:
    """Return the loss: minus the log share of the right passage among those of its question."""
    drawn = random.Random(f"{numbers.seed} {step * processes + rank}")
    pairs: list[tuple[str, str]] = []
    sizes = []
    for group, right in batch:
        places = range(len(group.others))
        keys = {place: drawn.random() ** (1 + place / _SPREAD) for place in places}
        wrong = sorted(places, key=lambda place: -keys[place])[: numbers.wrong]
        pairs += [(group.question, text) for text in (right, *(group.others[i] for i in wrong))]
        sizes.append(1 + len(wrong))
    # Pairs of like length are computed together: less padding.
    order = sorted(range(len(pairs)), key=lambda place: len(pairs[place][1]))
    half = (len(order) + 1) // 2
    parts = [
        store.score([pairs[place] for place in part], closed_at(step, numbers))
        for part in (order[:half], order[half:])
        if part
    ]
    scores = torch.cat(parts)[torch.argsort(torch.tensor(order))]
    losses = [-each.log_softmax(0)[0] for each in scores.split(sizes)]
    return torch.stack(losses).mean()


def _share_gradients(trained: Sequence[nn.Parameter], processes: int) -> None:
    if processes == 1:
        return
    flat = torch.cat([_gradient(each).flatten() for each in trained])
    distributed.all_reduce(flat)
    parts = (flat / processes).split([each.numel() for each in trained])
    for each, part in zip(trained, parts, strict=True):
        _gradient(each).copy_(part.view_as(each))


def _gradient(parameter: nn.Parameter) -> torch.Tensor:
    assert parameter.grad is not None
    return parameter.grad


def _save(out: Path, step: int, loss: float, seconds: float, *parts: Any) -> None:
    new = out / f"{CHECKPOINT}.new"
    torch.save({"step": step, "parts": [part.state_dict() for part in parts]}, new)
    new.replace(out / CHECKPOINT)
    with (out / CURVE).open("a", encoding="utf-8") as curve:
        curve.write(json_line({"step": step, "loss": loss, "seconds_per_step": seconds}))


def _resume(out: Path, *parts: Any) -> int:
    """Load the last checkpoint, if there is one, and return its step."""
    if not (out / CHECKPOINT).exists():
        return 0
    kept = torch.load(out / CHECKPOINT)
    for part, state in zip(parts, kept["parts"], strict=True):
        part.load_state_dict(state)
    step: int = kept["step"]
    return step


def share_first(head: PairHead, store: StateStore, groups: Sequence[Group]) -> float:
    """Return the share of groups whose best passage of at most 20 is a right one."""
    head.eval()
    first = []
    with torch.no_grad():
        for group in groups:
            texts = [*group.gold, *group.others][:20]
            scores = store.score([(group.question, text) for text in texts])
            first.append(int(scores.argmax()) < len(group.gold))
    return float(np.mean(first)) if first else math.nan


# From torch to int8 ONNX


def export(head: Trunk, base: Path, out: Path) -> None:
    """Write `model.onnx` (int8) and `tokenizer.json`; `float.onnx` beside them.

    Weights of matrix products and word embeddings are quantised once, activations at each pair
    (dynamic quantisation), so no calibration data are needed.
    """
    pair = OnePair(head.eval())
    ids = tuple(torch.randint(1000, 2000, (1, length)) for length in (12, 90))
    whole, ready = out / "float.onnx", out / "prepared.onnx"
    lengths = {
        "question": {1: torch.export.Dim("question_tokens", min=2, max=511)},
        "passage": {1: torch.export.Dim("passage_tokens", min=2, max=511)},
    }
    with warnings.catch_warnings(action="ignore"), torch.no_grad():
        torch.onnx.export(
            pair,
            ids,
            whole,
            input_names=["question", "passage"],
            output_names=["score"],
            dynamic_shapes=lengths,
            dynamo=True,
            external_data=False,
            verbose=False,
        )
        model = onnx.load(whole)
        del model.graph.value_info[:]  # onnx infers other shapes for what is folded
        onnx.save(model, ready)
        quantize_dynamic(
            ready,
            out / "model.onnx",
            op_types_to_quantize=["MatMul", "Gather"],
            per_channel=True,
            weight_type=QuantType.QInt8,
        )
    ready.unlink()
    shutil.copyfile(base / "tokenizer.json", out / "tokenizer.json")
