"""Reading a PDF: liteparse for the text and its blocks, pypdfium2 for the outline.

    read_pdf(path, data, stem=...) -> Document

The text is Markdown, page by page, and its headings are repaired (`pdf_headings`): PDF has no
headings of its own, and what looks like one on a page often is none.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pypdfium2
from liteparse import LiteParse, ParsedPage, ParseError
from pypdfium2 import PdfDocument, PdfiumError

from colligate.documents.document import Document, Page
from colligate.documents.markdown import markdown_tree
from colligate.documents.reading.pdf.headings import OutlineEntry, repair_headings
from colligate.documents.reading.pdf.layout import (
    PageLayout,
    PdfBlock,
    build_layouts,
    clean_line,
    join_lines,
)
from colligate.documents.reading.pdf.tables import release_text
from colligate.documents.reading.source import document_id
from colligate.errors import CorruptFile, EncryptedFile, NoText

# Blocks of a PDF as Markdown that says no more than the page does.
#
# A paragraph is one line, and whatever would make it a heading, list, quote, fence or table by
# accident is escaped, so the only headings of the text are the ones that were meant.

_ACCIDENT = re.compile(
    r"#{1,6}(?=\s|$)|>|[-+*](?=\s|$)|`{3,}|~{3,}|<(?=[!?/A-Za-z])|\||={2,}|-{2,}"
)
_NUMBER = re.compile(r"(\d{1,9})([.)])(?=\s|$)")
_RULE = re.compile(r"([-*_])(?:\s*\1){2,}\s*$")
_FENCE = re.compile(r"`{3,}")
_TRAILING_HASHES = re.compile(r"(?<=\s)(#+)$")
_BULLETS = "•◦▪▫■□●○‣⁃∙·*–—-+"


def render_markdown(pages: Sequence[PageLayout]) -> tuple[str, tuple[Page, ...]]:
    """The text of all pages, pages apart by a blank line, and the range of each.

    The ranges tile the text: a page runs to where the next one begins, and a page without
    text is empty. A label is kept where it is not the page's number.
    """
    parts: list[str] = []
    starts: list[int] = []
    length = 0
    pending: list[int] = []
    for page in pages:
        text = _page(page.blocks)
        starts.append(length)
        if not text:
            pending.append(len(starts) - 1)
            continue
        if parts:
            parts.append("\n\n")
            length += 2
        for i in [*pending, len(starts) - 1]:
            starts[i] = length
        pending.clear()
        parts.append(text)
        length += len(text)
    for i in pending:
        starts[i] = length
    ends = [*starts[1:], length]
    ranges = tuple(
        Page(page.number, start, end, page.label if page.label != str(page.number) else None)
        for page, start, end in zip(pages, starts, ends, strict=True)
    )
    return "".join(parts), ranges


def escape_line(text: str) -> str:
    """One line of text that Markdown reads as a plain paragraph.

    >>> escaped("# include <stdio.h>")
    '\\\\# include <stdio.h>'
    >>> escaped("2. Methods")
    '2\\\\. Methods'
    """
    if _RULE.match(text) or _ACCIDENT.match(text):
        return "\\" + text
    return _NUMBER.sub(r"\1\\\2", text, count=1) if _NUMBER.match(text) else text


def _page(blocks: Iterable[PdfBlock]) -> str:
    parts: list[str] = []
    depth = -1  # of the list item before, -1 outside lists
    for block in blocks:
        text, after = _block(block, depth)
        if not text:
            continue
        if parts:
            parts.append("\n" if after >= 0 and depth >= 0 else "\n\n")
        parts.append(text)
        depth = after
    return "".join(parts)


def _block(block: PdfBlock, depth: int) -> tuple[str, int]:
    """A block's Markdown, and how deep a list item it is (-1: none)."""
    if block.kind == "chrome":
        return "", depth
    if block.kind == "heading":
        title = _TRAILING_HASHES.sub(r"\\\1", join_lines(block.lines))
        return (f"{'#' * block.level} {title}" if title else ""), -1
    if block.kind == "list_item":
        depth = min(block.level, depth + 1)
        item = _item(block)
        return ("    " * depth + item if item else ""), depth
    if block.kind == "table":
        return _table(block.rows), -1
    if block.verbatim:
        return _code(block.verbatim), -1
    return escape_line(join_lines(block.lines)), -1


