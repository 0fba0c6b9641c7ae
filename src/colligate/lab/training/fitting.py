"""Train an adapter, or a whole model, on curated samples: `colligate train fit`.

In the end the folder holds what `BASE+FOLDER` (LoRA) or `hf:FOLDER` (full) loads, the record
`fit.json`, the curve, and the checkpoints from which the same command resumes. Importing this
module needs the extra `train`.
"""

from __future__ import annotations

import shutil
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from types import FrameType
from typing import Any

from colligate.core.events import Listener, Noted, Trace
from colligate.errors import UsageError
from colligate.lab.jobs.files import lock_folder, make_folder
from colligate.lab.jobs.identity import check_same, versions, weights_digest
from colligate.lab.jobs.job import Invocation, RecordFile, utc_now
from colligate.lab.training.adapter_gguf import write_adapter_gguf
from colligate.lab.training.recipes import Recipe, apply_settings, locate_base, read_recipe
from colligate.lab.training.samples import HELD_OUT, TRAIN, read_samples, require_train_file
from colligate.lab.training.trainer import (
    MARK,
    Encoder,
    Encodings,
    TrainingInputs,
    TrainingObserver,
    explain_failures,
    find_checkpoint,
    open_trainer,
    plan_computation,
    read_curve,
    step_of,
    transformers,
)
from colligate.models.download import hash_file
from colligate.models.hf.loading import find_source, load_tokenizer, read_sizes
from colligate.models.llama.model import ADAPTER
from colligate.models.weights import PINNED, pull
from colligate.reporting import report_pull

CHECKPOINTS, CURVE = "checkpoints", "curve.jsonl"


@dataclass(frozen=True)
class Fitted:
    """The result of a training.

    It is `finished` unless it was stopped after `step` of `steps`. Losses are means over tokens of
    replies, in nats: `loss` of the last step measured, `held_out_before` and `held_out_after` of
    the held-out samples (None without any). `tokens` and `seconds` are those of all sessions.
    `model` is the name by which colligate opens the trained model.
    """

    out: Path
    model: str
    finished: bool
    step: int
    steps: int
    samples: int
    left_out: int
    loss: float | None = None
    held_out_before: float | None = None
    held_out_after: float | None = None
    tokens: int = 0
    seconds: float = 0.0


def fit(
    recipe: str | Recipe,
    data: Path,
    base: str,
    out: Path,
    settings: Sequence[str] = (),
    on_event: Listener = lambda event: None,
) -> Fitted:
    """Train on the samples in the folder `data`; an unfinished training in `out` is resumed.

    `base` is a model's name, `hf:NAME-OR-PATH`. `settings` are `NAME=VALUE` and replace numbers of
    the recipe. Blocks, and must be called in the main thread: Ctrl-C then saves and stops.
    UsageError if something given is wrong, or `out` holds another training.
    """
    recipe = apply_settings(read_recipe(recipe) if isinstance(recipe, str) else recipe, settings)
    inputs = _prepare(recipe, data, base, on_event)
    arguments = {"recipe": recipe.name, "data": str(data), "base": base, "set": list(settings)}
    make_folder(out)
    foreign = [name for name in ("config.json", _PEFT_FILES[0]) if (out / name).exists()]
    if foreign and not (out / RECORD).exists():
        why = f"it has a {foreign[0]} and no record of a training"
        raise UsageError(f"{out} holds another model", why, "name another --out")
    with lock_folder(out):
        record = _open_record(inputs, out)
        if record.finished:
            inputs.emit(Noted(f"the training in {out} is finished: nothing is left to do"))
        else:
            _train(inputs, out, record, arguments)
        return _summarise(inputs, out, record)


def _train(
    inputs: TrainingInputs, out: Path, record: FitRecord, arguments: Mapping[str, Any]
) -> None:
    """Run one session of a training, until its end or until it is stopped."""
    resume = find_checkpoint(out / CHECKPOINTS, inputs.emit)
    if resume is not None:
        inputs.emit(Noted(f"resuming from step {step_of(resume):,}"))
    session = asdict(Invocation.start(arguments))
    record.sessions.append({**session, "from_step": step_of(resume) if resume else 0})
    with explain_failures():
        trainer = open_trainer(inputs, out / CHECKPOINTS)
        count = transformers.trainer_pt_utils.get_model_param_count
        trained = count(trainer.model, trainable_only=True)
        record.parameters = {"trained": trained, "all": count(trainer.model)}
        _FIT.write(out, record)
        trainer.args.eval_on_start = resume is None and bool(inputs.held_out.fitting)
        state = run_trainer(trainer, resume, out, inputs.emit)
    record.step, record.steps = state.global_step, state.max_steps
    record.finished = record.step >= record.steps
    record.sessions[-1]["ended"] = utc_now()
    if record.finished:
        _copy_model(inputs.recipe, out / CHECKPOINTS / f"checkpoint-{record.step}", out)
        if inputs.recipe.method == "lora":
            _write_gguf(out, trainer.model.config.get_text_config(), inputs.emit)
    _FIT.write(out, record)


