"""Recipes: what an adapter is trained on, and how. A recipe is a TOML file.

Those of the papers stand beside this module, in `recipes/NAME.toml`, each number with where it
comes from; `*-small` are for a small model on a processor. A file of one's own is named by its
path.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from colligate.errors import UsageError, closest

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

    `base` is what the paper trained; what is trained is said where the recipe is used. `cutoff`
    is the most tokens of a sample, prompt and reply: longer ones are left out. `global_batch` is
    how many samples a step learns from, on however many devices; `device_batch` how many of them
    a device computes together. `epochs` are passes over the samples, unless `steps` says how many
    steps. `warmup` is a share of the steps. `rank`, `alpha`, `dropout` and `targets` ("all-linear"
    or names of modules) are LoRA's. `packing` puts several samples into one sequence of `cutoff`
    tokens, each blind to the others. `held_out` is the most samples that are kept aside whose loss
    is taken, `evaluate_every` and `save_every` how often: a number of steps, or below 1 a share of
    all.
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
    packing: bool = False
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
        """What was set, by name, without the file's own words."""
        return {key: value for key, value in asdict(self).items() if key not in _WORDS}


def read_recipe(name: str | Path) -> Recipe:
    """The recipe of a name (`names`), or the one in a file of one's own.

    Raises:
        UsageError: there is none, or its file says something that it cannot mean.
    """
    if str(name) in names():
        text = _folder().joinpath(f"{name}.toml").read_text("utf-8")
        return parse_recipe(text, str(name), f"{name}.toml")
    file = Path(name)
    if file.suffix != ".toml":
        near = closest(str(name), names())
        hint = f"did you mean {near}?" if near else f"there are {', '.join(names())}"
        why = "a file of yours ends in .toml"
        raise UsageError(f"there is no recipe {str(name)!r}", why, hint)
    try:
        text = file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise UsageError(f"cannot read the recipe {file}", why) from error
    return parse_recipe(text, file.stem, str(file))


@cache
def names() -> tuple[str, ...]:
    """The recipes that come with colligate."""
    found = (each.name for each in _folder().iterdir() if each.name.endswith(".toml"))
    return tuple(sorted(name.removesuffix(".toml") for name in found))


def parse_recipe(text: str, name: str, file: str) -> Recipe:
    """The recipe that a TOML file says; errors name the file and the key.

    Raises:
        UsageError: the file says something that it cannot mean.
    """
    try:
        table = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{file} is no TOML", str(error)) from error
    for key in ("name", "text"):
        if key in table:
            raise UsageError(f"{file}: {key}", "there is no such key", "the file's name is its own")
    return replace(_checked(table, f"{file}: "), name=name, text=text)


def changed(recipe: Recipe, settings: Sequence[str]) -> Recipe:
    """The recipe with `NAME=VALUE` of some of its numbers in place of its own.

    Raises:
        UsageError: there is no such name, or the value cannot be meant.
    """
    table = asdict(recipe)
    for setting in settings:
        name, equals, value = setting.partition("=")
        name = name.strip()
        if not equals or name not in recipe.settings:
            near = closest(name, recipe.settings)
            hint = f"did you mean {near}?" if near else f"there are {', '.join(recipe.settings)}"
            why = "it is written NAME=VALUE" if not equals else "there is no such setting"
            raise UsageError(f"--set {setting}", why, hint)
        table[name] = _value(value.strip(), name)
    return _checked(table, "--set ")


def _value(text: str, name: str) -> Any:
    """A value as TOML writes it; words need no quotes, several stand between commas."""
    try:
        [value] = tomllib.loads(f"value = {text}").values()
    except ValueError:
        value = text
    if name in ("tasks", "targets") and isinstance(value, str) and value != "all-linear":
        return [part.strip() for part in value.split(",")]
    return value


def _checked(table: Mapping[str, Any], where: str) -> Recipe:
    try:
        return _RECIPE.validate_python(dict(table))
    except ValidationError as error:
        first = next((e for e in error.errors() if e["type"] in _STRANGE), error.errors()[0])
    key = str(first["loc"][0])
    if first["type"] in _STRANGE:
        near = closest(key, _KEYS)
        hint = f"did you mean {near}?" if near else f"there are {', '.join(_KEYS)}"
        raise UsageError(f"{where}{key}", "there is no such key", hint)
    raise UsageError(f"{where}{key}", first["msg"][0].lower() + first["msg"][1:])


def _folder() -> Any:
    return resources.files(__package__).joinpath("recipes")


_STRANGE = ("extra_forbidden", "unexpected_keyword_argument")
_WORDS = ("title", "paper", "about", "base", "name", "text")
_KEYS = tuple(each.name for each in fields(Recipe) if each.name not in ("name", "text"))
_RECIPE = TypeAdapter(Recipe)
