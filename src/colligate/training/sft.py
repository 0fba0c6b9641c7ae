"""Supervised fine-tuning, by TRL's trainer and peft; all that touches torch is here.

The samples come as tokens with labels, so that nothing is templated, cut or masked here.
"""

from __future__ import annotations

import errno
import math
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from colligate.errors import (
    ColligateError,
    MissingExtra,
    RequestRefused,
    UsageError,
    WeightsUnavailable,
)
from colligate.models import Message
from colligate.models.hf.loading import (
    ModelSource,
    cpu_has_bfloat16,
    import_transformers,
    load_model,
    load_pretrained,
)
from colligate.models.hf.prompts import Prompts
from colligate.training.launch import Place
from colligate.training.recipes import Recipe
from colligate.training.samples import Sample

# Samples as the tokens a model learns from.
#
# The prompt's are those that `hf:` models are given at inference, by the same code; the reply's
# follow as they would if the model wrote them, with the token that ends its turn. Only the reply
# is
# learnt.

IGNORED = -100
"""The label of a token that is not learnt, as torch has it."""

# Asked with a schema, or for the odds of labels: their prompts leave no room for thinking.
_HELD = frozenset({"scope", "reasoner", "identifier", "summarizer"})
_PROBE = "REPLY"


@dataclass(frozen=True)
class Encoded:
    """A sample's tokens; the first `prompt` of them are the prompt's."""

    ids: list[int]
    prompt: int

    @property
    def labels(self) -> list[int]:
        """For each token what is to be learnt there: itself, or nothing (`IGNORED`)."""
        return [IGNORED] * self.prompt + self.ids[self.prompt :]


@dataclass
class Encodings:
    """Samples that fit, in order, and the ids of those that were too long, with their tokens."""

    fitting: list[Encoded] = field(default_factory=list)
    too_long: dict[str, int] = field(default_factory=dict)

    @property
    def tokens(self) -> int:
        """Of all that fit."""
        return sum(len(each.ids) for each in self.fitting)


class Encoder:
    """From samples to tokens, for one model.

    Raises:
        WeightsUnavailable: nothing would end a reply: the model could not learn to stop.
    """

    def __init__(self, prompts: Prompts, name: str) -> None:
        self._prompts = prompts
        self._end = _end_of_turn(prompts, name)

    def encode(self, sample: Sample) -> Encoded:
        """The tokens of a sample, whole.

        Raises:
            RequestRefused: the chat template takes no such messages.
        """
        prompts = self._prompts
        rendered = prompts.render(sample.prompt, think=sample.task not in _HELD)
        # Where a template opens the thinking by itself, the reply begins by closing it.
        closing = "\n</think>\n\n" if prompts.opens_thinking(rendered) else ""
        asked = prompts.encode(rendered)
        return Encoded(
            [*asked, *prompts.encode_literal(closing + sample.target), self._end], len(asked)
        )

    def encode_all(self, samples: Iterable[Sample], cutoff: int) -> Encodings:
        """The tokens of all samples of at most `cutoff`.

        A prompt cut short is none that inference sends, and a reply cut short teaches never to
        end; so what is longer is left out whole.
        """
        made = Encodings()
        for sample in samples:
            encoded = self.encode(sample)
            if len(encoded.ids) > cutoff:
                made.too_long[sample.id] = len(encoded.ids)
            else:
                made.fitting.append(encoded)
        return made


def _end_of_turn(prompts: Prompts, name: str) -> int:
    """The token that the template puts after a reply; inference stops at it."""
    turns = [Message("user", "."), Message("assistant", _PROBE)]
    if prompts.has_template:
        special = {i for i, t in prompts.tokenizer.added_tokens_decoder.items() if t.special}
        with suppress(RequestRefused):
            after = prompts.render(turns, answer=False).rpartition(_PROBE)[2]
            for token in prompts.encode(after):
                if token in special:
                    return token
    end: int | None = prompts.tokenizer.eos_token_id
    if end is None:
        why = "neither its chat template nor its tokenizer has a token that ends a reply"
        raise WeightsUnavailable(f"cannot train {name}", why, "take an instruction-tuned model")
    return end


# TRL's trainer as it is used here: quiet, without work for nothing, and with losses of tokens.


