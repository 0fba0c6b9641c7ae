"""Finding the lines of a page that carry a given title."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rapidfuzz import fuzz

from colligate.documents.reading.pdf.layout import PageLayout, PdfBlock, PdfLine
from colligate.documents.reading.pdf.numbering import HeadingNumber, split_number, title_key
from colligate.documents.reading.pdf.running import select_rising
from colligate.documents.tree import Basis

DEEPEST = 6

_LONGEST = 5  # lines of a title
_ALIKE = 87.0  # of 100, for lines of the page a title points to
_SURE = 95.0  # for lines of other pages
_WIDEST = 30  # pages searched between two neighbours


@dataclass(slots=True, eq=False)
class PlacedLine:
    """A line in its block, with what matching needs."""

    block: PdfBlock
    index: int
    line: PdfLine
    key: str
    number: HeadingNumber | None
    bare: str  # the key without the number
    order: int  # in reading order, through the document

    @property
    def first(self) -> bool:
        return self.index == 0


@dataclass(slots=True, eq=False)
class PdfHeading:
    """Lines that are a heading, its level, and what says so."""

    places: list[PlacedLine]
    level: int
    basis: Basis


@dataclass(frozen=True, slots=True)
class WantedTitle:
    """A title to be found, its level, and the pages to search, best first."""

    title: str
    level: int
    pages: tuple[int, ...]


def find_lines(
    pages: Sequence[PageLayout], left_out: Mapping[int, Sequence[tuple[float, float]]]
) -> list[list[PlacedLine]]:
    """The lines of each page that may be part of a heading, in reading order.

    `left_out` holds, by page, ranges of y that are not (the entries of a contents list).
    """
    found: list[list[PlacedLine]] = []
    order = 0
    for i, page in enumerate(pages):
        bands = left_out.get(i, ())
        here = []
        for block in page.blocks:
            for index, line in enumerate(block.lines):
                order += 1
                middle = line.y + line.height / 2
                if any(low <= middle <= high for low, high in bands):
                    continue
                number, rest = split_number(line.text)
                here.append(
                    PlacedLine(
                        block, index, line, title_key(line.text), number, title_key(rest), order
                    )
                )
        found.append(here)
    return found


def find_titles(
    wanted: Sequence[WantedTitle], by_page: Sequence[Sequence[PlacedLine]], basis: Basis
) -> list[PdfHeading]:
    """The lines that carry the wanted titles; each line is used once.

    Titles are listed in reading order. What was found out of order, or not at all, is searched
    again between its neighbours.
    """
    taken: set[int] = set()
    found: dict[int, list[PlacedLine]] = {}
    for n, want in enumerate(wanted):
        if places := _search(want, want.pages, by_page, taken):
            found[n] = places
            taken.update(place.order for place in places)
    kept = dict(select_rising([(n, places[0].order) for n, places in found.items()]))
    for n in found.keys() - kept.keys():
        taken.difference_update(place.order for place in found[n])
    found = {n: places for n, places in found.items() if n in kept}
    ends = [*sorted(kept)]
    for n, want in enumerate(wanted):
        if n in found or not ends:
            continue
        i = bisect_left(ends, n)
        low = found[ends[i - 1]][-1] if i else None
        high = found[ends[i]][0] if i < len(ends) else None
        places = _between(want, low, high, by_page, taken)
        if places:
            found[n] = places
            taken.update(place.order for place in places)
            ends.insert(i, n)
    return [
        PdfHeading(places, min(wanted[n].level, DEEPEST), basis)
        for n, places in sorted(found.items())
    ]


def _search(
    want: WantedTitle,
    pages: Iterable[int],
    by_page: Sequence[Sequence[PlacedLine]],
    taken: set[int],
) -> list[PlacedLine]:
    best: tuple[float, list[PlacedLine]] = (0.0, [])
    for distance, page in enumerate(pages):
        score, places = _best_on(by_page[page], want.title, taken)
        score -= 4 * distance
        if score > best[0]:
            best = (score, places)
    return best[1]


def _between(
    want: WantedTitle,
    low: PlacedLine | None,
    high: PlacedLine | None,
    by_page: Sequence[Sequence[PlacedLine]],
    taken: set[int],
) -> list[PlacedLine]:
    first = low.line.page if low else (high.line.page if high else 0)
    last = high.line.page if high else first
    if last - first > _WIDEST:
        return []
    outside = set(taken)
    for page in {first, last}:
        outside.update(
            place.order
            for place in by_page[page]
            if (low and place.order <= low.order) or (high and place.order >= high.order)
        )
    pages = range(last, first - 1, -1)  # a part's title stands right before what follows
    best: tuple[float, list[PlacedLine]] = (0.0, [])
    for page in pages:
        score, places = _best_on(by_page[page], want.title, outside)
        if score > max(best[0], _SURE):
            best = (score, places)
    return best[1]


def _best_on(
    here: Sequence[PlacedLine], title: str, taken: set[int]
) -> tuple[float, list[PlacedLine]]:
    """The lines of a page most like a title, and how alike they are (0 if none is)."""
    number, rest = split_number(title)
    full, bare = title_key(title), title_key(rest)
    best: tuple[float, list[PlacedLine]] = (0.0, [])
    for i, place in enumerate(here):
        if place.order in taken or not place.key or not full:
            continue
        if number and place.number and not _agree(number, place.number):
            continue
        if place.number is None:
            score, used = _grown(here, i, place.key, bare or full)
        elif number is None:
            score, used = max(_grown(here, i, text, full) for text in (place.bare, place.key))
        else:
            score, used = _grown(here, i, place.bare, bare)
        if score < _ALIKE:
            # Reference manuals print a topic and its summary on one line and list the topic.
            if not (_stands_out(place) and place.key.startswith(full + " ")):
                continue
            score, used = _ALIKE, 1
        lines = [here[n] for n in range(i, i + used)]
        score += 3 * place.first + 2 * (place.block.kind == "heading" or place.line.bold)
        score -= 6 * (place.block.kind == "chrome")
        score -= 3 * (lines[-1].line is not lines[-1].block.lines[-1])  # text goes on
        if score > best[0]:
            best = (score, lines)
    return best


def _stands_out(place: PlacedLine) -> bool:
    return place.first and (place.block.kind == "heading" or place.line.bold)


def _agree(a: HeadingNumber, b: HeadingNumber) -> bool:
    return a.parts[-1] == b.parts[-1] and len(a.parts) == len(b.parts)


def _grown(here: Sequence[PlacedLine], i: int, start: str, target: str) -> tuple[float, int]:
    """How alike the lines from `i` on are to a title, and how many of them it takes."""
    text, used = start, 1
    if text and fuzz.ratio(text, target[: len(text)]) < 80:
        return 0.0, used
    best = (fuzz.ratio(text, target), used)
    for following in here[i + 1 : i + _LONGEST]:
        before = here[i + used - 1]
        above = following.line.y < before.line.y - 2
        if len(text) >= 0.97 * len(target) or (above and following.block is not before.block):
            break
        text = f"{text} {following.key}".strip()
        used += 1
        best = max(best, (fuzz.ratio(text, target), used), key=lambda b: b[0])
    return best
