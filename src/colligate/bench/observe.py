"""From an answer and the events of its run to what metrics look at."""

from __future__ import annotations

import asyncio
import time
import traceback
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from colligate.bench.outcome import Outcome, Piece
from colligate.core.answer import Answer
from colligate.core.events import Event, Retrieved, Trace
from colligate.core.run import Run
from colligate.core.strategy import Strategy
from colligate.documents import Span
from colligate.errors import BudgetExceeded, ColligateError, cause
from colligate.jobs.spending import SharedTokenBudget, Spending
from colligate.library.sources import Sources
from colligate.models import ChatModel, Embedder, Reranker, Role
from colligate.models.metering import UsageReport


async def observed(
    run: Run, usage: UsageReport, answer: Answer | None = None, error: str = ""
) -> Outcome:
    """The outcome of a run: its answer, or why it broke and how far it had come."""
    events = [event for _, event in run.trace.events]
    found = answer is not None and answer.found
    cited = answer.citations if answer is not None and found else ()
    spans = [(citation.span, citation.answer_spans) for citation in cited]
    evidence = answer.evidence if answer is not None else ()
    warned = (*run.warnings, *(answer.warnings if answer is not None else ()))
    return Outcome(
        text=answer.text if answer is not None and found else "",
        short=(answer.short or "") if answer is not None and found else "",
        found=found,
        citations=tuple([await _piece(run, span, of_answer) for span, of_answer in spans]),
        evidence=tuple([await _piece(run, each.span) for each in evidence]),
        retrieved=tuple([await _piece(run, span) for span in retrieved(events)]),
        stages=stages(events),
        usage=usage.to_json(),
        seconds=usage.seconds,
        warnings=tuple(dict.fromkeys(warned)),
        error=error,
    )


def retrieved(events: Iterable[Event]) -> list[Span]:
    """What searches returned, each place once, in the order in which it was first found."""
    found = (event.spans for event in events if isinstance(event, Retrieved))
    return list(dict.fromkeys(span for spans in found for span in spans))


def stages(events: Iterable[Event]) -> Mapping[str, tuple[str, ...]]:
    """Return the documents left after each stage of a strategy, by the stage's name.

    The events say which: DuQUAD has "global" and "local" (read by these agents), "named" (by
    either) and "kept" (by the gate); RDR2 "routed"; LongRefiner "refined" and "selected"; DualRAG
    "gathered" and "outlined"; SPD-RAG "read" and "found".
    """
    made: dict[str, list[str]] = {}
    for event in events:
        for stage, documents in event.stage.items():
            made.setdefault(stage, []).extend(documents)
    return {stage: tuple(dict.fromkeys(documents)) for stage, documents in made.items()}


async def _piece(run: Run, span: Span, answer_spans: tuple[tuple[int, int], ...] = ()) -> Piece:
    document = await run.document(span.document_id)
    text = document.slice(span)
    return Piece(span.document_id, span.start, span.end, text, document.title, answer_spans)


# One strategy's answer to one question, whatever becomes of it.


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
        budget = SharedTokenBudget(self.spending, run.meter)
        run.tokens = budget
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
            error = _said(cause(ordinary or group))
        except Exception as trouble:  # a strategy may be another package's, and raise anything
            error = _said(trouble)
        usage = run.meter.report(seconds=time.perf_counter() - began)
        if budget.refused is not None:
            raise budget.refused
        try:
            return await observed(run, usage, answer, error), run.trace
        except Exception as trouble:  # the answer may cite what there is not
            broken = Outcome(usage=usage.to_json(), seconds=usage.seconds, error=_said(trouble))
            return broken, run.trace


def _said(error: BaseException) -> str:
    """The error in one line; of one that is none of ours, where it was raised."""
    if isinstance(error, ColligateError):
        return f"{type(error).__name__}: {error}"
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({frames[-1].name}, line {frames[-1].lineno})" if frames else ""
    return " ".join(f"internal error: {type(error).__name__}: {error}{place}".split())
