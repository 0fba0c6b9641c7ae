"""Running headers and footers, and the page numbers printed in them."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median

from colligate.documents.reading.pdf.layout import PageLayout, PdfBlock, PdfLine
from colligate.documents.reading.pdf.numbering import roman_value, title_key

_EDGE_ROWS = 3
_MARGIN = 0.14  # of the page's height, at the top and at the bottom
_REPEATS = 3
_ALONE = "\u0000"  # the key of a page number alone
_TOKEN = re.compile(r"\d{1,5}|[ivxlc]{1,8}|[IVXLC]{1,8}")
_CHAPTER_PAGE = re.compile(r"[A-Z\d]{1,3}[-\u2013.]\d{1,4}")


@dataclass(slots=True)
class PageNumbers:
    """The page numbers printed on the pages: by page index, and the PDF's own labels to index."""

    arabic: dict[int, int] = field(default_factory=dict)
    roman: dict[int, int] = field(default_factory=dict)
    labels: dict[str, int] = field(default_factory=dict)


def find_page_numbers(pages: Sequence[PageLayout]) -> PageNumbers:
    """The number printed on each page, from what stands at the pages' edges.

    The longest run of numbers that rises with the pages is taken for them: printed pages may
    be split over several, so one constant difference would not do.
    """
    seen: dict[bool, list[tuple[int, int]]] = {True: [], False: []}
    for i, page in enumerate(pages):
        tokens = {token for row in _edge_rows(page) for token in _ends(row.text)}
        for token in tokens:
            value = int(token) if token.isdigit() else roman_value(token)
            if value:
                seen[token.isdigit()].append((i, value))
    found = PageNumbers(labels={page.label: i for i, page in enumerate(pages) if page.label})
    arabic = _steady(select_rising(seen[True]))
    if len(arabic) >= max(2, 0.2 * len(pages)):
        found.arabic = dict(arabic)
    found.roman = dict(_steady(select_rising(seen[False])))
    return found


def select_rising(pairs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """A longest selection of pairs in which both members rise strictly."""
    ordered = sorted(pairs, key=lambda p: (p[0], -p[1]))
    ends: list[int] = []  # the smallest last value of a selection of each length
    at: list[int] = []  # and which pair that is
    before: list[int | None] = []
    for i, (_, value) in enumerate(ordered):
        place = bisect_left(ends, value)
        before.append(at[place - 1] if place else None)
        if place == len(ends):
            ends.append(value)
            at.append(i)
        else:
            ends[place], at[place] = value, i
    found: list[tuple[int, int]] = []
    last: int | None = at[-1] if at else None
    while last is not None:
        found.append(ordered[last])
        last = before[last]
    return found[::-1]


def _steady(pairs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The pairs with a neighbour close by: page numbers rise about as fast as the pages."""
    steps = [False, *(_close(a, b) for a, b in pairwise(pairs)), False]
    return [pair for i, pair in enumerate(pairs) if steps[i] or steps[i + 1]]


def _close(a: tuple[int, int], b: tuple[int, int]) -> bool:
    return b[0] - a[0] <= 6 and abs((b[0] - a[0]) - (b[1] - a[1])) <= 2


def set_aside_running_lines(pages: Sequence[PageLayout], printed: PageNumbers) -> None:
    """Turn the lines of running headers and footers into "chrome" blocks, which are not text.

    A row at the edge of its page is one if it is the page's number alone, if it ends with it
    where other pages have such rows too, or if its text is on several pages in the same size.
    A row that only begins with the number of its page may be "2 Methods" on page 2, so there
    the rest of it must be on another page, too.
    """
    edges = [(i, row) for i, page in enumerate(pages) for row in _edge_rows(page)]
    keys = [_running_key(row, i, printed) for i, row in edges]
    repeats: dict[tuple[str, int], set[int]] = defaultdict(set)
    usual: Counter[int] = Counter()
    for (i, row), (text, where) in zip(edges, keys, strict=True):
        repeats[text, round(row.size)].add(i)
        usual[round(row.y / 3)] += bool(where)
    running: dict[int, list[PdfLine]] = defaultdict(list)
    for (i, row), (text, where) in zip(edges, keys, strict=True):
        often = sum(usual[round(row.y / 3) + d] for d in (-1, 0, 1)) >= _REPEATS
        on = len(repeats[text, round(row.size)])
        numbered = where and (text == _ALONE or (often and (where == "end" or on > 1)))
        if numbered or on >= _REPEATS:
            running[i].append(row)
    for i, rows in running.items():
        bands = [(row.y - 1, row.y + row.height + 1) for row in rows]
        pages[i].blocks[:] = [
            piece for block in pages[i].blocks for piece in _without(block, bands)
        ]


def _edge_rows(page: PageLayout) -> list[PdfLine]:
    top = [row for row in page.rows[:_EDGE_ROWS] if row.y < _MARGIN * page.height]
    rest = page.rows[len(top) :]
    floor = (1 - _MARGIN) * page.height
    return top + [row for row in rest[-_EDGE_ROWS:] if row.y + row.height > floor]


def _ends(text: str) -> list[str]:
    """The tokens of a row that may be its page number: the first and the last word."""
    words = text.strip("-\u2013\u2014|[]() ").split()
    ends = {word.strip("-\u2013\u2014|[]().,") for word in (words[0], words[-1])} if words else ()
    return [end for end in ends if _TOKEN.fullmatch(end)]


def _running_key(row: PdfLine, page: int, printed: PageNumbers) -> tuple[str, str]:
    """A row's text for counting repeats, its page number taken out, and where that stood."""
    words = row.text.split()
    if len(words) == 1 and _CHAPTER_PAGE.fullmatch(words[0]):
        return _ALONE, "end"
    for place, name in ((-1, "end"), (0, "start")):
        token = words[place].strip("-\u2013\u2014|[]().,") if words else ""
        if _TOKEN.fullmatch(token):
            digits = token.isdigit()
            value = int(token) if digits else roman_value(token)
            if (printed.arabic if digits else printed.roman).get(page, 0) == value:
                del words[place]
                return title_key(" ".join(words)) or _ALONE, name
    return title_key(row.text), ""


def _without(block: PdfBlock, bands: Sequence[tuple[float, float]]) -> list[PdfBlock]:
    """A block without its lines in the bands, which become blocks of their own."""
    if not block.lines or block.kind == "chrome":
        return [block]
    inside = [
        any(low <= line.y + min(line.height, 12) / 2 <= high for low, high in bands)
        for line in block.lines
    ]
    if not any(inside):
        return [block]
    chrome = [
        PdfBlock("chrome", [line]) for line, out in zip(block.lines, inside, strict=True) if out
    ]
    block.lines = [line for line, out in zip(block.lines, inside, strict=True) if not out]
    return [*chrome, block] if block.lines else chrome


def body_size(pages: Sequence[PageLayout]) -> float:
    """The size of most of the text, in points."""
    sizes: Counter[float] = Counter()
    for page in pages:
        for block in page.blocks:
            if block.kind in ("paragraph", "list_item"):
                for line in block.lines:
                    sizes[line.size] += len(line.text)
    if not sizes:
        return median([row.size for page in pages for row in page.rows] or [10.0])
    return sizes.most_common(1)[0][0]
