"""Fitting an adapter, or a whole model, to samples: `colligate train fit`.

The folder that comes of it holds what `hf:BASE+FOLDER` (LoRA) or `hf:FOLDER` (full) loads, the
record `fit.json`, the curve, and the checkpoints that the same command goes on from.
"""

from __future__ import annotations

import json
import math
import re
import shutil
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from importlib.metadata import PackageNotFoundError, version
from itertools import islice
from pathlib import Path
from typing import Any

from colligate.bench.figures import Panel, Point, Series, draw_lines
from colligate.core.events import Event, Listener, Noted, Progressed, Trace
from colligate.errors import ColligateError, MissingPath, UnknownModel, UsageError
from colligate.jobs.files import (
    JsonlReader,
    json_line,
    lock_folder,
    make_folder,
    sync_path,
    write_whole,
)
from colligate.jobs.identity import (
    check_same,
    commit,
    file_digest,
    hardware,
    versions,
    weights_digest,
)
from colligate.jobs.job import utc_now
from colligate.models.hf.loading import ModelSource, find_source, load_tokenizer, read_sizes
from colligate.models.hf.prompts import Prompts
from colligate.models.names import split_adapter, split_name
from colligate.models.weights import PINNED, hash_file, pull
from colligate.session import report_pull
from colligate.training import sft
from colligate.training.launch import Place, any_of, configurations, place, stopping, wait_for_all
from colligate.training.recipes import Recipe, changed, read_recipe
from colligate.training.samples import HELD_OUT, TRAIN, read_samples
from colligate.training.sft import (
    Encoder,
    Encodings,
    How,
    Libraries,
    dataset,
    finite,
    parameters,
    trainer,
)

# The checkpoints of a training: which are whole, and which one to go on from.
#
# A checkpoint is sealed once all of it is on the disk: `whole.json` holds the size and the
# SHA-256
# of each of its files. One without a seal was being written when the process was killed: it is
# taken away, and the one before it counts. One whose files are not what its seal says was damaged
# afterwards: nobody goes on from that, or past it, unasked.

SEAL = "whole.json"
_NAME = re.compile(r"checkpoint-(\d+)")


def step_of(checkpoint: Path) -> int:
    """How many steps were done when it was written."""
    found = _NAME.fullmatch(checkpoint.name)
    if found is None:
        raise ValueError(f"{checkpoint} is no checkpoint")
    return int(found[1])


def progress(checkpoint: Path) -> tuple[int, int]:
    """How many steps were done when it was written, and of how many.

    Raises:
        OSError, ValueError, KeyError: it is not whole.
    """
    state = json.loads((checkpoint / "trainer_state.json").read_text("utf-8"))
    return int(state["global_step"]), int(state["max_steps"])


def seal(checkpoint: Path) -> None:
    """Put down that a checkpoint is whole. Blocks.

    Raises:
        OSError: it cannot be written.
    """
    files = sorted(f for f in checkpoint.rglob("*") if f.is_file() and f.name != SEAL)
    for file in files:
        sync_path(file)
    said = {
        file.relative_to(checkpoint).as_posix(): {
            "bytes": file.stat().st_size,
            "sha256": hash_file(file),
        }
        for file in files
    }
    write_whole(checkpoint / SEAL, [json.dumps(said, indent=1)])


def remove_torn(folder: Path) -> list[Path]:
    """Take away the checkpoints without a seal; returns which."""
    torn = [each for each in _all(folder) if not (each / SEAL).is_file()]
    for each in torn:
        shutil.rmtree(each)
    return torn


def newest(folder: Path) -> Path | None:
    """The last sealed checkpoint; None where there is none. Its files are not read."""
    sealed = [each for each in _all(folder) if (each / SEAL).is_file()]
    return sealed[-1] if sealed else None


