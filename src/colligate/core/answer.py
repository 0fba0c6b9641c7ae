"""The answer: what was asked, what was found, where it stands, and what it cost."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from colligate.core.citing import NOT_FOUND, Citation, Evidence
from colligate.models.metering import UsageReport


@dataclass(frozen=True)
class Answer:
    """The answer to one question.

    `text` carries the marks `[1]`, `[2]` of `citations`, in their order; a statement that no
    document supports is followed by `[uncited]`. `found` is False when the documents do not
    hold the answer, and the text then says so. Every citation's quote is a slice of its
    document. `evidence` is what the reader was shown, best first.
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

    def __str__(self) -> str:
        return self.text

    def to_json(self) -> dict[str, Any]:
        """The object that `ask --json` prints."""
        return {
            "question": self.question,
            "strategy": self.strategy,
            "answer": self.text,
            "short_answer": self.short,
            "found": self.found,
            "citations": [c.to_json() for c in self.citations],
            "evidence": [e.to_json() for e in self.evidence],
            "usage": self.usage.to_json(),
            "warnings": list(self.warnings),
        }


def not_found(
    question: str,
    strategy: str,
    evidence: tuple[Evidence, ...] = (),
    warnings: tuple[str, ...] = (),
) -> Answer:
    """The honest answer when the documents do not hold one."""
    return Answer(
        question=question,
        strategy=strategy,
        text=NOT_FOUND,
        found=False,
        evidence=evidence,
        warnings=warnings,
    )
