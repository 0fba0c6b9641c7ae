"""The commands `bench` and `train`, and what both need."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from colligate.cli import options
from colligate.cli.command import event_loop
from colligate.cli.display import note
from colligate.errors import ColligateError

if TYPE_CHECKING:
    from colligate.core.events import Listener

T = TypeVar("T")

ItemTimeout = Annotated[
    float | None,
    options.option(
        "The longest time for one question, or document; a slower one counts as failed.",
        options.LIMITS,
        metavar="SECONDS",
        min=0.001,
    ),
]


def pick(given: Any, kind: type) -> dict[str, Any]:
    """Return the options that a request of a kind has fields of the same name for."""
    wanted = {each.name for each in fields(kind)}
    return {each.name: getattr(given, each.name) for each in fields(given) if each.name in wanted}


def split_names(text: str | None) -> tuple[str, ...]:
    """Return the names in a text such as "a,b"."""
    return tuple(name.strip() for name in (text or "").split(",") if name.strip())


def collect_given(group: Any, *names: str) -> dict[str, Any]:
    """Return the options of these names that have a value, as JSON values."""
    values = {name: getattr(group, name) for name in names}
    return {
        name: str(value) if isinstance(value, Path) else value
        for name, value in values.items()
        if value is not None
    }


def run_resumable(work: Callable[[Listener], Coroutine[Any, Any, T]], folder: Path) -> T | None:
    """Run work that keeps what is finished in a folder; return None if it was interrupted."""
    from colligate.cli.progress import watch_run

    with watch_run() as watcher:
        try:
            with event_loop() as loop:
                return loop.run(work(watcher.see))
        except (KeyboardInterrupt, ColligateError, OSError) as error:
            if folder.exists():
                note(f"stopped; what is finished is in {folder}; the same command resumes")
            if not isinstance(error, KeyboardInterrupt):
                raise
            return None
