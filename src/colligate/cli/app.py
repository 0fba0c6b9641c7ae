"""The `colligate` command: it loads one command, runs it, and ends with its exit status.

A command's module is imported when the command is named, and what is heavy (models, readers, the
index) when it runs, so `colligate --help` answers at once.
"""

from __future__ import annotations

import contextlib
import inspect
import os
import sys
import threading
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from colligate import __version__
from colligate.cli import display, options
from colligate.cli.command import ANSWERED, WRONG_USAGE, discard_output, event_loop, report_error

if TYPE_CHECKING:
    from collections.abc import Sequence

# How long threads may take to stop after the work has ended or was interrupted.
_SECONDS_TO_STOP = 5.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit status; without arguments, that of this process."""
    if arguments is None:
        display.prepare_streams()
    command = get_command(app)
    if arguments is None and "_COLLIGATE_COMPLETE" in os.environ:
        command.main(prog_name="colligate")
    try:
        given = sys.argv[1:] if arguments is None else arguments
        with command.make_context("colligate", list(given)) as context:
            result = command.invoke(context)
            if inspect.iscoroutine(result):
                with event_loop() as loop:
                    result = loop.run(result)
            status = int(result or ANSWERED)
        sys.stdout.flush()
    except typer.Exit as done:
        status = done.exit_code
    except (Exception, KeyboardInterrupt) as error:
        status = report_error(error)
    display.loudness = "normal"
    if arguments is None:
        _limit_exit(status)
    return status


def _limit_exit(status: int) -> None:
    """End the process soon, also if a thread that runs C code does not stop."""
    try:
        sys.stdout.flush()
    except OSError:
        discard_output()
    # What has to be kept is on disk at this point.
    last = threading.Timer(_SECONDS_TO_STOP, os._exit, [status])
    last.daemon = True
    last.start()


# Each command with the first line of its help: the module of its name has it as `app`, or what is
# registered under its name as an entry point of `colligate.commands`.
COMMANDS = {
    "ask": "Answer a question over files and folders, with citations.",
    "chat": "Ask questions one after another; each may point back to the ones before.",
    "refine": "Print the parts of files and folders that a question needs, within a budget.",
    "table": "Fill a table over files and folders: a row for each document, every cell cited.",
    "audit": "Check citations against the documents, without a model.",
    "index": "Add files to the library ahead of time.",
    "sync": "Bring the library up to date with its folders, and say what has changed.",
    "library": "List, show, remove, verify documents; erase, snapshot, restore a library.",
    "tree": "Show the structure of a file: its headings and pages, and how sure it is.",
    "strategies": "List the strategies: what each does and needs.",
    "doctor": "Check that `colligate ask` works here, and show how to fix what does not.",
    "mcp": "Serve documents to an MCP client over standard input and output.",
    "serve": "Serve a library over HTTP: a page to ask in, and an API.",
    "token": "Make, list and revoke the tokens that `colligate serve` accepts.",
    "models": "List and fetch local model weights, pinned by SHA-256.",
    "bench": "Compare strategies on data sets, or on your own questions.",
    "train": "Train adapters for RDR2, LongRefiner and DualRAG, rerankers and verifiers.",
}


class LazyGroup(TyperGroup):
    """A group that imports a command when it is named; its help needs only `COMMANDS`."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = {
            name: TyperCommand(name, short_help=line) for name, line in COMMANDS.items()
        }

    def resolve_command(self, ctx: Any, args: Sequence[str]) -> Any:
        name, command, rest = super().resolve_command(ctx, list(args))
        return name, load_command(name) if name and command else command, rest


def load_command(name: str) -> Any:
    """Return the command of a name, imported."""
    from colligate.plugins import load_plugin, plugins

    if name in plugins("commands"):
        return get_command(load_plugin("commands", name, typer.Typer))
    return get_command(import_module(f"colligate.cli.{name}").app)


app = typer.Typer(
    name="colligate",
    cls=LazyGroup,
    help="Answer questions over many long documents, every claim cited to its exact place.",
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode=None,  # rich takes as long to import as all else; a command's help has it
    pretty_exceptions_enable=False,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"colligate {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _colligate(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
    quiet: options.Quiet = False,
    verbose: options.Verbose = False,
    no_color: options.NoColor = False,
) -> int:
    if context.invoked_subcommand is None:
        with contextlib.redirect_stdout(sys.stderr):
            typer.echo(context.get_help())
        return WRONG_USAGE
    return ANSWERED
