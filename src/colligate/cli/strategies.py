"""`colligate strategies`: what there is, what each needs, what this machine can run."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Annotated, Any

import typer

from colligate.cli import options
from colligate.cli.display import note, one_line, say, say_json
from colligate.cli.failures import ANSWERED, run
from colligate.errors import UsageError

if TYPE_CHECKING:
    from colligate.core.strategy import Strategy
_RUNS = {True: "yes", False: "no", None: "not known"}


def strategies(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            help="Show this one alone, with its parameters.",
            show_default=False,
        ),
    ] = None,
    *,
    model: options.Model = None,
    worker_model: options.WorkerModel = None,
    scorer: options.Scorer = None,
    judge: options.Judge = None,
    config: options.Config = None,
    as_json: options.AsJson = False,
) -> int:
    """List the strategies: what each does, what it needs, and whether it can run here.

    Behind each need stands whose model meets it; needs in brackets can be done without. No
    server is asked: `colligate doctor` does. Parameters are set with `ask --set NAME=VALUE`.
    """
    from colligate.cli.chosen import chosen_models, verdict
    from colligate.core.parameters import list_parameters
    from colligate.core.strategy import list_strategies, load_strategy
    from colligate.settings import Settings

    kinds = [load_strategy(each) for each in ([name] if name else list_strategies())]
    settings = Settings.load(config).override(
        reader=model, worker=worker_model, scorer=scorer, judge=judge
    )
    chosen = run(chosen_models(settings, ask=False))
    for one in chosen.values():
        if isinstance(one.problem, UsageError):
            raise one.problem
    rows = [
        verdict(kind, chosen) | {"parameters": [each.to_json() for each in list_parameters(kind)]}
        for kind in kinds
    ]
    if as_json:
        say_json(rows[0] if name else rows)
        return ANSWERED
    if name:
        _show_one(kinds[0], rows[0])
    else:
        _show(rows)
    for one in chosen.values():
        note(str(one))
    for why, runs in {row["why_not"]: row["runs"] for row in rows if row["why_not"]}.items():
        note(f"not here: {why}" if runs is False else f"{why}; colligate doctor asks")
    return ANSWERED


def _show(rows: list[dict[str, Any]]) -> None:
    from colligate.cli.display import table

    cells = [(row["name"], row["description"], _needs(row), _RUNS[row["runs"]]) for row in rows]
    say(table(["strategy", "what it does", "needs (can use)", "runs here"], cells))


def _show_one(kind: type[Strategy], row: dict[str, Any]) -> None:
    from rich.console import Group
    from rich.text import Text

    from colligate.cli.display import table

    said = (inspect.getdoc(kind) or "").split("\n\n")
    lines = [*(one_line(paragraph) + "\n" for paragraph in said)]
    lines += [f"needs (can use): {_needs(row)}", f"runs here: {_RUNS[row['runs']]}\n"]
    cells = [(each["name"], each["type"], _written(each["default"])) for each in row["parameters"]]
    shown = table(["parameter", "values", "default"], cells) if cells else Text("no parameters")
    say(Group(*map(Text, lines), shown))


def _written(default: Any) -> str:
    """A default as it would be set."""
    if isinstance(default, list):
        return ",".join(map(str, default))
    if default is None or isinstance(default, bool):
        return str(default).lower()
    return str(default)


def _needs(row: dict[str, Any]) -> str:
    return ", ".join(_need(need) for need in row["needs"])


def _need(need: dict[str, Any]) -> str:
    by = {True: need["role"], False: "missing", None: f"{need['role']}?"}[need["met"]]
    said = f"{need['capability']}: {by}"
    return said if need["required"] else f"({said})"
