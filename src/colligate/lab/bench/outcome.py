"""One strategy's answer to one question: the row that a run keeps, and how it is asked for."""

from __future__ import annotations

import asyncio
import math
import time
import traceback
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from pydantic import TypeAdapter, ValidationError

from colligate.core.answer import Answer
from colligate.core.events import Assembled, Event, Retrieved, Said, Trace
from colligate.core.run import Check, Reader, Retriever, Run
from colligate.core.strategy import Strategy
from colligate.documents import Document, Kind, Span
from colligate.errors import BudgetExceeded, ColligateError, MissingPath, cause
from colligate.lab.bench.datasets.records import first_fault
from colligate.lab.jobs.files import ResultFile
from colligate.lab.jobs.spending import SharedTokenBudget, Spending
from colligate.library.sources import SearchMode, Sources
from colligate.models import ChatModel, Embedder, Reranker, Role
from colligate.models.metering import UsageReport
from colligate.readers import make_reader
from colligate.readers.followup import Turn, complete_question


@dataclass(frozen=True)
class Outcome:
    """One strategy's answer to one question: all that metrics look at, and what a row keeps.

    `text` has its marks of citations ("[1]", "[uncited]"); it and `short` are empty where it
    refused (`found` False) or failed (`error`). `citations` are in the order of their marks,
    `evidence` is what the last reader was shown, `retrieved` what searches returned, in the order
    first found. `stages` are the documents left after each named step, `ratings` what a step scored
    them, `counts` the sums of numbers that steps report, `rounds` those that the strategy reports,
    `attention` that to each document in the order given, where the strategy asked for it.
    `said` and `said_short` are what the reader replied before its citations were checked.
    `passages` are the texts handed to the reader (`Assembled`), where that is not the evidence.
    `depth` is the mean depth of the retrieved documents' heading trees (the title is 1, text below
    it 2, text of a section 3), `view_tokens` about how many tokens the documents in view have.
    `usage` is `UsageReport.to_json()`. `probability` is the answer's, where it is known.
    """

    text: str = ""
    short: str = ""
    found: bool = False
    citations: tuple[Piece, ...] = ()
    evidence: tuple[Piece, ...] = ()
    retrieved: tuple[Piece, ...] = ()
    stages: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    rounds: int | None = None
    said: str = ""
    said_short: str = ""
    ratings: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    counts: Mapping[str, float] = field(default_factory=dict)
    attention: tuple[float, ...] = ()
    passages: tuple[str, ...] = ()
    depth: float = 0.0
    view_tokens: int = 0
    usage: Mapping[str, Any] = field(default_factory=dict)
    probability: float | None = None
    seconds: float = 0.0
    warnings: tuple[str, ...] = ()
    error: str = ""

    @property
    def answered(self) -> bool:
        """Whether there is an answer: it neither refused nor failed."""
        return self.found and not self.error


@dataclass(frozen=True)
class Piece:
    """A stretch of a document with this `title`, half-open in code points, and its text."""

    document: str
    start: int
    end: int
    text: str
    title: str = ""


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

    `answers` are the right ones, for a person to read. `unmeasured` says, by group of metrics, why
    some are missing (a judge that did not reply). `trace` is the file of the answer's events below
    the run's folder, `began` is in UTC; `attempt` counts from 1, and only a failed row is tried
    again. The passages `retrieved` of the outcome come without their text.
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
    def asked(self) -> tuple[str, tuple[str, ...]]:
        """The question's words and answers: some sets ask the same of other documents (Loong)."""
        return self.question_text, self.answers

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
    _parse,
    lambda _, row: row.to_json(),
    "a row",
    "delete the line: the same command asks its question again",
)


def read_rows(folder: Path) -> list[Row]:
    """Read the rows of a run's folder; a last line that is not whole is left out. Blocks."""
    if not (folder / ROWS.name).is_file():
        why, hint = f"it has no {ROWS.name}", "colligate bench run --out makes one"
        raise MissingPath(f"{folder} is not a run", why, hint)
    return list(ROWS.read(folder).values())


ReaderAndCheck = tuple[Reader, Check | None]


