"""Raised figures, which liteparse writes as one number with the figures before them."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from itertools import pairwise
from typing import Any

from liteparse import ParsedPage, TextItem, WordBox
from pypdfium2 import PdfDocument, PdfiumError, PdfTextPage, raw

from colligate.documents.markdown import superscript_mark

_NUMBER = re.compile(r"\d[\d.,^\u2212\u2013-]{0,30}\d")
_Words = list[tuple[TextItem, WordBox]]  # each with its item


def mark_superscripts(data: bytes, pages: Iterable[ParsedPage]) -> None:
    """Write a raised figure after a figure with a mark, as in HTML: 10^6 is not 106."""
    document: PdfDocument | None = None
    for page in pages:
        uneven = list(_iter_uneven(page))  # on few pages: only there are characters measured
        wanted = {n for _, word in uneven for n in _NUMBER.findall(word.text)}
        document = document or (PdfDocument(data) if wanted else None)
        with suppress(PdfiumError):  # a damaged page
            opened = document[page.page_num - 1] if document and wanted else None
            if opened and not raw.FPDFPage_GetRotation(opened):
                _write(page, uneven, dict(_iter_marked(opened.get_textpage(), wanted)))


def _iter_uneven(page: ParsedPage) -> Iterator[tuple[TextItem, WordBox]]:
    """Yield words with a number that are higher than others of their font, or narrower than their
    digits: those of nearly all fonts are equally wide, and commas half so."""
    lowest, widest, found = dict[Any, float](), defaultdict[Any, float](float), []
    for item in page.text_items:
        key = item.font_name, item.font_size
        lowest[key] = min(item.height, lowest.get(key, item.height))
        for word in item.words if _NUMBER.search(item.text) else ():
            if _NUMBER.search(word.text):
                found.append((key, item, word))
                if word.text.isdigit():
                    widest[key] = max(word.width / len(word.text), widest[key])
    for key, item, word in found:
        figures = sum(1.0 if each.isdigit() else 0.5 for each in word.text)
        is_number = _NUMBER.fullmatch(word.text.rstrip(".,"))
        is_narrow = is_number and word.width < (figures - 0.25) * widest[key]
        if is_narrow or word.height > 1.04 * lowest[key]:
            yield item, word


def _iter_marked(words: PdfTextPage, wanted: Container[str]) -> Iterator[tuple[str, str]]:
    """Yield the numbers of a page that have raised figures, and each with its mark."""
    text = "".join(chr(raw.FPDFText_GetUnicode(words, at)) for at in range(words.count_chars()))
    for number in _NUMBER.finditer(text):
        if number[0] in wanted:
            boxes = [words.get_charbox(at, loose=True) for at in range(*number.span())]
            for at, ((_, low, _, high), (_, bottom, _, top)) in enumerate(pairwise(boxes), start=1):
                is_raised = top - bottom < 0.95 * (high - low) and bottom > low + 0.1 * (high - low)
                before, after = number[0][:at], number[0][at:]
                if is_raised and (mark := superscript_mark(before, after)):
                    yield number[0], before + mark + after


def _write(page: ParsedPage, uneven: _Words, marks: Mapping[str, str]) -> None:
    """Write the marks into the words, and into the items and cells of tables that they are in."""
    marked = [word for _, word in uneven if not marks.keys().isdisjoint(_NUMBER.findall(word.text))]
    rows = (row for block in page.blocks or () for row in (block.header, *(block.rows or ())))
    for cell in [cell for row in rows for cell in row or ()] if marked else ():
        if (box := cell.bbox) and any(
            box.x <= word.x + word.width / 2 <= box.x + box.width
            and box.y <= word.y + word.height / 2 <= box.y + box.height
            and word.text in cell.text
            for word in marked
        ):
            cell.text = _NUMBER.sub(lambda number: marks.get(number[0], number[0]), cell.text)
    for word in marked:
        word.text = _NUMBER.sub(lambda number: marks.get(number[0], number[0]), word.text)
    for item in {id(item): item for item, _ in uneven}.values():
        shown = (number for word in item.words for number in _NUMBER.findall(word.text))
        item.text = _NUMBER.sub(partial(_take_next, shown), item.text)


def _take_next(shown: Iterator[str], number: re.Match[str]) -> str:
    marked = next(shown, "")
    return marked if marked.replace("^", "") == number[0] else number[0]
