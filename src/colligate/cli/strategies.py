"""`colligate strategies`: the strategies, what each needs, and what this machine can run."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Annotated, Any

import typer

from colligate.cli import options
from colligate.cli.command import ANSWERED, command
from colligate.cli.display import make_table, note, print_json, print_result, to_one_line
from colligate.errors import UsageError

if TYPE_CHECKING:
    from colligate.core.strategy import Strategy

app = typer.Typer(add_completion=False)

_RUNS = {True: "yes", False: "no", None: "not known"}


@command(app)
async def strategies_command(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            help="Show only this strategy, with its parameters.",
            show_default=False,
        ),
    ] = None,
    *,
    roles: options.RoleOptions,
    judge: options.Judge = None,
    config: options.Config = None,
    as_json: options.AsJson = False,
) -> int:
    """List the strategies: what each does and needs, and whether it runs here.

    Each need is followed by the role whose model meets it; needs in brackets are optional. No
    server is asked: `colligate doctor` asks them. `ask --set NAME=VALUE` sets a parameter, `--set
    preset=paper` the values in the column "paper".
    """
    from colligate.cli.roles import check_strategy, find_models
    from colligate.core.parameters import list_parameters
    from colligate.core.strategy import list_strategies, load_strategy
    from colligate.engine import Engine
    from colligate.settings import Settings

    kinds = [load_strategy(each) for each in ([name] if name else list_strategies())]
    async with Engine(settings=Settings.load(config), judge=judge, **vars(roles)) as engine:
        models = await find_models(engine, ask=False)
    for model in models.values():
        if isinstance(model.problem, UsageError):
            raise model.problem
    rows = [
        check_strategy(kind, models)
        | {"parameters": [each.to_json() for each in list_parameters(kind)]}
        for kind in kinds
    ]
    if as_json:
        print_json(rows[0] if name else rows)
        return ANSWERED
    if name:
        _show_strategy(kinds[0], rows[0])
    else:
        cells = [
            (row["name"], row["description"], _format_needs(row), _RUNS[row["runs"]])
            for row in rows
        ]
        headings = ["strategy", "what it does", "needs (optional)", "runs here"]
        print_result(make_table(headings, cells))
    for role, model in models.items():
        note(f"{role.value}: {model}")
    for why, runs in {row["why_not"]: row["runs"] for row in rows if row["why_not"]}.items():
        note(f"cannot run here: {why}" if runs is False else f"{why}; colligate doctor asks it")
    return ANSWERED


def _show_strategy(kind: type[Strategy], row: dict[str, Any]) -> None:
    from rich.console import Group
    from rich.text import Text

    from colligate.core.parameters import format_setting, paper_settings

    paragraphs = (inspect.getdoc(kind) or "").partition("\nAttributes:\n")[0].split("\n\n")
    lines = [to_one_line(paragraph) + "\n" for paragraph in paragraphs]
    lines += [f"needs (optional): {_format_needs(row)}", f"runs here: {_RUNS[row['runs']]}\n"]
    shown = ["default", "paper"] if paper_settings(kind) else ["default"]
    cells = [
        (
            each["name"],
            each["type"],
            *(format_setting(each[one]) for one in shown),
            each["description"],
        )
        for each in row["parameters"]
    ]
    headings = ["parameter", "values", *shown, "what it does"]
    parameters = make_table(headings, cells) if cells else Text("no parameters")
    print_result(Group(*map(Text, lines), parameters))


def _format_needs(row: dict[str, Any]) -> str:
    return ", ".join(map(_format_need, row["needs"]))


def _format_need(need: dict[str, Any]) -> str:
    by = {True: need["role"], False: "missing", None: f"{need['role']}?"}[need["met"]]
    text = f"{need['capability']}: {by}"
    return text if need["required"] else f"({text})"
