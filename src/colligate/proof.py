"""Proofs: the citations of an answer as a file that anyone can check against the documents.

A proof has W3C Web Annotations (https://www.w3.org/TR/annotation-model/). What other programs cite
is checked too: OpenAI's annotations, Anthropic's citations, the object of `ask --json`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from importlib.metadata import version
from pathlib import Path, PurePath
from typing import Any, NamedTuple
from urllib.parse import quote as quote_name
from urllib.parse import unquote

from colligate.core.answer import Answer, Citation
from colligate.documents import Document, Span
from colligate.documents.locating import locate
from colligate.documents.reading import Limits
from colligate.documents.reading.pdf.picture import find_boxes
from colligate.library.parsing import ParserPool
from colligate.library.protocols import FileRecord
from colligate.library.web import is_address
from colligate.models.names import redact_name


class Source(NamedTuple):
    """A document that is cited, and the file that it was read from, if that is known."""

    document: Document
    file: FileRecord | None


_CONTEXT = ["http://www.w3.org/ns/anno.jsonld", {"@vocab": "urn:colligate:"}]
_AROUND = 32  # characters before and after a quote
_PDF = "application/pdf"


def make_proof(answer: Answer, sources: Mapping[str, Source]) -> dict[str, Any]:
    """Return the citations of an answer as a page of annotations.

    `sources` are the documents by their ids. Their files are opened to find the quotes on pages.
    """
    parsers = ParserPool(1)
    try:
        items = [
            _annotate(answer, number, sources.get(each.span.document_id), parsers)
            for number, each in enumerate(answer.citations, 1)
        ]
    finally:
        parsers.close()
    return {
        "@context": _CONTEXT,
        "id": "#proof",
        "type": "AnnotationPage",
        "generator": {"type": "Software", "name": f"colligate {version('colligate')}"},
        "question": answer.question,
        "answer": answer.text,
        "model": redact_name(answer.model),
        "items": items,
    }


def _annotate(
    answer: Answer, number: int, found: Source | None, parsers: ParserPool
) -> dict[str, Any]:
    citation = answer.citations[number - 1]
    filled = [f"{each.path}: {each.value}" for each in answer.values if each.citation == number]
    said = filled or [answer.text[start:end] for start, end in citation.answer_spans]
    start, end = citation.span.start, citation.span.end
    quoted = {"type": "TextQuoteSelector", "exact": citation.quote}
    selectors = [{"type": "TextPositionSelector", "start": start, "end": end}, quoted]
    name = quote_name(PurePath(citation.source).name)  # its folder is nobody's business
    name = citation.source if is_address(citation.source) else name
    source = {"id": name, "type": "Text", "title": citation.title}
    if found is not None:
        document, file = found
        source |= {"format": document.media_type, "textSha256": document.digest}
        quoted["prefix"] = document.text[max(0, start - _AROUND) : start]
        quoted["suffix"] = document.text[end : end + _AROUND]
        if file is not None and file.sha256:
            source["fileSha256"] = file.sha256
        if fragment := _select_fragment(citation, found, parsers):
            selectors.append(fragment)
    return {
        "id": f"#{number}",
        "type": "Annotation",
        "motivation": "linking",
        "body": [{"type": "TextualBody", "value": each} for each in said],
        "target": {"type": "SpecificResource", "source": source, "selector": selectors},
        "quoteFound": citation.how,
        "check": answer.check or None,
        "verdict": citation.meaning,
    }


def _select_fragment(citation: Citation, source: Source, parsers: ParserPool) -> dict[str, Any]:
    """Return a selector of the page of a PDF, and of the part of a page around the quote."""
    document, file = source
    page = document.page_of(citation.span)
    if page is None:
        return {}
    boxes: Sequence[Any] = ()
    if file is not None:
        share = (citation.span.start - page.start) / max(1, page.end - page.start)
        text = document.text[citation.span.start : min(citation.span.end, page.end)]
        find = partial(find_boxes, number=page.number, quote=text, share=share)
        languages = document.metadata.get("ocr", "")
        read = parsers.read(file.path, file.size, reader=partial(find, languages=languages))
        boxes = read.reading or () if read.sha256 == file.sha256 else ()
    fragment: dict[str, Any] = {}
    if boxes:
        left, top = (math.floor(100 * min(box[at] for box in boxes)) for at in (0, 1))
        right, bottom = (math.ceil(100 * max(box[at] for box in boxes)) for at in (2, 3))
        fragment = {
            "type": "FragmentSelector",
            "conformsTo": "http://www.w3.org/TR/media-frags/",
            "value": f"xywh=percent:{left},{top},{right - left},{bottom - top}",
        }
    if document.media_type != _PDF:
        return fragment
    return {
        "type": "FragmentSelector",
        "conformsTo": "http://tools.ietf.org/rfc/rfc3778",
        "value": f"page={page.number}",
        **({"refinedBy": fragment} if fragment else {}),
    }


# Auditing


@dataclass(frozen=True)
class Cited:
    """What a file says of one citation; what it does not say is empty or None.

    `document` is an id, a title or a file's name. `end` and `last_page` are not included.
    """

    quote: str
    document: str = ""
    start: int | None = None
    end: int | None = None
    first_page: int | None = None
    last_page: int | None = None
    digests: frozenset[str] = frozenset()  # of the document's text and of its file


class Status(StrEnum):
    """What an audit finds, the best first."""

    HOLDS = "holds"
    CHANGED = "changed"  # at its place, in another version of the document
    ELSEWHERE = "elsewhere"
    MISSING = "missing"
    UNKNOWN = "no document"
    UNCHECKED = "not checked"


@dataclass(frozen=True)
class Finding:
    """What an audit finds of a citation, and where its quote is."""

    cited: Cited
    status: Status
    why: str
    title: str = ""
    place: Span | None = None
    page: int | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "status": self.status,
            "why": self.why,
            "document": self.title or self.cited.document,
            "page": self.page,
            "start": None if self.place is None else self.place.start,
            "end": None if self.place is None else self.place.end,
            "quote": self.cited.quote,
        }


def find_cited(given: Any) -> Iterator[Cited]:
    """Yield all citations in JSON: those of proofs, of answers, and of other programs."""
    waiting = [given]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            if (cited := _read_cited(node)) is not None:
                yield cited
                continue
            # Our completions have their citations twice, and only here with their quotes.
            node = [node["colligate"]] if "colligate" in node else list(node.values())
        if isinstance(node, list):
            waiting += reversed(node)


def _read_cited(given: Mapping[str, Any]) -> Cited | None:
    """Return what an object cites; None if it is no citation."""
    kind, inner = given.get("type"), given.get(str(given.get("type")))
    if kind == "Annotation":
        return _read_annotation(given.get("target"))
    if kind in ("file_citation", "url_citation"):
        about = {**given, **inner} if isinstance(inner, dict) else given
        names = [about.get(name) for name in ("filename", "file_id", "title", "url")]
        return Cited(_text(about.get("quote")), next(filter(None, map(_text, names)), ""))
    if isinstance(given.get("cited_text"), str):
        titles = [given.get(name) for name in ("document_title", "title", "source", "url")]
        return Cited(
            given["cited_text"],
            next(filter(None, map(_text, titles)), ""),
            _number(given.get("start_char_index")),
            _number(given.get("end_char_index")),
            _number(given.get("start_page_number")),
            _number(given.get("end_page_number")),
        )
    if isinstance(given.get("quote"), str) and isinstance(given.get("document"), str):
        places = _number(given.get("start")), _number(given.get("end"))
        return Cited(given["quote"], given["document"], *places)
    return None


def _read_annotation(target: Any) -> Cited | None:
    """Return what a target of the Web Annotation Data Model cites."""
    if not isinstance(target, dict):
        return None
    given, selectors = target.get("source"), target.get("selector")
    source: Mapping[str, Any] = given if isinstance(given, dict) else {"id": given}
    cited = Cited(
        "",
        unquote(_text(source.get("id"))) or _text(source.get("title")),
        digests=frozenset(filter(None, map(_text, map(source.get, ("textSha256", "fileSha256"))))),
    )
    for each in selectors if isinstance(selectors, list) else [selectors]:
        match each:
            case {"type": "TextQuoteSelector", "exact": str(exact)}:
                cited = replace(cited, quote=exact)
            case {"type": "TextPositionSelector", **place}:
                start, end = _number(place.get("start")), _number(place.get("end"))
                cited = replace(cited, start=start, end=end)
            case {"type": "FragmentSelector", "value": str(value)}:
                if page := re.search(r"\bpage=(\d{1,9})\b", value):
                    first = int(page[1])
                    cited = replace(cited, first_page=first, last_page=first + 1)
    return cited


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) and 0 <= value < 1 << 53 else None


def audit(
    cited: Sequence[Cited], files: Sequence[Path], limits: Limits
) -> tuple[list[Finding], list[str]]:
    """Return what becomes of each citation in files that are read again, and their problems.

    The files that are named are read first, and no more if they are all the same as before.
    """
    findings = [_begin(each) for each in cited]
    names = {_fold(each.document) for each in cited}
    problems: list[str] = []
    parsers = ParserPool(1, limits=limits)
    try:
        for file in sorted(files, key=lambda file: _fold(file.name) not in names):
            if all(each.status in (Status.HOLDS, Status.UNCHECKED) for each in findings):
                break
            read = parsers.read(file, file.stat().st_size)
            if read.error is not None:
                problems.append(str(read.error))
                continue
            for document in read.reading.documents:
                names_here = {document.id, document.title, file.name, file.stem}
                found = _Read(document, frozenset(map(_fold, names_here)), read.sha256)
                findings = [min(each, found.compare(each.cited), key=_rank) for each in findings]
    finally:
        parsers.close()
    return findings, problems


def _begin(cited: Cited) -> Finding:
    """Return what is known of a citation before any document is read."""
    if not cited.quote.strip():
        return Finding(cited, Status.UNCHECKED, "it quotes no words of a document")
    return Finding(cited, Status.UNKNOWN, "no document has this name, this text or these words")


def _fold(name: str) -> str:
    return PurePath(name).name.casefold()


def _rank(finding: Finding) -> int:
    return list(Status).index(finding.status)


@dataclass(frozen=True)
class _Read:
    """A document that was read again, its names, and the SHA-256 of its file."""

    document: Document
    names: frozenset[str]
    sha256: str

    def compare(self, cited: Cited) -> Finding:
        """Return what this document says of a citation."""
        document, quote = self.document, cited.quote.strip()
        if not quote:
            return _begin(cited)
        same = document.digest in cited.digests
        if not (same or self.sha256 in cited.digests or _fold(cited.document) in {"", *self.names}):
            at = document.text.find(quote)
            if at < 0:
                return _begin(cited)
            other = document.span(at, at + len(quote))
            return self._find(cited, Status.ELSEWHERE, "in a document of another name", other)
        if (span := self._at_place(cited)) is not None:
            if cited.digests and not same:
                why = "at its place in another version of the document"
                return self._find(cited, Status.CHANGED, why, span)
            return self._find(cited, Status.HOLDS, "at its place", span)
        found = locate(quote, document, verbatim=True)
        if found is None:
            why = "the document does not have these words"
            return Finding(cited, Status.MISSING, why, document.title)
        if cited.start is None and cited.first_page is None:
            return self._find(cited, Status.HOLDS, "in the document; no place is given", found.span)
        return self._find(cited, Status.ELSEWHERE, "at another place of the document", found.span)

    def _at_place(self, cited: Cited) -> Span | None:
        document = self.document
        if cited.start is not None and cited.end is not None:
            text = document.text[cited.start : cited.end]
            same = text.strip() == cited.quote.strip()
            return document.span(cited.start, cited.start + len(text)) if same else None
        if cited.first_page is None:
            return None
        last = max(cited.first_page + 1, cited.last_page or 0)
        pages = [each for each in document.pages if cited.first_page <= each.number < last]
        if not pages:
            return None
        within = document.span(pages[0].start, pages[-1].end)
        found = locate(cited.quote, document, within=within, verbatim=True)
        return found.span if found else None

    def _find(self, cited: Cited, status: Status, why: str, span: Span) -> Finding:
        page = self.document.page_of(span)
        number = None if page is None else page.number
        return Finding(cited, status, why, self.document.title, span, number)
