"""Reading a PDF: liteparse (or docling) for the text and its blocks, pypdfium2 for the outline.

The text is Markdown, page by page, and its headings are repaired (`headings`): PDF has no
headings of its own, and a line that looks like one often is not.
"""

from __future__ import annotations

import dataclasses
import io
import re
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import groupby, islice, pairwise
from typing import Any

from liteparse import LiteParse, ParsedPage, ParseError
from pypdfium2 import PdfDocument, PdfiumError, raw

from colligate.documents.document import Document, Page
from colligate.documents.markdown import format_code, format_table, markdown_tree
from colligate.documents.reading.pdf import hyphens, layout
from colligate.documents.reading.pdf.annotations import find_marks, find_typed, read_comments
from colligate.documents.reading.pdf.contents import WantedTitle
from colligate.documents.reading.pdf.docling import DOCLING, read_layouts
from colligate.documents.reading.pdf.headings import repair_headings
from colligate.documents.reading.pdf.hyphens import HYPHENS, dehyphenate_lines
from colligate.documents.reading.pdf.layout import PageLayout, PdfBlock, PdfLine, clean_line
from colligate.documents.reading.pdf.ocr import NO_TEXT, as_pdf, find_language_data
from colligate.documents.reading.pdf.superscripts import mark_superscripts
from colligate.documents.reading.pdf.tables import find_heads, release_text, restore_rows
from colligate.documents.reading.source import SourceFile, make_document
from colligate.documents.sentences import SENTENCE_END
from colligate.errors import CorruptFile, EncryptedFile, NoText, UnsupportedFormat


def read_pdf(source: SourceFile, *, use_outline: bool = True) -> Document:
    """Read a PDF: every page has a `Page`; pages without text are empty, and a warning names them.
    Without `use_outline` the outline is ignored, to measure what is found without it."""
    outline, facts, page_count = _read_facts(source)
    pages, is_recognised = _lay_out(source, page_count)
    _check_text(source, pages)
    hyphens.join_initials(pages)
    release_text(pages)
    structure = repair_headings(pages, outline if use_outline else ())
    restore_rows(pages)
    find_heads(pages)
    _join_sentences(pages)
    hyphens.mark_broken_words(pages)
    for page in pages:
        comments = ([PdfLine(page.number - 1, comment)] for comment in page.comments)
        page.blocks += [PdfBlock("paragraph", lines) for lines in comments]
    text, ranges = render_pages(pages)
    made = _MADE.sub(r"\1-\2-\3", facts.get("CreationDate", ""))
    metadata = {"authors": clean_line(facts.get("Author", "")), "created_at": made}
    metadata["ocr"] = source.limits.ocr if is_recognised else ""
    title = _choose_title(clean_line(facts.get("Title", "")), pages, source.stem)
    tree = partial(markdown_tree, structure=structure)
    document = make_document(source, text, tree=tree, title=title, metadata=metadata)
    return dataclasses.replace(document, pages=ranges)


def read_picture(source: SourceFile) -> Document:
    """Read a picture by OCR, each of its frames as a page."""
    if not source.limits.ocr:
        kind = source.format.media_type.removeprefix("image/").upper()
        raise source.error(UnsupportedFormat, f"it is a {kind} picture", _USE_OCR)
    try:
        pages = as_pdf(source.data)
    except ValueError as error:
        raise source.error(CorruptFile, f"it is damaged ({error})", "save it again") from error
    limits = dataclasses.replace(source.limits, pdf="")  # it has only what OCR finds
    return read_pdf(dataclasses.replace(source, data=pages, limits=limits))


_USE_OCR = "--ocr reads it (for a server: COLLIGATE_OCR=eng)"
_MADE = re.compile(r"D:(\d{4})(\d\d)(\d\d).*", re.DOTALL)  # the PDF's own form of a date


