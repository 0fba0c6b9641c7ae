"""How a command is declared, how it runs, and how it ends: exit status and one line of error."""

from __future__ import annotations

import errno
import inspect
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import MISSING, fields, is_dataclass
from functools import wraps
from inspect import Parameter
from typing import TYPE_CHECKING, Any, TypeVar, get_type_hints

import typer

from colligate.cli import options
from colligate.cli.display import tell
from colligate.errors import ColligateError, UsageError, cause

if TYPE_CHECKING:
    from asyncio import Runner

    from typer.exceptions import TyperException
else:  # releases before 0.27 have no `typer.exceptions`
    TyperException = typer.BadParameter.mro()[2]

ANSWERED = 0
FAULT = 1
WRONG_USAGE = 2
NOT_FOUND = 3
INTERRUPTED = 130  # as shells report a process that SIGINT ended
PIPE_CLOSED = 141  # as shells report a process that SIGPIPE ended

C = TypeVar("C", bound=Callable[..., Any])


def command(app: typer.Typer, name: str | None = None) -> Callable[[C], C]:
    """Return a decorator that makes a function, also an `async` one, a command of `app`.

    A parameter whose type is a dataclass is an option group: the command gets an option for each
    field, and the function the group. What the docstring says after "Examples:" ends the help. The
    function returns the exit status; of an `async` one `main` gets the coroutine.
    """

    def register(function: C) -> C:
        parameters: list[Parameter] = []
        groups: dict[str, Any] = {}
        for each in inspect.signature(function, eval_str=True).parameters.values():
            if not is_dataclass(each.annotation):
                parameters.append(each)
                continue
            groups[each.name] = each.annotation
            hints = get_type_hints(each.annotation, include_extras=True)
            parameters += [
                Parameter(
                    option.name,
                    Parameter.KEYWORD_ONLY,
                    default=Parameter.empty if option.default is MISSING else option.default,
                    annotation=hints[option.name],
                )
                for option in fields(each.annotation)
            ]

        parameters += [
            Parameter(name, Parameter.KEYWORD_ONLY, default=False, annotation=annotation)
            for name, annotation in options.OF_ALL_COMMANDS.items()
        ]

        @wraps(function)
        def run(**values: Any) -> Any:
            for name in options.OF_ALL_COMMANDS:
                del values[name]
            for parameter, group in groups.items():
                values[parameter] = group(
                    **{each.name: values.pop(each.name) for each in fields(group)}
                )
            return function(**values)

        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {each.name: each.annotation for each in parameters}
        help, _, examples = inspect.cleandoc(function.__doc__ or "").partition("\n\nExamples:\n")
        help = re.sub(r"(?<!\n)\n(?=\S)", " ", help)  # paragraphs flow; indented lines stay
        app.command(name, help=help, epilog=f"Examples:\n{examples}" if examples else None)(run)
        return function

    return register


@contextmanager
def event_loop() -> Iterator[Runner]:
    """Yield a runner of coroutines. An interrupt cancels them, and their clean-up still runs.

    After a failure no thread is waited for: one that runs C code may never stop.
    """
    from asyncio import Runner

    runner = Runner()
    try:
        yield runner
    except BaseException:
        runner.get_loop().close()
        raise
    runner.close()


def report_error(error: BaseException) -> int:
    """Report what happened in one line on standard error; return the exit status.

    With `COLLIGATE_DEBUG=1` in the environment the traceback comes before the line.
    """
    error = cause(error)
    if isinstance(error, BrokenPipeError):
        return discard_output()
    line, status = _explain(error)
    with suppress(OSError):  # standard error may be closed as well
        if os.environ.get("COLLIGATE_DEBUG") == "1":
            traceback.print_exception(error)
        tell(f"colligate: {line}", "red")
    return status


def _explain(error: BaseException) -> tuple[str, int]:
    match error:
        case KeyboardInterrupt() | typer.Abort():
            return "interrupted; what was read and indexed before is kept", INTERRUPTED
        case UsageError():
            return str(error), WRONG_USAGE
        case ColligateError():
            return str(error), FAULT
        case TyperException():
            context = getattr(error, "ctx", None)
            path = "colligate" if context is None else context.command_path
            return f"{_explain_usage(error)}; see '{path} --help'", error.exit_code
        case MemoryError():
            return "out of memory; give fewer files or a smaller model", FAULT
        case OSError():
            place = f": {error.filename}" if error.filename else ""
            full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            hint = "free some disk space" if full else "COLLIGATE_DEBUG=1 shows the traceback"
            return f"{error.strerror or error}{place}; {hint}", FAULT
        case _:
            hint = "COLLIGATE_DEBUG=1 shows the traceback, please report it"
            return f"internal error: {type(error).__name__}: {error}; {hint}", FAULT


def _explain_usage(error: TyperException) -> str:
    """Return what was expected and given; typer's own message leaves out what was given."""
    from pydantic_core import ValidationError

    option, problem = getattr(error, "param", None), error.__cause__
    if option is not None and isinstance(problem, ValidationError):
        from colligate.core.parameters import describe_invalid

        given = problem.errors(include_url=False)[0]["input"]
        return f"{option.opts[0]}: {describe_invalid(problem)}, got {given}"
    message = error.format_message().rstrip(".")
    if message == "Missing command":
        return f"{message}: {', '.join(error.ctx.command.commands)}"  # type: ignore[attr-defined]
    return message


def discard_output() -> int:
    """Point standard output at nothing because its reader has gone (`| head`).

    Python would otherwise complain when it flushes at exit.
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return PIPE_CLOSED
