"""Answers: what was asked, what was found and where, and what it cost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal

from colligate.documents import Document, Passage, Span
from colligate.export import render_cell, write_export
from colligate.models.metering import UsageReport

NOT_FOUND = "Not in these documents."
UNCITED = "[uncited]"
COMPUTED = "computed"
"""How a place was found that a number of the statement was computed from."""

Ground = Literal["documents", "computed", "none"]


class Form(StrEnum):
    """The kind of answer that is wanted; the first three are those of RDR2's readers."""

    SHORT = "short"  # one answer
    LIST = "list"  # every answer there is
    LONG = "long"  # an explanation, concise and neutral
    JOINED = "joined"  # an answer whose sentences may each rest on several passages
    EACH = "each"  # what each document says, for a table beside the answer


class Verdict(StrEnum):
    """What the quotes of a statement do with it, as a check judges."""

    SUPPORTED = "supports"
    UNCLEAR = "unclear"
    CONTRADICTED = "contradicts"


@dataclass(frozen=True, slots=True)
class Citation:
    """A place in a document that supports a part of the answer.

    `span` is the place and `quote` is exactly its characters; `answer_spans` are the half-open
    parts of the answer text that it supports, in order. `title` is the full one, which tells the
    document from others of its title. `page` counts from 1 and is None for
    documents without pages; `row` is that of a sheet, as `Document.row_of` counts. `source` is the
    document's file. `how` says how the place was found. `date` is that of the document, in
    ISO 8601, and `authors` is what its file says; both may be empty. `head` is the head and the
    unit of the table that a row is in. `meaning` is "supports" or "unclear": whether the place says
    what the answer says; None if that was not checked.
    """

    span: Span
    quote: str
    title: str
    section: tuple[str, ...]
    page: int | None
    answer_spans: tuple[tuple[int, int], ...]
    how: str
    source: str = ""
    date: str = ""
    authors: str = ""
    meaning: Verdict | None = None
    row: int | None = None
    head: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the citation as `ask --json` prints it."""
        return {
            "document": self.span.document_id,
            "title": self.title,
            "source": self.source,
            "section": list(self.section),
            "page": self.page,
            "row": self.row,
            "table_head": self.head,
            "date": self.date,
            "authors": self.authors,
            "start": self.span.start,
            "end": self.span.end,
            "quote": self.quote,
            "answer_spans": [list(span) for span in self.answer_spans],
            "meaning": self.meaning,
        }


def describe_table(document: Document, span: Span) -> str:
    """Return the head and the unit of the table that a span is in; empty outside tables."""
    head, unit = document.table_head(span), document.table_unit(span)
    return "; ".join(filter(None, (head, "" if unit in head else unit)))


def make_citation(
    document: Document,
    span: Span,
    answer_spans: Iterable[tuple[int, int]],
    how: str,
    meaning: Verdict | None = None,
) -> Citation:
    """Return the citation of a place in a document."""
    passage = document.passage(span)
    return Citation(
        span=span,
        quote=passage.text,
        title=passage.full_title,
        section=passage.section,
        page=passage.page,
        answer_spans=tuple(answer_spans),
        how=how,
        source=document.source,
        date=document.date,
        authors=document.authors,
        meaning=meaning,
        row=document.row_of(span),
        head=describe_table(document, span),
    )


@dataclass(frozen=True, slots=True)
class Evidence:
    """A span that the reader was shown, its score, and why it was kept."""

    span: Span
    score: float
    reason: str

    def to_json(self) -> dict[str, Any]:
        """Return the evidence as `ask --json` prints it."""
        return {
            "document": self.span.document_id,
            "start": self.span.start,
            "end": self.span.end,
            "score": round(self.score, 6),
            "reason": self.reason,
        }


@dataclass(frozen=True, slots=True)
class Place:
    """A span of a document, how it was found there, and whether it says what was claimed."""

    span: Span
    how: str
    meaning: Verdict | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Stated:
    """A sentence that a model wrote, and the places in the documents that support it."""

    sentence: str
    places: tuple[Place, ...]


@dataclass(frozen=True, slots=True)
class Quoted:
    """Words of a document that a statement rests on, and the document's title."""

    title: str
    text: str


@dataclass(frozen=True, slots=True)
class Claim:
    """A statement that answers a question, and the quotes it rests on."""

    statement: str
    quotes: tuple[Quoted, ...]
    question: str = ""


@dataclass(frozen=True, slots=True)
class Value:
    """A value of `Answer.filled`: its JSON Pointer, and the number of its citation, from 1.

    `meaning` is as in a citation, which may be of several values.
    """

    path: str
    value: str | int | float
    citation: int
    meaning: Verdict | None = None


