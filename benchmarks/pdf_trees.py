"""Score the headings read from PDFs against the files' own contents lists and outlines.

    python benchmarks/pdf_trees.py --data DIR [--latex DIR] [--each]

Two evaluations, each compared with liteparse's own headings, unrepaired, on the same files:

(a) `--data`: company filings. The truth is the "Item" lines of their printed contents list and
    the pages it names, read here from pypdfium2's plain text, without any code of the reader.
    Scored: the share of Items that are a section on the right page, and the number of sections of
    level 1 and 2 whose title is not in that list (a proxy for false headings).
(b) `--latex`: PDFs with an outline, such as those that LaTeX makes (in Debian: r-doc-pdf, glpk-doc,
    auto-multiple-choice-doc-pdf, dblatex-doc, pari-doc, gap-doc). The outline is the truth and
    is hidden from the reader. Scored per file, then averaged: precision, recall and F1 of
    (title, page), and the share of matched headings whose level is right, up to one constant
    shift a file.

One JSON object a figure: {"figure", "value", "unit", "against"}; `--each` adds one a file.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

import pypdfium2
from liteparse import LiteParse
from rapidfuzz import fuzz

from colligate.documents.reading import SourceFile
from colligate.documents.reading.formats import PDF
from colligate.documents.reading.pdf.reader import read_pdf
from colligate.errors import ReadingError

NAIVE = "liteparse's own headings"
ITEM = re.compile(r"item\s+(\d{1,2}[A-C]?)\b\.?\s*(.*?)\s+(\d{1,3})\s*(?:\r?\n|$)", re.I | re.S)
ITEM_TITLE = re.compile(r"item\s*(\d{1,2}[A-C]?)\b", re.I)


@dataclass(frozen=True)
class Heading:
    """Hold a title, its page (from 1) and its level."""

    title: str
    page: int
    level: int


def main() -> None:
    """Run the evaluations of the arguments and print the figures."""
    parser = argparse.ArgumentParser(description="Score the headings read from PDFs.")
    parser.add_argument("--data", type=Path, help="folder of filings (PDF)")
    parser.add_argument("--latex", type=Path, help="folder of PDFs with outlines")
    parser.add_argument("--each", action="store_true", help="also print figures per file")
    parser.add_argument("--most-pages", type=int, default=700, help="skip files with more pages")
    arguments = parser.parse_args()
    if arguments.data:
        score_filings(arguments.data, arguments.each)
    if arguments.latex:
        score_outlines(arguments.latex, arguments.each, arguments.most_pages)


def print_figure(name: str, value: float, unit: str, against: object = None) -> None:
    """Print one figure."""
    rounded = round(against, 3) if isinstance(against, float) else against
    line = {"figure": name, "value": round(value, 3), "unit": unit, "against": rounded}
    print(json.dumps(line, ensure_ascii=False), flush=True)


def read_headings(
    path: Path, *, use_outline: bool = True
) -> tuple[list[Heading], int, float, float]:
    """Return the reader's headings, the number of pages, the seconds, and its confidence."""
    data = path.read_bytes()
    begin = time.perf_counter()
    document = read_pdf(SourceFile(path, data, PDF), use_outline=use_outline)
    seconds = time.perf_counter() - begin
    headings = []
    for section in document.tree.sections:
        page = document.page_of(section.span)
        if section.heading is not None and page is not None:
            headings.append(Heading(section.title, page.number, section.level))
    return headings, len(document.pages), seconds, document.tree.structure.confidence


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


# (a) filings


def read_printed_items(path: Path) -> tuple[list[tuple[str, range]], str]:
    """Return the Items of a printed contents list and the list's own text.

    An Item is its number and the pages (from 1) that make up the printed page: those after the
    one with the number before, up to the one with this number.
    """
    document = pypdfium2.PdfDocument(path)
    texts = [page.get_textpage().get_text_range() for page in document]
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
        tokens = {
            t for line in (*lines[:2], *lines[-2:]) for t in (line.split()[0], line.split()[-1])
        }
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


def count_items_found(items: Sequence[tuple[str, range]], headings: Sequence[Heading]) -> int:
    """Count the Items that are the title of a section that begins on the right page."""
    there = [
        (match.group(1).upper(), heading.page)
        for heading in headings
        if (match := ITEM_TITLE.match(heading.title))
    ]
    return sum(any(n == number and page in pages for n, page in there) for number, pages in items)


def count_unlisted(headings: Sequence[Heading], listed: str) -> int:
    """Count the headings of level 1 and 2 that are not in the contents list."""
    plain = _key(listed)
    return sum(h.level <= 2 and _key(h.title) not in plain for h in headings)