def _item(block: PdfBlock) -> str:
    text = join_lines(block.lines)
    if block.marker and text.startswith(block.marker):
        text = text[len(block.marker) :].lstrip()
    marker = block.marker if _NUMBER.fullmatch(block.marker) else "-"
    if marker == "-" and block.marker and block.marker not in _BULLETS:
        text = f"{block.marker} {text}"  # "(a)", "iv." and the like say something
    return f"{marker} {escape_line(text)}" if text else ""


def _table(rows: Sequence[Sequence[str]]) -> str:
    width = max((len(row) for row in rows), default=0)
    if not width:
        return ""
    lines = [
        "| "
        + " | ".join([*(cell.replace("|", "\\|") for cell in row), *[""] * (width - len(row))])
        + " |"
        for row in rows
    ]
    return "\n".join([lines[0], "|" + "---|" * width, *lines[1:]])


def _code(lines: Sequence[str]) -> str:
    text = "\n".join(line.rstrip() for line in lines).strip("\n")
    if not clean_line(text):
        return ""
    longest = max((len(run) for run in _FENCE.findall(text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}\n{text}\n{fence}"


PAGE_LIMIT = 10_000
"""Pages read of one file; those beyond are left out with a warning."""
TIME_LIMIT = 600.0
"""Seconds parsing may take; pages not parsed by then are left out with a warning."""

_BATCH = 50
_OUTLINE_LIMIT = 20_000
_NO_TITLE = re.compile(
    r"untitled|unbenannt|sans titre|document\d*$|microsoft (word|powerpoint|excel) ?-|slide ?1$"
    r"|title$|\S+\.(\w{2,4}|book|indd)$|[\d\W_]*$|\S*[/\\]\S+$|\(.*\)$",
    re.I,
)


def read_pdf(path: Path, data: bytes, *, stem: str) -> Document:
    """The document a PDF holds.

    `data` is the file's content, `stem` what its id is built from. Every page has a `Page`;
    pages without text are empty and named in the warnings.

    Raises:
        EncryptedFile: if it needs a password.
        CorruptFile: if it is damaged.
        NoText: if no page has text: it is scanned, or empty.
    """
    return read_with(path, data, stem=stem)


def read_with(path: Path, data: bytes, *, stem: str, use_outline: bool = True) -> Document:
    """`read_pdf`, where the outline may be left aside (to measure what is found without it)."""
    outline, metadata_title, page_count = _facts(path, data)
    parsed, warnings = _parse(path, data, page_count)
    pages = build_layouts(parsed)
    _check_text(path, pages, warnings)
    release_text(pages)
    structure = repair_headings(pages, outline if use_outline else ())
    text, ranges = render_markdown(pages)
    name = document_id(stem, text)
    return Document(
        id=name,
        title=_title(metadata_title, pages, stem),
        text=text,
        tree=markdown_tree(text, name, structure=structure),
        pages=ranges,
        source=str(path),
        media_type="application/pdf",
        warnings=tuple(warnings),
    )


def _facts(path: Path, data: bytes) -> tuple[list[OutlineEntry], str, int]:
    """What pypdfium2 alone can tell: outline, title and number of pages."""
    try:
        document = PdfDocument(data)
    except PdfiumError as error:
        code = pypdfium2.raw.FPDF_GetLastError() if error.err_code is None else error.err_code
        if code in (pypdfium2.raw.FPDF_ERR_PASSWORD, pypdfium2.raw.FPDF_ERR_SECURITY):
            raise EncryptedFile(
                f"cannot read {path}", "it is encrypted", "save a copy without a password"
            ) from error
        raise _corrupt(path, str(error)) from error
    try:
        title = clean_line(document.get_metadata_dict().get("Title", ""))
        return list(_outline(document)), title, len(document)
    except (PdfiumError, ValueError) as error:  # ValueError: text that is not UTF-16
        raise _corrupt(path, str(error)) from error
    finally:
        document.close()


def _outline(document: PdfDocument) -> Iterator[OutlineEntry]:
    for i, bookmark in enumerate(document.get_toc()):
        if i == _OUTLINE_LIMIT:
            return
        target = bookmark.get_dest()
        page = target.get_index() if target else None
        title = clean_line(bookmark.get_title())
        if page is not None and page >= 0 and title:
            yield OutlineEntry(title, bookmark.level + 1, page)


def _parse(path: Path, data: bytes, page_count: int) -> tuple[list[ParsedPage], list[str]]:
    parser = LiteParse(
        ocr_enabled=False,
        quiet=True,
        output_format="markdown",
        image_mode="off",
        extract_links=False,
        extract_blocks=True,
        continue_on_page_error=True,
        max_pages=PAGE_LIMIT,
    )
    pages: dict[int, ParsedPage] = {}
    failed: list[int] = []
    deadline = time.monotonic() + TIME_LIMIT
    warnings = []
    try:
        for batch in parser.parse_batches(data, _BATCH):
            pages.update((page.page_num, page) for page in batch.result.pages)
            failed.extend(error.page_num for error in batch.result.page_errors)
            if time.monotonic() > deadline and batch.end_page < page_count:
                warnings.append(
                    f"{path}: pages after {batch.end_page} were left out: "
                    f"parsing took longer than {TIME_LIMIT:g} s"
                )
                break
    except ParseError as error:
        if "password" in str(error).lower():
            raise EncryptedFile(
                f"cannot read {path}", "it is encrypted", "save a copy without a password"
            ) from error
        raise _corrupt(path, str(error)) from error
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # how a fault inside liteparse arrives
            raise
        raise _corrupt(path, "the parser failed on it") from error
    if page_count > PAGE_LIMIT:
        warnings.append(f"{path}: only the first {PAGE_LIMIT:,} of {page_count:,} pages read")
    if failed:
        warnings.append(f"{path}: could not be parsed: {_page_list(failed)}")
    blank = [n for n in range(1, page_count + 1) if n not in pages]
    pages.update((n, ParsedPage(page_num=n, width=0.0, height=0.0, text="")) for n in blank)
    return [pages[n] for n in sorted(pages)], warnings


def _check_text(path: Path, pages: Sequence[PageLayout], warnings: list[str]) -> None:
    """Say which pages have no text.

    Raises:
        NoText: if none has.
    """
    silent = [page.number for page in pages if not (page.rows or page.blocks)]
    if len(silent) == len(pages):
        raise NoText(
            f"cannot read {path}",
            "no page has text, so it looks scanned" if pages else "it has no pages",
            "run OCR over it first, for example: ocrmypdf IN.pdf OUT.pdf",
        )
    if silent:
        warnings.append(f"{path}: no text (blank or scanned): {_page_list(silent)}")


def _page_list(numbers: Sequence[int]) -> str:
    """Page numbers, runs shortened.

    >>> _page_list([1, 2, 3, 7])
    'pages 1-3, 7'
    """
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    shown = [str(a) if a == b else f"{a}-{b}" for a, b in runs]
    more = f" and {len(shown) - 20} more" if len(shown) > 20 else ""
    return ("page " if runs == [[numbers[0]] * 2] else "pages ") + ", ".join(shown[:20]) + more


def _corrupt(path: Path, why: str) -> CorruptFile:
    return CorruptFile(f"cannot read {path}", f"the PDF is damaged ({why})", "fetch it again")


def _title(metadata: str, pages: Sequence[PageLayout], stem: str) -> str:
    """The metadata's title, else the first heading of page 1, else the stem; what is sensible."""
    shown = [
        join_lines(block.lines)
        for page in pages[:1]
        for block in page.blocks
        if block.kind == "heading" and block.level == 1
    ]
    for title in [metadata, *shown[:1]]:
        if 3 <= len(title) <= 200 and not _NO_TITLE.match(title) and title != stem:
            return title
    return clean_line(re.sub(r"[_]+|(?<=\w)-(?=\w)", " ", stem)) or "Untitled"
