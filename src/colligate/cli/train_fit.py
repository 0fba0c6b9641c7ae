"""`colligate train fit` and `recipes`: training an adapter on curated samples."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from colligate.cli import options, train_options
from colligate.cli.display import note, say, say_json
from colligate.cli.failures import ANSWERED, INTERRUPTED

if TYPE_CHECKING:
    from pathlib import Path

    from colligate.training.fitting import Fitted


def recipes(as_json: options.AsJson = False) -> int:
    """List the recipes: what is trained, on which tasks, and how."""
    from colligate.cli.display import table
    from colligate.training.recipes import list_launch_files, list_recipes, read_recipe

    every = [read_recipe(name) for name in list_recipes()]
    if as_json:
        say_json([{"name": each.name, **each.settings, "title": each.title} for each in every])
        return ANSWERED
    rows = [(each.name, each.method, ", ".join(each.tasks), each.title) for each in every]
    say(table(["recipe", "method", "tasks", "what it is"], rows))
    note("several GPUs: accelerate launch --config_file FILE -m colligate train fit RECIPE ...")
    for file in list_launch_files().values():
        note(f"FILE may be {file}")
    return ANSWERED


def fit(
    recipe: train_options.Recipe,
    *,
    data: train_options.Samples,
    base: train_options.Base,
    out: train_options.Out,
    parameters: train_options.FitSet = None,
    export: train_options.Export = None,
    as_json: options.AsJson = False,
) -> int:
    """Train an adapter, or a whole model, on curated samples (extra `train`).

    Checkpoints are written on the way. A training that was stopped goes on with the same command;
    Ctrl-C saves the step under way first. In --out stand the adapter, the record fit.json, and
    the curve as JSON lines and as a picture. Several GPUs: accelerate launch (docs/training.md).

    Exit status: 0 trained, 2 wrong usage, 1 a fault, 130 interrupted.
    """
    from colligate.cli.display import table
    from colligate.errors import UsageError

    if export is not None:
        if export != "llama-factory":
            raise UsageError(f"cannot export to {export!r}", "there is llama-factory")
        return _export(recipe, data, base, out, parameters or [], as_json)
    from colligate.training.fitting import read_rank

    arguments = {"recipe": recipe, "data": str(data), "base": base, "set": parameters or []}
    fitted = _fitted(recipe, data, base, out, parameters or [], arguments)
    status = ANSWERED if fitted.finished else INTERRUPTED
    if not read_rank().first:
        return status
    if as_json:
        say_json(fitted.to_json())
    else:
        said = [(name, _shown(value)) for name, value in fitted.to_json().items() if name != "out"]
        say(table(["", str(out)], [(name, value) for name, value in said if value]))
    if not fitted.finished:
        note(f"stopped after step {fitted.step:,} of {fitted.steps:,}; the same command goes on")
    return status


def _fitted(
    recipe: str, data: Path, base: str, out: Path, settings: list[str], arguments: dict[str, Any]
) -> Fitted:
    from colligate.cli.progress import watching
    from colligate.training.fitting import fit as fit_recipe

    # Not on an event loop: a training is one long piece of work in the main thread.
    with watching(sys.stderr) as watcher:
        return fit_recipe(recipe, data, base, out, settings, watcher.see, arguments=arguments)


def _export(
    recipe: str, data: Path, base: str, out: Path, settings: list[str], as_json: bool
) -> int:
    from colligate.training.recipes import export_llama_factory

    file = export_llama_factory(recipe, data, base, out, tuple(settings))
    if as_json:
        say_json({"file": str(file)})
    else:
        say(str(file))
    return ANSWERED


def _shown(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else str(value)
