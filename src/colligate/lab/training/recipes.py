"""Recipes: what an adapter is trained on, and how. A recipe is a TOML file.

Those of the papers are in `recipes/NAME.toml`, each number with its source; `*-small` are for a
small model on a processor. A file of your own is named by its path.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from colligate.errors import UnknownModel, UsageError
from colligate.lab.bench.toml_files import TomlFolder, explain_invalid, parse_toml
from colligate.models.names import split_adapter, split_name

Task = Literal[
    "router", "scope", "structuring", "selection", "reasoner", "identifier", "summarizer", "reading"
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
    samples, of which `device_batch` are computed together. `epochs` are passes over the samples,
    unless `steps` is set. `warmup` is a share of the steps. `rank`, `alpha`, `dropout` and
    `targets` ("all-linear" or names of modules) are LoRA's. The loss is measured on at most
    `held_out` held-out samples. `evaluate_every` and `save_every` are a number of steps, or below
    1 a share of all.
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
    """Read the recipe of a name (`list_recipes`), or the one in a file of your own."""
    return parse_recipe(*_RECIPES.read(str(name)))


def list_recipes() -> tuple[str, ...]:
    """Return the names of the recipes that come with colligate."""
    return _RECIPES.names()


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
            raise UsageError(f"--set {setting}", why, f"there are {', '.join(recipe.settings)}")
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
        raise explain_invalid(where, error, nested=False) from error


def locate_base(base: str) -> str:
    """Return the hub name, or the path, of a base that transformers loads; UnknownModel if none."""
    plain, adapter = split_adapter(base)
    kind, rest = split_name(plain)
    if kind != "hf" or not rest or adapter is not None:
        why = "only a model that transformers loads can be trained, without an adapter"
        raise UnknownModel(f"cannot train {base}", why, "give --base hf:NAME-OR-PATH")
    return rest


_DESCRIPTIONS = ("title", "paper", "about", "base", "name", "text")
_RECIPE = TypeAdapter(Recipe)
_RECIPES = TomlFolder(__package__, "recipes", "recipe")
