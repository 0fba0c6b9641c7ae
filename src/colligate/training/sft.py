"""Supervised fine-tuning, by TRL's trainer and peft; all that touches torch is here.

The samples come as tokens with labels, so that nothing is templated, cut or masked here.
"""

from __future__ import annotations

import errno
import math
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from colligate.errors import ColligateError, MissingExtra, UsageError
from colligate.models.hf.loading import (
    Source,
    bfloat16_on_processor,
    load_model,
    pretrained,
    transformers,
)
from colligate.training.encoding import Encoded
from colligate.training.launch import Place
from colligate.training.recipe import Recipe
from colligate.training.trainer import trainer_class

_FULL = (errno.ENOSPC, errno.EDQUOT)
_KEPT = 2  # checkpoints: the one being written, and the last whole one


class Libraries(NamedTuple):
    """What trains: imported when it does."""

    torch: Any
    transformers: Any
    peft: Any
    trl: Any
    datasets: Any


@dataclass(frozen=True)
class How:
    """What a recipe comes to on this machine.

    `precision` is that of the computation, "bfloat16" or "float32"; `accumulation` how many
    batches a device computes for one step.
    """

    precision: str
    attention: str
    packing: bool
    accumulation: int


@dataclass(frozen=True)
class Parameters:
    """How many numbers are trained, of how many."""

    trained: int
    all: int


def libraries() -> Libraries:
    """What trains, quiet.

    Raises:
        MissingExtra: one of them is not installed.
    """
    hugging = transformers()
    os.environ.setdefault("HF_DATASETS_DISABLE_PROGRESS_BARS", "1")
    try:
        with warnings.catch_warnings(action="ignore"):
            peft, trl, datasets = map(import_module, ("peft", "trl", "datasets"))
            trl.SFTTrainer, trl.SFTConfig  # noqa: B018  (imported when they are named)
    except ImportError as error:
        raise MissingExtra(
            "training needs trl, peft and datasets",
            f"{error.name or 'one of them'} is not installed",
            "pip install 'colligate[train]'",
        ) from error
    datasets.disable_progress_bars()
    return Libraries(import_module("torch"), hugging, peft, trl, datasets)