@dataclass(frozen=True)
class Answerer:
    """Asks strategies questions; a reader not in `readers` is made, and nothing is checked."""

    spending: Spending
    timeout: float | None = None
    models: Mapping[Role, ChatModel] = field(default_factory=dict)
    embedder: Embedder | None = None
    reranker: Reranker | None = None
    readers: Mapping[str, ReaderAndCheck] = field(default_factory=dict)
    retrievers: Mapping[str, Retriever | SearchMode] = field(default_factory=dict)

    async def answer(
        self,
        strategy: Strategy,
        question: str,
        sources: Sources,
        reader: str = "auto",
        retriever: str | None = None,
        history: Sequence[Turn] = (),
    ) -> tuple[Outcome, Trace]:
        """Return the outcome and its events; what the strategy raises is the outcome's `error`.

        A question that points back to `history` is completed first, as in a conversation.
        Each run begins with an empty store, so that an answer costs what it costs alone.
        """
        reading, check = self.readers.get(reader) or (
            make_reader(reader, self.models[Role.READER]),
            None,
        )
        run = Run(
            sources,
            self.models,
            self.spending.meter(),
            reranker=self.reranker if strategy.needs.searches else None,
            retriever=self.retrievers[retriever] if retriever is not None else None,
            reader=reading,
            check=check,
            embedder=self.embedder,
        )
        budget = SharedTokenBudget(self.spending, run.meter)
        run.tokens = budget
        answer: Answer | None = None
        error = ""
        began = time.perf_counter()
        try:
            async with asyncio.timeout(self.timeout) as deadline:
                question = await complete_question(question, history, run)
                answer = replace(await strategy.answer(question, run), strategy=strategy.name)
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
    given = answer if answer is not None and answer.found else None
    text, short = (given.text, given.short or "") if given else ("", "")
    told = read_events(event for _, event in run.trace.events)
    retrieved = told.pop("retrieved")
    names = dict.fromkeys(span.document_id for span in retrieved)
    depths = [_measure_depth(await run.document(name)) for name in names]
    in_view = await run.sources.documents()
    cited = given.citations if given else ()
    evidence = answer.evidence if answer else ()
    return Outcome(
        text=text,
        short=short,
        found=given is not None,
        citations=tuple([await _cut(run, each.span) for each in cited]),
        evidence=tuple([await _cut(run, each.span) for each in evidence]),
        retrieved=tuple([await _cut(run, span) for span in retrieved]),
        depth=fmean(depths) if depths else 0.0,
        view_tokens=sum(info.characters for info in in_view) // CHARACTERS_A_TOKEN,
        usage=usage.to_json(),
        probability=given.probability if given else None,
        seconds=usage.seconds,
        warnings=tuple(dict.fromkeys([*run.warnings, *(answer.warnings if answer else ())])),
        error=error,
        **{"said": text, "said_short": short, **told},
    )


def read_events(events: Iterable[Event]) -> dict[str, Any]:
    """Return what events tell of an answer, by the fields of its outcome (docs/bench.md).

    Spans retrieved and documents of a stage come once, in the order in which they were first found.
    The last score of a document counts, as do the last reply, passages and `rounds`. A loop that
    failed before it reported these has as many rounds as it began: the highest `round`.
    """
    retrieved: dict[Span, None] = {}
    stages: dict[str, dict[str, None]] = {}
    ratings: dict[str, dict[str, float]] = {}
    counts: Counter[str] = Counter()
    ended: int | None = None
    begun: int | None = None
    found: dict[str, Any] = {}
    for event in events:
        if isinstance(event, Retrieved):
            retrieved.update(dict.fromkeys(event.spans))
        elif isinstance(event, Assembled):
            found["passages"] = event.texts
        elif isinstance(event, Said) and (event.text or event.short):
            found |= {"said": event.text, "said_short": event.short}
        for stage, documents in event.stage.items():
            stages.setdefault(stage, {}).update(dict.fromkeys(documents))
        for name, scores in event.ratings.items():
            ratings.setdefault(name, {}).update(scores)
        counts.update(event.counts)
        if isinstance(number := getattr(event, "rounds", None), int):
            ended = number
        if isinstance(number := getattr(event, "round", None), int):
            begun = max(begun or 0, number)
        signals = getattr(event, "signals", None)
        if isinstance(signals, Mapping):
            attention = tuple(map(float, signals.get("attention", ())))
            if attention and all(map(math.isfinite, attention)):  # a row can hold no other
                found.setdefault("attention", attention)
    return {
        "retrieved": list(retrieved),
        "stages": {stage: tuple(documents) for stage, documents in stages.items()},
        "ratings": ratings,
        "counts": dict(counts),
        "rounds": begun if ended is None else ended,
        **found,
    }


CHARACTERS_A_TOKEN = 4  # about, of English


def _measure_depth(document: Document) -> int:
    """Return how many levels a document's tree has, title and text included."""
    tree = document.tree
    levels = [0] * len(tree.nodes)
    for node in tree:
        above = 0 if node.parent is None else levels[node.parent]
        title = node.level == 1 and node.title.casefold() == document.title.casefold()
        counts = node.kind is Kind.SECTION and node.heading is not None and not title
        levels[node.id] = above + counts
    return 2 + max(levels)


async def _cut(run: Run, span: Span) -> Piece:
    document = await run.document(span.document_id)
    text = document.slice(span)
    return Piece(span.document_id, span.start, span.end, text, document.title)


def _describe(error: BaseException) -> str:
    """Return the error in one line; an error that is not colligate's with where it was raised."""
    if isinstance(error, ColligateError):
        return f"{type(error).__name__}: {error}"
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({frames[-1].name}, line {frames[-1].lineno})" if frames else ""
    return " ".join(f"internal error: {type(error).__name__}: {error}{place}".split())
