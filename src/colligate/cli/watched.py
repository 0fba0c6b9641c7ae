"""A run while a person looks on: progress on standard error, every event in the trace file."""

from __future__ import annotations

import sys
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from colligate.cli.display import warn
from colligate.cli.failures import run
from colligate.cli.progress import watching
from colligate.cli.tracing import TraceFile
from colligate.errors import UsageError

if TYPE_CHECKING:
    from colligate.core.events import Event, Listener


class _Warning(Protocol):
    @property
    def warnings(self) -> tuple[str, ...]: ...


T = TypeVar("T", bound=_Warning)


def watched(work: Callable[[Listener], Coroutine[Any, Any, T]], trace: Path | None) -> T:
    """Do what `work` says, with what is to be told of its events; warnings are shown once.

    Raises:
        UsageError: the trace cannot be written.
    """
    with ExitStack() as stack:
        trace_file = stack.enter_context(TraceFile(trace)) if trace else None
        watcher = stack.enter_context(watching(sys.stderr))

        def on_event(event: Event) -> None:
            if trace_file is not None:
                trace_file.write(event)
            watcher.see(event)

        result = run(work(on_event))
    for warning in result.warnings:
        if warning not in watcher.warned:
            warn(warning)
    return result


def hold_to_text(question: str) -> None:
    """Refuse a question whose bytes are no text.

    Raises:
        UsageError: they are not.
    """
    try:
        question.encode()
    except UnicodeEncodeError as error:
        why = "its bytes are not valid in this terminal's encoding"
        raise UsageError("the question is not text", why, "write it in UTF-8") from error
