"""`colligate refine`: a question, some paths, the parts of them it needs within a budget."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Annotated

import typer

from colligate.cli import options
from colligate.cli.command import ANSWERED, NOT_FOUND, command
from colligate.cli.display import escape_controls, make_console, note, print_json

app = typer.Typer(add_completion=False)


@dataclass(frozen=True)
class RefineOptions(options.ReadOptions):
    """What is refined, and how short."""

    budget: Annotated[
        int | None,
        options.option(
            "The most tokens of the text. Default: 2048.", options.LIMITS, metavar="N", min=1
        ),
    ] = None
    where: options.Where = None


@command(app)
async def refine_command(
    question: options.Question,
    paths: options.Paths = None,
    *,
    wanted: RefineOptions,
    models: options.EngineOptions,
    run: options.RunOptions,
) -> int:
    """Print the parts of files and folders that a question needs, within a budget.

    The best documents are cut to the budget by their structure, as the strategy longrefiner does
    before it reads; --set sets its parameters.

    Exit status: 0 something was kept, 3 nothing was kept, 2 wrong usage, 1 a fault.

    Examples:
        colligate refine "How is latency measured?" papers/ --budget 1024
    """
    from rich.text import Text

    from colligate.cli.progress import require_question, watch_run
    from colligate.core.events import pluralize
    from colligate.export import describe_usage

    require_question(question, paths)
    with watch_run(run.trace) as watcher:
        async with models.engine(wanted) as engine:
            refined = await engine.refine(
                question,
                paths or [],
                budget=wanted.budget,
                where=wanted.where or [],
                on_event=watcher.see,
                **run.limits(),
            )
    watcher.warn_rest(refined.warnings)
    if run.as_json:
        print_json(refined.to_json())
        return ANSWERED if refined.passages else NOT_FOUND
    text = escape_controls(refined.text)
    if text and sys.stdout.isatty():
        make_console(sys.stdout).print(Text(text))
    elif text:
        sys.stdout.write(text.rstrip("\n") + "\n")
    documents = pluralize(len(refined.documents), "document")
    kept = f"{refined.tokens:,} of {refined.budget:,}"
    cost = describe_usage(refined.usage.to_json(), refined.model)
    note(f"{documents}, {refined.of_tokens:,} tokens -> {kept}; {cost}")
    return ANSWERED if refined.passages else NOT_FOUND
