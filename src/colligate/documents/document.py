"""A document: one immutable text, its tree, its pages, and where it comes from."""

from __future__ import annotations

import hashlib
import re
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from colligate.documents.span import Span
from colligate.documents.tree import Kind, Node, Tree
from colligate.errors import SpanError, UsageError

SHEETS = {
    "text/csv",
    "text/tab-separated-values",
    "application/vnd.ms-excel",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    "application/vnd.oasis.opendocument.spreadsheet",
}
_AUTHORS = ("authors", "author", "from")  # "from" is an e-mail's
_LONGEST_HEAD = 300  # characters
_HEAD_ROWS = 5  # rows below the first that may belong to a head, its rule counted
_TOP = 10_000  # characters of a table in which its head is looked for
_NEAR = 4_000  # characters above a span in which a period is looked for
_PERIOD = re.compile(r"[\s|]*[^|]{,40}\b(?:19|20)\d\d\b[^|]{,10}[\s|]*")
_NOT_RULE = re.compile(r"[^|\s:+=-]")  # what the rule under a table's head does not have


@dataclass(frozen=True)
class Document:
    """One document.

    `id` is stable for a given content: where the source names no id of its own, it is the
    file's stem and the first ten hexadecimal digits of the text's SHA-256. So a span that
    names the id always means the same characters. `text` is Markdown (plain text is
    Markdown too). `pages` are in order, and empty for documents that have none. `language`
    is an ISO 639-1 code, or "und" where it is unknown. `folder` is set where a title is not
    enough, as in `Passage.full_title`.

    Raises:
        UsageError: if one of its texts cannot be encoded as UTF-8 (`clean_text` repairs it).
    """

    id: str
    title: str
    text: str
    tree: Tree
    pages: tuple[Page, ...] = ()
    source: str = ""
    media_type: str = "text/markdown"
    language: str = "und"
    metadata: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    folder: str = field(default="", compare=False)

    @property
    def date(self) -> str:
        """The document's date in ISO 8601, as exact as it is known; empty if unknown."""
        return self.metadata.get("date", "")

    @property
    def authors(self) -> str:
        """Who wrote it, as its file says; empty if unknown."""
        return next((self.metadata[key] for key in _AUTHORS if key in self.metadata), "")

    def __post_init__(self) -> None:
        facts = (*self.metadata, *self.metadata.values(), *self.warnings)
        try:
            for text in (self.id, self.title, self.source, self.text, *facts):
                text.encode()
        except UnicodeEncodeError as error:
            what = f"a text of document {clean_text(self.id)} cannot be encoded as UTF-8"
            why = f"it has half a surrogate pair at {error.start}"
            hint = "pass it through colligate.documents.clean_text"
            raise UsageError(what, why, hint) from error

    def __len__(self) -> int:
        return len(self.text)

    def span(self, start: int, end: int) -> Span:
        """Return a span of this document; raise `SpanError` if it reaches beyond the text."""
        span = Span(self.id, start, end)
        self._check(span)
        return span

    def slice(self, span: Span) -> str:
        """Return the characters of a span; raise `SpanError` if it is not of this document."""
        self._check(span)
        return self.text[span.start : span.end]

    def trim(self, start: int, end: int) -> Span | None:
        """Return a range without the blanks around it; None if it has nothing else."""
        piece = self.text[start:end]
        bare = piece.strip()
        start += len(piece) - len(piece.lstrip())
        return Span(self.id, start, start + len(bare)) if bare else None

    def page_of(self, span: Span) -> Page | None:
        """Return the page a span begins on, or None for a document without pages."""
        if not self.pages:
            return None
        after = bisect_right(self.pages, span.start, key=lambda page: page.start)
        return self.pages[max(0, after - 1)]

    def row_of(self, span: Span) -> int | None:
        """Return the row, from 1, of the sheet that a span begins in; None outside sheets."""
        if self.media_type not in SHEETS or (node := self._find_table(span)) is None:
            return None
        above = sum(each.kind is Kind.TABLE for each in self.tree.nodes[: node.id])
        rows = self.metadata.get("table_rows", "").split()
        first = int(rows[above]) if above < len(rows) else 1
        # The second line is the rule under the head, which is no row of the file.
        return first + max(0, self.text.count("\n", node.span.start, span.start) - 1)

    def table_head(self, span: Span) -> str:
        """Return the head of the table that a span continues; empty if it begins in none.

        The head is the first row with a word in it and the rows without a label that follow it, as
        the years under "Year ended". A later row that has nothing but a period ("2014") is its last
        part, or takes its place if the first row is such a row too. In a sheet the titles right
        above the table come first. If the first row has a label and amounts, as in PDF files whose
        columns are named above the table, the short lines right above the table are the head, also
        that of this row.
        """
        if (node := self._find_table(span)) is None:
            return ""
        start, end = node.span.start, span.start
        first = self.text[start : min(node.span.end, start + _TOP)].partition("\n")[0]
        titled = self.media_type in SHEETS and end > start
        titles = self._lines_above(start) if titled else ""
        if titled and not _NOT_RULE.search(first):
            return titles  # rows that nothing names
        top = min(start + _TOP, node.span.end)
        if not (word := _NOT_RULE.search(self.text, start, top)):
            return ""
        line = self.text.rfind("\n", start, word.start()) + 1 or start
        after = self.text.find("\n", line, top) + 1 or top
        if _is_amounts(self.text[line:after]) and (labels := self._lines_above(start)):
            return labels
        if end <= line:
            return ""
        head = [self.text[line:after].strip()]
        above = self.text[max(after, end - _NEAR) : end]
        period = next(filter(_is_period, reversed(above.splitlines())), "")
        for row in self.text[after : min(end, after + _NEAR)].splitlines()[:_HEAD_ROWS]:
            if _NOT_RULE.search(row):
                if row.split("|")[1:2] == [] or row.split("|")[1].strip():  # it has a label
                    break
                head.append(row)
        if period not in head:
            head = [period, *head[1:]] if period and _is_period(head[0]) else [*head, period]
        cells = (cell.strip() for row in (titles, *head) for cell in row.split("|"))
        return " | ".join(filter(None, cells))[:_LONGEST_HEAD]

    def _lines_above(self, start: int) -> str:
        """Return the short lines right above a table, up to a heading, a table or prose."""
        near = max(0, start - _CAPTION)
        blocks = self.text[near:start].split("\n\n")[1 if near else 0 :]  # the first may be cut
        lines: list[str] = []
        for block in reversed(blocks):
            line = " ".join(block.split())
            if len(line) > _LONGEST_LABEL or line.startswith(("#", "|")):
                break
            lines.insert(0, line)
        return " | ".join(filter(None, lines))

    def table_unit(self, span: Span) -> str:
        """Return the unit of a table's figures as it is printed last in or over the rows before a
        span ("in thousands, except per share data"); empty if there is none, or outside tables."""
        if (node := self._find_table(span)) is None:
            return ""
        near = max(0, node.span.start - _CAPTION)
        start = max(near, self.text.rfind("|\n", near, node.span.start))  # not of a table before
        return self._find_last_unit(start, span.start)

    def printed_unit(self, span: Span) -> str:
        """Return the unit printed last before a row of figures, also pages before it; else "".
        Statements go on without repeating it."""
        if self._find_table(span) is None and not _COLUMNS.search(self.slice(span)):
            return ""
        return self._find_last_unit(max(0, span.start - _FAR), span.start)

    def _find_table(self, span: Span) -> Node | None:
        """Return the table that a span begins in."""
        node = self.tree.node_at(min(span.start, max(0, len(self) - 1)))
        return node if node.kind is Kind.TABLE else None

    def _find_last_unit(self, start: int, end: int) -> str:
        found = list(_UNIT.finditer(self.text, start, end))
        return " ".join(found[-1][0].split()) if found else ""

    def passage(self, span: Span) -> Passage:
        """Return a span with its text and its place."""
        section, page = self.tree.section_path(span), self.page_of(span)
        number = None if page is None else page.number
        place = (self.title, section, number, self.source, self.date, self.folder)
        return Passage(span, self.slice(span), *place)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the text, in hexadecimal."""
        return digest(self.text)

    def _check(self, span: Span) -> None:
        if span.document_id != self.id or span.end > len(self.text):
            what = f"no characters {span.start}-{span.end} of {span.document_id} here"
            raise SpanError(what, f"this is {self.id} with {len(self.text)} characters")


_CAPTION = 300  # characters before a table that may have its unit, and name its columns
_LONGEST_LABEL = 120  # characters of a line that names columns
_UNIT = re.compile(
    r"(?:(?:\b(?:(?:u\.?s\.? )?dollars|amounts) |\$ ?)?"
    r"\bin (?:thousands|millions|billions)\b(?! of)"
    r"|\b(?:in )?(?:thousands|millions|billions) of (?:u\.?s\.? )?dollars\b"
    r"|(?<=\()(?:thousands|millions|billions)\b)"
    r"(?:,? except[^()|\n]{,60})?",
    re.I,
)

_FAR = 20_000  # characters before a row of figures
# Figures beside each other, in a table or where one was read as plain text.
_COLUMNS = re.compile(r"\d[\d.,]*+\)?%?\s+[$€£¥]?\s*+\(?\d")

# With thousands or a currency: years and other numbers may name columns.
_AMOUNT = re.compile(r"\d,\d{3}\b|[$€£¥]")


def _is_amounts(row: str) -> bool:
    """Return whether a row has a label and, in its other cells, amounts and no words."""
    label, _, cells = row.strip().removeprefix("|").partition("|")
    if not any(map(str.isalpha, label)) or any(map(str.isalpha, cells)):
        return False
    return _AMOUNT.search(cells) is not None and _has_digit(cells)


def _is_period(row: str) -> bool:
    """Return whether a row of several cells has text in one alone, which names a year."""
    return row.count("|") > 2 and _PERIOD.fullmatch(row) is not None


@dataclass(frozen=True, slots=True)
class Page:
    """A page as a range of the text. `number` counts from 1; `label` is what is printed on it."""

    number: int
    start: int
    end: int
    label: str | None = None


@dataclass(frozen=True, slots=True)
class Passage:
    """A span of a document, its text, and its place: title, heading path, page (from 1), file, and
    the document's date."""

    span: Span
    text: str
    title: str
    section: tuple[str, ...] = ()
    page: int | None = None
    source: str = field(default="", compare=False)
    date: str = field(default="", compare=False)
    folder: str = field(default="", compare=False)  # where others have its full title

    @property
    def document_id(self) -> str:
        """The id of the passage's document."""
        return self.span.document_id

    @property
    def full_title(self) -> str:
        """The title as searches and models see it (`full_title`)."""
        return full_title(self.title, self.span.document_id, self.folder)

    @property
    def id(self) -> str:
        """A name for the passage: document, start and end."""
        return f"{self.span.document_id}:{self.span.start}-{self.span.end}"


