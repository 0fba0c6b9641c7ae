"""Fitting an adapter, or a whole model, to samples: `colligate train fit`.

The folder that comes of it holds what `hf:BASE+FOLDER` (LoRA) or `hf:FOLDER` (full) loads, the
record `fit.json`, the curve, and the checkpoints that the same command goes on from.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from colligate.errors import UsageError
from colligate.evaluation import out_folder
from colligate.evaluation.identity import weights_digest
from colligate.evaluation.machine import commit, hardware
from colligate.strategies.trace import Event, Listener, Noted
from colligate.training import checkpoints, sft
from colligate.training.curves import FILE as CURVE
from colligate.training.curves import PICTURE, Curve, picture, read_curve
from colligate.training.going_on import hold_to
from colligate.training.launch import stopping, wait_for_all
from colligate.training.material import Material, material
from colligate.training.recipe import Recipe, changed, read_recipe
from colligate.training.record import Fit, all_versions, read_fit, write_fit
from colligate.training.samples import HELD_OUT, TRAIN
from colligate.training.watching import Watch, callback

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
    *("training_args.bin", "README.md", "zero_to_fp32.py", f"{checkpoints.SEAL}*"),
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
    hold_to(before.made_with, made_with, out, "a training")
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
    done = checkpoints.step_of(resume) if resume else 0
    _begin(record, made, done, arguments)
    curve = Curve(out, done) if made.place.first else None
    with _trainer(made, out) as trainer:
        wait_for_all(made.place.world)
        if not made.place.first:
            resume = checkpoints.newest(out / CHECKPOINTS)  # which the first process has seen to
        record.parameters = asdict(sft.parameters(trainer.model))
        if made.place.first:
            write_fit(out, record)
        record.step, record.steps = checkpoints.progress(resume) if resume else (0, 0)
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
    return sft.trainer(
        made.recipe,
        how,
        made.source,
        made.prompts.tokenizer,
        sft.dataset(made.train.fitting, made.cutoff, how.packing, libraries),
        sft.dataset(made.held_out.fitting, made.cutoff, False, libraries),
        out / CHECKPOINTS,
        made.place,
        libraries,
    )


def _resume(made: Material, out: Path) -> Path | None:
    """The checkpoint to go on from, none where there is none."""
    folder = out / CHECKPOINTS
    for torn in checkpoints.remove_torn(folder):
        text = f"{torn.name} was not whole: its writing was interrupted; it was removed"
        made.emit(Noted(text, warning=True))
    found = checkpoints.newest(folder)
    if found is not None:
        checkpoints.check(found)
        made.emit(Noted(f"going on from step {checkpoints.step_of(found):,}"))
    return found


def _begin(record: Fit, made: Material, done: int, arguments: Mapping[str, Any]) -> None:
    record.samples = {TRAIN: len(made.train.fitting), HELD_OUT: len(made.held_out.fitting)}
    record.left_out = {TRAIN: len(made.train.too_long), HELD_OUT: len(made.held_out.too_long)}
    record.versions = all_versions()
    session = {"began": _now(), "ended": "", "from_step": done, "commit": commit()}
    record.sessions.append({**session, "hardware": hardware(), "arguments": dict(arguments)})


def _end(record: Fit, recipe: Recipe, out: Path) -> None:
    """Put down what came of a session; at the end of all, the model too."""
    record.sessions[-1]["ended"] = _now()
    title = f"{recipe.title}: loss by step"
    (out / PICTURE).write_text(picture(read_curve(out / CURVE), title), "utf-8")
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
    curve = read_curve(out / CURVE)
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
    out_folder.make(out)
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
    with out_folder.held(out, "trains"):
        yield


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


_STOPPING: Event = Noted("stopping after this step, which is saved; again stops at once", True)
