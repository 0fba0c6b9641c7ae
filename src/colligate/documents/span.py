"""Spans: the one way to name a place in a document."""

from __future__ import annotations

from dataclasses import dataclass

from colligate.errors import SpanError


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """A half-open range `[start, end)` of code points of one document's text.

    Raises:
        SpanError: unless `0 <= start <= end`.

    >>> Span("a", 2, 5).overlaps(Span("a", 4, 9))
    True
    """

    document_id: str
    start: int
    end: int

    def __post_init__(self) -> None:
        if not 0 <= self.start <= self.end:
            what = f"no such span {self.start}-{self.end} of {self.document_id}"
            raise SpanError(what, "a span is a half-open range with 0 <= start <= end")

    def __reduce__(self) -> tuple[type[Span], tuple[str, int, int]]:
        # Pickling by fields takes twice the time, and a long text has a million spans.
        return Span, (self.document_id, self.start, self.end)

    def __len__(self) -> int:
        return self.end - self.start

    def __bool__(self) -> bool:
        # An empty span is a place too; truth must not depend on length.
        return True

    def contains(self, other: Span) -> bool:
        """Report whether `other` lies wholly inside this span."""
        around = self.start <= other.start and other.end <= self.end
        return around and self.document_id == other.document_id

    def overlaps(self, other: Span) -> bool:
        """Report whether the two share at least one character."""
        common = self.start < other.end and other.start < self.end
        return common and self.document_id == other.document_id

    def intersection(self, other: Span) -> Span | None:
        """Return the shared characters, or None without any."""
        if not self.overlaps(other):
            return None
        return Span(self.document_id, max(self.start, other.start), min(self.end, other.end))
