"""Measure how many rows of printed tables keep label and figures together in the text.

    python benchmarks/pdf_rows.py --data DIR [--reader pypdf] [--misses]

DIR has PDFs. The truth is the geometry of the characters (PDFium), not the parser that is measured:
a figure row is a printed line whose first cell is a label with letters and whose next one that is
not a sign is a figure. It is kept if the figure is within 60 characters after its label in the
page's text. Running headers and footers are not counted: lines that several pages repeat.
"""

from __future__ import annotations

import argparse
import re
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from pypdfium2 import PdfDocument, PdfPage, raw

REACH = 60
FIGURE = re.compile(r"[$€£¥(\-\u2013\u2014+~<>]*\d[\d,.]*[)%x\u00d7]*(\(\w{1,2}\))?")
SIGN = re.compile(r"[$€£¥(\u2013\u2014\-.…\s]+")


@dataclass(frozen=True)
class Row:
    """A label and the first figure to the right of it."""

    label: str
    figure: str


def main() -> None:
    """Print the share of kept rows of each PDF and of all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--reader", choices=("colligate", "pypdf"), default="colligate")
    parser.add_argument("--misses", action="store_true", help="print the rows that are not kept")
    options = parser.parse_args()
    read = read_colligate if options.reader == "colligate" else read_pypdf
    total: Counter[str] = Counter()
    for path in sorted(options.data.glob("*.pdf")):
        truth = list(list_figure_rows(path))
        start = time.process_time()
        texts = read(path)
        seconds = time.process_time() - start
        missed = [(page, row) for page, row in truth if not is_kept(row, texts[page])]
        total.update(rows=len(truth), kept=len(truth) - len(missed))
        print(show(path.stem, len(truth), len(truth) - len(missed)), f"{seconds:6.1f} s")
        total["ms"] += round(1000 * seconds)
        if options.misses:
            for page, row in missed:
                print(f"    page {page + 1}: {row.label} | {row.figure}")
    print(show("total", total["rows"], total["kept"]), f"{total['ms'] / 1000:6.1f} s")


def show(name: str, rows: int, kept: int) -> str:
    """Return one line of the table."""
    return f"{name:45} {rows:6} {kept / max(rows, 1):7.1%}"


def list_figure_rows(path: Path) -> Iterator[tuple[int, Row]]:
    """Yield the figure rows of a PDF with their pages, from 0."""
    pages = PdfDocument(path)
    lines = [list(list_lines(page)) for page in pages]
    often = Counter(key for page in lines for key in {without_digits(cells) for cells in page})
    for number, page in enumerate(lines):
        for cells in page:
            if often[without_digits(cells)] >= max(4, len(lines) / 4):
                continue
            figures = [cell for cell in cells[1:] if not SIGN.fullmatch(cell)]
            label = cells[0]
            if figures and sum(map(str.isalpha, label)) >= 3 and FIGURE.fullmatch(figures[0]):
                yield number, Row(label, figures[0])


def without_digits(cells: list[str]) -> str:
    """Return a line without figures: what a running header has on every page."""
    return re.sub(r"[\d\W]+", "", "".join(cells))


def list_lines(page: PdfPage) -> Iterator[list[str]]:
    """Yield a page's printed lines from top to bottom, each as its cells from left to right."""
    text = page.get_textpage()
    boxes = []
    for i in range(text.count_chars()):
        letter = chr(raw.FPDFText_GetUnicode(text.raw, i))
        if letter.isspace() or raw.FPDFText_IsGenerated(text.raw, i) == 1:
            continue
        left, bottom, right, top = text.get_charbox(i, loose=True)
        if top - bottom > 1 and abs(raw.FPDFText_GetCharAngle(text.raw, i)) < 0.1:
            boxes.append((letter, left, bottom, right, top))
    boxes.sort(key=lambda box: -(box[2] + box[4]))
    line: list[tuple[str, float, float, float, float]] = []
    for box in boxes:
        middle = (box[2] + box[4]) / 2
        if line and middle < (line[0][2] + line[0][4]) / 2 - 0.4 * (line[0][4] - line[0][2]):
            yield cut_cells(line)
            line = []
        line.append(box)
    if line:
        yield cut_cells(line)


def cut_cells(line: list[tuple[str, float, float, float, float]]) -> list[str]:
    """Return the texts between wide gaps."""
    line.sort(key=lambda box: box[1])
    cells = [line[0][0]]
    for before, box in pairwise(line):
        gap, size = box[1] - before[3], box[4] - box[2]
        if gap > 0.9 * size or (cells[-1].strip("$ ") == ""):
            cells.append("")
        elif gap > 0.15 * size:
            cells[-1] += " "
        cells[-1] += box[0]
    return [re.sub(r"[\s.]{4,}$", "", cell) for cell in cells]


def is_kept(row: Row, text: str) -> bool:
    """Return whether the figure is close after its label anywhere in the text."""
    label, figure = squeeze(row.label), squeeze(row.figure)
    text = re.sub(r"[.\s]{4,}", " ", text)
    places = [i for i, letter in enumerate(text) if letter.isalnum()]
    letters = "".join(text[i] for i in places).lower()
    at = letters.find(label)
    while at >= 0:
        end = places[at + len(label) - 1] + 1
        if figure in squeeze(text[end : end + REACH + len(row.figure)]):
            return True
        at = letters.find(label, at + 1)
    return False


def squeeze(text: str) -> str:
    """Return the letters and digits alone."""
    return "".join(filter(str.isalnum, text)).lower()


def read_colligate(path: Path) -> list[str]:
    """Return the text of each page as colligate reads it."""
    from colligate.documents.reading import read_file

    (document,) = read_file(path).documents
    return [document.text[page.start : page.end] for page in document.pages]


def read_pypdf(path: Path) -> list[str]:
    """Return the text of each page as pypdf reads it."""
    from pypdf import PdfReader

    return [page.extract_text() for page in PdfReader(path).pages]


if __name__ == "__main__":
    main()
