"""Score how PDFs are read: their headings, and the rows of their tables.

    python benchmarks/pdf.py trees --data DIR [--latex DIR]
    python benchmarks/pdf.py rows --data DIR [--reader pypdf]

`trees` compares headings with those of liteparse, unrepaired. `--data` are filings: the truth is
the "Item" lines of their printed contents list and the pages it names, read from pypdfium2's text.
Counted are Items that are a section on the right page, and sections of level 1 and 2 that are not
in that list. `--latex` are PDFs with an outline, which is the truth and hidden from the reader:
precision, recall and F1 of (title, page), and the share of right levels, up to one shift a file.

`rows` counts printed lines with a label of letters and then a figure, by the places of the
characters (PDFium). A row is kept if the figure is within 60 characters after its label in the
page's text. Lines that several pages repeat are not counted.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import mean
from typing import NamedTuple

from liteparse import LiteParse
from pypdfium2 import PdfDocument, PdfPage, raw
from rapidfuzz import fuzz

from colligate.documents.reading import SourceFile, read_file
from colligate.documents.reading.formats import PDF
from colligate.documents.reading.pdf.reader import read_pdf
from colligate.errors import ReadingError
from results import read_arguments, say

ITEM = re.compile(r"item\s+(\d{1,2}[A-C]?)\b\.?\s*(.*?)\s+(\d{1,3})\s*(?:\r?\n|$)", re.I | re.S)
ITEM_TITLE = re.compile(r"item\s*(\d{1,2}[A-C]?)\b", re.I)
MOST_PAGES = 700
REACH = 60
FIGURE = re.compile(r"[$€£¥(\-\u2013\u2014+~<>]*\d[\d,.]*[)%x\u00d7]*(\(\w{1,2}\))?")
SIGN = re.compile(r"[$€£¥(\u2013\u2014\-.…\s]+")

Box = tuple[str, float, float, float, float]


class Heading(NamedTuple):
    """Hold a title, its page (from 1) and its level."""

    title: str
    page: int
    level: int


class Row(NamedTuple):
    """Hold a label and the first figure to the right of it."""

    label: str
    figure: str


# Headings


def read_headings(path: Path, *, use_outline: bool = True) -> tuple[list[Heading], int, float]:
    """Return the reader's headings, the number of pages, and the seconds."""
    data = path.read_bytes()
    began = time.perf_counter()
    document = read_pdf(SourceFile(path, data, PDF), use_outline=use_outline)
    seconds = time.perf_counter() - began
    headings = [
        Heading(section.title, page.number, section.level)
        for section in document.tree.sections
        if section.heading is not None and (page := document.page_of(section.span)) is not None
    ]
    return headings, len(document.pages), seconds


def read_naive_headings(path: Path) -> list[Heading]:
    """Return liteparse's headings, unrepaired."""
    parser = LiteParse(
        ocr_enabled=False, quiet=True, output_format="markdown", extract_blocks=True, max_pages=9999
    )
    return [
        Heading(block.text or "", page.page_num, block.level or 0)
        for page in parser.parse(path.read_bytes()).pages
        for block in page.blocks or ()
        if block.kind == "heading"
    ]


def read_printed_items(path: Path) -> tuple[list[tuple[str, range]], str]:
    """Return the Items of a printed contents list and the list's own text.

    An Item is its number and the pages (from 1) that make up the printed page: those after the
    one with the number before, up to the one with this number.
    """
    texts = [page.get_textpage().get_text_range() for page in PdfDocument(path)]
    for at, text in enumerate(texts[:8], start=1):
        items = [
            (number.upper(), int(page))
            for number, title, page in ITEM.findall(text)
            if len(title) < 400 and not ITEM_TITLE.search(title)
        ]
        if len(items) >= 4:
            numbers = [(0, at), *find_page_numbers(texts, after=at)]
            return [(number, find_printed_page(page, numbers)) for number, page in items], text
    return [], ""


