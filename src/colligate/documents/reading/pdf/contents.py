"""Listed headings: the printed table of contents, and the lines that carry listed titles."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from rapidfuzz import fuzz

from colligate.documents.reading.pdf import layout, numbering
from colligate.documents.reading.pdf.layout import PageLayout, PdfBlock, PdfLine
from colligate.documents.reading.pdf.numbering import split_number, title_key
from colligate.documents.tree import Basis


@dataclass(slots=True, eq=False)
class ContentsEntry:
    """A row of the contents list: a title, the page number printed with it, and its level."""

    line: PdfLine
    title: str
    printed: str = ""  # nothing if the row names no page
    leader: bool = False
    level: int = 0


@dataclass(slots=True)
class ContentsList:
    """The entries, and by contents page (from 0) the ranges of y that hold them."""

    entries: list[ContentsEntry]
    bands: dict[int, list[tuple[float, float]]]


_OTHER_LIST = re.compile(
    r"(list of|liste des|lista de|verzeichnis der) (figures|tables|tableaux|figuras|tablas|illus.*"
    r"|algorithms|listings|abbildungen|tabellen)|(abbildungs|tabellen)verzeichnis|図目次|表目次",
    re.I,
)
_SEARCHED = 40  # pages at the front of a document


def find_contents(pages: Sequence[PageLayout]) -> ContentsList:
    """Find the contents list near the front of a document; without one there are no entries."""
    rows: list[ContentsEntry] = []
    bands: dict[int, list[tuple[float, float]]] = defaultdict(list)
    open_ = other = False
    for i, page in enumerate(pages[:_SEARCHED]):
        found = list(map(_read_row, page.rows))
        begins = next((n for n, row in enumerate(found) if _is_contents_title(row.title)), None)
        paged = [row for row in found if row.printed]
        leaders = sum(row.leader for row in paged)
        if begins is not None and paged:
            other = False
        enough = len(paged) >= 3 and len(paged) >= 0.3 * len(found)
        if not (enough and _is_ascending(paged) and (begins is not None or open_ or leaders > 3)):
            if open_ and rows and not enough:
                break
            continue
        open_ = True
        last = max(n for n, row in enumerate(found) if row.printed)
        for n, row in enumerate(found[: last + 1]):
            if _OTHER_LIST.fullmatch(row.title):
                other = True
            elif _is_contents_title(row.title):
                other = False
                continue
            bands[i].append((row.line.y - 1, row.line.y + row.line.height + 1))
            if not other and (begins is None or n > begins):
                rows.append(row)
    return ContentsList(_make_entries(rows), dict(bands))


_HEADING = re.compile(
    r"(table of )?contents|index( to .*)?|inhalt(sverzeichnis)?|sommaire|table des mati[eè]res"
    r"|[ií]ndice( general| generale)?|sum[aá]rio|tabla de contenidos?|contenidos?|inhoud(sopgave)?"
    r"|目\s*次|目\s*录|目\s*錄|spis treści|содержание|оглавление|tartalom(jegyzék)?|innehåll",
    re.I,
)


def _is_contents_title(text: str) -> bool:
    return len(text) < 60 and bool(_HEADING.fullmatch(text.strip(" .:")))


_LEADER = re.compile(r"(?:\s*[.\u2024\u00b7\u2026_]){3,}\s*|\s*\u2026+\s*")
_ENDING = re.compile(
    r"^(?P<title>.*?\S)(?P<leader>(?:\s*[.\u2024\u00b7\u2026_]){2,}\s*|\s+)"
    r"(?P<page>\d{1,4}|[ivxlc]{1,7}|[A-Z]{1,2}[-\u2013.]?\d{1,4})\.?$"
)


def _read_row(line: PdfLine) -> ContentsEntry:
    text = line.text
    match = _ENDING.match(text)
    if match and _LEADER.search(match["leader"] + " ") and match["leader"].strip():
        title, printed, leader = match["title"], match["page"], True
    elif match and _is_set_apart(line, match["page"]):
        title, printed, leader = match["title"], match["page"], False
    else:
        title, printed, leader = text, "", False
    title = layout.clean_line(_LEADER.sub(" ", title)) if leader else title
    title = title.removesuffix(" .") if printed else title
    if not any(map(str.isalpha, title)):
        title, printed = text, ""
    return ContentsEntry(line, title, printed, leader)


_GAP = 8.0  # points between an entry's title and its page number where no dots lead to it


def _is_set_apart(line: PdfLine, printed: str) -> bool:
    """Report whether the page number has a cell of its own, away from the title."""
    last = line.items[-1].text.strip(" .") if line.gaps else ""
    return last == printed and line.gaps[-1] > _GAP


def _is_ascending(rows: Sequence[ContentsEntry]) -> bool:
    values = [v for row in rows if (v := _parse_page(row.printed)) is not None]
    falls = sum(b < a for a, b in pairwise(values))
    return falls <= max(1, 0.2 * len(values))


def _parse_page(printed: str) -> int | None:
    """Return the value of a plain page number, Arabic or Roman."""
    return int(printed) if printed.isdigit() else numbering.roman_value(printed)


_LONGEST_KEY = 150  # characters of a line that may be a title
_BACK_AND_FRONT = frozenset(
    "abstract acknowledgements acknowledgments afterword bibliography colophon conclusion"
    " conclusions foreword glossary index introduction notation notations preamble preface prologue"
    " references signatures summary vorwort einleitung literatur literaturverzeichnis"
    " préface preface avant-propos bibliographie références conclusion prólogo prefacio"
    " bibliografía referencias prefácio referências".split()
)


def _make_entries(rows: Sequence[ContentsEntry]) -> list[ContentsEntry]:
    """Return the rows that are entries, with their levels."""
    found: list[ContentsEntry] = []
    waiting: list[ContentsEntry] = []  # without a page number: parts, or titles that are wrapped
    for row in rows:
        if not row.printed:
            waiting.append(row)
            continue
        before, waiting = waiting, []
        if before:
            last = before[-1]
            numbered, rest = split_number(last.title)
            near = row.line.y - last.line.y < 3 * row.line.height
            wrapped = near and rest and (numbered or len(last.title) > 30)
            if wrapped and split_number(row.title)[0] is None:
                before.pop()
                row = replace(row, line=last.line, title=f"{last.title} {row.title}")
        for early in before:
            part, _ = split_number(early.title)
            if part is not None and part.rank is not None and len(early.title) < 120:
                found.append(early)
        found.append(row)
    listed = []
    for row in found:
        number, matter = split_number(row.title)[0], title_key(row.title) in _BACK_AND_FRONT
        listed.append(numbering.ListedHeading(number, row.line.x, row.line.bold, matter))
    levels = numbering.assign_levels(listed)
    return [replace(row, level=level) for row, level in zip(found, levels, strict=True)]


def find_target_pages(entries: Sequence[ContentsEntry], by_page: LinesByPage) -> list[WantedTitle]:
    """Return the titles of a contents list with the pages that they point to, where known.

    Printed numbers and pages have one constant difference, Roman numerals their own: the one that
    puts most titles on a page with such a line.
    """
    places: dict[str, list[int]] = defaultdict(list)
    for i, here in enumerate(by_page):
        for place in here:
            if len(place.key) < _LONGEST_KEY:
                places[place.key].append(i)
    found: dict[str, int] = {}
    for arabic in (False, True):
        chosen = [e for e in entries if e.printed and e.printed.isdigit() is arabic]
        values = {e.printed: v for e in chosen if (v := _parse_page(e.printed)) is not None}
        votes = Counter(
            page - values[entry.printed]
            for entry in chosen
            if entry.printed in values
            for page in places.get(title_key(entry.title), ())
            if page != entry.line.page
        )
        offset = votes.most_common(1)[0][0] if votes else -1
        found |= {p: v + offset for p, v in values.items() if 0 <= v + offset < len(by_page)}
    return [WantedTitle(each.title, each.level, found.get(each.printed)) for each in entries]


@dataclass(slots=True, eq=False)
class PlacedLine:
    """A line in its block, with the keys that are compared with titles."""

    block: PdfBlock
    line: PdfLine
    key: str
    number: numbering.HeadingNumber | None
    bare: str  # the key without the number
    order: int  # in reading order, through the document
    first: bool  # of its block


LinesByPage = Sequence[Sequence[PlacedLine]]


@dataclass(slots=True, eq=False)
class PdfHeading:
    """The lines of a heading, its level, and the evidence for it."""

    places: list[PlacedLine]
    level: int
    basis: Basis


@dataclass(frozen=True, slots=True)
class WantedTitle:
    """A title to find, its level from 1, and the page (from 0) that should have it, if known."""

    title: str
    level: int
    page: int | None


def find_lines(
    pages: Sequence[PageLayout], left_out: Mapping[int, Sequence[tuple[float, float]]]
) -> list[list[PlacedLine]]:
    """Return the lines of each page that may be part of a heading, in reading order; `left_out` are
    ranges of y by page, of a contents list."""
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
                keys = title_key(line.text), number, title_key(rest)
                here.append(PlacedLine(block, line, *keys, order, first=not index))
        found.append(here)
    return found


DEEPEST = 6


def find_titles(
    wanted: Sequence[WantedTitle], by_page: LinesByPage, basis: Basis
) -> list[PdfHeading]:
    """Find the lines that carry the wanted titles, in reading order; each line is used once."""
    taken: set[int] = set()
    found: dict[int, list[PlacedLine]] = {}
    for n, want in enumerate(wanted):
        if places := _search_around(want, by_page, taken):
            found[n] = places
            taken.update(place.order for place in places)
    kept = dict(layout.select_rising([(n, places[0].order) for n, places in found.items()]))
    for n in found.keys() - kept.keys():
        taken.difference_update(place.order for place in found[n])
    found = {n: places for n, places in found.items() if n in kept}
    ends = [*sorted(kept)]
    # What was found out of order, or not at all, is searched again between its neighbours.
    for n, want in enumerate(wanted):
        if n in found or not ends:
            continue
        i = bisect_left(ends, n)
        low = found[ends[i - 1]][-1] if i else None
        high = found[ends[i]][0] if i < len(ends) else None
        if places := _search_between(want, low, high, by_page, taken):
            found[n] = places
            taken.update(place.order for place in places)
            ends.insert(i, n)
    ordered = sorted(found.items())
    return [PdfHeading(places, min(wanted[n].level, DEEPEST), basis) for n, places in ordered]


def _search_around(want: WantedTitle, by_page: LinesByPage, taken: set[int]) -> list[PlacedLine]:
    """Return the lines of a title on its page or the next or the one before, the first rather."""
    best, found = 0.0, list[PlacedLine]()
    for distance, step in enumerate((0, 1, -1)):
        if want.page is not None and 0 <= want.page + step < len(by_page):
            score, places = _search_page(by_page[want.page + step], want.title, taken)
            if score - 4 * distance > best:
                best, found = score - 4 * distance, places
    return found


_SURE = 95.0  # for lines of other pages
_WIDEST = 30  # pages searched between two neighbours


def _search_between(
    want: WantedTitle,
    low: PlacedLine | None,
    high: PlacedLine | None,
    by_page: LinesByPage,
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
    best, found = _SURE, list[PlacedLine]()
    for page in range(last, first - 1, -1):  # a part's title is directly before its first entry
        score, places = _search_page(by_page[page], want.title, outside)
        if score > best:
            best, found = score, places
    return found


_ALIKE = 87.0  # of 100, for lines of the page a title points to


def _search_page(
    here: Sequence[PlacedLine], title: str, taken: set[int]
) -> tuple[float, list[PlacedLine]]:
    """Return the likeness (0 to 100 and bonuses) and the lines of a page most like a title."""
    number, rest = split_number(title)
    full, bare = title_key(title), title_key(rest)
    best, found = 0.0, list[PlacedLine]()
    for i, place in enumerate(here):
        if place.order in taken or not place.key or not full:
            continue
        if number and place.number and not number.may_be(place.number):
            continue
        if place.number is None:
            score, used = _grow_match(here, i, place.key, bare or full)
        elif number is None:
            score, used = max(_grow_match(here, i, text, full) for text in (place.bare, place.key))
        else:
            score, used = _grow_match(here, i, place.bare, bare)
        if score < _ALIKE:
            # Reference manuals print a topic and its summary on one line, and list the topic alone.
            stands_out = place.first and (place.block.kind == "heading" or place.line.bold)
            if not (stands_out and place.key.startswith(full + " ")):
                continue
            score, used = _ALIKE, 1
        lines = list(here[i : i + used])
        score += 3 * place.first + 2 * (place.block.kind == "heading" or place.line.bold)
        score -= 6 * (place.block.kind == "chrome")
        score -= 3 * (lines[-1].line is not lines[-1].block.lines[-1])  # text goes on
        if score > best:
            best, found = score, lines
    return best, found


_LONGEST = 5  # lines of a title


def _grow_match(here: Sequence[PlacedLine], i: int, start: str, target: str) -> tuple[float, int]:
    """Return the likeness of the lines from `i` on to a title, and how many lines it takes."""
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
