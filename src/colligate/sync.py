"""Blocking calls: `ask` and `Library`, for code without an event loop.

Coroutines run on one event loop in a background thread, so that models and libraries opened by one
call serve the next, and so that it works where a loop already runs, as in a notebook.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from functools import cache, wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from colligate.core.answer import Answer
from colligate.core.strategy import Strategy
from colligate.engine import DEFAULT_STRATEGY, AskOptions, Engine, Paths
from colligate.errors import UsageError
from colligate.library.ingest import Ingested
from colligate.library.library import AsyncLibrary
from colligate.table import Layout, Table

P = ParamSpec("P")
T = TypeVar("T")


def ask(
    question: str, paths: Paths = (), *, strategy: str | Strategy = DEFAULT_STRATEGY, **options: Any
) -> Answer:
    """Answer one question over files and folders, or over a library (`library="papers.library"`).

    `options` are those of `Engine.ask` and the fields of `Engine`:

        answer = ask("Who signed the lease?", "contracts/", where=["date>=2024"])

    Raises:
        ColligateError: as `Engine.ask`.
    """
    how: Any = {each: options.pop(each) for each in AskOptions.__annotations__ if each in options}

    async def answer() -> Answer:
        async with Engine(**options) as engine:
            return await engine.ask(question, paths, strategy=strategy, **how)

    return run_blocking(answer())


def _blocking(
    method: Callable[Concatenate[AsyncLibrary, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Library, P], T]:
    """Return a method of `Library` that waits for one of `AsyncLibrary`."""

    @wraps(method)
    def wait(self: Library, /, *args: P.args, **named: P.kwargs) -> T:
        library = run_blocking(self._engine.open_library())
        return run_blocking(method(library, *args, **named))

    return wait


class Library:
    """Documents kept on disk: added, listed, searched and removed. The blocking face of
    `AsyncLibrary`.

        with Library("papers.library") as library:
            library.add("papers/")
            print(library.search("latency"))

    Without `path` it is the library that the environment or a `colligate.toml` names, or the
    user's own. `engine` takes the other fields of `Engine`.
    """

    def __init__(self, path: str | Path | None = None, **engine: Any) -> None:
        self._engine = Engine(library=path, **engine)

    def __enter__(self) -> Library:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Free models and files. Safe to call twice."""
        run_blocking(self._engine.aclose())

    def add(self, *paths: str | Path) -> Ingested:
        """Read files and folders; unchanged files are left as they are."""
        return run_blocking(self._engine.add(paths))

    def remove(self, *documents: str) -> list[str]:
        """Remove documents as `AsyncLibrary.remove` does; return the ids removed."""
        return self._remove(documents)

    def ask(self, question: str, paths: Paths = (), **options: Any) -> Answer:
        """Answer a question over its documents, or over files that are read into it.

        Its models stay open for the next one. `options` and errors are those of `Engine.ask`.
        """
        return run_blocking(self._engine.ask(question, paths, **options))

    def table(self, columns: str | Layout, paths: Paths = (), **options: Any) -> Table:
        """Fill a table over its documents, or over files; `options` are those of `Engine.table`."""
        return run_blocking(self._engine.table(columns, paths, **options))

    documents = _blocking(AsyncLibrary.documents)
    document = _blocking(AsyncLibrary.document)
    search = _blocking(AsyncLibrary.search)
    verify = _blocking(AsyncLibrary.verify)
    _remove = _blocking(AsyncLibrary.remove)


def run_blocking(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end; an interrupt cancels it."""
    loop = _start_loop()
    if asyncio._get_running_loop() is loop:  # waiting here would wait for itself
        coroutine.close()
        why = "the call that it is made in (in `on_event`, for one) would wait for itself"
        hint = "make it afterwards, or await an Engine"
        raise UsageError("a blocking call cannot be made here", why, hint)
    future = asyncio.run_coroutine_threadsafe(coroutine, loop)
    try:
        return future.result()
    except KeyboardInterrupt:
        future.cancel()
        raise


@cache
def _start_loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="colligate", daemon=True).start()
    return loop


if hasattr(os, "register_at_fork"):  # the thread does not live on in a forked process
    os.register_at_fork(after_in_child=_start_loop.cache_clear)
