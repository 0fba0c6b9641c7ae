"""Recipes: what an adapter is trained on, and how. A recipe is a TOML file.

Those of the papers are in `recipes/NAME.toml`, each number with its source; `*-small` are for a
small model on a processor. A file of your own is named by its path. A recipe can be exported to
LLaMA-Factory.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, get_args

import yaml
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from colligate.errors import UnknownModel, UsageError
from colligate.lab.bench.toml_files import TomlFolder, explain_invalid, parse_toml, suggest
from colligate.lab.jobs.files import make_folder
from colligate.lab.training.samples import HELD_OUT, TRAIN, read_samples, require_train_file
from colligate.models.names import split_adapter, split_name
from colligate.models.weights import PINNED

Task = Literal[
    "router", "scope", "structuring", "selection", "reasoner", "identifier", "summarizer"
]
TASKS: tuple[str, ...] = get_args(Task)

_Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_Count = Annotated[int, Field(ge=1)]
_Share = Annotated[float, Field(ge=0, lt=1)]
_Often = _Count | Annotated[float, Field(gt=0, lt=1)]


@dataclass(frozen=True)
class Recipe:
    """How to train on the samples of some tasks.

    `base` is the model that the paper trained, for information. `cutoff` is the maximum of tokens
    of a sample, prompt and reply: longer ones are left out. A step learns from `global_batch`
    samples over all devices; a device computes `device_batch` of them together. `epochs` are passes
    over the samples, unless `steps` is set. `warmup` is a share of the steps. `rank`, `alpha`,
    `dropout` and `targets` ("all-linear" or names of modules) are LoRA's. The loss is measured on
    at most `held_out` held-out samples. `evaluate_every` and `save_every` are a number of steps, or
    below 1 a share of all.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    title: str
    tasks: Annotated[tuple[Task, ...], Field(min_length=1)]
    method: Literal["lora", "full"]
    cutoff: _Count
    global_batch: _Count
    learning_rate: _Positive
    paper: str = ""
    about: str = ""
    base: str = ""
    epochs: _Positive = 1.0
    steps: Annotated[int, Field(ge=0)] = 0
    device_batch: _Count = 1
    schedule: Literal["cosine", "linear", "constant"] = "cosine"
    warmup: _Share = 0.0
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    max_grad_norm: _Positive = 1.0
    rank: _Count = 8
    alpha: _Positive = 16.0
    dropout: _Share = 0.0
    targets: Literal["all-linear"] | tuple[str, ...] = "all-linear"
    precision: Literal["auto", "bfloat16", "float32"] = "auto"
    gradient_checkpointing: bool = True
    held_out: Annotated[int, Field(ge=0)] = 200
    evaluate_every: _Often = 0.1
    save_every: _Often = 0.1
    log_every: _Count = 1
    seed: Annotated[int, Field(ge=0)] = 0
    name: str = ""
    text: str = ""

    @property
    def settings(self) -> dict[str, Any]:
        """The settings by name, without the descriptions."""
        return {key: value for key, value in asdict(self).items() if key not in _DESCRIPTIONS}


def read_recipe(name: str | Path) -> Recipe:
    """Read the recipe of a name (`list_recipes`), or the one in a file of your own.

    Raises:
        UsageError: there is no such recipe, or its file is wrong.
    """
    return parse_recipe(*_RECIPES.read(str(name)))


@cache
def list_recipes() -> tuple[str, ...]:
    """Return the names of the recipes that come with colligate."""
    return _RECIPES.names()


def list_launch_files() -> dict[str, Path]:
    """Return the files for `accelerate launch --config_file` that come with colligate, by name."""
    folder = Path(str(resources.files(__package__).joinpath("distributed")))
    return {file.stem: file for file in sorted(folder.glob("*.yaml"))}


def parse_recipe(text: str, name: str, file: str) -> Recipe:
    """Parse the text of a recipe's file; a UsageError names the file and the key."""
    return replace(_validate(parse_toml(text, file), f"{file}: "), name=name, text=text)


def apply_settings(recipe: Recipe, settings: Sequence[str]) -> Recipe:
    """Return the recipe with settings, each `NAME=VALUE`, in place of its own."""
    table = asdict(recipe)
    for setting in settings:
        name, equals, value = setting.partition("=")
        name = name.strip()
        if not equals or name not in recipe.settings:
            why = "expected NAME=VALUE" if not equals else "there is no such setting"
            raise UsageError(f"--set {setting}", why, suggest(name, list(recipe.settings)))
        table[name] = _parse_value(value.strip(), name)
    return _validate(table, "--set ")


def _parse_value(text: str, name: str) -> Any:
    """Parse a value as TOML; words need no quotes, several are separated by commas."""
    try:
        [value] = tomllib.loads(f"value = {text}").values()
    except ValueError:
        value = text
    if name in ("tasks", "targets") and isinstance(value, str) and value != "all-linear":
        return [part.strip() for part in value.split(",")]
    return value


def _validate(table: Mapping[str, Any], where: str) -> Recipe:
    try:
        return _RECIPE.validate_python(dict(table))
    except ValidationError as error:
        raise explain_invalid(where, error, {"": _KEYS}) from error


SCHEDULES = {"cosine": "cosine", "linear": "linear", "constant": "constant_with_warmup"}
"""The names that transformers has for the schedules of recipes."""

_DESCRIPTIONS = ("title", "paper", "about", "base", "name", "text")
_KEYS = tuple(each.name for each in fields(Recipe) if each.name not in ("name", "text"))
_RECIPE = TypeAdapter(Recipe)
_RECIPES = TomlFolder(__package__, "recipes", "recipe")


