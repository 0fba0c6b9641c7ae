"""One strategy's answer to one question: how it is asked for, and what is kept of it."""

from __future__ import annotations

import asyncio
import time
import traceback
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

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


@dataclass(frozen=True)
class Outcome:
    """One strategy's answer to one question: all that metrics look at, and what a row keeps.

    `text` is the answer with its marks of citations ("[1]", "[uncited]"), `short` the short
    answer where there is one; both are empty where it refused (`found` False) or failed (`error`).
    `citations` are in the order of their marks, `evidence` is what the last reader was shown, best
    first, `retrieved` what searches returned, in the order in which it was first found. `stages`
    are the documents that were left after each named step ("local", "kept", ...). `usage` is
    `UsageReport.to_json()`.
    """

    text: str = ""
    short: str = ""
    found: bool = False
    citations: tuple[Piece, ...] = ()
    evidence: tuple[Piece, ...] = ()
    retrieved: tuple[Piece, ...] = ()
    stages: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    usage: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    warnings: tuple[str, ...] = ()
    error: str = ""

    @property
    def answered(self) -> bool:
        """Whether there is an answer: it neither refused nor failed."""
        return self.found and not self.error

    def to_json(self) -> dict[str, Any]:
        """Return the outcome as a row keeps it."""
        return {
            "text": self.text,
            "short": self.short,
            "found": self.found,
            "citations": [piece.to_json() for piece in self.citations],
            "evidence": [piece.to_json() for piece in self.evidence],
            "retrieved": [piece.to_json() for piece in self.retrieved],
            "stages": {name: list(documents) for name, documents in self.stages.items()},
            "usage": dict(self.usage),
            "seconds": self.seconds,
            "warnings": list(self.warnings),
            "error": self.error,
        }

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> Outcome:
        """Return the outcome that `to_json` gave."""
        return cls(
            text=str(row["text"]),
            short=str(row["short"]),
            found=bool(row["found"]),
            citations=tuple(map(Piece.from_json, row["citations"])),
            evidence=tuple(map(Piece.from_json, row["evidence"])),
            retrieved=tuple(map(Piece.from_json, row["retrieved"])),
            stages={name: tuple(documents) for name, documents in row["stages"].items()},
            usage=dict(row["usage"]),
            seconds=float(row["seconds"]),
            warnings=tuple(row["warnings"]),
            error=str(row["error"]),
        )


@dataclass(frozen=True)
class Piece:
    """A stretch of a document, half-open in code points, with its text.

    `title` is its document's. Of a citation, `answer_spans` are the stretches of the answer's
    text that rest on it.
    """

    document: str
    start: int
    end: int
    text: str
    title: str = ""
    answer_spans: tuple[tuple[int, int], ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the piece as a row keeps it."""
        return {
            "document": self.document,
            "start": self.start,
            "end": self.end,
            "text": self.text,
            "title": self.title,
            "answer_spans": [list(span) for span in self.answer_spans],
        }

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> Piece:
        """Return the piece that `to_json` gave."""
        spans = tuple((int(start), int(end)) for start, end in row.get("answer_spans", ()))
        text, title = str(row["text"]), str(row.get("title", ""))
        return cls(str(row["document"]), int(row["start"]), int(row["end"]), text, title, spans)


@dataclass
class Answerer:
    """Asks strategies questions; `timeout` is seconds for each answer, None for no limit."""

    models: Mapping[Role, ChatModel]
    spending: Spending
    embedder: Embedder | None = None
    reranker: Reranker | None = None
    timeout: float | None = None

    async def answer(
        self, strategy: Strategy, question: str, sources: Sources
    ) -> tuple[Outcome, Trace]:
        """Return the outcome and its events; what the strategy raises is the outcome's `error`.

        Each run begins with an empty store, so that an answer costs what it costs alone.

        Raises:
            BudgetExceeded: the budget of the whole bench is spent; there is no outcome.
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
            error = _describe(trouble)
            if deadline.expired():
                error = f"{BudgetExceeded.__name__}: no answer within {self.timeout:g} seconds"
        except BaseExceptionGroup as group:
            ordinary, other = group.split(Exception)
            if other is not None:
                raise
            error = _describe(cause(ordinary or group))
        except Exception as trouble:  # a strategy may be another package's, and raise anything
            error = _describe(trouble)
        usage = run.meter.report(seconds=time.perf_counter() - began)
        if budget.refused is not None:
            raise budget.refused
        try:
            return await observe(run, usage, answer, error), run.trace
        except Exception as trouble:  # the answer may cite what does not exist
            failed = Outcome(usage=usage.to_json(), seconds=usage.seconds, error=_describe(trouble))
            return failed, run.trace


async def observe(
    run: Run, usage: UsageReport, answer: Answer | None = None, error: str = ""
) -> Outcome:
    """Return the outcome of a run: its answer, or why it failed and how far it came."""
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
        citations=tuple([await _cut(run, span, of_answer) for span, of_answer in spans]),
        evidence=tuple([await _cut(run, each.span) for each in evidence]),
        retrieved=tuple([await _cut(run, span) for span in collect_retrieved(events)]),
        stages=collect_stages(events),
        usage=usage.to_json(),
        seconds=usage.seconds,
        warnings=tuple(dict.fromkeys(warned)),
        error=error,
    )


def collect_retrieved(events: Iterable[Event]) -> list[Span]:
    """Return what searches returned, each place once, in the order in which it was first found."""
    found = (event.spans for event in events if isinstance(event, Retrieved))
    return list(dict.fromkeys(span for spans in found for span in spans))


def collect_stages(events: Iterable[Event]) -> Mapping[str, tuple[str, ...]]:
    """Return the documents left after each stage of a strategy, by the stage's name.

    The events name the stages: DuQUAD has "global" and "local" (read by these agents), "named" (by
    either) and "kept" (by the gate); RDR2 "routed"; LongRefiner "refined" and "selected"; DualRAG
    "gathered" and "outlined"; SPD-RAG "read" and "found".
    """
    made: dict[str, list[str]] = {}
    for event in events:
        for stage, documents in event.stage.items():
            made.setdefault(stage, []).extend(documents)
    return {stage: tuple(dict.fromkeys(documents)) for stage, documents in made.items()}


async def _cut(run: Run, span: Span, answer_spans: tuple[tuple[int, int], ...] = ()) -> Piece:
    document = await run.document(span.document_id)
    text = document.slice(span)
    return Piece(span.document_id, span.start, span.end, text, document.title, answer_spans)


def _describe(error: BaseException) -> str:
    """Return the error in one line; an error that is not colligate's with where it was raised."""
    if isinstance(error, ColligateError):
        return f"{type(error).__name__}: {error}"
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({frames[-1].name}, line {frames[-1].lineno})" if frames else ""
    return " ".join(f"internal error: {type(error).__name__}: {error}{place}".split())
