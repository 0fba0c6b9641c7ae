"""Limits on one file: its size, what an archive may unpack to, and what reading it may take."""

from __future__ import annotations

from dataclasses import dataclass

_MEBIBYTE = 1 << 20


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on one file; sizes in bytes.

    `text_bytes` bounds files read as text, `file_bytes` any file. In zip-based formats,
    `unpacked_bytes` bounds the unpacked size of all members, `ratio` the same in sizes of the
    archive itself (up to a mebibyte is always accepted), `members` their number. A document of
    more than `sections` sections keeps them only if they have text. With `ocr`, Tesseract's names
    of languages ("eng+deu"), scanned pages and pictures are read, which may take ten times as long;
    so may a `pdf` of "docling", which reads PDFs in the place of liteparse.
    """

    file_bytes: int = 512 * _MEBIBYTE
    text_bytes: int = 64 * _MEBIBYTE
    unpacked_bytes: int = 512 * _MEBIBYTE
    ratio: int = 200
    members: int = 20_000
    sections: int = 20_000
    ocr: str = ""
    pdf: str = ""

    def seconds(self, size: int) -> float:
        """Return how long reading a file of so many bytes may take."""
        return (60 + 10 * size / _MEBIBYTE) * (10 if self.ocr or self.pdf == "docling" else 1)

    def memory(self, size: int) -> int:
        """Return how many bytes of memory reading a file of so many bytes may take."""
        return min(4096 * _MEBIBYTE, max(900 * _MEBIBYTE, 100 * size))