def _read_facts(source: SourceFile) -> tuple[list[WantedTitle], dict[str, str], int]:
    """Return what only pypdfium2 reads: outline, metadata and number of pages."""
    try:
        document = PdfDocument(source.data)
    except PdfiumError as error:
        code = raw.FPDF_GetLastError() if error.err_code is None else error.err_code
        if code in (raw.FPDF_ERR_PASSWORD, raw.FPDF_ERR_SECURITY):
            raise _encrypted(source) from error
        raise _corrupt(source, str(error)) from error
    try:
        if attached := document.count_attachments():
            names = (document.get_attachment(at).get_name() for at in range(attached))
            source.warn(f"attachments are not read: {', '.join(islice(names, _MOST_NAMED))}")
        if document.get_formtype() == raw.FORMTYPE_XFA_FULL:
            what = "it is an XFA form: what is filled in may be missing; print it to a new PDF"
            source.warn(what)
        return list(_iter_outline(document)), document.get_metadata_dict(), len(document)
    except (PdfiumError, ValueError) as error:  # ValueError: text that is not UTF-16
        raise _corrupt(source, str(error)) from error
    finally:
        document.close()


_MOST_NAMED = 20  # attachments
_OUTLINE_LIMIT = 20_000


def _iter_outline(document: PdfDocument) -> Iterator[WantedTitle]:
    for i, bookmark in enumerate(document.get_toc()):
        if i == _OUTLINE_LIMIT:
            return
        target = bookmark.get_dest()
        page = target.get_index() if target else None
        title = clean_line(bookmark.get_title())
        if page is not None and page >= 0 and title:
            yield WantedTitle(title, bookmark.level + 1, page)


def _lay_out(source: SourceFile, page_count: int) -> tuple[list[PageLayout], bool]:
    """Return the pages, those without text by OCR if it is wanted, and whether it read any."""
    began = time.monotonic()
    if source.limits.pdf == DOCLING:
        pages = read_layouts(source, page_count)
        silent = [page.number for page in pages if not page.blocks]
        read = layout.build_layouts(list(_recognise(source, silent, began)))
        for page in read:
            pages[page.number - 1] = page
        return pages, bool(read)
    data, comments = _prepare(source, min(page_count, _PAGE_LIMIT))
    parsed, turned = _parse(source, data, page_count)
    mark_superscripts(data, parsed)
    silent = [page.page_num for page in parsed if not any(i.text.strip() for i in page.text_items)]
    recognised = {page.page_num: page for page in _recognise(source, silent, began)}
    pages = layout.build_layouts([recognised.get(page.page_num, page) for page in parsed], turned)
    for page in pages:
        page.comments = comments.get(page.number, [])
    if slanted := {clean_line(text)[:_LONGEST_SHOWN]: None for p in pages for text in p.slanted}:
        shown = ", ".join(map(repr, islice(slanted, _MOST_SHOWN)))
        more = f" and {len(slanted) - _MOST_SHOWN} more" if len(slanted) > _MOST_SHOWN else ""
        where = _list_pages([page.number for page in pages if page.slanted])
        source.warn(f"text at an angle is not read: {shown}{more} on {where}")
    return pages, bool(recognised)


_PAGE_LIMIT = 10_000  # pages read of one file; the rest is left out with a warning
_TIME_SHARE = 0.6  # of the file's time is for parsing; pages not parsed by then are left out
_BATCH = 50


