"""A page of a PDF as a reader of paper sees it: its picture, and where on it a quote is.

No geometry is stored with a document: the quote is searched among the page's own characters, or
among the words that OCR finds on it. A picture is a PDF of its frames.
"""

from __future__ import annotations

import ctypes
import io
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

from pypdfium2 import PdfDocument, PdfiumError, PdfPage, PdfTextPage, raw

from colligate.documents.document import Document
from colligate.documents.locating import locate
from colligate.documents.reading.pdf.ocr import as_pdf
from colligate.documents.span import Span
from colligate.documents.tree import flat_tree
from colligate.errors import CorruptFile

_MOST_PIXELS = 16_000_000


class Box(NamedTuple):
    """A rectangle on a page, in shares of its width and height from the upper left corner."""

    left: float
    top: float
    right: float
    bottom: float


def draw_page(path: Path, number: int, width: int) -> bytes:
    """Return a page (from 1) as a WebP picture `width` pixels wide, narrower if it is very long."""
    with _open_page(path, number) as page:
        across, down = page.get_size()
        scale = min(width / across, (_MOST_PIXELS / (across * down)) ** 0.5)
        picture = io.BytesIO()
        page.render(scale=scale).to_pil().save(picture, "WEBP", quality=80, method=2)
        return picture.getvalue()


def find_boxes(path: Path, number: int, quote: str, share: float, languages: str = "") -> list[Box]:
    """Return the boxes of a quote's lines on a page, from top to bottom as it is read.

    `share` says how far down the page's text the quote begins: of several places the nearest is
    taken. What is not found, such as a mark that the Markdown added, has no box. A page without
    text is read by OCR if there are `languages`.
    """
    with _open_page(path, number) as page:
        characters = page.get_textpage()
        if languages and not characters.count_chars():
            return _find_words(path, number, quote, share, languages)
        codes = [raw.FPDFText_GetUnicode(characters, at) for at in range(characters.count_chars())]
        places = _find_places(quote, _as_document("".join(map(_to_character, codes))), share)
        return [box for place in places for box in _measure(page, characters, place)]


def _find_words(path: Path, number: int, quote: str, share: float, languages: str) -> list[Box]:
    # Imported here: most pages have text of their own.
    from colligate.documents.reading.pdf.reader import recognise

    (page,) = recognise(as_pdf(path.read_bytes()), [number], languages)
    words = [word for item in page.text_items for word in item.words]
    ends = list(accumulate(len(word.text) + 1 for word in words))
    whole = _as_document(" ".join(word.text for word in words))
    inside = (
        words[bisect_right(ends, place.start) : bisect_left(ends, place.end) + 1]
        for place in _find_places(quote, whole, share)
    )
    across, down = page.width, page.height
    return [
        line
        for found in inside
        for line in _join_lines(
            Box(w.x / across, w.y / down, (w.x + w.width) / across, (w.y + w.height) / down)
            for w in found
        )
    ]


def _as_document(text: str) -> Document:
    return Document("page", "", text, flat_tree("page", len(text)))


@contextmanager
def _open_page(path: Path, number: int) -> Iterator[PdfPage]:
    try:
        document = PdfDocument(as_pdf(path.read_bytes()))
        try:
            yield document[number - 1]
        finally:
            document.close()
    except (PdfiumError, IndexError, ValueError) as error:
        why = f"page {number} cannot be drawn ({error})"
        raise CorruptFile(f"cannot show {path.name}", why, "read its text") from error


_HYPHEN = (0x02, 0xFFFE)  # how PDFium reports a hyphen at the end of a line


def _to_character(code: int) -> str:
    if code in _HYPHEN:
        return "-"
    return chr(code) if code and not 0xD800 <= code < 0xE000 and code < 0x110000 else "\ufffd"


_SHORTEST = 4  # characters of a line or cell that is searched alone
_REACHES = (0.1, 0.3, 1.0)  # of the page's text around the place where a quote should be


def _find_places(quote: str, page: Document, share: float) -> Iterator[Span]:
    """Yield the places of a quote, or of its lines and cells where it is not in one piece."""
    size = len(page)
    for reach in _REACHES:
        low = max(0, int((share - reach) * size))
        high = max(low, min(size, int((share + reach) * size) + len(quote)))
        if found := locate(quote, page, within=page.span(low, high), verbatim=reach < 1):
            yield found.span
            return
    for separator in (r"\n+", r"\s*\|\s*"):
        pieces = [piece for piece in re.split(separator, quote) if len(piece) >= _SHORTEST]
        if len(pieces) > 1:
            for piece in pieces:
                yield from _find_places(piece, page, share)
            return


_UNIT = 1_000_000


def _measure(page: PdfPage, characters: PdfTextPage, place: Span) -> list[Box]:
    """Return the boxes of a range of characters, one a line."""
    boxes = []
    for at in range(characters.count_rects(place.start, len(place))):
        left, bottom, right, top = characters.get_rect(at)
        (x0, y0), (x1, y1) = _to_share(page, left, top), _to_share(page, right, bottom)
        boxes.append(Box(min(x0, x1), min(y0, y1), max(x0, x1), max(y0, y1)))
    return _join_lines(boxes)


def _join_lines(boxes: Iterable[Box]) -> list[Box]:
    """Return boxes with those that follow each other on one line as one."""
    lines: list[Box] = []
    for box in boxes:
        last = lines[-1] if lines else box
        if last.top <= (box.top + box.bottom) / 2 <= last.bottom:
            ends = max(last.right, box.right), max(last.bottom, box.bottom)
            lines[-1:] = [Box(min(last.left, box.left), min(last.top, box.top), *ends)]
        else:
            lines.append(box)
    return lines


def _to_share(page: PdfPage, x: float, y: float) -> tuple[float, float]:
    """Return a point of the PDF's own space, which may be cropped and turned, as it is shown."""
    across, down = ctypes.c_int(), ctypes.c_int()
    shown = ctypes.byref(across), ctypes.byref(down)
    raw.FPDF_PageToDevice(page, 0, 0, _UNIT, _UNIT, 0, x, y, *shown)
    return across.value / _UNIT, down.value / _UNIT