def find_page_numbers(texts: Sequence[str], after: int) -> list[tuple[int, int]]:
    """Return (printed number, page from 1) for the numbers at the pages' edges.

    Of all numbers there, the longest chain is kept that rises with the pages and no faster: a
    printed page may take several pages of the PDF, but not the other way round.
    """
    seen = []
    for at, text in enumerate(texts[after:], start=after + 1):
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        edges = (*lines[:2], *lines[-2:])
        tokens = {token for line in edges for token in (line.split()[0], line.split()[-1])}
        seen += [(int(t), at) for t in sorted(tokens) if re.fullmatch(r"[1-9]\d{0,2}", t)]
    best: list[tuple[int, int | None]] = []
    for j, (number, at) in enumerate(seen):
        before = [
            (best[i][0], i)
            for i, (n, p) in enumerate(seen[:j])
            if p < at and n < number and number - n <= at - p
        ]
        length, last = max(before, default=(0, None))
        best.append((length + 1, last))
    chain = []
    i: int | None = max(range(len(best)), key=lambda k: best[k][0], default=None)
    while i is not None:
        chain.append(seen[i])
        i = best[i][1]
    return chain[::-1]


def find_printed_page(number: int, numbers: Sequence[tuple[int, int]]) -> range:
    """Return the pages (from 1) of a printed page."""
    before = max((at for n, at in numbers if n < number), default=0)
    ends = [at for n, at in numbers if n >= number]
    return range(before + 1, ends[0] + 1) if ends else range(0)


def score_filings(folder: Path) -> None:
    """Print the Items found and the headings that no contents list has."""
    counts: dict[str, Counter[str]] = {"ours": Counter(), "naive": Counter()}
    total, files, pages, seconds = 0, 0, 0, 0.0
    for path in sorted(folder.glob("*.pdf")):
        items, listed = read_printed_items(path)
        headings, count, took = read_headings(path)
        pages, seconds = pages + count, seconds + took
        if not items:
            continue
        files, total, plain = files + 1, total + len(items), _key(listed)
        for name, found in (("ours", headings), ("naive", read_naive_headings(path))):
            titles = [(ITEM_TITLE.match(each.title), each.page) for each in found]
            there = [(match[1].upper(), page) for match, page in titles if match]
            counts[name]["items"] += sum(
                any(n == number and page in where for n, page in there) for number, where in items
            )
            high = [each for each in found if each.level <= 2]
            counts[name]["high"] += len(high)
            counts[name]["unlisted"] += sum(_key(each.title) not in plain for each in high)
    ours, naive = counts["ours"], counts["naive"]
    share, theirs = (counts[name]["items"] / max(1, total) for name in counts)
    sample = f"{files} filings with a contents list, {total} Items; liteparse's own: {theirs:.3f}"
    say("Items found on the right page", share, "share", sample)
    say("level 1-2 headings not in the contents", ours["unlisted"], "headings", naive["unlisted"])
    say("level 1-2 headings", ours["high"], "headings", naive["high"])
    say("filings read", pages / seconds, "pages/s")


def read_outline(path: Path) -> tuple[list[Heading], int]:
    """Return the outline of a PDF, and its number of pages."""
    document = PdfDocument(path)
    found = []
    for bookmark in document.get_toc():
        target = bookmark.get_dest()
        page = target.get_index() if target else None
        if page is not None and _key(bookmark.get_title()):
            found.append(Heading(bookmark.get_title(), page + 1, bookmark.level + 1))
    return found, len(document)


def compute_scores(
    truth: Sequence[Heading], found: Sequence[Heading]
) -> tuple[float, float, float, float]:
    """Return precision, recall, F1 and level accuracy (up to one constant shift)."""
    by_page: dict[int, list[Heading]] = {}
    for heading in found:
        by_page.setdefault(heading.page, []).append(heading)
    shifts: Counter[int] = Counter()
    for wanted in truth:
        here = by_page.get(wanted.page, [])
        scores = [fuzz.ratio(_bare(wanted.title), _bare(each.title)) for each in here]
        if scores and max(scores) >= 85:
            shifts[here.pop(scores.index(max(scores))).level - wanted.level] += 1
    pairs = shifts.total()
    if not pairs:
        return 0.0, 0.0, 0.0, 0.0
    precision, recall = pairs / len(found), pairs / len(truth)
    levels = shifts.most_common(1)[0][1] / pairs
    return precision, recall, 2 * precision * recall / (precision + recall), levels


