"""What a refiner gives: the spans it kept, as text under a budget."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from colligate.documents import Passage
from colligate.evidence.citing import Evidence
from colligate.models.metering import UsageReport


@dataclass(frozen=True)
class Refined:
    """What was kept of some documents for a question.

    `text` is for any reader: documents by rank, titles and headings above what stands under
    them, in document order; `tokens` of it, by the model's own count, are at most `budget`.
    `passages` are its stretches as spans, in that order; `evidence` the same by score. `scope`
    is R_q, None where it was not asked for. `of_tokens` is what all of the documents, or of the
    passages given, would have taken.
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
        """What `refine --json` prints."""
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
