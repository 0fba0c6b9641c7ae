"""One strategy's answer to one question, whatever becomes of it."""

from __future__ import annotations

import asyncio
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass

from colligate.errors import BudgetExceeded, ColligateError
from colligate.evaluation.observing import observed
from colligate.evaluation.outcome import Outcome
from colligate.evaluation.spending import RunPurse, Spending
from colligate.library.sources import Sources
from colligate.models import ChatModel, Embedder, Reranker, Role
from colligate.strategies.answer import Answer
from colligate.strategies.run import Run
from colligate.strategies.strategy import Strategy
from colligate.strategies.trace import Trace


@dataclass
class Answering:
    """What all answers of a bench are made with; `timeout` is seconds for each, None for ever."""

    models: Mapping[Role, ChatModel]
    spending: Spending
    embedder: Embedder | None = None
    reranker: Reranker | None = None
    timeout: float | None = None

    async def answered(
        self, strategy: Strategy, question: str, sources: Sources
    ) -> tuple[Outcome, Trace]:
        """The outcome and its events. What the strategy raises is the outcome's `error`.

        Each run begins with nothing remembered, so that it costs what it costs alone.

        Raises:
            BudgetExceeded: the budget of the whole bench is spent, and there is no outcome.
        """
        run = Run(
            sources,
            self.models,
            self.spending.meter(),
            reranker=self.reranker if strategy.needs.searches else None,
            embedder=self.embedder,
        )
        purse = RunPurse(self.spending, run.meter)
        run.purse = purse
        answer: Answer | None = None
        error = ""
        began = time.perf_counter()
        try:
            async with asyncio.timeout(self.timeout) as deadline:
                answer = await strategy.answer(question, run)
        except TimeoutError as trouble:
            error = _said(trouble)
            if deadline.expired():
                error = f"{BudgetExceeded.__name__}: no answer within {self.timeout:g} seconds"
        except BaseExceptionGroup as group:
            ordinary, other = group.split(Exception)
            if other is not None:
                raise
            error = _said(first_of(ordinary or group))
        except Exception as trouble:  # a strategy may be another package's, and raise anything
            error = _said(trouble)
        usage = run.meter.report(seconds=time.perf_counter() - began)
        if purse.refused is not None:
            raise purse.refused
        try:
            return await observed(run, usage, answer, error), run.trace
        except Exception as trouble:  # the answer may cite what there is not
            broken = Outcome(usage=usage.to_json(), seconds=usage.seconds, error=_said(trouble))
            return broken, run.trace


def first_of(error: BaseException) -> BaseException:
    """The error itself where tasks have wrapped it in groups, ours before any other."""
    while isinstance(error, BaseExceptionGroup):
        inner: tuple[BaseException, ...] = error.exceptions
        error = next((each for each in inner if isinstance(each, ColligateError)), inner[0])
    return error


def _said(error: BaseException) -> str:
    """The error in one line; of one that is none of ours, where it was raised."""
    if isinstance(error, ColligateError):
        return f"{type(error).__name__}: {error}"
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({frames[-1].name}, line {frames[-1].lineno})" if frames else ""
    return " ".join(f"internal error: {type(error).__name__}: {error}{place}".split())