def _parse(
    source: SourceFile, data: bytes, page_count: int
) -> tuple[list[ParsedPage], dict[int, list[ParsedPage]]]:
    """Return the pages, and those again that have sideways text, turned for it."""
    parser = _make_parser(ocr_enabled=False, max_pages=_PAGE_LIMIT)
    pages: dict[int, ParsedPage] = {}
    turned: dict[int, list[ParsedPage]] = defaultdict(list)
    failed: list[int] = []
    seconds = _TIME_SHARE * source.limits.seconds(len(source.data))
    deadline = time.monotonic() + seconds
    try:
        for batch in parser.parse_batches(data, _BATCH):
            pages.update((page.page_num, page) for page in batch.result.pages)
            failed.extend(error.page_num for error in batch.result.page_errors)
            if time.monotonic() > deadline and batch.end_page < page_count:
                why = f"parsing took longer than {seconds:.0f} s"
                source.warn(f"pages after {batch.end_page} were left out: {why}")
                break
        for page in _turn_pages(source, data, pages.values(), deadline):
            turned[page.page_num].append(page)
    except ParseError as error:
        if "password" in str(error).lower():
            raise _encrypted(source) from error
        raise _corrupt(source, str(error)) from error
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # how a fault inside liteparse is raised
            raise
        raise _corrupt(source, "the parser failed on it") from error
    if page_count > _PAGE_LIMIT:
        source.warn(f"only the first {_PAGE_LIMIT:,} of {page_count:,} pages were read")
    if failed:
        source.warn(f"could not be parsed: {_list_pages(failed)}")
    blank = [n for n in range(1, page_count + 1) if n not in pages]
    pages.update((n, ParsedPage(page_num=n, width=0.0, height=0.0, text="")) for n in blank)
    return [pages[n] for n in sorted(pages)], turned


def _turn_pages(
    source: SourceFile, data: bytes, pages: Iterable[ParsedPage], deadline: float
) -> Iterator[ParsedPage]:
    """Yield pages with sideways text once more for each direction, turned so that it is upright."""
    turns = [(turn, page.page_num) for page in pages for turn in layout.find_turns(page)]
    for turn, found in groupby(sorted(turns), lambda each: each[0]):
        numbers = [number for _, number in found]
        for at in range(0, len(numbers), _BATCH):
            batch = numbers[at : at + _BATCH]
            if time.monotonic() > deadline:
                source.warn(f"sideways text was left out: {_list_pages(numbers[at:])}")
                break
            parser = _make_parser(
                ocr_enabled=False,
                target_pages=",".join(map(str, batch)),
                page_orientation_corrections=[(number, turn) for number in batch],
            )
            yield from parser.parse(data).pages


_LONGEST_SHOWN = 60  # characters of a text in a warning
_MOST_SHOWN = 3  # texts in a warning
_MOST_LINES = 20_000  # drawn on one page; liteparse's time grows with their square


def _prepare(source: SourceFile, page_count: int) -> tuple[bytes, dict[int, list[str]]]:
    """Return the PDF as liteparse is to see it, and the comments on each page.

    What is ticked in a form or typed on a page is printed, and what pages with very many lines
    draw is left out; a warning names them. Text stays: where pdfium would lose some, as of fonts
    that are drawings, nothing is changed.
    """
    document, dropped = PdfDocument(source.data), list[int]()
    changed: dict[int, int] = {}  # how many characters they had
    comments: dict[int, list[str]] = {}
    shown: dict[int, list[str]] = {}  # comments without those that are printed
    document.init_forms()
    for index in range(page_count):
        with suppress(PdfiumError):  # a damaged page, which liteparse reports
            page = document[index]
            if found := list(read_comments(page)):
                comments[index + 1] = found
            # The objects of pypdfium2's own classes would take gigabytes.
            get, measure, handle = raw.FPDFPage_GetObject, raw.FPDFPath_CountSegments, page.raw
            count = raw.FPDFPage_CountObjects(handle)
            lines = [measure(get(handle, at)) for at in range(count)]  # -1 for text
            is_crowded = sum(lines) + lines.count(-1) > _MOST_LINES
            marks = list(find_typed(page)) if found else []
            printed = {mark.text for mark in marks}
            shown[index + 1] = list(read_comments(page, printed)) if printed else found
            marks += find_marks(document, page) if document.formenv else ()
            if is_crowded or marks:
                changed[index] = page.get_textpage().count_chars()
            if is_crowded:
                dropped.append(index + 1)
                for each in [get(handle, at) for at in range(count) if lines[at] >= 0]:
                    raw.FPDFPage_RemoveObject(page, each)
                    raw.FPDFPageObj_Destroy(each)
            for mark in marks:
                mark.print(document, page)
            if index in changed:
                page.gen_content()
            page.close()
    if not (changed or document.formenv):
        return source.data, comments
    saved = io.BytesIO()
    document.save(saved)
    after = PdfDocument(saved.getvalue())
    if any(after[at].get_textpage().count_chars() < count for at, count in changed.items()):
        if document.formenv:
            source.warn("what is ticked in its form is not read")
        return source.data, comments
    if dropped:
        pages = _list_pages(dropped)
        source.warn(f"drawings of over {_MOST_LINES:,} lines were left out: {pages}")
    return saved.getvalue(), shown


