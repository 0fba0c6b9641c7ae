"""What of a document is searched: which spans, and the words each is found by."""

from __future__ import annotations

from collections.abc import Iterable

from colligate.documents import Document, Kind, Span
from colligate.documents.chunking import Chunker


def passages_of(document: Document, chunker: Chunker) -> list[Span]:
    """A document's chunks, less those that are the bare heading of a section with sub-sections.

    Such a heading says nothing that is not also on the heading path of every passage below it,
    and would only take a better passage's place among the few that are read.
    """
    bare = {
        node.heading
        for node in document.tree.sections
        if node.heading is not None
        and any(child.kind is Kind.SECTION for child in document.tree.children(node))
    }
    trimmed = {_trimmed(document, heading) for heading in bare}
    return [span for span in chunker(document) if _trimmed(document, span) not in trimmed]


def searched_text(title: str, section: Iterable[str], text: str) -> str:
    """What a passage is found by: the document's title, the heading path, and its own text."""
    headings = [title, *(heading for heading in section if heading != title)]
    return "\n".join([" > ".join(filter(None, headings)), text])


def _trimmed(document: Document, span: Span) -> tuple[int, int]:
    text = document.slice(span)
    start = span.start + len(text) - len(text.lstrip())
    return start, start + len(text.strip())
