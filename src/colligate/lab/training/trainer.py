"""TRL's trainer as colligate uses it: tokens, arguments, curve, checkpoints.

Importing this module needs the extra `train` and takes seconds; without the extra it raises
MissingExtra. Samples come to the trainer as tokens with labels, so that TRL templates, cuts and
masks nothing.
"""

from __future__ import annotations

import json
import math
import re
import shutil
import threading
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from colligate.core.events import Listener, Noted, Progressed
from colligate.errors import (
    ColligateError,
    MissingExtra,
    RequestRefused,
    UsageError,
    WeightsUnavailable,
)
from colligate.lab.jobs.files import json_line, sync_path, write_whole
from colligate.lab.training.recipes import Recipe
from colligate.lab.training.samples import Sample
from colligate.lab.training.scores import STEPS
from colligate.models import Message
from colligate.models.hf import loading
from colligate.models.prompts import Prompts

transformers = loading.import_transformers()
try:
    with warnings.catch_warnings(action="ignore"):
        import datasets
        import peft
        import torch
        from trl import SFTConfig, SFTTrainer
except ImportError as _error:
    raise MissingExtra(
        "training needs trl, peft and datasets",
        f"{_error.name or 'one of them'} is not installed",
        "pip install 'colligate[train]'",
    ) from _error
datasets.disable_progress_bars()

IGNORED = -100
"""The label of a token that is not learnt, as in torch."""

_KEPT_CHECKPOINTS = 2  # the one being written, and the last complete one


