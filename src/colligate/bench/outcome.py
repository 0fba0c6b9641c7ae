"""What a strategy gave for a question: all that metrics look at, and what a row keeps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Piece:
    """A stretch of a document, half-open in code points, with its text.

    `title` is its document's. Where it was cited `answer_spans` are the stretches of the answer's
    text that rest on it.
    """

    document: str
    start: int
    end: int
    text: str
    title: str = ""
    answer_spans: tuple[tuple[int, int], ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The piece as a row keeps it."""
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
        """The piece that `to_json` gave."""
        spans = tuple((int(start), int(end)) for start, end in row.get("answer_spans", ()))
        text, title = str(row["text"]), str(row.get("title", ""))
        return cls(str(row["document"]), int(row["start"]), int(row["end"]), text, title, spans)


@dataclass(frozen=True)
class Outcome:
    """One strategy's answer to one question.

    `text` is the answer with its marks of citations ("[1]", "[uncited]"), `short` the short
    answer where there is one; both are empty where it refused (`found` False) or broke (`error`).
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

    def to_json(self) -> dict[str, Any]:
        """The outcome as a row keeps it."""
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
        """The outcome that `to_json` gave."""
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