def _make_parser(**options: Any) -> LiteParse:
    options |= {"quiet": True, "output_format": "markdown", "image_mode": "off"}
    options |= {"extract_links": False, "extract_blocks": True, "emit_word_boxes": True}
    return LiteParse(continue_on_page_error=True, **options)


_OCR_BATCH = 5
_OCR_SHARE = 0.9  # of the file's time


def _recognise(source: SourceFile, numbers: Sequence[int], began: float) -> Iterator[ParsedPage]:
    """Yield pages of a PDF by OCR if it is wanted; a warning names those left out for time."""
    if not source.limits.ocr:
        return
    seconds = _OCR_SHARE * source.limits.seconds(len(source.data))
    for at in range(0, len(numbers), _OCR_BATCH):
        if at and time.monotonic() > began + seconds:
            left = _list_pages(numbers[at:])
            source.warn(f"left out, as OCR took longer than {seconds:.0f} s: {left}")
            return
        try:
            yield from recognise(source.data, numbers[at : at + _OCR_BATCH], source.limits.ocr)
        except ParseError as error:
            raise _corrupt(source, str(error)) from error


def recognise(data: bytes, numbers: Sequence[int], languages: str) -> list[ParsedPage]:
    """Return pages of a PDF (from 1) by OCR, with a box for each word."""
    ocr = {"ocr_language": languages, "tessdata_path": str(find_language_data(languages))}
    wanted = ",".join(map(str, numbers))
    parser = _make_parser(
        ocr_enabled=True, target_pages=wanted, dpi=_DOTS_PER_INCH, num_workers=1, **ocr
    )
    pages: list[ParsedPage] = parser.parse(data).pages
    return pages


_DOTS_PER_INCH = 200.0  # decision 35


def _check_text(source: SourceFile, pages: Sequence[PageLayout]) -> None:
    """Warn of pages without text; refuse a file that has no other."""
    silent = [page.number for page in pages if not (page.rows or page.blocks)]
    if len(silent) == len(pages):
        if not pages or source.limits.ocr:
            why = "OCR finds no text in it" if pages else "it has no pages"
            raise source.error(NoText, why, "leave it out")
        raise source.error(NoText, "no page has text, so it looks scanned", _USE_OCR)
    if silent:
        why = "blank (OCR finds no text)" if source.limits.ocr else NO_TEXT
        source.warn(f"{why}: {_list_pages(silent)}")


def _list_pages(numbers: Sequence[int]) -> str:
    """Return page numbers with runs shortened.

    >>> _list_pages([1, 2, 3, 7])
    'pages 1-3, 7'
    """
    # The numbers of a run are all as far from their places in the list.
    placed = enumerate(sorted(set(numbers)))
    runs = [[n for _, n in run] for _, run in groupby(placed, lambda each: each[1] - each[0])]
    shown = [str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs]
    more = f" and {len(shown) - 20} more" if len(shown) > 20 else ""
    return f"page{'s' * (len(set(numbers)) > 1)} {', '.join(shown[:20])}{more}"


