"""The `colligate` command: its subcommands, and how it ends.

A subcommand returns its exit status. Its module is light; what is heavy (models, readers, the
index) is imported when it runs, so `colligate --help` answers at once.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from typing import Annotated, NoReturn

import typer
from typer.main import get_command

from colligate import __version__
from colligate.cli.ask import ask
from colligate.cli.bench import app as bench
from colligate.cli.display import prepare_streams
from colligate.cli.doctor import doctor
from colligate.cli.failures import ANSWERED, WRONG_USAGE, hush, report
from colligate.cli.library import app as library
from colligate.cli.library import index
from colligate.cli.mcp import mcp
from colligate.cli.models import app as models
from colligate.cli.refine import refine
from colligate.cli.serve import serve
from colligate.cli.strategies import strategies
from colligate.cli.train import app as train
from colligate.cli.tree import tree

# What a thread may still take to stop after the work has ended or was interrupted.
_SECONDS_TO_STOP = 5.0

app = typer.Typer(
    name="colligate",
    help="Answer questions over many long documents, every claim cited to its exact place.",
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)
app.command("ask")(ask)
app.command("refine")(refine)
app.command("index")(index)
app.add_typer(library, name="library")
app.command("tree")(tree)
app.command("strategies")(strategies)
app.command("doctor")(doctor)
app.command("mcp")(mcp)
app.command("serve")(serve)
app.add_typer(models, name="models")
app.add_typer(bench, name="bench")
app.add_typer(train, name="train")


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
) -> int:
    if context.invoked_subcommand is None:
        with contextlib.redirect_stdout(sys.stderr):
            typer.echo(context.get_help())
        return WRONG_USAGE
    return ANSWERED


def run_app() -> NoReturn:
    """Run the command line of this process, and end it."""
    prepare_streams()
    if "_COLLIGATE_COMPLETE" in os.environ:
        get_command(app).main(prog_name="colligate")
    _leave(run_command(sys.argv[1:]))


def run_command(arguments: list[str]) -> int:
    """Run one command line and return its exit status; what goes wrong is said in one line."""
    try:
        command = get_command(app)
        with command.make_context("colligate", arguments) as context:
            status = command.invoke(context) or ANSWERED
        sys.stdout.flush()
    except typer.Exit as done:
        return done.exit_code
    except (Exception, KeyboardInterrupt) as error:
        return report(error)
    return int(status)


def _leave(status: int) -> NoReturn:
    try:
        sys.stdout.flush()
    except OSError:
        hush()
    # A model call that cannot be stopped (a thread in C code) must not hold the prompt: what
    # had to be kept is on disk by now.
    last = threading.Timer(_SECONDS_TO_STOP, os._exit, [status])
    last.daemon = True
    last.start()
    sys.exit(status)
