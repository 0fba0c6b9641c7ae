"""A recipe and its samples as LLaMA-Factory reads them, for those who train with it.

The prompts are the same; how they become tokens is then LLaMA-Factory's affair.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from colligate.errors import MissingPath, UnknownModel, UsageError
from colligate.models.names import split_adapter, split_name
from colligate.models.weights import PINNED
from colligate.training.recipes import Recipe, changed, read_recipe
from colligate.training.samples import HELD_OUT, TRAIN, read_samples

CONFIGURATION, DATASETS = "train.yaml", "dataset_info.json"

_FORM = {
    "formatting": "sharegpt",
    "columns": {"messages": "messages"},
    "tags": {
        "role_tag": "role",
        "content_tag": "content",
        "user_tag": "user",
        "assistant_tag": "assistant",
        "system_tag": "system",
    },
}


def export_llama_factory(
    recipe: str | Recipe, data: Path, base: str, out: Path, settings: tuple[str, ...] = ()
) -> Path:
    """Write what `llamafactory-cli train` is given, into `out`; returns the file to give it.

    Beside it stand the samples of the recipe's tasks in the form of OpenAI's messages, and
    `dataset_info.json`, which describes them. Blocks.

    Raises:
        UsageError: recipe, data or base cannot be meant.
        FaultyRecord: a line of the data is no sample.
    """
    recipe = changed(read_recipe(recipe) if isinstance(recipe, str) else recipe, settings)
    if recipe.global_batch % recipe.device_batch:
        why = f"it cannot be computed {recipe.device_batch} at a time"
        hint = "change --set global_batch or --set device_batch"
        raise UsageError(f"global_batch: {recipe.global_batch}", why, hint)
    model = _model(base)
    if not (data / TRAIN).is_file():
        hint = "give a folder that colligate train curate made"
        raise MissingPath(f"there is no {data / TRAIN}", "", hint)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        why = error.strerror or str(error)
        raise UsageError(f"cannot make the folder {out}", why, "name another --out") from error
    name = f"colligate_{recipe.name}".replace("-", "_")
    described = {}
    for source, called in ((TRAIN, name), (HELD_OUT, f"{name}_held_out")):
        if (data / source).is_file() and _write(recipe, data / source, out / f"{called}.jsonl"):
            described[called] = {"file_name": f"{called}.jsonl", **_FORM}
    if name not in described:
        what = f"{data / TRAIN} has no sample of {' or '.join(recipe.tasks)}"
        raise UsageError(what, "", "take another recipe or another --data")
    (out / DATASETS).write_text(json.dumps(described, indent=2) + "\n", "utf-8")
    file = out / CONFIGURATION
    lines = _lines(recipe, model, out.resolve(), list(described))
    file.write_text("\n".join(lines) + "\n", "utf-8")
    return file


def _model(base: str) -> str:
    plain, adapter = split_adapter(base)
    kind, rest = split_name(plain)
    pinned = rest in PINNED and not Path(rest).exists()
    if kind != "hf" or not rest or adapter is not None or pinned or rest.endswith(".gguf"):
        why = "LLaMA-Factory trains a model of the hub, or a folder that transformers loads"
        raise UnknownModel(f"cannot export for {base}", why, "give --base hf:NAME-OR-PATH")
    folder = Path(rest).expanduser()
    return str(folder.resolve()) if folder.is_dir() else rest


def _write(recipe: Recipe, source: Path, file: Path) -> int:
    """The messages of the recipe's samples, one sample a line; returns how many."""
    count = 0
    with file.open("w", encoding="utf-8", errors="replace") as out:
        for sample in read_samples(source, recipe.tasks):
            turns = [{"role": turn.role, "content": turn.content} for turn in sample.messages]
            out.write(json.dumps({"messages": turns}, ensure_ascii=False) + "\n")
            count += 1
    if not count:
        file.unlink()
    return count


def _lines(recipe: Recipe, model: str, folder: Path, datasets: list[str]) -> Iterator[str]:
    accumulation = recipe.global_batch // recipe.device_batch
    yield f"# {recipe.title}. llamafactory-cli train {CONFIGURATION}"
    yield "# No template is named: LLaMA-Factory then reads the tokenizer's own chat template, as"
    yield "# inference does. Its templates of the same families may put in a system message."
    yield from _table("model", model_name_or_path=model)
    tuned: dict[str, Any] = {"finetuning_type": recipe.method}
    if recipe.method == "lora":
        targets = recipe.targets
        tuned |= {
            "lora_rank": recipe.rank,
            "lora_alpha": recipe.alpha,
            "lora_dropout": recipe.dropout,
            "lora_target": "all" if isinstance(targets, str) else ",".join(targets),
        }
    yield from _table("method", stage="sft", do_train=True, **tuned)
    yield from _table(
        "dataset",
        dataset_dir=str(folder),
        dataset=datasets[0],
        cutoff_len=recipe.cutoff,
        # Replies in a prompt are its examples: only the last one is learnt.
        mask_history=True,
        train_on_prompt=False,
        packing=recipe.packing,
        **({"neat_packing": True} if recipe.packing else {}),
    )
    yield from _table(
        "output",
        output_dir=str(folder / "saved"),
        logging_steps=recipe.log_every,
        save_steps=recipe.save_every,
        plot_loss=True,
        report_to="none",
    )
    yield ""
    yield f"# For one process; several divide the accumulation: {accumulation} / their number."
    if recipe.packing:
        yield "# It counts packed sequences, each of many samples; colligate train fit takes fewer,"
        yield f"# so that a step has {recipe.global_batch} samples: divide it likewise."
    yield from _table(
        "train",
        per_device_train_batch_size=recipe.device_batch,
        gradient_accumulation_steps=accumulation,
        learning_rate=recipe.learning_rate,
        num_train_epochs=recipe.epochs,
        **({"max_steps": recipe.steps} if recipe.steps else {}),
        lr_scheduler_type=recipe.schedule,
        warmup_ratio=recipe.warmup,
        weight_decay=recipe.weight_decay,
        max_grad_norm=recipe.max_grad_norm,
        bf16=recipe.precision != "float32",
        seed=recipe.seed,
    )
    if len(datasets) > 1:
        yield from _table(
            "eval",
            eval_dataset=datasets[1],
            per_device_eval_batch_size=recipe.device_batch,
            eval_strategy="steps",
            eval_steps=recipe.evaluate_every,
        )


def _table(title: str, **values: Any) -> Iterator[str]:
    """A part of the file; JSON's scalars are YAML's."""
    yield ""
    yield f"### {title}"
    for name, value in values.items():
        yield f"{name}: {_scalar(value)}"


def _scalar(value: Any) -> str:
    if isinstance(value, float) and value < 1e-3:
        # YAML 1.1 reads a number without a point as text: 1e-05 is a word, 1.0e-05 a number.
        mantissa, _, exponent = f"{value:e}".partition("e")
        return f"{float(mantissa)}e{exponent}" if value else "0.0"
    return json.dumps(value, ensure_ascii=False)