_YEAR_OR_VERSION = re.compile(r"\d{4}|\d\.\d")
_FILE_IN_ID = re.compile(r"(.+)-[0-9a-f]{10}")  # as `reading.source.document_id` makes it


def full_title(title: str, document_id: str, folder: str = "") -> str:
    """Return a title and, in brackets, what the file's name adds to it if that has a number, and
    the folder's name if it is given.

    Reports of one company often have one title, and files that tell them apart. A title with a
    year or a version tells enough.

    >>> full_title("Netflix, Inc.", "netflix-2015-10k-e3b0c44298")
    'Netflix, Inc. (2015 10k)'
    """
    found = _FILE_IN_ID.fullmatch(document_id)
    said = re.findall(r"[\w.]+", title.casefold())
    known = {*said, "".join(said)}  # `house2` adds nothing to House 2
    words = found[1].split("-") if found else []
    new = [word for word in words if word not in known and (len(word) > 2 or _has_digit(word))]
    if not any(map(_has_digit, new)) or _YEAR_OR_VERSION.search(title):
        new = []
    added = ", ".join(filter(None, [" ".join(new), folder]))
    return f"{title} ({added})" if added else title


def _has_digit(text: str) -> bool:
    return any(map(str.isdigit, text))


@dataclass(frozen=True, slots=True)
class Hit:
    """A passage that a search returned; scores compare within one search only."""

    passage: Passage
    score: float
    row: int | None = None  # of a sheet, as `Document.row_of` counts

    def to_json(self) -> dict[str, Any]:
        """Return the passage's place and score; `document.text[start:end]` is its text."""
        passage = self.passage
        return {
            "document": passage.document_id,
            "title": passage.title,
            "source": passage.source,
            "section": list(passage.section),
            "page": passage.page,
            "row": self.row,
            "date": passage.date,
            "start": passage.span.start,
            "end": passage.span.end,
            "score": self.score,
        }