def how(
    recipe: Recipe, samples: int, packs: Callable[[], int], place: Place, with_: Libraries
) -> How:
    """What the recipe comes to for so many samples, and as many sequences once they are packed.

    Raises:
        UsageError: the global batch cannot be shared among the devices.
    """
    torch = with_.torch
    cuda = torch.cuda.is_available()
    can = torch.cuda.is_bf16_supported() if cuda else bfloat16_on_processor(torch)
    precision = recipe.precision
    if precision == "auto":
        precision = "bfloat16" if can else "float32"
    if precision == "bfloat16" and cuda and not can:
        raise UsageError("precision: bfloat16", "this GPU does not compute in it", "take float32")
    installed = with_.transformers.utils.is_flash_attn_2_available()
    flash = cuda and precision == "bfloat16" and installed
    # On a processor a packed sequence costs more than its samples one by one: attention grows
    # with the square of the length, and there is no idle hardware to fill.
    packing = recipe.packing and cuda
    together = recipe.device_batch * place.world
    wanted = recipe.global_batch
    if packing:
        wanted = max(together, round(wanted * packs() / samples / together) * together)
    if wanted % together:
        raise UsageError(
            f"global_batch: {wanted} samples cannot be shared evenly",
            f"there are {place.world} processes that take {recipe.device_batch} at a time",
            "change --set global_batch, --set device_batch, or the number of processes",
        )
    attention = "flash_attention_2" if flash else "sdpa"
    return How(precision, attention, packing, wanted // together)


def dataset(encoded: Sequence[Encoded], cutoff: int, packing: bool, with_: Libraries) -> Any:
    """The samples as TRL takes them: tokens and labels, and with packing several in a row."""
    columns = {"input_ids": [e.ids for e in encoded], "labels": [e.labels for e in encoded]}
    made = with_.datasets.Dataset.from_dict(columns)
    return with_.trl.pack_dataset(made, cutoff, "bfd") if packing else made


@contextmanager
def trainer(
    recipe: Recipe,
    how: How,
    source: Source,
    tokenizer: Any,
    train: Any,
    held_out: Any,
    folder: Path,
    place: Place,
    with_: Libraries,
) -> Iterator[Any]:
    """TRL's trainer, ready. What goes wrong while it is used is told in one line.

    Raises:
        ColligateError: the model cannot be loaded, or training fails.
    """
    try:
        with warnings.catch_warnings(action="ignore"):
            arguments = _arguments(recipe, how, bool(held_out), folder, with_)
            model = _model(recipe, how, source, place, with_)
            made = trainer_class(with_.trl)(
                model=model,
                args=arguments,
                train_dataset=train,
                eval_dataset=held_out or None,
                processing_class=tokenizer,
                peft_config=_lora(recipe, with_) if recipe.method == "lora" else None,
            )
            made.remove_callback(with_.transformers.PrinterCallback)
            yield made
    except ColligateError:
        raise
    except Exception as error:  # torch, TRL, peft and accelerate raise as they like.
        raise ColligateError(*_failed(error)) from error


def parameters(model: Any) -> Parameters:
    """How many numbers of a model are trained."""
    # A parameter that DeepSpeed has shared out says its whole size in `ds_numel`.
    sizes = [(getattr(p, "ds_numel", p.numel()), p.requires_grad) for p in model.parameters()]
    return Parameters(sum(n for n, trained in sizes if trained), sum(n for n, _ in sizes))


def _arguments(recipe: Recipe, how: How, measured: bool, folder: Path, with_: Libraries) -> Any:
    on_device = with_.torch.accelerator.is_available()
    arguments = with_.trl.SFTConfig(
        output_dir=str(folder),
        per_device_train_batch_size=recipe.device_batch,
        per_device_eval_batch_size=recipe.device_batch,
        gradient_accumulation_steps=how.accumulation,
        learning_rate=recipe.learning_rate,
        lr_scheduler_type={"constant": "constant_with_warmup"}.get(
            recipe.schedule, recipe.schedule
        ),
        warmup_steps=recipe.warmup,
        num_train_epochs=recipe.epochs,
        max_steps=recipe.steps or -1,
        weight_decay=recipe.weight_decay,
        max_grad_norm=recipe.max_grad_norm,
        bf16=how.precision == "bfloat16",
        use_cpu=not on_device,
        dataloader_pin_memory=on_device,
        gradient_checkpointing=recipe.gradient_checkpointing,
        # The samples are whole and not too long; those that are packed stand in rows already.
        packing=False,
        padding_free=how.packing,
        max_length=None,
        logging_steps=recipe.log_every,
        logging_first_step=True,
        logging_nan_inf_filter=False,
        include_num_input_tokens_seen="non_padding",
        eval_strategy="steps" if measured else "no",
        eval_steps=recipe.evaluate_every if measured else None,
        prediction_loss_only=True,
        save_strategy="steps",
        save_steps=recipe.save_every,
        save_total_limit=_KEPT,
        seed=recipe.seed,
        data_seed=recipe.seed,
        ddp_find_unused_parameters=False,
        report_to="none",
        disable_tqdm=True,
        log_level="error",
    )
    if arguments.n_gpu > 1:
        # Several GPUs and one process: one of them, not torch's DataParallel. Others are used
        # when accelerate starts a process for each.
        arguments._n_gpu = 1
    return arguments


def _model(recipe: Recipe, how: How, source: Source, place: Place, with_: Libraries) -> Any:
    """The base in the precision that its parameters are kept in."""
    # What is trained needs 32 bits to take small steps in; what is frozen does not. Where a
    # framework shares parameters out, they have to be alike.
    dtype = how.precision if recipe.method == "lora" and not place.sharded else "float32"
    if not place.sharded:
        model = load_model(source, device="cpu", dtype=dtype)
    else:
        kind = with_.transformers.AutoModelForCausalLM
        model = pretrained(kind, source, dtype=getattr(with_.torch, dtype))
    if source.gguf_file:
        # Its numbers are plain ones by now; else it is taken for one that cannot be trained.
        model.hf_quantizer.remove_quantization_config(model)
    if model.config._attn_implementation != how.attention:
        model.set_attn_implementation(how.attention)
    return model


def _lora(recipe: Recipe, with_: Libraries) -> Any:
    targets = recipe.targets if isinstance(recipe.targets, str) else list(recipe.targets)
    return with_.peft.LoraConfig(
        task_type="CAUSAL_LM",
        r=recipe.rank,
        lora_alpha=recipe.alpha,
        lora_dropout=recipe.dropout,
        target_modules=targets,
    )


def _failed(error: Exception) -> tuple[str, str, str]:
    lines = [line for line in str(error).splitlines() if line.strip()]
    why = lines[0][:300].rstrip(".") if lines else type(error).__name__
    if isinstance(error, MemoryError) or "out of memory" in str(error).lower():
        mend = "--set device_batch=1, gradient_checkpointing=true, or a smaller --set cutoff"
        return "training ran out of memory", why, mend
    # torch says no more than that it failed at writing.
    if getattr(error, "errno", None) in _FULL or "PytorchStreamWriter failed writing" in str(error):
        mend = "see that there is room for two checkpoints; the same command goes on"
        return "training could not write a checkpoint", why, mend
    return "training failed", f"{type(error).__name__}: {why}", ""


def finite(loss: float, step: int) -> float:
    """The loss, if it is a number.

    Raises:
        ColligateError: it is none: nothing can be learnt any more.
    """
    if not math.isfinite(loss):
        mend = "take a smaller --set learning_rate, or --set precision=float32"
        raise ColligateError(f"the loss of step {step} is no number", str(loss), mend)
    return loss