def trainer_class(trl: Any) -> Any:
    """The class of trainers; TRL is imported when training begins."""

    class Trainer(trl.SFTTrainer):  # type: ignore[misc]
        """Tells nobody of itself and writes no card."""

        _nats = 0.0  # of the samples kept aside, and the tokens learnt in them
        _tokens = 0

        def _send_telemetry(self) -> None:
            pass

        def create_model_card(self, *_: Any, **__: Any) -> None:
            pass

        def compute_loss(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
            if not self.args.use_cpu or "shift_labels" in inputs:
                return super().compute_loss(model, inputs, *args, **kwargs)
            with replies_alone(self.accelerator.unwrap_model(model), inputs) as fewer:
                return super().compute_loss(model, fewer, *args, **kwargs)

        def prediction_step(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
            loss, *rest = super().prediction_step(model, inputs, *args, **kwargs)
            learnt = int((inputs["labels"][:, 1:] != IGNORED).sum())
            self._nats += float(loss) * learnt
            self._tokens += learnt
            return loss, *rest

        def evaluation_loop(self, *args: Any, **kwargs: Any) -> Any:
            # The trainer's own is the mean over batches: a reply of three tokens would count as
            # much as one of three hundred, and not as it does in the loss that is trained.
            self._nats, self._tokens = 0.0, 0
            found = super().evaluation_loop(*args, **kwargs)
            sums = self.accelerator.gather(_pair(self._nats, self._tokens, self.args.device))
            nats, tokens = sums.view(-1, 2).sum(dim=0).tolist()
            found.metrics["eval_loss"] = nats / tokens
            return found

    return Trainer


@contextmanager
def replies_alone(model: Any, inputs: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """A batch so that only where something is learnt the vocabulary's odds are computed.

    On a GPU TRL leaves the other places out itself. On a processor it does not, and the prompts,
    nine tenths of the tokens, would cost a quarter of the time for nothing.
    """
    labels = inputs["labels"][:, 1:]
    learnt = (labels != IGNORED).any(dim=0).nonzero().flatten()

    def keep(module: Any, args: Any, output: Any) -> Any:
        output.last_hidden_state = output.last_hidden_state[:, learnt]
        return output

    causal = model.get_base_model() if hasattr(model, "get_base_model") else model
    with causal.base_model.register_forward_hook(keep):
        yield {
            **{name: value for name, value in inputs.items() if name != "labels"},
            "shift_labels": labels[:, learnt],
        }


def _pair(nats: float, tokens: int, device: Any) -> Any:
    import torch

    return torch.tensor([nats, float(tokens)], device=device)


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
    hugging = import_transformers()
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
    can = torch.cuda.is_bf16_supported() if cuda else cpu_has_bfloat16(torch)
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
    source: ModelSource,
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


def _model(recipe: Recipe, how: How, source: ModelSource, place: Place, with_: Libraries) -> Any:
    """The base in the precision that its parameters are kept in."""
    # What is trained needs 32 bits to take small steps in; what is frozen does not. Where a
    # framework shares parameters out, they have to be alike.
    dtype = how.precision if recipe.method == "lora" and not place.sharded else "float32"
    if not place.sharded:
        model = load_model(source, device="cpu", dtype=dtype)
    else:
        kind = with_.transformers.AutoModelForCausalLM
        model = load_pretrained(kind, source, dtype=getattr(with_.torch, dtype))
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
        hint = "--set device_batch=1, gradient_checkpointing=true, or a smaller --set cutoff"
        return "training ran out of memory", why, hint
    # torch says no more than that it failed at writing.
    if getattr(error, "errno", None) in _FULL or "PytorchStreamWriter failed writing" in str(error):
        hint = "see that there is room for two checkpoints; the same command goes on"
        return "training could not write a checkpoint", why, hint
    return "training failed", f"{type(error).__name__}: {why}", ""


def finite(loss: float, step: int) -> float:
    """The loss, if it is a number.

    Raises:
        ColligateError: it is none: nothing can be learnt any more.
    """
    if not math.isfinite(loss):
        hint = "take a smaller --set learning_rate, or --set precision=float32"
        raise ColligateError(f"the loss of step {step} is no number", str(loss), hint)
    return loss
