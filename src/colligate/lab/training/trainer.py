"""TRL's trainer as colligate uses it: tokens, arguments, curve, checkpoints.

Importing this module needs the extra `train` and takes seconds; without the extra it raises
MissingExtra. Samples come to the trainer as tokens with labels, so that TRL templates, cuts and
masks nothing.
"""

from __future__ import annotations

import errno
import json
import math
import re
import shutil
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from colligate.core.events import Listener, Progressed
from colligate.errors import (
    ColligateError,
    MissingExtra,
    RequestRefused,
    UsageError,
    WeightsUnavailable,
)
from colligate.lab.jobs.files import JsonlReader, json_line, sync_path, write_whole
from colligate.lab.training.recipes import SCHEDULES, Recipe
from colligate.lab.training.samples import Sample
from colligate.models import Message
from colligate.models.hf.loading import (
    HFTokenizer,
    ModelSource,
    cpu_has_bfloat16,
    import_transformers,
    load_model,
    load_pretrained,
)
from colligate.models.prompts import Prompts
from colligate.models.weights import hash_file

transformers = import_transformers()
try:
    with warnings.catch_warnings(action="ignore"):
        import datasets
        import peft
        import torch
        from trl import SFTConfig, SFTTrainer, pack_dataset
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

    def compute_loss(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        if not self.args.use_cpu or "shift_labels" in inputs:
            return super().compute_loss(model, inputs, *args, **kwargs)
        with score_replies_only(self.accelerator.unwrap_model(model), inputs) as fewer:
            return super().compute_loss(model, fewer, *args, **kwargs)

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
        own = torch.tensor([self._nats, float(self._tokens)], device=self.args.device)
        nats, tokens = self.accelerator.gather(own).view(-1, 2).sum(dim=0).tolist()
        found.metrics["eval_loss"] = nats / tokens
        return found


@contextmanager
def score_replies_only(model: Any, inputs: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Change a batch so that the model scores the vocabulary only where something is learnt.

    On a GPU TRL does this itself. On a processor it does not, and the prompts, nine tenths of the
    tokens, would cost a quarter of the time for nothing.
    """
    labels = inputs["labels"][:, 1:]
    learnt = (labels != IGNORED).any(dim=0).nonzero().flatten()

    def keep(module: Any, args: Any, output: Any) -> Any:
        output.last_hidden_state = output.last_hidden_state[:, learnt]
        return output

    causal = model.get_base_model() if hasattr(model, "get_base_model") else model
    with causal.base_model.register_forward_hook(keep):
        rest = {name: value for name, value in inputs.items() if name != "labels"}
        yield {**rest, "shift_labels": labels[:, learnt]}


@dataclass(frozen=True)
class TrainedBase:
    """The weights that a training begins with, which FSDP or DeepSpeed may share out."""

    source: ModelSource
    tokenizer: Any
    sharded: bool = False


@contextmanager
def open_trainer(
    recipe: Recipe,
    computation: Computation,
    base: TrainedBase,
    samples: tuple[Any, Any],
    folder: Path,
) -> Iterator[ReplyTrainer]:
    """Load the base and yield its trainer, which writes checkpoints into `folder`.

    `samples` are the data sets to train on and held out. Whatever goes wrong until the end is
    raised as ColligateError, in one line.
    """
    try:
        with warnings.catch_warnings(action="ignore"):
            trainer = ReplyTrainer(
                model=_load_base(recipe, computation, base),
                args=_arguments(recipe, computation, bool(samples[1]), folder),
                train_dataset=samples[0],
                eval_dataset=samples[1] or None,
                processing_class=base.tokenizer,
                peft_config=_lora(recipe) if recipe.method == "lora" else None,
            )
            trainer.remove_callback(transformers.PrinterCallback)
            yield trainer
    except ColligateError:
        raise
    except Exception as error:  # torch, TRL, peft and accelerate raise errors of any kind
        raise _training_error(error) from error


def _arguments(recipe: Recipe, computation: Computation, evaluates: bool, folder: Path) -> Any:
    on_device = torch.accelerator.is_available()
    arguments = SFTConfig(
        output_dir=str(folder),
        per_device_train_batch_size=recipe.device_batch,
        per_device_eval_batch_size=recipe.device_batch,
        gradient_accumulation_steps=computation.accumulation,
        learning_rate=recipe.learning_rate,
        lr_scheduler_type=SCHEDULES[recipe.schedule],
        warmup_steps=recipe.warmup,
        num_train_epochs=recipe.epochs,
        max_steps=recipe.steps or -1,
        weight_decay=recipe.weight_decay,
        max_grad_norm=recipe.max_grad_norm,
        bf16=computation.precision == "bfloat16",
        use_cpu=not on_device,
        dataloader_pin_memory=on_device,
        gradient_checkpointing=recipe.gradient_checkpointing,
        # Samples are complete and not too long; packed ones are already in rows.
        packing=False,
        padding_free=computation.packing,
        max_length=None,
        logging_steps=recipe.log_every,
        logging_first_step=True,
        logging_nan_inf_filter=False,
        include_num_input_tokens_seen="non_padding",
        eval_strategy="steps" if evaluates else "no",
        eval_steps=recipe.evaluate_every if evaluates else None,
        prediction_loss_only=True,
        save_strategy="steps",
        save_steps=recipe.save_every,
        save_total_limit=_KEPT_CHECKPOINTS,
        seed=recipe.seed,
        data_seed=recipe.seed,
        ddp_find_unused_parameters=False,
        report_to="none",
        disable_tqdm=True,
        log_level="error",
    )
    if arguments.n_gpu > 1:
        # One process uses one GPU, not torch's DataParallel; accelerate starts one for each GPU.
        arguments._n_gpu = 1
    return arguments


def _load_base(recipe: Recipe, computation: Computation, base: TrainedBase) -> Any:
    source, sharded = base.source, base.sharded
    # Parameters that are trained need 32 bits for small steps, frozen ones do not. A framework
    # that shares parameters out needs all of them alike.
    dtype = computation.precision if recipe.method == "lora" and not sharded else "float32"
    if sharded:
        kind = transformers.AutoModelForCausalLM
        model = load_pretrained(kind, source, dtype=getattr(torch, dtype))
    else:
        model = load_model(source, device="cpu", dtype=dtype)
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


def _training_error(error: Exception) -> ColligateError:
    lines = [line for line in str(error).splitlines() if line.strip()]
    why = lines[0][:300].rstrip(".") if lines else type(error).__name__
    if isinstance(error, MemoryError) or "out of memory" in str(error).lower():
        hint = "--set device_batch=1, gradient_checkpointing=true, or a smaller --set cutoff"
        return ColligateError("training ran out of memory", why, hint)
    full = getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT)
    if full or "PytorchStreamWriter failed writing" in str(error):  # torch gives no errno
        hint = "check that there is room for two checkpoints, then repeat the command to resume"
        return ColligateError("training could not write a checkpoint", why, hint)
    return ColligateError("training failed", f"{type(error).__name__}: {why}")


# How a recipe is computed on this machine.


@dataclass(frozen=True)
class Computation:
    """How a recipe is computed here; `accumulation` batches of a device make one step."""

    precision: str  # "bfloat16" or "float32"
    attention: str
    packing: bool
    accumulation: int


@dataclass(frozen=True)
class Device:
    """The device of a process, a CUDA GPU or a processor, and how many GPUs there are."""

    gpus: int = 0
    bfloat16: bool = True
    flash_attention: bool = False

    @property
    def cuda(self) -> bool:
        """Whether it is a GPU."""
        return self.gpus > 0


def detect_device() -> Device:
    """Return the device that this process trains on."""
    cuda = torch.cuda.is_available()
    return Device(
        torch.cuda.device_count() if cuda else 0,
        torch.cuda.is_bf16_supported() if cuda else cpu_has_bfloat16(torch),
        transformers.utils.is_flash_attn_2_available(),
    )


def plan_computation(
    recipe: Recipe, samples: int, count_packs: Callable[[], int], processes: int, device: Device
) -> Computation:
    """Return how a recipe with so many samples is computed by so many processes.

    `count_packs` returns how many sequences the samples make when packed. UsageError if the global
    batch cannot be shared among the processes, or the GPU lacks the precision.
    """
    precision = recipe.precision
    if precision == "auto":
        precision = "bfloat16" if device.bfloat16 else "float32"
    if precision == "bfloat16" and device.cuda and not device.bfloat16:
        raise UsageError("precision: bfloat16", "this GPU does not compute in it", "take float32")
    flash = device.cuda and precision == "bfloat16" and device.flash_attention
    # On a processor a packed sequence costs more than its samples one by one: attention grows
    # with the square of the length, and there is no idle hardware to fill.
    packing = recipe.packing and device.cuda
    at_once = recipe.device_batch * processes
    batch = recipe.global_batch
    if packing:
        batch = max(at_once, round(batch * count_packs() / samples / at_once) * at_once)
    if batch % at_once:
        raise UsageError(
            f"global_batch: {batch} samples cannot be shared evenly",
            f"there are {processes} processes that take {recipe.device_batch} at a time",
            "change --set global_batch, --set device_batch, or the number of processes",
        )
    attention = "flash_attention_2" if flash else "sdpa"
    return Computation(precision, attention, packing, batch // at_once)


# Samples as tokens. The prompt's are those that `hf:` models get at inference, by the same code.
# The reply's follow as if the model had written them, with the token that ends its turn.

# Inference asks these with a schema, or for the odds of labels: no room for thinking.
_WITHOUT_THINKING = frozenset({"scope", "reasoner", "identifier", "summarizer"})
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
    """Turns samples into tokens of one model.

    WeightsUnavailable if the model has no token that ends a reply: it could not learn to stop.
    """

    def __init__(self, tokenizer: Any, name: str) -> None:
        self.prompts = Prompts(HFTokenizer(tokenizer), name)
        self._end = _find_end_of_turn(self.prompts, tokenizer, name)

    def encode(self, sample: Sample) -> Encoded:
        """Return all tokens of a sample; RequestRefused if the chat template refuses it."""
        prompts = self.prompts
        rendered = prompts.render(sample.prompt, think=sample.task not in _WITHOUT_THINKING)
        # If a template opens the thinking itself, the reply begins by closing it.
        closing = "\n</think>\n\n" if prompts.opens_thinking(rendered) else ""
        prompt = prompts.encode(rendered)
        reply = prompts.encode_literal(closing + sample.target)
        return Encoded([*prompt, *reply, self._end], len(prompt))

    def encode_all(self, samples: Iterable[Sample], cutoff: int) -> Encodings:
        """Encode the samples of at most `cutoff` tokens; longer ones are left out.

        They are not cut: inference never sends a cut prompt, and a cut reply teaches never to end.
        """
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


def build_dataset(encoded: Sequence[Encoded], cutoff: int, *, packing: bool) -> Any:
    """Return the samples as TRL takes them: tokens and labels; if packed, several in a row."""
    columns = {"input_ids": [e.ids for e in encoded], "labels": [e.labels for e in encoded]}
    made = datasets.Dataset.from_dict(columns)
    return pack_dataset(made, cutoff, "bfd") if packing else made


# While a training runs.


class TrainingObserver(transformers.TrainerCallback):  # type: ignore[misc, name-defined]
    """Writes the curve, reports progress, seals checkpoints, and stops a training when asked.

    The first process writes and reports; `emit` of the others must do nothing.
    """

    def __init__(
        self, accelerator: Any, curve: Path, stop: threading.Event, emit: Listener
    ) -> None:
        self._accelerator, self._curve, self._stop, self._emit = accelerator, curve, stop, emit
        self._seconds_before = self._began = 0.0

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        # A checkpoint has the log up to its step: what was measured after it is measured again.
        points = [CurvePoint.from_log(entry) for entry in state.log_history if _has_loss(entry)]
        if state.is_world_process_zero:
            write_whole(self._curve, (json_line(point.to_json()) for point in points))
        self._seconds_before = points[-1].seconds if points else 0.0
        self._began = time.perf_counter()

    def on_log(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        entry = state.log_history[-1]
        if not _has_loss(entry):
            return
        for name in ("loss", "eval_loss"):
            require_finite(entry.get(name, 0.0), state.global_step)
        entry["seconds"] = round(self._seconds_before + time.perf_counter() - self._began, 2)
        if state.is_world_process_zero:
            with self._curve.open("a", encoding="utf-8") as out:
                out.write(json_line(CurvePoint.from_log(entry).to_json()))
        self._report(state)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self._stop.is_set():
            self._accelerator.set_trigger()
        # Every process must ask: the trigger of one of them stops all.
        if self._accelerator.check_trigger() or state.global_step >= state.max_steps:
            control.should_training_stop = control.should_save = control.should_log = True
        if not control.should_log:
            self._report(state)

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._accelerator.wait_for_everyone()
        if state.is_world_process_zero:
            seal_checkpoint(Path(args.output_dir) / f"checkpoint-{state.global_step}")

    def _report(self, state: Any) -> None:
        found = []
        for key, name in (("loss", "loss"), ("eval_loss", "held out")):
            last = next((e[key] for e in reversed(state.log_history) if key in e), None)
            found += [] if last is None else [f"{name} {last:.3f}"]
        self._emit(Progressed("training", state.global_step, state.max_steps, ", ".join(found)))


def _has_loss(entry: Mapping[str, Any]) -> bool:
    return "loss" in entry or "eval_loss" in entry


def require_finite(loss: float, step: int) -> None:
    """Raise ColligateError if a loss is not a finite number: nothing can be learnt any more."""
    if not math.isfinite(loss):
        hint = "take a smaller --set learning_rate, or --set precision=float32"
        raise ColligateError(f"the loss of step {step} is not a number", str(loss), hint)


# The curve: a line of `curve.jsonl` for each measurement.


@dataclass(frozen=True)
class CurvePoint:
    """The measurements after a step.

    `loss` is the mean negative log-likelihood (nats) of the reply tokens learnt since the last
    point, `held_out_loss` that of the held-out samples; a point has one of them or both. `lr` is
    the learning rate. `tokens` and `seconds` count from the beginning, over all sessions.
    """

    step: int
    epoch: float
    tokens: int
    seconds: float
    loss: float | None = None
    lr: float | None = None
    held_out_loss: float | None = None

    @classmethod
    def from_log(cls, entry: Mapping[str, Any]) -> CurvePoint:
        """Return the point of an entry of the trainer's `log_history`."""
        return cls(
            step=entry["step"],
            epoch=round(entry.get("epoch", 0.0), 4),
            tokens=int(entry.get("num_input_tokens_seen", 0)),
            seconds=entry.get("seconds", 0.0),
            loss=entry.get("loss"),
            lr=entry.get("learning_rate"),
            held_out_loss=entry.get("eval_loss"),
        )

    def to_json(self) -> dict[str, Any]:
        """Return the point as a line holds it, without what was not measured."""
        return {key: value for key, value in asdict(self).items() if value is not None}


def read_curve(file: Path) -> list[CurvePoint]:
    """Read a curve, also one whose last line was cut off; empty if there is no file."""
    return list(_POINTS.read(file)) if file.is_file() else []


_POINTS = JsonlReader(
    lambda line: CurvePoint(**line), "a line of a curve", "delete the line, or the file"
)


# Checkpoints. One is sealed when all of it is on the disk: `whole.json` has the size and SHA-256 of
# each file. One without a seal was being written when the process was killed: it is removed and
# the one before it counts. One that differs from its seal was damaged later: that is an error, and
# training does not resume from it or from an earlier one.

SEAL = "whole.json"
_NAME = re.compile(r"checkpoint-\d+")


def list_checkpoints(folder: Path) -> list[Path]:
    """Return the checkpoints of a folder by step, sealed or not."""
    if not folder.is_dir():
        return []
    found = (each for each in folder.iterdir() if each.is_dir() and _NAME.fullmatch(each.name))
    return sorted(found, key=step_of)


def step_of(checkpoint: Path) -> int:
    """Return how many steps were done when a checkpoint was written."""
    return int(checkpoint.name.removeprefix("checkpoint-"))


def seal_checkpoint(checkpoint: Path) -> None:
    """Record that a checkpoint is complete. Blocks."""
    files = sorted(f for f in checkpoint.rglob("*") if f.is_file() and f.name != SEAL)
    for file in files:
        sync_path(file)
    digests = {
        file.relative_to(checkpoint).as_posix(): {
            "bytes": file.stat().st_size,
            "sha256": hash_file(file),
        }
        for file in files
    }
    write_whole(checkpoint / SEAL, [json.dumps(digests, indent=1)])


def remove_unsealed(folder: Path) -> list[Path]:
    """Remove the checkpoints without a seal and return their paths."""
    torn = [each for each in list_checkpoints(folder) if not (each / SEAL).is_file()]
    for each in torn:
        shutil.rmtree(each)
    return torn


def find_newest(folder: Path) -> Path | None:
    """Return the last sealed checkpoint, if any, without checking its files."""
    sealed = [each for each in list_checkpoints(folder) if (each / SEAL).is_file()]
    return sealed[-1] if sealed else None


def check_seal(checkpoint: Path) -> None:
    """Compare every byte of a checkpoint with its seal; ColligateError names a damaged file."""
    earlier = [e for e in list_checkpoints(checkpoint.parent) if step_of(e) < step_of(checkpoint)]
    after = f"from {earlier[-1].name}" if earlier else "from the start"
    hint = f"delete that folder, and the same command resumes {after}"

    def damaged(why: str) -> ColligateError:
        return ColligateError(f"the checkpoint {checkpoint} is damaged", why, hint)

    try:
        digests = json.loads((checkpoint / SEAL).read_text("utf-8"))
        wanted = {str(name): (int(f["bytes"]), str(f["sha256"])) for name, f in digests.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise damaged(f"its {SEAL} cannot be read") from error
    for name, (size, digest) in wanted.items():
        file = checkpoint / name
        try:
            if file.stat().st_size != size:
                raise damaged(f"{name} has {file.stat().st_size:,} bytes and had {size:,}")
            if hash_file(file) != digest:
                raise damaged(f"{name} has changed since it was written")
        except OSError as error:
            raise damaged(f"{name} cannot be read ({error.strerror or error})") from error