@dataclass(frozen=True, slots=True)
class Entry:
    """What a document says in a column of an answer's table; without a citation nothing is found.

    An answer over documents that were read one by one has entries of those that it does not cite.
    """

    document: str
    title: str
    column: str
    text: str = ""
    citation: Citation | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the entry as `ask --json` prints it."""
        cited = None if self.citation is None else self.citation.to_json()
        named = {"document": self.document, "title": self.title, "column": self.column}
        return {**named, "text": self.text, "citation": cited}


@dataclass(frozen=True)
class Answer:
    """The answer to one question.

    `text` carries the marks `[1]`, `[2]` of `citations`, in their order; a statement that no
    document supports is followed by `[uncited]`. `found` is False when the documents do not
    hold the answer, and the text then reports it. Every citation's quote is a slice of its
    document. `evidence` is what the reader was shown, best first. `how` says in one line what was
    done, if the strategy chose it for the question. `probability` is that the answer is right and
    in the documents, where the reader can tell it (`readers.promise`). With a schema, `text` is
    JSON without marks, `filled` the same as an object, and `values` says what each value rests on.
    `check` names what judged the statements, if anything did. `queries` are what a reader that
    found nothing would search for. `table` says what each document says, if the question asked for
    it: rows are documents.
    """

    question: str
    strategy: str
    text: str
    found: bool
    short: str | None = None
    citations: tuple[Citation, ...] = ()
    evidence: tuple[Evidence, ...] = ()
    usage: UsageReport = field(default_factory=UsageReport)
    warnings: tuple[str, ...] = ()
    model: str = ""
    how: str = ""
    probability: float | None = None
    filled: Mapping[str, Any] | None = None
    values: tuple[Value, ...] = ()
    check: str = ""
    queries: tuple[str, ...] = ()
    table: tuple[Entry, ...] = ()

    def __str__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        return render_cell(self.to_json())

    @property
    def ground(self) -> Ground:
        """What the answer rests on: `computed` if a number of it follows from cited numbers."""
        if any(citation.how == COMPUTED for citation in self.citations):
            return "computed"
        return "documents" if self.citations else "none"

    def to_json(self) -> dict[str, Any]:
        """Return the object that `ask --json` prints."""
        values = [asdict(each) for each in self.values]
        return {
            "question": self.question,
            "strategy": self.strategy,
            "answer": self.text,
            "short_answer": self.short,
            "found": self.found,
            "ground": self.ground,
            "how": self.how,
            "probability": self.probability,
            **({} if self.filled is None else {"filled": self.filled, "values": values}),
            **({"table": [each.to_json() for each in self.table]} if self.table else {}),
            "citations": [c.to_json() for c in self.citations],
            "evidence": [e.to_json() for e in self.evidence],
            "usage": self.usage.to_json(),
            "warnings": list(self.warnings),
        }

    def export(self, path: str | Path) -> None:
        """Write the answer with its sources to a file; an existing one is replaced.

        The ending says the format: `.md`, `.html`, `.docx`, or `.bib` for the documents cited.

        Raises:
            UsageError: no format has this ending, or the file cannot be written there.
        """
        from colligate.models.names import redact_name  # a tenth of a second

        write_export({**self.to_json(), "model": redact_name(self.model)}, Path(path))


@dataclass(frozen=True)
class Refined:
    """The part of some documents that a method kept for a question, under a token budget.

    `text` is for any reader: documents by rank, each in its own order under its title and
    headings. It has `tokens` of the model, at most `budget`; all of the documents, or of the
    passages given, would have `of_tokens`. `passages` are its stretches as spans, `evidence` the
    same by score. `scope` is R_q, None if it was not asked for.
    """

    question: str
    text: str
    passages: tuple[Passage, ...]
    evidence: tuple[Evidence, ...]
    tokens: int
    budget: int
    documents: tuple[str, ...]
    of_tokens: int
    scope: float | None = None
    usage: UsageReport = field(default_factory=UsageReport)
    warnings: tuple[str, ...] = ()
    model: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the object that `refine --json` prints."""
        return {
            "question": self.question,
            "text": self.text,
            "tokens": self.tokens,
            "budget": self.budget,
            "scope": self.scope,
            "documents": list(self.documents),
            "document_tokens": self.of_tokens,
            "passages": [
                {
                    "document": p.document_id,
                    "title": p.title,
                    "section": list(p.section),
                    "page": p.page,
                    "start": p.span.start,
                    "end": p.span.end,
                }
                for p in self.passages
            ],
            "evidence": [e.to_json() for e in self.evidence],
            "usage": self.usage.to_json(),
            "warnings": list(self.warnings),
        }


def split_answer(answer: Answer) -> list[Stated]:
    """Return the statements of an answer with their places."""
    places: dict[tuple[int, int], list[Place]] = {}
    for citation in answer.citations:
        for stretch in citation.answer_spans:
            place = Place(citation.span, citation.how, citation.meaning)
            places.setdefault(stretch, []).append(place)
    return [Stated(answer.text[a:b], tuple(own)) for (a, b), own in sorted(places.items())]
