"""The answer: what was asked, what was found, where it stands, and what it cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from colligate.evidence.citing import NOT_FOUND, Citation, Evidence


@dataclass(frozen=True)
class UsageReport:
    """What a run cost, in all and by role. `cost_usd` is None when a price is not known."""

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    scoring_passes: int = 0
    retrieval_rounds: int = 0
    seconds: float = 0.0
    cost_usd: float | None = 0.0
    by_role: Mapping[str, Mapping[str, float | int | None]] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The usage as `ask --json` prints it."""
        return {
            "calls": self.calls,
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
            "scoring_passes": self.scoring_passes,
            "retrieval_rounds": self.retrieval_rounds,
            "seconds": round(self.seconds, 3),
            "cost_usd": self.cost_usd,
            "by_role": {role: dict(sums) for role, sums in self.by_role.items()},
        }


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
    usage: UsageReport = UsageReport()
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