def _encrypted(source: SourceFile) -> EncryptedFile:
    return source.error(EncryptedFile, "it is encrypted", "save a copy without a password")


def _corrupt(source: SourceFile, why: str) -> CorruptFile:
    return source.error(CorruptFile, f"the PDF is damaged ({why})", "fetch it again")


_NO_TITLE = re.compile(
    r"untitled|unbenannt|sans titre|document\d*$|microsoft (word|powerpoint|excel) ?-|slide ?1$"
    r"|title$|for immediate release$|\S+\.(\w{2,4}|book|indd)$|[\d\W_]*$|\S*[/\\]\S+$|\(.*\)$",
    re.I,
)


def _choose_title(metadata: str, pages: Sequence[PageLayout], stem: str) -> str:
    """Return the first sensible title: the metadata's, the name of the company that files the
    report, page 1's first heading, or the stem."""
    shown = [
        dehyphenate_lines(block.lines)
        for page in pages[:1]
        for block in page.blocks
        if block.kind == "heading" and block.level == 1
    ]
    for title in [metadata, *_find_registrant(pages), *shown[:1]]:
        if 3 <= len(title) <= 200 and not _NO_TITLE.match(title) and title != stem:
            return title
    return clean_line(re.sub(r"[_]+|(?<=\w)-(?=\w)", " ", stem)) or "Untitled"


_FORM = re.compile(r"\bForm (\d+-[A-Z]+)\b", re.I)


def _find_registrant(pages: Sequence[PageLayout]) -> Iterator[str]:
    """Yield the company and the form of a report to the SEC, whose first page labels the name."""
    texts = [dehyphenate_lines(block.lines) for page in pages[:1] for block in page.blocks]
    form = next((f", Form {found[1].upper()}" for found in map(_FORM.search, texts) if found), "")
    for name, label in pairwise(texts):
        if label.lower().startswith("(exact name of registrant"):
            yield name.replace(" .", ".") + form


_SMALLER = 0.9  # of most of the page's type size: a footnote


def _join_sentences(pages: Sequence[PageLayout]) -> None:
    """Mark the first paragraphs of pages that go on with the text before; footnotes go above it.

    They begin with a lower-case letter, and that text has no end of a sentence. Of 154 such
    paragraphs in 17 filings all go on; those that begin otherwise after a full line often follow
    a table, so they stay apart.
    """
    for page, following in pairwise(pages):
        here, there = (
            [block for block in each.blocks if block.kind != "chrome"] for each in (page, following)
        )
        largest = _SMALLER * layout.find_body_size([page])
        count = 0
        while count < len(here) and 0 < _find_size(here[-count - 1]) < largest:
            count += 1
        texts, notes = here[: len(here) - count], here[len(here) - count :]
        if texts and there and _goes_on(texts[-1], there[0]):
            there[0].goes_on = texts[-1].lines[-1]
            page.blocks = [block for block in page.blocks if block not in notes]
            at = page.blocks.index(texts[-1])
            page.blocks[at:at] = notes


def _find_size(block: PdfBlock) -> float:
    return max((line.size for line in block.lines), default=0.0)


def _goes_on(before: PdfBlock, after: PdfBlock) -> bool:
    return (
        before.kind in ("paragraph", "list_item")
        and after.kind == "paragraph"
        and bool(before.lines and after.lines)
        and after.lines[0].text[:1].islower()
        and not SENTENCE_END.search(before.lines[-1].text)
        and abs(_find_size(before) - _find_size(after)) < 1
    )


# A paragraph is one line, and whatever would make it a heading, list, quote, fence or table by
# accident is escaped, so the text has no other headings than the repaired ones.