class ReplyTrainer(SFTTrainer):  # type: ignore[misc]
    """TRL's trainer without telemetry and model card, and with losses per token of the replies."""

    _nats = 0.0  # of the held-out samples
    _tokens = 0  # learnt in them

    def _send_telemetry(self) -> None:
        pass

    def create_model_card(self, *_: Any, **__: Any) -> None:
        pass

    def prediction_step(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        loss, *rest = super().prediction_step(model, inputs, *args, **kwargs)
        learnt = int((inputs["labels"][:, 1:] != IGNORED).sum())
        self._nats += float(loss) * learnt
        self._tokens += learnt
        return loss, *rest

    def evaluation_loop(self, *args: Any, **kwargs: Any) -> Any:
        # The Trainer's own loss is the mean over batches: a reply of three tokens would count as
        # much as one of three hundred, unlike in the loss that is trained.
        self._nats, self._tokens = 0.0, 0
        found = super().evaluation_loop(*args, **kwargs)
        found.metrics["eval_loss"] = self._nats / self._tokens
        return found


@contextmanager
def explain_failures() -> Iterator[None]:
    """Raise whatever goes wrong in a training as ColligateError, in one line; hide warnings."""
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    except ColligateError:
        raise
    except Exception as error:  # torch, TRL, peft and accelerate raise errors of any kind
        lines = [line for line in str(error).splitlines() if line.strip()]
        why = lines[0][:300].rstrip(".") if lines else type(error).__name__
        if isinstance(error, MemoryError) or "out of memory" in str(error).lower():
            hint = "--set device_batch=1, gradient_checkpointing=true, or a smaller --set cutoff"
            raise ColligateError("training ran out of memory", why, hint) from error
        raise ColligateError("training failed", f"{type(error).__name__}: {why}") from error


def open_trainer(inputs: TrainingInputs, folder: Path) -> ReplyTrainer:
    """Load the base and return its trainer, which writes checkpoints into `folder`."""
    recipe, held_out = inputs.recipe, build_dataset(inputs.held_out.fitting)
    return ReplyTrainer(
        model=_load_base(inputs),
        args=_arguments(recipe, inputs.computation, bool(held_out), folder),
        train_dataset=build_dataset(inputs.train.fitting),
        eval_dataset=held_out or None,
        processing_class=inputs.tokenizer,
        peft_config=_lora(recipe) if recipe.method == "lora" else None,
    )


COMMON: Mapping[str, Any] = {
    **{"save_strategy": "steps", "save_total_limit": _KEPT_CHECKPOINTS},
    **{"logging_nan_inf_filter": False, "report_to": "none"},
    **{"disable_tqdm": True, "log_level": "error"},
}
"""The arguments of every training: the observer reports, and nobody else does."""


# The names that transformers has for the schedules of recipes.
_SCHEDULES = {"cosine": "cosine", "linear": "linear", "constant": "constant_with_warmup"}


def _arguments(recipe: Recipe, computation: Computation, evaluates: bool, folder: Path) -> Any:
    on_device = torch.accelerator.is_available()
    arguments = SFTConfig(
        output_dir=str(folder),
        per_device_train_batch_size=recipe.device_batch,
        per_device_eval_batch_size=recipe.device_batch,
        gradient_accumulation_steps=computation.accumulation,
        learning_rate=recipe.learning_rate,
        lr_scheduler_type=_SCHEDULES[recipe.schedule],
        warmup_steps=recipe.warmup,
        num_train_epochs=recipe.epochs,
        max_steps=recipe.steps or -1,
        weight_decay=recipe.weight_decay,
        max_grad_norm=recipe.max_grad_norm,
        bf16=computation.precision == "bfloat16",
        use_cpu=not on_device,
        dataloader_pin_memory=on_device,
        gradient_checkpointing=recipe.gradient_checkpointing,
        max_length=None,  # samples are complete and not too long
        logging_steps=recipe.log_every,
        logging_first_step=True,
        include_num_input_tokens_seen="non_padding",
        eval_strategy="steps" if evaluates else "no",
        eval_steps=recipe.evaluate_every if evaluates else None,
        prediction_loss_only=True,
        save_steps=recipe.save_every,
        seed=recipe.seed,
        data_seed=recipe.seed,
        **COMMON,
    )
    if arguments.n_gpu > 1:
        # Torch's DataParallel would make other batches.
        arguments._n_gpu = 1
    return arguments


def _load_base(inputs: TrainingInputs) -> Any:
    recipe, computation, source = inputs.recipe, inputs.computation, inputs.source
    # Parameters that are trained need 32 bits for small steps, frozen ones do not.
    dtype = computation.precision if recipe.method == "lora" else "float32"
    model = loading.load_model(source, device="cpu", dtype=dtype)
    if source.gguf_file:
        # Its numbers are plain ones by now; otherwise peft takes it for a quantised model.
        model.hf_quantizer.remove_quantization_config(model)
    if model.config._attn_implementation != computation.attention:
        model.set_attn_implementation(computation.attention)
    return model


def _lora(recipe: Recipe) -> Any:
    return peft.LoraConfig(
        task_type="CAUSAL_LM",
        r=recipe.rank,
        lora_alpha=recipe.alpha,
        lora_dropout=recipe.dropout,
        target_modules=recipe.targets if isinstance(recipe.targets, str) else list(recipe.targets),
    )


@dataclass(frozen=True)
class Computation:
    """How a recipe is computed here; `accumulation` batches make one step."""

    precision: str  # "bfloat16" or "float32"
    attention: str
    accumulation: int


def plan_computation(recipe: Recipe) -> Computation:
    """Return how a recipe is computed; UsageError if batches or precision do not fit."""
    cuda = torch.cuda.is_available()
    has_bfloat16 = torch.cuda.is_bf16_supported() if cuda else loading.cpu_has_bfloat16(torch)
    precision = recipe.precision
    if precision == "auto":
        precision = "bfloat16" if has_bfloat16 else "float32"
    if precision == "bfloat16" and cuda and not has_bfloat16:
        raise UsageError("precision: bfloat16", "this GPU does not compute in it", "take float32")
    flash = cuda and precision == "bfloat16" and transformers.utils.is_flash_attn_2_available()
    accumulation, rest = divmod(recipe.global_batch, recipe.device_batch)
    if rest:
        raise UsageError(
            f"global_batch: {recipe.global_batch} samples cannot be shared evenly",
            f"{recipe.device_batch} are taken at a time",
            "change --set global_batch or --set device_batch",
        )
    return Computation(precision, "flash_attention_2" if flash else "sdpa", accumulation)


# Samples as tokens. The prompt's are those that `hf:` models get at inference, by the same code.
# The reply's follow as if the model had written them, with the token that ends its turn.

_PROBE = "REPLY"


@dataclass(frozen=True)
class Encoded:
    """The tokens of a sample; the first `prompt` of them are the prompt's."""

    ids: list[int]
    prompt: int

    @property
    def labels(self) -> list[int]:
        """For each token: itself if it is learnt, otherwise `IGNORED`."""
        return [IGNORED] * self.prompt + self.ids[self.prompt :]


@dataclass
class Encodings:
    """The samples that fit, in order, and the token counts of those that do not, by id."""

    fitting: list[Encoded] = field(default_factory=list)
    too_long: dict[str, int] = field(default_factory=dict)

    @property
    def tokens(self) -> int:
        """The number of tokens of all samples that fit."""
        return sum(len(each.ids) for each in self.fitting)


class Encoder:
    """Turns samples into tokens; WeightsUnavailable if the model has none that ends a reply."""

    def __init__(self, tokenizer: Any, name: str) -> None:
        self.prompts = Prompts(loading.HFTokenizer(tokenizer), name)
        self._end = _find_end_of_turn(self.prompts, tokenizer, name)

    def encode(self, sample: Sample) -> Encoded:
        """Return all tokens of a sample; RequestRefused if the chat template refuses it."""
        prompts = self.prompts
        # A reply that has a schema, or is a label, leaves no room for thinking.
        thinks = sample.task != "scope" and STEPS[sample.task].schema is None
        rendered = prompts.render(sample.prompt, think=thinks)
        # If a template opens the thinking itself, the reply begins by closing it.
        closing = "\n</think>\n\n" if prompts.opens_thinking(rendered) else ""
        prompt = prompts.encode(rendered)
        reply = prompts.encode_literal(closing + sample.target)
        return Encoded([*prompt, *reply, self._end], len(prompt))

    def encode_all(self, samples: Iterable[Sample], cutoff: int) -> Encodings:
        """Encode the samples of at most `cutoff` tokens: inference never sends one that is cut."""
        made = Encodings()
        for sample in samples:
            encoded = self.encode(sample)
            if len(encoded.ids) > cutoff:
                made.too_long[sample.id] = len(encoded.ids)
            else:
                made.fitting.append(encoded)
        return made


def _find_end_of_turn(prompts: Prompts, tokenizer: Any, name: str) -> int:
    """Return the token that the template puts after a reply; inference stops at it."""
    if prompts.has_template:
        turns = [Message("user", "."), Message("assistant", _PROBE)]
        special = {i for i, t in tokenizer.added_tokens_decoder.items() if t.special}
        with suppress(RequestRefused):
            after = prompts.render(turns, answer=False).rpartition(_PROBE)[2]
            for token in prompts.encode(after):
                if token in special:
                    return token
    end: int | None = tokenizer.eos_token_id
    if end is None:
        why = "neither its chat template nor its tokenizer has a token that ends a reply"
        raise WeightsUnavailable(f"cannot train {name}", why, "take an instruction-tuned model")
    return end


def build_dataset(encoded: Sequence[Encoded]) -> Any:
    """Return the samples as TRL takes them: tokens and labels."""
    columns = {"input_ids": [e.ids for e in encoded], "labels": [e.labels for e in encoded]}
    return datasets.Dataset.from_dict(columns)


@dataclass(frozen=True)
class TrainingInputs:
    """All that a training starts from; `digests` are those of the files of samples, by name."""

    recipe: Recipe
    base: str
    source: loading.ModelSource
    tokenizer: Any
    train: Encodings
    held_out: Encodings
    digests: Mapping[str, str]
    computation: Computation
    emit: Listener


class TrainingObserver(transformers.TrainerCallback):  # type: ignore[misc, name-defined]
    """Writes the curve, reports progress, seals checkpoints, and stops a training when asked."""

    def __init__(self, curve: Path, stop: threading.Event, emit: Listener) -> None:
        self._curve, self._stop, self._emit = curve, stop, emit
        self._seconds_before = self._began = 0.0

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        # A checkpoint has the log up to its step: what was measured after it is measured again.
        points = [_to_point(entry) for entry in state.log_history if _has_loss(entry)]
        write_whole(self._curve, map(json_line, points))
        self._seconds_before = points[-1]["seconds"] if points else 0.0
        self._began = time.perf_counter()

    def on_log(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        entry = state.log_history[-1]
        if not _has_loss(entry):
            return
        for loss in (entry.get("loss", 0.0), entry.get("eval_loss", 0.0)):
            if not math.isfinite(loss):
                what = f"the loss of step {state.global_step} is not a number"
                hint = "take a smaller --set learning_rate, or --set precision=float32"
                raise ColligateError(what, str(loss), hint)
        entry["seconds"] = round(self._seconds_before + time.perf_counter() - self._began, 2)
        with self._curve.open("a", encoding="utf-8") as out:
            out.write(json_line(_to_point(entry)))
        self._report(state)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self._stop.is_set() or state.global_step >= state.max_steps:
            control.should_training_stop = control.should_save = control.should_log = True
        if not control.should_log:
            self._report(state)

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        mark_whole(Path(args.output_dir) / f"checkpoint-{state.global_step}")

    def _report(self, state: Any) -> None:
        found = []
        for key, name in (("loss", "loss"), ("eval_loss", "held out")):
            last = next((e[key] for e in reversed(state.log_history) if key in e), None)
            found += [] if last is None else [f"{name} {last:.3f}"]
        self._emit(Progressed("training", state.global_step, state.max_steps, ", ".join(found)))


def _has_loss(entry: Mapping[str, Any]) -> bool:
    return "loss" in entry or "eval_loss" in entry


# The curve has a line for each measurement. `loss` is the mean negative log-likelihood (nats) of
# the reply tokens learnt since the last line, `held_out_loss` that of held-out samples, `lr` the
# learning rate. `tokens` and `seconds` count from the beginning, over all sessions.
def _to_point(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return the line of the curve for an entry of the trainer's log."""
    point = {
        "step": entry["step"],
        "epoch": round(entry.get("epoch", 0.0), 4),
        "tokens": int(entry.get("num_input_tokens_seen", 0)),
        "seconds": entry.get("seconds", 0.0),
    }
    named = {"loss": "loss", "learning_rate": "lr", "eval_loss": "held_out_loss"}
    return point | {name: entry[key] for key, name in named.items() if key in entry}


def read_curve(file: Path) -> list[dict[str, Any]]:
    """Read the lines of a curve; empty if there is no file."""
    return list(map(json.loads, file.read_bytes().splitlines())) if file.is_file() else []


# Checkpoints. The trainer resumes from one that is cut off without noticing: `whole.json` has the
# bytes of each file of one that was written to its end. One without it was being written when the
# process was killed; one that differs from it was damaged later, which is an error.

MARK = "whole.json"
_NAME = re.compile(r"checkpoint-\d+")


def step_of(checkpoint: Path) -> int:
    """Return how many steps were done when a checkpoint was written."""
    return int(checkpoint.name.removeprefix("checkpoint-"))


def mark_whole(checkpoint: Path) -> None:
    """Record that all of a checkpoint is on the disk. Blocks."""
    for file in checkpoint.rglob("*"):
        sync_path(file)
    write_whole(checkpoint / MARK, [json.dumps(_list_sizes(checkpoint))])


def find_checkpoint(folder: Path, emit: Listener) -> Path | None:
    """Return the last complete checkpoint, if any; remove others; fail if it was damaged."""
    found = [each for each in folder.glob("checkpoint-*") if _NAME.fullmatch(each.name)]
    for each in found:
        if not (each / MARK).is_file():
            text = f"{each.name} was not complete: its writing was interrupted; it was removed"
            emit(Noted(text, warning=True))
            shutil.rmtree(each)
    last = max((each for each in found if each.exists()), key=step_of, default=None)
    if last is not None:
        _check_sizes(last)
    return last


def _check_sizes(checkpoint: Path) -> None:
    what = f"the checkpoint {checkpoint} is damaged"
    hint = "delete that folder, and the same command resumes from an earlier one or the start"
    try:
        wanted = dict(json.loads((checkpoint / MARK).read_bytes()))
    except (OSError, ValueError, TypeError) as error:
        raise ColligateError(what, f"its {MARK} cannot be read", hint) from error
    if changed := sorted(name for name, _ in wanted.items() - _list_sizes(checkpoint).items()):
        raise ColligateError(what, f"{changed[0]} is missing or has another size", hint)


def _list_sizes(checkpoint: Path) -> dict[str, int]:
    files = sorted(each for each in checkpoint.rglob("*") if each.is_file() and each.name != MARK)
    return {file.relative_to(checkpoint).as_posix(): file.stat().st_size for file in files}
