"""One strategy's answer to one question: the row that a run keeps, and how it is asked for."""

from __future__ import annotations

import asyncio
import time
import traceback
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import TypeAdapter, ValidationError

from colligate.bench.datasets.records import first_fault
from colligate.core.answer import Answer
from colligate.core.events import Event, Retrieved, Trace
from colligate.core.run import Run
from colligate.core.strategy import Strategy
from colligate.documents import Span
from colligate.errors import BudgetExceeded, ColligateError, MissingPath, cause
from colligate.jobs.files import JsonlReader
from colligate.jobs.job import ResultFile
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
    `UsageReport.to_json()`; `counts` are what the events count (`Event.counts`), summed.
    """

    text: str = ""
    short: str = ""
    found: bool = False
    citations: tuple[Piece, ...] = ()
    evidence: tuple[Piece, ...] = ()
    retrieved: tuple[Piece, ...] = ()
    stages: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    usage: Mapping[str, Any] = field(default_factory=dict)
    counts: Mapping[str, float] = field(default_factory=dict)
    seconds: float = 0.0
    warnings: tuple[str, ...] = ()
    error: str = ""

    @property
    def answered(self) -> bool:
        """Whether there is an answer: it neither refused nor failed."""
        return self.found and not self.error


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


# Rows on the disk: one for each data set, question and strategy, as it is answered


class Key(NamedTuple):
    """The key of a row in its run. `question` is the question's id in its data set."""

    dataset: str
    question: str
    strategy: str

    def __str__(self) -> str:
        return f"{self.dataset} {self.question}: {self.strategy}"


@dataclass(frozen=True)
class Row:
    """One strategy's answer to one question, with its metrics.

    `dataset` and `strategy` are the suite's names. `answers` are the right ones, for a person to
    read; `answerable` False means that the documents hold none. `metrics` are by name;
    `unmeasured` says, by group of metrics, why some are missing (a judge that did not reply).
    `trace` is the file of the answer's events below the run's folder. `began` is in UTC;
    `attempt` counts from 1, and only a failed row is tried again. The passages `retrieved` of the
    outcome come without their text.
    """

    dataset: str
    question: str
    strategy: str
    question_text: str
    answers: tuple[str, ...]
    outcome: Outcome
    metrics: Mapping[str, float]
    gold_at: int | None = None
    answerable: bool = True
    unmeasured: Mapping[str, str] = field(default_factory=dict)
    trace: str | None = None
    began: str = ""
    attempt: int = 1

    @property
    def key(self) -> Key:
        return Key(self.dataset, self.question, self.strategy)

    @property
    def error(self) -> str:
        """The reason why there is no answer; empty if there is one."""
        return self.outcome.error

    def bare(self) -> Row:
        """Return the row without the texts of what was retrieved, which are most of its size."""
        retrieved = tuple(replace(piece, text="") for piece in self.outcome.retrieved)
        return replace(self, outcome=replace(self.outcome, retrieved=retrieved))

    def to_json(self) -> dict[str, Any]:
        """Return the row as a line of the file holds it: `bare`."""
        return asdict(self.bare())


def _parse(line: Mapping[str, Any]) -> tuple[Key, Row]:
    try:
        row = _ROW.validate_python(line)
    except ValidationError as error:
        raise ValueError(first_fault(error)) from None
    return row.key, row


_ROW = TypeAdapter(Row)  # fields that another version wrote are left out
ROWS: ResultFile[Key, Row] = ResultFile(
    "rows.jsonl",
    JsonlReader(_parse, "a row", "delete the line: the same command asks its question again"),
    lambda _, row: row.to_json(),
)


def read_rows(folder: Path) -> list[Row]:
    """Read the rows of a run's folder, in the order in which their keys first came. Blocks.

    A last line that is not whole is left out, so a run can be read while it is in progress.
    """
    if not (folder / ROWS.name).is_file():
        why, hint = f"it has no {ROWS.name}", "colligate bench run --out makes one"
        raise MissingPath(f"{folder} is not a run", why, hint)
    return list(ROWS.read(folder).values())


# Asking


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
        counts=collect_counts(events),
        seconds=usage.seconds,
        warnings=tuple(dict.fromkeys(warned)),
        error=error,
    )


def collect_retrieved(events: Iterable[Event]) -> list[Span]:
    """Return what searches returned, each place once, in the order in which it was first found."""
    found = (event.spans for event in events if isinstance(event, Retrieved))
    return list(dict.fromkeys(span for spans in found for span in spans))


def collect_counts(events: Iterable[Event]) -> Mapping[str, float]:
    """Return what the events of a run count, summed by name."""
    sums: Counter[str] = Counter()
    for event in events:
        sums.update(event.counts)
    return dict(sums)


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