def render_pages(pages: Sequence[PageLayout]) -> tuple[str, tuple[Page, ...]]:
    """Return the text of all pages, and the range of each.

    Between pages is a blank line, or a line break where a sentence goes on. The ranges tile the
    text: a page ends where the next one begins, and a page without text is empty. A label is kept
    where it is not the page's number.
    """
    levels: list[int] = []  # of the list items that are open, also over the ends of pages
    texts: list[str] = []
    starts: list[int] = []
    length = 0
    for page in pages:
        gap, text = _render_page(page.blocks, levels)
        gap = gap if text and length else ""  # it belongs to the page before
        starts.append(length + len(gap))
        length += len(gap + text)
        texts.append(gap + text)
    starts.append(length)
    for i in reversed(range(len(pages))):
        starts[i] = starts[i] if texts[i] else starts[i + 1]
    ranges = tuple(
        Page(page.number, start, end, page.label if page.label != str(page.number) else None)
        for page, (start, end) in zip(pages, pairwise(starts), strict=True)
    )
    return "".join(texts), ranges


def _render_page(blocks: Iterable[PdfBlock], levels: list[int]) -> tuple[str, str]:
    """Return what stands before a page's text, unless it is the first, and the text."""
    parts: list[str] = []
    for block in blocks:
        if block.kind == "chrome":
            continue
        was_item = bool(levels)
        if block.kind == "list_item":
            while levels and levels[-1] > block.level:
                levels.pop()
            if levels[-1:] != [block.level]:
                levels.append(block.level)
        if text := _render_block(block, len(levels) - 1):
            if block.kind != "list_item" and not block.goes_on:
                levels.clear()
            if block.goes_on:
                is_broken = block.goes_on.joined or block.goes_on.text.endswith(HYPHENS)
                parts.append("" if is_broken else "\n")
            else:
                parts.append("\n" if parts and was_item and levels else "\n\n")
            parts.append(text)
    return "".join(parts[:1]), "".join(parts[1:])


_TRAILING_HASHES = re.compile(r"(?<=\s)(#+)$")


def _render_block(block: PdfBlock, depth: int) -> str:
    """Return a block's Markdown, of a list item at a depth."""
    if block.kind == "heading":
        title = _TRAILING_HASHES.sub(r"\\\1", dehyphenate_lines(block.lines))
        return f"{'#' * block.level} {title}" if title else ""
    if block.kind == "list_item":
        item = _render_item(block)
        return "    " * depth + item if item else ""
    if block.kind == "table":
        return format_table(block.rows)
    if block.verbatim:
        code = "\n".join(map(str.rstrip, block.verbatim)).strip("\n")
        return format_code(code) if clean_line(code) else ""
    return escape_line(dehyphenate_lines(block.lines))


_BULLETS = "•◦▪▫■□●○‣⁃∙·*–—-+"


def _render_item(block: PdfBlock) -> str:
    text = dehyphenate_lines(block.lines)
    if block.marker and text.startswith(block.marker):
        text = text[len(block.marker) :].lstrip()
    marker = block.marker if _NUMBER.fullmatch(block.marker) else "-"
    if marker == "-" and block.marker and block.marker not in _BULLETS:
        text = f"{block.marker} {text}"  # "(a)", "iv." and the like carry meaning
    return f"{marker} {escape_line(text)}" if text else ""


_ACCIDENT = re.compile(
    r"#{1,6}(?=\s|$)|>|[-+*](?=\s|$)|`{3,}|~{3,}|<(?=[!?/A-Za-z])|\||={2,}|-{2,}"
)
_NUMBER = re.compile(r"(\d{1,9})([.)])(?=\s|$)")
_RULE = re.compile(r"([-*_])(?:\s*\1){2,}\s*$")


def escape_line(text: str) -> str:
    """Escape one line of text, so that Markdown reads it as a plain paragraph.

    >>> escape_line("# include <stdio.h>")
    '\\\\# include <stdio.h>'
    >>> escape_line("2. Methods")
    '2\\\\. Methods'
    """
    if _RULE.match(text) or _ACCIDENT.match(text):
        return "\\" + text
    return _NUMBER.sub(r"\1\\\2", text, count=1) if _NUMBER.match(text) else text
