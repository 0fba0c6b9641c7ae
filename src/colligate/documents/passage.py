"""A passage: a span with what is needed to show it."""

from __future__ import annotations

from dataclasses import dataclass

from colligate.documents.span import Span


@dataclass(frozen=True, slots=True)
class Passage:
    """A span of a document, its text, and its place: title, heading path, page (from 1)."""

    span: Span
    text: str
    title: str
    section: tuple[str, ...] = ()
    page: int | None = None

    @property
    def document_id(self) -> str:
        """The document the passage stands in."""
        return self.span.document_id

    @property
    def id(self) -> str:
        """A name for the passage: document, start and end."""
        return f"{self.span.document_id}:{self.span.start}-{self.span.end}"


@dataclass(frozen=True, slots=True)
class Hit:
    """A passage that a search returned, best first; scores compare within one search only."""

    passage: Passage
    score: float