_SURROGATE = re.compile("[\ud800-\udfff]")
# Codes of a terminal (ECMA-48: colours, links), and characters that are struck over.
_TERMINAL = re.compile(
    "\x1b(?:\\[[0-?]*+[ -/]*+[@-~]|\\][^\x07\x1b\n]*+(?:\x07|\x1b\\\\))|[^\n\b]\b"
)


def clean_text(text: str) -> str:
    r"""Return a text as documents hold it: `\n` line ends, U+FFFD for NUL and half surrogate pairs.

    A text passes through here once, where it enters a document. Codes of a terminal are left out.

    >>> clean_text("one\r\ntwo\x00") == "one\ntwo\ufffd"
    True
    """
    text = text.replace("\r\r\n", "\n").replace("\r\n", "\n").replace("\r", "\n")
    text = text.replace("\x00", "\ufffd")
    if "\x1b" in text or "\b" in text:
        text = _TERMINAL.sub("", text)
    try:
        text.encode()
    except UnicodeEncodeError:
        return _SURROGATE.sub("\ufffd", text)
    return text


def digest(text: str) -> str:
    """Return the SHA-256 of a text as UTF-8, in hexadecimal."""
    return hashlib.sha256(text.encode()).hexdigest()


def tree_json(document: Document) -> dict[str, Any]:
    """Return a document's tree for programs; spans count code points of its text."""
    structure = document.tree.structure
    return {
        "document": document.id,
        "title": document.title,
        "characters": len(document),
        "pages": len(document.pages),
        "language": document.language,
        "structure": {
            "confidence": structure.confidence,
            "basis": structure.basis.value,
            "note": structure.note,
        },
        "nodes": [
            {
                "id": node.id,
                "kind": node.kind.value,
                "level": node.level,
                "title": node.title,
                "start": node.span.start,
                "end": node.span.end,
                "page": page_number(document, node),
                "parent": node.parent,
                "children": list(node.children),
            }
            for node in document.tree
        ],
    }


def page_number(document: Document, node: Node) -> int | None:
    """Return the page that a node begins on; None for a document without pages."""
    page = document.page_of(node.span)
    return None if page is None else page.number
