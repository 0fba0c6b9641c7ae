"""What lies on a page of a PDF rather than in it: the fields of a form, and comments.

Loading a form makes pdfium draw the values that no program drew. What is ticked or chosen is a
picture or nothing at all, so it is printed as text, and laid out with the words around it. So is
what a typewriter tool put into the blanks of a page.
"""

from __future__ import annotations

import ctypes
import logging
import re
from collections.abc import Callable, Container, Iterator
from functools import cache, partial
from typing import Any, NamedTuple

from pypdfium2 import PdfDocument, PdfPage, PdfTextPage, raw

# It would print advice on how to build it to whoever reads a form of the XFA kind.
logging.getLogger("pypdfium2").setLevel(logging.ERROR)

_TICKED = (raw.FPDF_FORMFIELD_CHECKBOX, raw.FPDF_FORMFIELD_RADIOBUTTON)
_LARGEST = 10.0  # points, of a printed mark


class Mark(NamedTuple):
    """What is ticked or chosen in a field, and how it is printed, in the PDF's own space."""

    text: str
    size: float
    matrix: tuple[float, float, float, float, float, float]

    def print(self, document: PdfDocument, page: PdfPage) -> None:
        """Add it to a page's own text."""
        words = raw.FPDFPageObj_NewTextObj(document, b"Helvetica", self.size)
        codes = self.text.encode("utf-16-le") + b"\0\0"
        raw.FPDFText_SetText(words, (ctypes.c_ushort * (len(codes) // 2)).from_buffer_copy(codes))
        raw.FPDFPageObj_Transform(words, *self.matrix)
        raw.FPDFPage_InsertObject(page, words)


def find_marks(document: PdfDocument, page: PdfPage) -> Iterator[Mark]:
    """Yield "[x]" for what is ticked, "[ ]" for what is not, and what is chosen in a list."""
    form, box, words = document.formenv, raw.FS_RECTF(), page.get_textpage()
    turn = raw.FPDFPage_GetRotation(page)
    for annotation in _open_annotations(page):
        kind = raw.FPDFAnnot_GetFormFieldType(form, annotation)
        raw.FPDFAnnot_GetRect(annotation, box)
        size = min(box.top - box.bottom, _LARGEST)
        if size <= 0 or raw.FPDFAnnot_GetFlags(annotation) & raw.FPDF_ANNOT_FLAG_HIDDEN:
            continue
        chosen = ", ".join(_list_chosen(form, annotation, kind))
        if kind in _TICKED:
            text = "[x] " if raw.FPDFAnnot_IsChecked(form, annotation) else "[ ] "
        elif chosen:
            text = f"[x] {chosen}"
        else:
            continue
        left = box.right + size if chosen else _find_label(words, box, size) - 1.4 * size
        down = 0.9 * size
        matrix = (
            (1, 0, 0, 1, left, box.top - down),
            (0, 1, -1, 0, box.left + down, box.bottom),
            (-1, 0, 0, -1, box.right, box.bottom + down),
            (0, -1, 1, 0, box.right - down, box.top),
        )[turn]
        yield Mark(text, size, matrix)


def find_typed(page: PdfPage) -> Iterator[Mark]:
    """Yield the lines that a typewriter tool put where the page itself has no words."""
    box, words = raw.FS_RECTF(), cache(page.get_textpage)
    for annotation in _open_annotations(page):
        text = _read_value(annotation, b"Contents").strip()
        if _read_value(annotation, b"IT") != "FreeTextTypewriter" or len(text.splitlines()) != 1:
            continue
        raw.FPDFAnnot_GetRect(annotation, box)
        high, size = box.top - box.bottom, min(box.top - box.bottom, _LARGEST)
        right = min(box.right, box.left + 0.5 * size * len(text))
        if not 0 < high < 2 * _LARGEST or raw.FPDFPage_GetRotation(page):
            continue
        middle = box.left, box.bottom + 0.4 * high, right, box.top - 0.4 * high
        if not words().get_text_bounded(*middle).strip():
            yield Mark(text, size, (1, 0, 0, 1, box.left, box.top - 0.9 * size))


_NO_COMMENTS = (raw.FPDF_ANNOT_POPUP, raw.FPDF_ANNOT_LINK, raw.FPDF_ANNOT_WIDGET)
_ON_WORDS = (raw.FPDF_ANNOT_HIGHLIGHT, raw.FPDF_ANNOT_UNDERLINE, raw.FPDF_ANNOT_SQUIGGLY)


def read_comments(page: PdfPage, printed: Container[str] = ()) -> Iterator[str]:
    """Yield what is written in a page's notes, marks and stamps, with the writer's name, and the
    words that are marked or struck out. What is printed on the page is left out."""
    words = cache(page.get_textpage)
    for annotation in _open_annotations(page):
        kind = raw.FPDFAnnot_GetSubtype(annotation)
        text, writer = (_read_value(annotation, key) for key in (b"Contents", b"T"))
        if kind in _NO_COMMENTS or text.strip() in printed:
            continue
        label, struck = f"Comment ({writer})" if writer else "Comment", ""
        if kind == raw.FPDF_ANNOT_STRIKEOUT and (struck := _read_words(words(), annotation)):
            label += f" on ~~{struck}~~"
        elif text.strip() and kind in _ON_WORDS and (marked := _read_words(words(), annotation)):
            label += f' on "{marked}"'
        if text.strip():
            yield f"{label}: {text}"
        elif struck:
            yield label


_MOST_QUADS = 10  # lines of words that one mark is on
_LONGEST_WORD = 40


def _read_words(words: PdfTextPage, annotation: Any) -> str:
    """Return the whole words that a mark is on."""
    quad, found = raw.FS_QUADPOINTSF(), list[str]()
    for n in range(min(raw.FPDFAnnot_CountAttachmentPoints(annotation), _MOST_QUADS)):
        raw.FPDFAnnot_GetAttachmentPoints(annotation, n, quad)
        (left, *_, right), (low, *_, high) = (
            sorted(getattr(quad, f"{axis}{at}") for at in range(1, 5)) for axis in "xy"
        )
        middle = (low + high) / 2
        text = words.get_text_bounded(left + 1, middle - 1, right - 1, middle + 1).strip()
        at = words.get_index(left + 1, middle, high - low, high - low) or 0
        if text and words.get_text_range(at, len(text)) == text:
            start = max(0, at - _LONGEST_WORD)
            before = words.get_text_range(start, at - start) if at else ""
            after = words.get_text_range(at + len(text), _LONGEST_WORD)
            text = re.split(r"\s", before)[-1] + text + re.split(r"\s", after)[0]
        found.append(text)
    return " ".join(" ".join(found).split())


def _open_annotations(page: PdfPage) -> Iterator[Any]:
    for at in range(raw.FPDFPage_GetAnnotCount(page)):
        if annotation := raw.FPDFPage_GetAnnot(page, at):
            try:
                yield annotation
            finally:
                raw.FPDFPage_CloseAnnot(annotation)


def _find_label(words: PdfTextPage, box: Any, size: float) -> float:
    """Return where the words right of a field begin, so that what is printed is one with them."""
    place = box.right + size, (box.top + box.bottom) / 2
    at = words.get_index(*place, 2 * size, size)
    left = words.get_charbox(at)[0] if at is not None else 0.0
    return left if left >= box.right else box.left + 1.4 * size


def _list_chosen(form: Any, annotation: Any, kind: int) -> Iterator[str]:
    is_list = kind == raw.FPDF_FORMFIELD_LISTBOX
    for at in range(raw.FPDFAnnot_GetOptionCount(form, annotation) if is_list else 0):
        if raw.FPDFAnnot_IsOptionSelected(form, annotation, at):
            yield _decode(partial(raw.FPDFAnnot_GetOptionLabel, form, annotation, at))


def _read_value(annotation: Any, key: bytes) -> str:
    return _decode(partial(raw.FPDFAnnot_GetStringValue, annotation, key))


def _decode(read: Callable[..., int]) -> str:
    """Return the UTF-16 text that a function of pdfium writes into a buffer, given its size."""
    size = read(None, 0)
    buffer = (ctypes.c_ushort * (size // 2 + 1))()
    read(buffer, size)
    return bytes(buffer)[: max(0, size - 2)].decode("utf-16-le", "replace")
