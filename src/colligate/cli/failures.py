"""What went wrong as one line and an exit status."""

from __future__ import annotations

import asyncio
import errno
import os
import sys
import traceback
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from typer import Abort
from typer.exceptions import TyperException

from colligate.cli.display import note
from colligate.errors import ColligateError, UsageError, cause

ANSWERED = 0
FAULT = 1
WRONG_USAGE = 2
NOT_FOUND = 3
INTERRUPTED = 130  # as shells report a process that SIGINT ended
PIPE_CLOSED = 141  # as shells report a process that SIGPIPE ended


def report(error: BaseException) -> int:
    """Say what happened in one line on standard error; returns the exit status.

    With `COLLIGATE_DEBUG=1` in the environment the traceback comes before the line.
    """
    error = cause(error)
    if isinstance(error, BrokenPipeError):
        return hush()
    line, status = _verdict(error)
    with suppress(OSError):  # nobody may be reading standard error any more
        if os.environ.get("COLLIGATE_DEBUG") == "1":
            traceback.print_exception(error)
        note(f"colligate: {line}", style="red")
    return status


def _verdict(error: BaseException) -> tuple[str, int]:
    match error:
        case KeyboardInterrupt() | Abort():
            return "interrupted; what was indexed or read by then is kept", INTERRUPTED
        case UsageError():
            return str(error), WRONG_USAGE
        case ColligateError():
            return str(error), FAULT
        case TyperException():
            return _usage(error), error.exit_code
        case MemoryError():
            return "out of memory; give fewer files, or a smaller model", FAULT
        case OSError():
            place = f": {error.filename}" if error.filename else ""
            return f"{error.strerror or error}{place}; {_mend(error)}", FAULT
        case _:
            name = type(error).__name__
            hint = "COLLIGATE_DEBUG=1 shows the traceback, please report it"
            return f"internal error: {name}: {error}; {hint}", FAULT


def _mend(error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "free some disk space"
    return "COLLIGATE_DEBUG=1 shows where"


def _usage(error: TyperException) -> str:
    message = error.format_message().rstrip(".")
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "colligate"
    return f"{message}; see '{command} --help'"


def hush() -> int:
    """Point standard output at nothing, for its reader has gone (`| head`).

    Python would otherwise complain when it flushes at exit.
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return PIPE_CLOSED


# From a command to the event loop and back.

T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end. An interrupt cancels it, and its clean-up still runs.

    After a failure no thread is waited for: one that is in C code may never stop.
    """
    runner = asyncio.Runner()
    try:
        result = runner.run(work)
    except BaseException:
        runner.get_loop().close()
        raise
    runner.close()
    return result
