"""Answers: what was asked, what was found and where, and what it cost."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from colligate.core.citing import COMPUTED, Citation, Evidence, Place, Stated
from colligate.core.export import write_export
from colligate.documents import Passage
from colligate.models.metering import UsageReport

Ground = Literal["documents", "computed", "none"]


@dataclass(frozen=True)
class Answer:
    """The answer to one question.

    `text` carries the marks `[1]`, `[2]` of `citations`, in their order; a statement that no
    document supports is followed by `[uncited]`. `found` is False when the documents do not
    hold the answer, and the text then reports it. Every citation's quote is a slice of its
    document. `evidence` is what the reader was shown, best first. `how` says in one line what was
    done, if the strategy chose it for the question.
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

    def __str__(self) -> str:
        return self.text

    @property
    def ground(self) -> Ground:
        """What the answer rests on: `computed` if a number of it follows from cited numbers."""
        if any(citation.how == COMPUTED for citation in self.citations):
            return "computed"
        return "documents" if self.citations else "none"

    def to_json(self) -> dict[str, Any]:
        """Return the object that `ask --json` prints."""
        return {
            "question": self.question,
            "strategy": self.strategy,
            "answer": self.text,
            "short_answer": self.short,
            "found": self.found,
            "ground": self.ground,
            "how": self.how,
            "citations": [c.to_json() for c in self.citations],
            "evidence": [e.to_json() for e in self.evidence],
            "usage": self.usage.to_json(),
            "warnings": list(self.warnings),
        }

    def export(self, path: str | Path) -> list[str]:
        """Write the answer with its sources to a file; an existing one is replaced.

        The ending says the format: `.md`, `.html`, `.docx`, or `.bib` for the documents cited.
        Returns a line for each document that the format leaves out.

        Raises:
            UsageError: no format has this ending, or the file cannot be written there.
        """
        from colligate.models.names import redact_name  # a tenth of a second

        return write_export({**self.to_json(), "model": redact_name(self.model)}, Path(path))


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
            places.setdefault(stretch, []).append(Place(citation.span, citation.how))
    return [Stated(answer.text[a:b], tuple(own)) for (a, b), own in sorted(places.items())]