# The export for LLaMA-Factory. The prompts are the same; it turns them into tokens itself.

CONFIGURATION, DATASETS = "train.yaml", "dataset_info.json"

_MESSAGES_FORM = {
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


_HEAD = """\
# {title}. llamafactory-cli train {file}
# No template is named: LLaMA-Factory then uses the tokenizer's own, as inference does.
# For one process: several divide gradient_accumulation_steps by their number.
"""


def export_llama_factory(
    recipe: str | Recipe, data: Path, base: str, out: Path, settings: tuple[str, ...] = ()
) -> Path:
    """Write a training for `llamafactory-cli train` into `out`; return the file to give to it.

    `out` also gets the samples of the recipe's tasks in the form of OpenAI's messages, and
    `dataset_info.json`, which describes them. Blocks.

    Raises:
        UsageError: recipe, data or base are wrong.
        FaultyRecord: a line of the data is not a sample.
    """
    recipe = apply_settings(read_recipe(recipe) if isinstance(recipe, str) else recipe, settings)
    if recipe.global_batch % recipe.device_batch:
        why = f"it cannot be computed {recipe.device_batch} at a time"
        hint = "change --set global_batch or --set device_batch"
        raise UsageError(f"global_batch: {recipe.global_batch}", why, hint)
    model = locate_base(base)
    if model.endswith(".gguf") or (model in PINNED and not Path(model).exists()):
        why = "LLaMA-Factory trains a model of the hub, or a folder that transformers loads"
        raise UnknownModel(f"cannot export for {base}", why, "give --base hf:NAME-OR-PATH")
    if (folder := Path(model).expanduser()).is_dir():
        model = str(folder.resolve())
    require_train_file(data)
    make_folder(out)
    name = f"colligate_{recipe.name}".replace("-", "_")
    described = {}
    for source, called in ((TRAIN, name), (HELD_OUT, f"{name}_held_out")):
        file = out / f"{called}.jsonl"
        if (data / source).is_file() and _write_messages(recipe, data / source, file):
            described[called] = {"file_name": file.name, **_MESSAGES_FORM}
    if name not in described:
        what = f"{data / TRAIN} has no sample of {' or '.join(recipe.tasks)}"
        raise UsageError(what, "", "take another recipe or another --data")
    (out / DATASETS).write_text(json.dumps(described, indent=2) + "\n", "utf-8")
    file = out / CONFIGURATION
    keys = _configure(recipe, model, out.resolve(), list(described))
    body = yaml.safe_dump(keys, sort_keys=False, allow_unicode=True, width=1000)
    file.write_text(_HEAD.format(title=recipe.title, file=CONFIGURATION) + body, "utf-8")
    return file


def locate_base(base: str) -> str:
    """Return the hub name, or the path, of a base that transformers loads; UnknownModel if none."""
    plain, adapter = split_adapter(base)
    kind, rest = split_name(plain)
    if kind != "hf" or not rest or adapter is not None:
        why = "only a model that transformers loads can be trained, without an adapter"
        raise UnknownModel(f"cannot train {base}", why, "give --base hf:NAME-OR-PATH")
    return rest


def _write_messages(recipe: Recipe, source: Path, file: Path) -> int:
    """Write the messages of the recipe's samples, one sample a line; return how many."""
    count = 0
    with file.open("w", encoding="utf-8", errors="replace") as out:
        for sample in read_samples(source, recipe.tasks):
            messages = sample.to_json()["messages"]
            out.write(json.dumps({"messages": messages}, ensure_ascii=False) + "\n")
            count += 1
    if not count:
        file.unlink()
    return count


def _configure(recipe: Recipe, model: str, folder: Path, datasets: list[str]) -> dict[str, Any]:
    """Return the keys of LLaMA-Factory that say the same."""
    tuned: dict[str, Any] = {"finetuning_type": recipe.method}
    if recipe.method == "lora":
        targets = recipe.targets
        tuned |= {
            "lora_rank": recipe.rank,
            "lora_alpha": recipe.alpha,
            "lora_dropout": recipe.dropout,
            "lora_target": "all" if isinstance(targets, str) else ",".join(targets),
        }
    measured = {
        "eval_dataset": datasets[-1],
        "per_device_eval_batch_size": recipe.device_batch,
        "eval_strategy": "steps",
        "eval_steps": recipe.evaluate_every,
    }
    return {
        "model_name_or_path": model,
        "stage": "sft",
        "do_train": True,
        **tuned,
        "dataset_dir": str(folder),
        "dataset": datasets[0],
        "cutoff_len": recipe.cutoff,
        # Replies in a prompt are examples: only the last one is learnt.
        "mask_history": True,
        "train_on_prompt": False,
        "output_dir": str(folder / "saved"),
        "logging_steps": recipe.log_every,
        "save_steps": recipe.save_every,
        "plot_loss": True,
        "report_to": "none",
        "per_device_train_batch_size": recipe.device_batch,
        "gradient_accumulation_steps": recipe.global_batch // recipe.device_batch,
        "learning_rate": recipe.learning_rate,
        "num_train_epochs": recipe.epochs,
        **({"max_steps": recipe.steps} if recipe.steps else {}),
        "lr_scheduler_type": SCHEDULES[recipe.schedule],
        "warmup_ratio": recipe.warmup,
        "weight_decay": recipe.weight_decay,
        "max_grad_norm": recipe.max_grad_norm,
        "bf16": recipe.precision != "float32",
        "seed": recipe.seed,
        **(measured if len(datasets) > 1 else {}),
    }
