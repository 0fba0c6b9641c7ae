"""`colligate strategies`: the strategies, what each needs, and its parameters."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Annotated, Any

import typer

from colligate.cli import options
from colligate.cli.command import ANSWERED, command
from colligate.cli.display import make_table, print_json, print_result, to_one_line

if TYPE_CHECKING:
    from colligate.core.strategy import Strategy

app = typer.Typer(add_completion=False)


@command(app)
def strategies_command(
    name: Annotated[
        str | None,
        options.argument("Show only this strategy, or retriever, with its parameters.", "NAME"),
    ] = None,
    *,
    as_json: options.AsJson = False,
) -> int:
    """List the strategies: what each does and needs.

    Needs in brackets are optional. `colligate doctor` says which strategies run here. `ask --set
    NAME=VALUE` sets a parameter, `--set preset=paper` the values in the column "paper".

    Examples:
        colligate strategies
        colligate strategies rdr2
    """
    from colligate.core.strategy import list_strategies, load_strategy
    from colligate.plugins import load_plugin, plugins

    if name in plugins("retrievers") and name not in list_strategies():
        kinds = [load_plugin("retrievers", name, type)]
    else:
        kinds = [load_strategy(each) for each in ([name] if name else list_strategies())]
    rows = list(map(_describe_strategy, kinds))
    if as_json:
        print_json(rows[0] if name else rows)
    elif name:
        _show_strategy(kinds[0], rows[0])
    else:
        cells = [(row["name"], row["description"], _format_needs(row)) for row in rows]
        print_result(make_table(["strategy", "what it does", "needs (optional)"], cells))
    return ANSWERED


def _describe_strategy(kind: type[Strategy]) -> dict[str, Any]:
    from colligate.core.parameters import list_parameters
    from colligate.core.strategy import summarize

    return {
        "name": kind.name,
        "description": summarize(kind),
        "required": sorted(each.value for each in kind.needs.required),
        "optional": sorted(each.value for each in kind.needs.optional),
        "searches": kind.needs.searches,
        "parameters": [each.to_json() for each in list_parameters(kind)],
    }


def _show_strategy(kind: type[Strategy], row: dict[str, Any]) -> None:
    from rich.console import Group
    from rich.text import Text

    from colligate.core.parameters import format_setting, paper_settings

    paragraphs = (inspect.getdoc(kind) or "").partition("\nAttributes:\n")[0].split("\n\n")
    lines = [to_one_line(paragraph) + "\n" for paragraph in paragraphs]
    lines.append(f"needs (optional): {_format_needs(row)}\n")
    shown = ["default", "paper"] if paper_settings(kind) else ["default"]
    cells = []
    for each in row["parameters"]:
        values = (format_setting(each[one]) for one in shown)
        cells.append((each["name"], each["type"], *values, each["description"]))
    headings = ["parameter", "values", *shown, "what it does"]
    parameters = make_table(headings, cells) if cells else Text("no parameters")
    print_result(Group(*map(Text, lines), parameters))


def _format_needs(row: dict[str, Any]) -> str:
    return ", ".join([*row["required"], *(f"({each})" for each in row["optional"])])