def score_filings(folder: Path, each: bool) -> None:
    """Run evaluation (a)."""
    total = hits = naive_hits = extra = naive_extra = high = naive_high = pages = 0
    seconds = 0.0
    files = 0
    for path in sorted(folder.glob("*.pdf")):
        items, listed = read_printed_items(path)
        headings, count, took, confidence = read_headings(path)
        pages += count
        seconds += took
        if not items:
            continue
        plain = read_naive_headings(path)
        found, naive_found = count_items_found(items, headings), count_items_found(items, plain)
        files += 1
        total += len(items)
        hits += found
        naive_hits += naive_found
        extra += count_unlisted(headings, listed)
        naive_extra += count_unlisted(plain, listed)
        high += sum(h.level <= 2 for h in headings)
        naive_high += sum(h.level <= 2 for h in plain)
        if each:
            print_figure(
                f"items found: {path.stem}", found / len(items), "share", naive_found / len(items)
            )
            print_figure(
                f"level 1-2 unlisted: {path.stem}",
                count_unlisted(headings, listed),
                "headings",
                count_unlisted(plain, listed),
            )
            print_figure(f"confidence: {path.stem}", confidence, "")
    print_figure("filings with a contents list", files, "files")
    print_figure("items in contents lists", total, "items")
    print_figure(
        "items found on the right page", hits / max(1, total), "share", naive_hits / max(1, total)
    )
    print_figure("level 1-2 headings not in the contents", extra, "headings", naive_extra)
    print_figure("level 1-2 headings", high, "headings", naive_high)
    print_figure("filings read", pages / seconds, "pages/s")


# (b) outlines


def read_outline(path: Path) -> tuple[list[Heading], int]:
    """Return the outline of a PDF, and its number of pages."""
    document = pypdfium2.PdfDocument(path)
    found = []
    for bookmark in document.get_toc():
        target = bookmark.get_dest()
        page = target.get_index() if target else None
        if page is not None and _key(bookmark.get_title()):
            found.append(Heading(bookmark.get_title(), page + 1, bookmark.level + 1))
    return found, len(document)


def match_headings(
    truth: Sequence[Heading], found: Sequence[Heading]
) -> list[tuple[Heading, Heading]]:
    """Return pairs with the same title on the same page, each heading used once."""
    by_page: dict[int, list[Heading]] = {}
    for heading in found:
        by_page.setdefault(heading.page, []).append(heading)
    pairs = []
    for wanted in truth:
        here = by_page.get(wanted.page, [])
        scores = [fuzz.ratio(_bare(wanted.title), _bare(h.title)) for h in here]
        if scores and max(scores) >= 85:
            pairs.append((wanted, here.pop(scores.index(max(scores)))))
    return pairs


def compute_scores(
    truth: Sequence[Heading], found: Sequence[Heading]
) -> tuple[float, float, float, float]:
    """Return precision, recall, F1 and level accuracy (up to one constant shift)."""
    pairs = match_headings(truth, found)
    if not pairs:
        return 0.0, 0.0, 0.0, 0.0
    precision, recall = len(pairs) / len(found), len(pairs) / len(truth)
    shifts = Counter(b.level - a.level for a, b in pairs)
    right = shifts.most_common(1)[0][1] / len(pairs)
    return precision, recall, 2 * precision * recall / (precision + recall), right


def score_outlines(folder: Path, each: bool, most_pages: int) -> None:
    """Run evaluation (b)."""
    rows, naive_rows, confidences = [], [], []
    pages, seconds = 0, 0.0
    for path in list_outlined(folder):
        truth, count = read_outline(path)
        if len(truth) < 5 or count > most_pages:
            continue
        try:
            headings, count, took, confidence = read_headings(path, use_outline=False)
        except ReadingError as error:
            print_figure(f"not read: {path.stem}: {error}", 0, "")
            continue
        rows.append(compute_scores(truth, headings))
        naive_rows.append(compute_scores(truth, read_naive_headings(path)))
        confidences.append(confidence)
        pages += count
        seconds += took
        if each:
            names = ("precision", "recall", "F1", "levels")
            for name, mine, theirs in zip(names, rows[-1], naive_rows[-1], strict=True):
                print_figure(f"{name}: {path.stem}", mine, "", theirs)
            print_figure(f"confidence: {path.stem}", confidence, "")
    if not rows:
        return
    print_figure("files with an outline, hidden from the reader", len(rows), "files")
    for i, name in enumerate(("precision", "recall", "F1", "level accuracy")):
        print_figure(
            f"outline {name}", mean(r[i] for r in rows), "mean", mean(r[i] for r in naive_rows)
        )
    gap = mean(abs(c - r[2]) for c, r in zip(confidences, rows, strict=True))
    print_figure("confidence, mean distance from F1", gap, "")
    print_figure("outlined files read", pages / seconds, "pages/s")


def list_outlined(folder: Path) -> Iterator[Path]:
    """Yield the PDFs of a folder, each content once."""
    seen = set()
    for path in sorted(folder.rglob("*.pdf")):
        digest = hashlib.sha256(path.read_bytes()).digest()
        if digest not in seen:
            seen.add(digest)
            yield path


def _key(text: str) -> str:
    return " ".join(re.findall(r"[^\W_]+", text.casefold()))


def _bare(text: str) -> str:
    """Return a title without its number, for outlines without numbers."""
    number = r"(?:(?:chapter|appendix|part|section)\s+)?(?:\d+|[A-Z](?=[.\s]))(?:\.\d+)*[.:)]?\s+"
    return _key(re.sub(rf"^{number}", "", text, flags=re.I)) or _key(text)


if __name__ == "__main__":
    main()