def run_trainer(trainer: Any, resume: Path | None, out: Path, emit: Listener) -> Any:
    """Train from a checkpoint, if it is not the last, until the end or Ctrl-C; return the state."""
    if resume is not None:
        file = resume / transformers.trainer.TRAINER_STATE_NAME
        state = transformers.TrainerState.load_from_json(str(file))
        if state.global_step >= state.max_steps:
            return state
    with catch_signals(lambda: emit(_STOPPING)) as stop:
        trainer.remove_callback(transformers.PrinterCallback)
        trainer.add_callback(TrainingObserver(out / CURVE, stop, emit))
        trainer.train(resume_from_checkpoint=str(resume) if resume else None)
    return trainer.state


_STOPPING = Noted(
    "stopping after this step, which is saved; a second Ctrl-C stops at once", warning=True
)


@contextmanager
def catch_signals(on_first: Callable[[], None]) -> Iterator[threading.Event]:
    """Yield an event that Ctrl-C or SIGTERM sets; a second one ends the process."""
    stop = threading.Event()

    def handle(number: int, frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()
        on_first()

    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _summarise(inputs: TrainingInputs, out: Path, record: FitRecord) -> Fitted:
    curve = read_curve(out / CURVE)
    losses = [point["loss"] for point in curve if "loss" in point]
    held_out = [point["held_out_loss"] for point in curve if "held_out_loss" in point]
    full = inputs.recipe.method == "full"
    return Fitted(
        out=out,
        model=f"hf:{out}" if full else f"{inputs.base}+{out}",
        finished=record.finished,
        step=record.step,
        steps=record.steps,
        samples=len(inputs.train.fitting),
        left_out=len(inputs.train.too_long),
        loss=losses[-1] if losses else None,
        held_out_before=held_out[0] if held_out else None,
        held_out_after=held_out[-1] if held_out else None,
        tokens=curve[-1]["tokens"] if curve else 0,
        seconds=curve[-1]["seconds"] if curve else 0.0,
    )


_PEFT_FILES = ("adapter_config.json", "adapter_model.safetensors")
# The files of a checkpoint that are not the model's.
_OF_TRAINING = (
    *("optimizer*", "scheduler.pt", "rng_state*", "scaler.pt", "trainer_state.json"),
    *("training_args.bin", "README.md", f"{MARK}*"),
)


def _copy_model(recipe: Recipe, checkpoint: Path, out: Path) -> None:
    """Copy the model from the last checkpoint, which was written after the last step."""
    for file in sorted(each for each in checkpoint.iterdir() if each.is_file()):
        if recipe.method == "lora":
            wanted = file.name in _PEFT_FILES
        else:
            wanted = not any(file.match(pattern) for pattern in _OF_TRAINING)
        if wanted:
            fresh = out / f"{file.name}.new"
            shutil.copyfile(file, fresh)
            fresh.replace(out / file.name)


def _write_gguf(out: Path, config: Any, emit: Listener) -> None:
    """Write the adapter for llama.cpp too, or note why it cannot be used there."""
    fresh = out / f"{ADAPTER}.new"
    try:
        write_adapter_gguf(out, config, fresh)
    except ValueError as error:
        fresh.unlink(missing_ok=True)
        emit(Noted(f"no {ADAPTER} is written for gguf: models: {error}", warning=True))
    else:
        fresh.replace(out / ADAPTER)


# The inputs: samples as tokens of the base, and how the recipe is computed here.
def _prepare(recipe: Recipe, data: Path, base: str, emit: Listener) -> TrainingInputs:
    require_train_file(data)
    place = locate_base(base)
    if place in PINNED and not Path(place).exists():
        place = str(pull(place, report_pull(Trace([emit])))["model"])
    source = find_source(place)
    tokenizer = load_tokenizer(source)
    encoder = Encoder(tokenizer, base)
    if not encoder.prompts.has_template:
        text = f"{base} has no chat template: messages are joined as paragraphs, as at inference"
        emit(Noted(text, warning=True))
    cutoff, window = recipe.cutoff, read_sizes(source)[0]
    if window is not None and window < cutoff:
        text = f"cutoff {window:,} instead of {cutoff:,}: the window of {base} has no more"
        emit(Noted(text, warning=True))
        cutoff = window
    train, held_out = _encode(recipe, data, encoder, cutoff, emit)
    computation = plan_computation(recipe)
    passes = f"{recipe.steps:,} steps" if recipe.steps else f"{recipe.epochs:g} passes"
    method = f"LoRA of rank {recipe.rank}" if recipe.method == "lora" else "all parameters"
    text = (
        f"{method} on {len(train.fitting):,} samples ({train.tokens:,} tokens), {passes}, "
        f"{recipe.global_batch} samples a step, {computation.precision}, {computation.attention}"
    )
    emit(Noted(text))
    files = [data / name for name in (TRAIN, HELD_OUT) if (data / name).is_file()]
    digests = {file.name: hash_file(file) for file in files}
    return TrainingInputs(
        recipe, base, source, tokenizer, train, held_out, digests, computation, emit
    )


def _encode(
    recipe: Recipe, data: Path, encoder: Encoder, cutoff: int, emit: Listener
) -> tuple[Encodings, Encodings]:
    """Return the samples of the recipe's tasks: those to train on, and those held out."""
    samples = list(read_samples(data / TRAIN, recipe.tasks))
    if not samples:
        there = Counter(sample.task for sample in read_samples(data / TRAIN))
        why = f"there are {', '.join(f'{n:,} of {task}' for task, n in there.items()) or 'none'}"
        what = f"{data / TRAIN} has no sample of {' or '.join(recipe.tasks)}"
        raise UsageError(what, why, "take another recipe or another --data")
    train = encoder.encode_all(samples, cutoff)
    if not train.fitting:
        shortest = min(train.too_long.values())
        why = f"the shortest of {len(samples):,} samples has {shortest:,} tokens"
        hint = "take a larger --set cutoff, or a base with a larger window"
        raise UsageError(f"no sample has at most {cutoff:,} tokens", why, hint)
    if train.too_long:
        longest = max(train.too_long.values())
        text = (
            f"{len(train.too_long):,} of {len(samples):,} samples are left out: they have more "
            f"than {cutoff:,} tokens, the longest {longest:,} (--set cutoff=...)"
        )
        emit(Noted(text, warning=True))
    if not (data / HELD_OUT).is_file() or not recipe.held_out:
        return train, Encodings()
    held_out = islice(read_samples(data / HELD_OUT, recipe.tasks), recipe.held_out)
    return train, encoder.encode_all(held_out, cutoff)


# The record of a training, `fit.json`.

RECORD = "fit.json"

# Settings that do not change what is learnt, or that `Computation` already holds.
_FREE = (
    *("save_every", "evaluate_every", "log_every", "held_out", "gradient_checkpointing"),
    "precision",
)


@dataclass
class FitRecord:
    """A training, from its first session on.

    `made_with` must be the same when it is resumed: recipe, settings, digests of base and data,
    how it is computed. `base` is the model's name, `recipe` the text of the recipe's file.
    `samples` and `left_out` (longer than the cutoff) are by file.
    """

    made_with: Mapping[str, Any]
    base: str = ""
    recipe: str = ""
    samples: Mapping[str, int] = field(default_factory=dict)
    left_out: Mapping[str, int] = field(default_factory=dict)
    parameters: Mapping[str, int] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    finished: bool = False
    step: int = 0
    steps: int = 0
    sessions: list[dict[str, Any]] = field(default_factory=list)


_FIT = RecordFile(RECORD, FitRecord, "a training", "colligate train fit --out")


def _open_record(inputs: TrainingInputs, out: Path) -> FitRecord:
    """Return the record of the folder, or a new one."""
    settings = inputs.recipe.settings
    made_with = {
        "recipe": inputs.recipe.name,
        "settings": {name: settings[name] for name in settings if name not in _FREE},
        # Weights that have a digest may move to another place.
        "base": weights_digest(inputs.base) or inputs.base,
        "data": dict(inputs.digests),
        **asdict(inputs.computation),
    }
    record = FitRecord(made_with, inputs.base, inputs.recipe.text)
    if (out / RECORD).exists():
        record = _FIT.read(out)
        check_same(record.made_with, made_with, out)
    train, held_out = inputs.train, inputs.held_out
    record.samples = {TRAIN: len(train.fitting), HELD_OUT: len(held_out.fitting)}
    record.left_out = {TRAIN: len(train.too_long), HELD_OUT: len(held_out.too_long)}
    record.versions = versions()
    return record
