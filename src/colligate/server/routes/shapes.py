"""What responses look like, for the OpenAPI document. Offsets count code points, half-open."""

from __future__ import annotations

from typing import Any, Literal

from typing_extensions import TypedDict


class LibraryShape(TypedDict):
    """A library and how much is in it."""

    name: str
    documents: int
    pages: int
    passages: int


class JobStarted(TypedDict):
    """The job that reads the files."""

    job: str


class FileProblem(TypedDict):
    """A file that could not be read, why, and what to do about it."""

    file: str
    why: str
    hint: str


class JobShape(TypedDict):
    """Files on their way into a library."""

    id: str
    library: str
    state: Literal["queued", "running", "done", "failed", "cancelled"]
    phase: str
    done: int
    total: int
    files: list[str]
    problems: list[FileProblem]
    documents: list[str]


class DocumentShape(TypedDict):
    """A document in a list."""

    id: str
    title: str
    source: str
    characters: int
    pages: int
    passages: int
    language: str


class PageShape(TypedDict):
    """A page's place in the text."""

    number: int
    start: int
    end: int


class PageText(PageShape):
    """A page with its text."""

    text: str


class DocumentText(TypedDict):
    """A range of a document's text, and its pages."""

    id: str
    title: str
    characters: int
    language: str
    pages: list[PageShape]
    text: str
    start: int
    end: int


class PassageShape(TypedDict):
    """A passage that a search found."""

    document: str
    title: str
    section: list[str]
    page: int | None
    start: int
    end: int
    text: str
    score: float


class RunShape(TypedDict):
    """A run in a list."""

    id: str
    library: str
    question: str
    strategy: str
    parameters: dict[str, Any]
    documents: list[str] | None
    state: Literal["queued", "running", "done", "failed", "cancelled"]
    began: str
    seconds: float
    found: bool | None


class CitationShape(TypedDict):
    """A place in a document, and the stretches of the answer that rest on it."""

    document: str
    title: str
    section: list[str]
    page: int | None
    start: int
    end: int
    quote: str
    answer_spans: list[list[int]]


class EvidenceShape(TypedDict):
    """What the reader was shown, and why."""

    document: str
    start: int
    end: int
    score: float
    reason: str


class AnswerShape(TypedDict):
    """The object of `colligate ask --json`, with the run's id and its seconds."""

    question: str
    strategy: str
    answer: str
    short_answer: str | None
    found: bool
    citations: list[CitationShape]
    evidence: list[EvidenceShape]
    usage: dict[str, Any]
    warnings: list[str]
    run: str
    seconds: float
