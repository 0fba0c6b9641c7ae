"""Answering for other programs inside a server: as any run of it, with its limits and its list."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from colligate.engine import DEFAULT_STRATEGY
from colligate.errors import ColligateError
from colligate.library.sources import Sources
from colligate.server.answering import DEFAULT_LIBRARY, OnStep
from colligate.server.routes.asking import Asked
from colligate.server.runs import Run
from colligate.server.server import Server


class RunFailed(ColligateError):
    """A run ended without an answer; `problem` is what the server says of it."""

    def __init__(self, problem: Mapping[str, Any]) -> None:
        super().__init__(str(problem["detail"]), "", str(problem.get("hint", "")))
        self.problem = dict(problem)


@dataclass(frozen=True)
class Served:
    """`Answering` over a server's libraries, each question one of its runs."""

    server: Server

    async def libraries(self) -> Sequence[str]:
        """All names, the default first."""
        return self.server.libraries.names()

    async def sources(self, library: str = DEFAULT_LIBRARY) -> Sources:
        """A library, opened."""
        return await self.server.libraries.library(library)

    async def answer(
        self,
        question: str,
        *,
        library: str = DEFAULT_LIBRARY,
        strategy: str = DEFAULT_STRATEGY,
        on_step: OnStep | None = None,
    ) -> dict[str, Any]:
        """The answer of a run, which stops when this is cancelled.

        Raises:
            RunFailed: it ended without one.
            Busy: there is no room for it.
            UsageError: the question is empty or too long, or there is no such strategy.
        """
        asked = Asked(question=question, strategy=strategy)
        run = await self.server.runs.begin(library, asked.ask(self.server.serving))
        try:
            async for _, event in self.server.runs.follow(run):
                if on_step is not None:
                    on_step(json.loads(event) if isinstance(event, bytes) else event)
        finally:
            run.cancel()
        return await answer_of(run)


async def answer_of(run: Run) -> dict[str, Any]:
    """The answer of a run that has ended.

    Raises:
        RunFailed: it has none.
    """
    outcome = await run.outcome()
    if "answer" not in outcome:
        raise RunFailed(outcome["problem"])
    answer: dict[str, Any] = outcome["answer"]
    return answer