def check(checkpoint: Path) -> None:
    """Hold a sealed checkpoint to its seal; reads every byte.

    Raises:
        ColligateError: a file is missing or other than it was; it names the file.
    """
    earlier = [e for e in _all(checkpoint.parent) if step_of(e) < step_of(checkpoint)]
    after = f"from {earlier[-1].name}" if earlier else "from the start"
    hint = f"delete that folder, and the same command goes on {after}"

    def damaged(why: str) -> ColligateError:
        return ColligateError(f"the checkpoint {checkpoint} is damaged", why, hint)

    try:
        said = json.loads((checkpoint / SEAL).read_text("utf-8"))
        wanted = {str(name): (int(f["bytes"]), str(f["sha256"])) for name, f in said.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise damaged(f"its {SEAL} cannot be read") from error
    for name, (size, content) in wanted.items():
        file = checkpoint / name
        try:
            if file.stat().st_size != size:
                raise damaged(f"{name} has {file.stat().st_size:,} bytes and had {size:,}")
            if hash_file(file) != content:
                raise damaged(f"{name} is not what was written")
        except OSError as error:
            raise damaged(f"{name} cannot be read ({error.strerror or error})") from error


def _all(folder: Path) -> list[Path]:
    """The checkpoints of a folder by their steps, whole or not."""
    if not folder.is_dir():
        return []
    found = (each for each in folder.iterdir() if each.is_dir() and _NAME.fullmatch(each.name))
    return sorted(found, key=step_of)


# The curve of a training: a line of `curve.jsonl` as it is measured, and the picture of them.

CURVES_FILE, PICTURE = "curve.jsonl", "curve.svg"
_DRAWN = 60  # points of a line


@dataclass(frozen=True)
class Measured:
    """What was measured after a step.

    `loss` is the mean negative log-likelihood (nats) of the replies' tokens learnt from since the
    last line, `held_out_loss` that of the samples kept aside; a line has one of them or both. `lr`
    is the learning rate, `tokens` and `seconds` are counted from the beginning, over all sessions.
    """

    step: int
    epoch: float
    tokens: int
    seconds: float
    loss: float | None = None
    lr: float | None = None
    held_out_loss: float | None = None

    def to_json(self) -> dict[str, Any]:
        """The line, without what was not measured."""
        return {key: value for key, value in asdict(self).items() if value is not None}


class Curve:
    """The lines of a training on disk, and where more are put down.

    Lines after `step` are forgotten: the training goes on from there.
    """

    def __init__(self, folder: Path, step: int = 0) -> None:
        self._file = folder / CURVES_FILE
        kept = [m for m in read_curve(self._file) if step and m.step <= step]
        self.measured = kept
        write_whole(self._file, (json_line(each.to_json()) for each in kept))

    @property
    def seconds(self) -> float:
        """How long the training took so far."""
        return self.measured[-1].seconds if self.measured else 0.0

    def add(self, measured: Measured) -> None:
        """Put a line down."""
        self.measured.append(measured)
        with self._file.open("a", encoding="utf-8") as out:
            out.write(json_line(measured.to_json()))


def read_curve(file: Path) -> list[Measured]:
    """The lines of a curve; none where there is no file. A last line that is not whole is no line.

    Raises:
        FaultyRecord: a line is none.
    """
    return list(_LINES.read(file)) if file.is_file() else []


_LINES = JsonlReader(
    lambda line: Measured(**line), "a line of a curve", "delete the line, or the file"
)


def picture(measured: Sequence[Measured], title: str) -> str:
    """Return the losses against the steps as SVG; "" without values, or without matplotlib.

    Of many steps neighbours are drawn as their mean.
    """
    learnt = [(m.step, m.loss) for m in measured if m.loss is not None]
    kept = [(m.step, m.held_out_loss) for m in measured if m.held_out_loss is not None]
    named: dict[str, Sequence[tuple[float, float]]] = {
        "training": _thinned(learnt),
        "held out": kept,
    }
    series = [
        Series(label, tuple(Point(step, loss) for step, loss in values), style)
        for style, (label, values) in enumerate(named.items())
    ]
    panel = Panel("", tuple(series))
    y_label = "loss (nats a token)"
    return draw_lines([panel], title=title, x_label="step", y_label=y_label, limits=(0.0, None))


def _thinned(values: Sequence[tuple[int, float]]) -> list[tuple[float, float]]:
    size = max(1, math.ceil(len(values) / _DRAWN))
    groups = (values[at : at + size] for at in range(0, len(values), size))
    return [
        (sum(step for step, _ in group) / len(group), sum(loss for _, loss in group) / len(group))
        for group in groups
    ]


# What a training works with: its samples as tokens of its base, and how it is computed here.


@dataclass(frozen=True)
class Material:
    """All that a training begins with. `digests` are those of the files of samples, by name."""

    recipe: Recipe
    base: str
    source: ModelSource
    prompts: Prompts
    cutoff: int
    train: Encodings
    held_out: Encodings
    digests: Mapping[str, str]
    how: How
    place: Place
    libraries: Libraries
    emit: Listener


def material(recipe: Recipe, data: Path, base: str, on_event: Listener) -> Material:
    """What a recipe needs for its training, read and said. Blocks.

    Raises:
        UsageError: there are no samples, or the base is none that can be trained.
        FaultyRecord: a line is no sample.
        MissingExtra: what trains is not installed.
        ModelError: the base's tokenizer cannot be loaded, or refuses the messages.
    """
    here = place()
    emit = on_event if here.first else _silent
    if not (data / TRAIN).is_file():
        hint = "give a folder that colligate train curate made"
        raise MissingPath(f"there is no {data / TRAIN}", "", hint)
    libraries = sft.libraries()
    source = find_source(_target(base, emit))
    prompts = Prompts(load_tokenizer(source), base)
    if not prompts.has_template:
        text = f"{base} has no chat template: messages are joined as paragraphs, as at inference"
        emit(Noted(text, warning=True))
    cutoff = _cutoff(recipe, base, source, emit)
    train, held_out = _read(recipe, data, Encoder(prompts, base), cutoff, emit)

    def packs() -> int:
        return len(dataset(train.fitting, cutoff, True, libraries))

    how = sft.how(recipe, len(train.fitting), packs, here, libraries)
    _say(recipe, how, here, train, libraries, emit)
    files = [data / name for name in (TRAIN, HELD_OUT) if (data / name).is_file()]
    return Material(
        recipe=recipe,
        base=base,
        source=source,
        prompts=prompts,
        cutoff=cutoff,
        train=train,
        held_out=held_out,
        digests={file.name: file_digest(file) for file in files},
        how=how,
        place=here,
        libraries=libraries,
        emit=emit,
    )


def _target(base: str, emit: Listener) -> str:
    """Where the base is: a folder, a GGUF file or a hub name; pinned weights are pulled."""
    plain, adapter = split_adapter(base)
    kind, rest = split_name(plain)
    if kind != "hf" or not rest:
        why = "only models that transformers loads can be trained"
        raise UnknownModel(f"cannot train {base}", why, "give --base hf:NAME-OR-PATH")
    if adapter is not None:
        why = "it names an adapter, and a new one is trained on a base alone"
        raise UnknownModel(f"cannot train {base}", why, f"give --base {plain}")
    if rest in PINNED and not Path(rest).exists():
        return str(pull(rest, report_pull(Trace([emit])))["model"])
    return rest


def _cutoff(recipe: Recipe, base: str, source: ModelSource, emit: Listener) -> int:
    length = read_sizes(source)[0]
    if length is None or length >= recipe.cutoff:
        return recipe.cutoff
    text = f"cutoff {length:,} in place of {recipe.cutoff:,}: {base} was made for no more"
    emit(Noted(text, warning=True))
    return length


def _read(
    recipe: Recipe, data: Path, encoder: Encoder, cutoff: int, emit: Listener
) -> tuple[Encodings, Encodings]:
    """The samples of the recipe's tasks, to train on and kept aside, without those too long."""
    samples = list(read_samples(data / TRAIN, recipe.tasks))
    if not samples:
        there = Counter(sample.task for sample in read_samples(data / TRAIN))
        why = f"there are {', '.join(f'{n:,} of {task}' for task, n in there.items()) or 'none'}"
        what = f"{data / TRAIN} has no sample of {' or '.join(recipe.tasks)}"
        raise UsageError(what, why, "take another recipe or another --data")
    train = encoder.encode_all(samples, cutoff)
    if not train.fitting:
        why = (
            f"the shortest of {len(samples):,} samples has {min(train.too_long.values()):,} tokens"
        )
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
    kept = islice(read_samples(data / HELD_OUT, recipe.tasks), recipe.held_out)
    return train, encoder.encode_all(kept, cutoff)


def _say(
    recipe: Recipe,
    how: How,
    here: Place,
    train: Encodings,
    libraries: Libraries,
    emit: Listener,
) -> None:
    """What is going to be done, and what of the recipe cannot be."""
    passes = f"{recipe.steps:,} steps" if recipe.steps else f"{recipe.epochs:g} passes"
    method = f"LoRA of rank {recipe.rank}" if recipe.method == "lora" else "all parameters"
    emit(
        Noted(
            f"{method} on {len(train.fitting):,} samples ({train.tokens:,} tokens), {passes}, "
            f"{recipe.global_batch} samples a step, {how.precision}, {how.attention}"
        )
    )
    if recipe.packing and not how.packing:
        emit(Noted("samples are not packed: on a processor that saves nothing"))
    gpus = libraries.torch.cuda.device_count()
    if gpus > 1 and here.world == 1:
        file = configurations()["multi-gpu"]
        text = (
            f"one of {gpus} GPUs is used; all are with accelerate launch --config_file {file} "
            f"--num_processes {gpus} -m colligate train fit ..."
        )
        emit(Noted(text, warning=True))


def _silent(event: Event) -> None:
    pass


# What a training was made with, and what came of it: `fit.json` beside the adapter.

RECORD_FILE = "fit.json"

_PACKAGES = ("accelerate", "datasets", "deepspeed", "flash-attn", "trl")


@dataclass
class Fit:
    """A training, from its first session on.

    `made_with` is what a training has to be gone on with: recipe, settings, digests of base and
    data, how it is computed. `base` is the model's name, `recipe` the recipe's file as it was.
    `samples` and `left_out` are by file; what is left out was longer than the cutoff. `sessions`
    are the times it ran.
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


def read_fit(folder: Path) -> Fit | None:
    """The training that a folder holds, if any.

    Raises:
        ColligateError: its `fit.json` cannot be read.
    """
    file = folder / RECORD_FILE
    if not file.exists():
        return None
    try:
        whole = json.loads(file.read_text("utf-8"))
        known = {each.name for each in fields(Fit)}
        return Fit(**{name: value for name, value in whole.items() if name in known})
    except (OSError, ValueError, TypeError, AttributeError) as error:
        why = f"{type(error).__name__}: {error}"
        hint = "put back what stood there, or begin anew in another folder"
        raise ColligateError(f"{file} cannot be read", why, hint) from error


def write_fit(folder: Path, fit: Fit) -> None:
    """Put it down whole: a process killed meanwhile leaves what was there before. Blocks."""
    write_whole(folder / RECORD_FILE, [json.dumps(asdict(fit), ensure_ascii=False, indent=1)])


def all_versions() -> dict[str, str]:
    """Python's version, and those of the packages that take part."""
    found = versions()
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


# What is done while a training runs: its curve, its progress, its checkpoints' seals, its end.

_TIMED = 3  # steps, of which the first is slow, before it is said how long all will take


class Watch:
    """Follows one training. Only the first process has a curve, and speaks."""

    def __init__(
        self, curve: Curve | None, place: Place, stop: threading.Event, on_event: Listener
    ) -> None:
        self._curve = curve
        self._place = place
        self._stop = stop
        self._emit = on_event
        self._before = curve.seconds if curve is not None else 0.0
        self._began = self._first_step = 0.0
        self._steps = 0

    def begun(self) -> None:
        """Training begins, or goes on."""
        self._began = self._first_step = time.perf_counter()

    def logged(self, step: int, epoch: float, tokens: int, logs: dict[str, Any]) -> None:
        """Something was measured.

        Raises:
            ColligateError: the loss is no number.
        """
        loss, held_out = logs.get("loss"), logs.get("eval_loss")
        for value in (loss, held_out):
            if value is not None:
                finite(value, step)
        if self._curve is None or (loss is None and held_out is None):
            return
        self._curve.add(
            Measured(
                step=step,
                epoch=round(epoch, 4),
                tokens=int(tokens),
                seconds=round(self._before + time.perf_counter() - self._began, 2),
                loss=loss,
                lr=logs.get("learning_rate") if loss is not None else None,
                held_out_loss=held_out,
            )
        )

    def stepped(self, step: int, total: int, device: Any) -> bool:
        """A step is done; whether to save and stop."""
        self._steps += 1
        if self._steps == 1:
            self._first_step = time.perf_counter()
        elif self._steps == _TIMED and step < total:
            each = (time.perf_counter() - self._first_step) / (self._steps - 1)
            rest = (total - step) * each
            lasts = f"{rest / 60:,.0f} minutes" if rest > 90 else f"{rest:.0f} s"
            text = f"{each:.1f} s a step: {lasts} for the {total - step:,} left, and the held out"
            self._emit(Noted(text))
        return any_of(self._stop.is_set(), self._place.world, device)

    def progressed(self, step: int, total: int) -> None:
        """Tell how far it is."""
        measured = self._curve.measured if self._curve is not None else []
        loss = [m.loss for m in measured if m.loss is not None][-1:]
        held = [m.held_out_loss for m in measured if m.held_out_loss is not None][-1:]
        parts = (("loss", loss), ("held out", held))
        said = ", ".join(f"{name} {value:.3f}" for name, values in parts for value in values)
        self._emit(Progressed("training", step, total, said))

    def saved(self, checkpoint: Path) -> None:
        """All of a checkpoint was written, as far as this process knows."""
        wait_for_all(self._place.world)
        if self._place.first:
            seal(checkpoint)


def callback(watch: Watch, with_: Libraries) -> Any:
    """What the trainer calls, on behalf of a watch."""

    class Callback(with_.transformers.TrainerCallback):  # type: ignore[misc, name-defined]
        def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            watch.begun()

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
            watch.logged(state.global_step, state.epoch or 0.0, state.num_input_tokens_seen, logs)
            if logs and ("loss" in logs or "eval_loss" in logs):
                watch.progressed(state.global_step, state.max_steps)

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            last = state.global_step >= state.max_steps
            if watch.stepped(state.global_step, state.max_steps, args.device) or last:
                control.should_training_stop = control.should_save = control.should_log = True
            if not control.should_log:
                watch.progressed(state.global_step, state.max_steps)

        def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            watch.saved(Path(args.output_dir) / f"checkpoint-{state.global_step}")

    return Callback()


CHECKPOINTS = "checkpoints"

# Changes nothing of what is learnt, or is told by how it is computed.
_FREE = (
    *("save_every", "evaluate_every", "log_every", "held_out", "gradient_checkpointing"),
    *("precision", "packing"),
)
_ADAPTER = ("adapter_config.json", "adapter_model.safetensors")
# What a checkpoint holds besides the model.
_OF_TRAINING = (
    *("optimizer*", "scheduler.pt", "rng_state*", "scaler.pt", "trainer_state.json", "latest"),
    *("training_args.bin", "README.md", "zero_to_fp32.py", f"{SEAL}*"),
)


@dataclass(frozen=True)
class Fitted:
    """What came of a training.

    It is `finished` unless it was stopped after `step` of `steps`. Losses are means over tokens of
    replies, in nats: `loss` of the last step measured, `held_out_before` and `held_out_after` of
    samples kept aside (None without any). `tokens` and `seconds` are those of all sessions.
    `model` is the name by which colligate opens what was trained.
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

    def to_json(self) -> dict[str, Any]:
        """The result as `--json` prints it."""
        return {**asdict(self), "out": str(self.out)}


def fit(
    recipe: str | Recipe,
    data: Path,
    base: str,
    out: Path,
    settings: Sequence[str] = (),
    on_event: Listener = lambda event: None,
    *,
    arguments: Mapping[str, Any] | None = None,
) -> Fitted:
    """Train on the samples in the folder `data`; what was begun in `out` is gone on with.

    `base` is a model's name, `hf:NAME-OR-PATH`. `settings` are `NAME=VALUE`, in place of the
    recipe's. Blocks, and is to be called in the main thread: Ctrl-C then saves and stops. With
    several processes all of them call it, and the first one speaks.

    Raises:
        UsageError: recipe, settings, data or base cannot be meant, or `out` holds another training.
        FaultyRecord: a line of the data is no sample.
        MissingExtra: what trains is not installed.
        ModelError: the base cannot be loaded.
        ColligateError: a checkpoint is damaged, or training fails.
    """
    recipe = changed(read_recipe(recipe) if isinstance(recipe, str) else recipe, settings)
    made = material(recipe, data, base, on_event)
    _writable(out)
    with _held(out, made):
        record = _record(made, out)
        if record.finished:
            made.emit(Noted(f"the training in {out} is finished: nothing is left to do"))
        else:
            _train(made, out, record, dict(arguments or {}))
        return _fitted(made, out, record)


def _record(made: Material, out: Path) -> Fit:
    """The training that the folder holds, or a new one. Of several processes the first decides."""
    before = read_fit(out)
    if not made.place.first:
        return before or Fit({})
    made_with = _made_with(made)
    if before is None:
        return Fit(made_with, made.base, made.recipe.text)
    check_same(before.made_with, made_with, out)
    return before


def _made_with(made: Material) -> dict[str, Any]:
    """What a training has to be gone on with. Reads the base's files."""
    settings = made.recipe.settings
    whole = {
        "recipe": made.recipe.name,
        "settings": {name: settings[name] for name in settings if name not in _FREE},
        # Of weights that have a digest the place may be another.
        "base": weights_digest(made.base) or made.base,
        "data": dict(made.digests),
        "processes": made.place.world,
        **asdict(made.how),
    }
    as_read: dict[str, Any] = json.loads(json.dumps(whole))
    return as_read


def _train(made: Material, out: Path, record: Fit, arguments: Mapping[str, Any]) -> None:
    """One session of a training, until its end or until somebody stops it."""
    resume = _resume(made, out) if made.place.first else None
    done = step_of(resume) if resume else 0
    _begin(record, made, done, arguments)
    curve = Curve(out, done) if made.place.first else None
    with _trainer(made, out) as trainer:
        wait_for_all(made.place.world)
        if not made.place.first:
            resume = newest(out / CHECKPOINTS)  # which the first process has seen to
        record.parameters = asdict(parameters(trainer.model))
        if made.place.first:
            write_fit(out, record)
        record.step, record.steps = progress(resume) if resume else (0, 0)
        if resume is None or record.step < record.steps:
            with stopping(lambda: made.emit(_STOPPING), made.place) as stop:
                watch = Watch(curve, made.place, stop, made.emit)
                trainer.add_callback(callback(watch, made.libraries))
                trainer.args.eval_on_start = resume is None and bool(made.held_out.fitting)
                trainer.train(resume_from_checkpoint=str(resume) if resume else None)
            record.step, record.steps = trainer.state.global_step, trainer.state.max_steps
    record.finished = record.step >= record.steps
    if made.place.first:
        _end(record, made.recipe, out)
    wait_for_all(made.place.world)


def _trainer(made: Material, out: Path) -> Any:
    how, libraries = made.how, made.libraries
    return trainer(
        made.recipe,
        how,
        made.source,
        made.prompts.tokenizer,
        dataset(made.train.fitting, made.cutoff, how.packing, libraries),
        dataset(made.held_out.fitting, made.cutoff, False, libraries),
        out / CHECKPOINTS,
        made.place,
        libraries,
    )


def _resume(made: Material, out: Path) -> Path | None:
    """The checkpoint to go on from, none where there is none."""
    folder = out / CHECKPOINTS
    for torn in remove_torn(folder):
        text = f"{torn.name} was not whole: its writing was interrupted; it was removed"
        made.emit(Noted(text, warning=True))
    found = newest(folder)
    if found is not None:
        check(found)
        made.emit(Noted(f"going on from step {step_of(found):,}"))
    return found


def _begin(record: Fit, made: Material, done: int, arguments: Mapping[str, Any]) -> None:
    record.samples = {TRAIN: len(made.train.fitting), HELD_OUT: len(made.held_out.fitting)}
    record.left_out = {TRAIN: len(made.train.too_long), HELD_OUT: len(made.held_out.too_long)}
    record.versions = all_versions()
    session = {"began": utc_now(), "ended": "", "from_step": done, "commit": commit()}
    record.sessions.append({**session, "hardware": hardware(), "arguments": dict(arguments)})


def _end(record: Fit, recipe: Recipe, out: Path) -> None:
    """Put down what came of a session; at the end of all, the model too."""
    record.sessions[-1]["ended"] = utc_now()
    title = f"{recipe.title}: loss by step"
    if drawn := picture(read_curve(out / CURVES_FILE), title):
        (out / PICTURE).write_text(drawn, "utf-8")
    if record.finished:
        _keep_model(recipe, out / CHECKPOINTS / f"checkpoint-{record.step}", out)
    write_fit(out, record)


def _keep_model(recipe: Recipe, checkpoint: Path, out: Path) -> None:
    """Copy the model out of the last checkpoint, which is as it was at the end."""
    for file in sorted(each for each in checkpoint.iterdir() if each.is_file()):
        if file.name in _ADAPTER if recipe.method == "lora" else _is_of_model(file):
            fresh = out / f"{file.name}.new"
            shutil.copyfile(file, fresh)
            fresh.replace(out / file.name)


def _is_of_model(file: Path) -> bool:
    return not any(file.match(pattern) for pattern in _OF_TRAINING)


def _fitted(made: Material, out: Path, record: Fit) -> Fitted:
    curve = read_curve(out / CURVES_FILE)
    losses = [m.loss for m in curve if m.loss is not None]
    held_out = [m.held_out_loss for m in curve if m.held_out_loss is not None]
    full = made.recipe.method == "full"
    return Fitted(
        out=out,
        model=f"hf:{out}" if full else f"{made.base}+{out}",
        finished=record.finished,
        step=record.step,
        steps=record.steps,
        samples=len(made.train.fitting),
        left_out=len(made.train.too_long),
        loss=losses[-1] if losses else None,
        held_out_before=held_out[0] if held_out else None,
        held_out_after=held_out[-1] if held_out else None,
        tokens=curve[-1].tokens if curve else 0,
        seconds=curve[-1].seconds if curve else 0.0,
    )


def _writable(out: Path) -> None:
    """Make the folder, unless it holds a model that no training of colligate's made."""
    make_folder(out)
    foreign = [name for name in ("config.json", _ADAPTER[0]) if (out / name).exists()]
    if foreign and read_fit(out) is None:
        why = f"it has a {foreign[0]} and no record of a training"
        raise UsageError(f"{out} holds another model", why, "name another --out")


@contextmanager
def _held(out: Path, made: Material) -> Iterator[None]:
    """The folder for this training alone.

    Raises:
        UsageError: another has it.
    """
    if not made.place.first:
        yield
        return
    with lock_folder(out):
        yield


_STOPPING: Event = Noted("stopping after this step, which is saved; again stops at once", True)