def score_outlines(folder: Path) -> None:
    """Print the means over the PDFs of a folder that have an outline, each content once."""
    ours, naive, seen = [], [], set()
    for path in sorted(folder.rglob("*.pdf")):
        digest = hashlib.sha256(path.read_bytes()).digest()
        truth, count = read_outline(path)
        if digest in seen or len(truth) < 5 or count > MOST_PAGES:
            continue
        seen.add(digest)
        try:
            headings, _, _ = read_headings(path, use_outline=False)
        except ReadingError as error:
            say(f"not read: {path.stem}: {error}", 0, "")
            continue
        ours.append(compute_scores(truth, headings))
        naive.append(compute_scores(truth, read_naive_headings(path)))
    for i, name in enumerate(("precision", "recall", "F1", "level accuracy")):
        if ours:
            against = f"{len(ours)} files; liteparse's own {mean(row[i] for row in naive):.3f}"
            say(f"outline {name}", mean(row[i] for row in ours), "mean", against)


def _key(text: str) -> str:
    return " ".join(re.findall(r"[^\W_]+", text.casefold()))


def _bare(text: str) -> str:
    """Return a title without its number, for outlines without numbers."""
    number = r"(?:(?:chapter|appendix|part|section)\s+)?(?:\d+|[A-Z](?=[.\s]))(?:\.\d+)*[.:)]?\s+"
    return _key(re.sub(rf"^{number}", "", text, flags=re.I)) or _key(text)


# Rows


def score_rows(folder: Path, read: Callable[[Path], list[str]]) -> None:
    """Print the share of kept rows of each PDF and of all."""
    rows = kept = 0
    for path in sorted(folder.glob("*.pdf")):
        truth, texts = list(list_figure_rows(path)), read(path)
        own = sum(is_kept(row, texts[page]) for page, row in truth)
        rows, kept = rows + len(truth), kept + own
        say(path.stem, own / max(1, len(truth)), "share", f"{len(truth)} rows")
    say("all", kept / max(1, rows), "share", f"{rows} rows")


def list_figure_rows(path: Path) -> Iterator[tuple[int, Row]]:
    """Yield the figure rows of a PDF with their pages, from 0."""
    lines = [list(list_lines(page)) for page in PdfDocument(path)]
    often = Counter(key for page in lines for key in set(map(without_digits, page)))
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
    boxes: list[Box] = []
    for i in range(text.count_chars()):
        letter = chr(raw.FPDFText_GetUnicode(text.raw, i))
        if letter.isspace() or raw.FPDFText_IsGenerated(text.raw, i) == 1:
            continue
        left, bottom, right, top = text.get_charbox(i, loose=True)
        if top - bottom > 1 and abs(raw.FPDFText_GetCharAngle(text.raw, i)) < 0.1:
            boxes.append((letter, left, bottom, right, top))
    boxes.sort(key=lambda box: -(box[2] + box[4]))
    line: list[Box] = []
    for box in boxes:
        middle = (box[2] + box[4]) / 2
        if line and middle < (line[0][2] + line[0][4]) / 2 - 0.4 * (line[0][4] - line[0][2]):
            yield cut_cells(line)
            line = []
        line.append(box)
    if line:
        yield cut_cells(line)


def cut_cells(line: list[Box]) -> list[str]:
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
    (document,) = read_file(path).documents
    return [document.text[page.start : page.end] for page in document.pages]


def read_pypdf(path: Path) -> list[str]:
    """Return the text of each page as pypdf reads it."""
    from pypdf import PdfReader

    return [page.extract_text() for page in PdfReader(path).pages]


if __name__ == "__main__":
    readers = {"colligate": read_colligate, "pypdf": read_pypdf}
    options = {"data": Path, "latex": Path, "reader": tuple(readers)}
    given = read_arguments(__doc__, "trees|rows", **options)
    if given.data and given.what == "rows":
        score_rows(given.data, readers[given.reader])
    elif given.data:
        score_filings(given.data)
    if given.latex and given.what == "trees":
        score_outlines(given.latex)
