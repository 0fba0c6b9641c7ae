"""The structured results of the MCP tools."""

from __future__ import annotations

from typing import Any

from typing_extensions import TypedDict

from colligate.documents import Document, Hit
from colligate.documents.tree import Node
from colligate.library.sources import DocumentInfo
from colligate.serving.places import sections_in, uri

MOST_CHARACTERS = 100_000
"""The longest text that is given at once."""


class Found(TypedDict):
    """A passage; `page` counts from 1, `start` and `end` are characters of the document."""

    document: str
    title: str
    section: list[str]
    page: int | None
    start: int
    end: int
    text: str
    score: float
    uri: str


class Passages(TypedDict):
    """What a search found, best first."""

    passages: list[Found]


class Heading(TypedDict):
    """A section's title and the characters it takes."""

    title: str
    start: int
    end: int


class Section(TypedDict):
    """A stretch of a document; `next` is where its section goes on, null at its end."""

    document: str
    title: str
    section: list[str]
    page: int | None
    start: int
    end: int
    text: str
    next: int | None
    subsections: list[Heading]
    uri: str


class Listed(TypedDict):
    """A document, without its text."""

    id: str
    title: str
    characters: int
    pages: int
    passages: int
    language: str


class Documents(TypedDict):
    """Some documents in the order they were added; `next` is the offset of more, if any."""

    documents: list[Listed]
    total: int
    next: int | None


class Answered(TypedDict):
    """The object that `colligate ask --json` prints."""

    question: str
    strategy: str
    answer: str
    short_answer: str | None
    found: bool
    citations: list[dict[str, Any]]
    evidence: list[dict[str, Any]]
    usage: dict[str, Any]
    warnings: list[str]


def found(hit: Hit, library: str) -> Found:
    """A hit for programs."""
    passage = hit.passage
    return {
        "document": passage.document_id,
        "title": passage.title,
        "section": list(passage.section),
        "page": passage.page,
        "start": passage.span.start,
        "end": passage.span.end,
        "text": passage.text,
        "score": hit.score,
        "uri": uri(passage.span, library),
    }


def section(document: Document, node: Node, start: int, most: int, library: str) -> Section:
    """At most `most` characters of a node of the tree, from `start` on."""
    end = min(node.span.end, start + most)
    span = document.span(start, end)
    page = document.page_of(span)
    return {
        "document": document.id,
        "title": document.title,
        "section": list(document.section_of(span)),
        "page": None if page is None else page.number,
        "start": start,
        "end": end,
        "text": document.slice(span),
        "next": end if end < node.span.end else None,
        "subsections": [
            {"title": each.title, "start": each.span.start, "end": each.span.end}
            for each in sections_in(document, node)
        ],
        "uri": uri(span, library),
    }


def listed(info: DocumentInfo) -> Listed:
    """A document for programs; the path of its file stays here."""
    return {
        "id": info.id,
        "title": info.title,
        "characters": info.characters,
        "pages": info.pages,
        "passages": info.passages,
        "language": info.language,
    }
