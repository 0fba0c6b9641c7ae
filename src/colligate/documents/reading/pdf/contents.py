"""The printed table of contents: its entries, and the rows that are entries and not headings."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from liteparse import TextItem

from colligate.documents.reading.pdf.layout import PageLayout, PdfLine, clean_line
from colligate.documents.reading.pdf.numbering import (
    HeadingNumber,
    ListedHeading,
    assign_levels,
    roman_value,
    split_number,
    title_key,
)
from colligate.documents.reading.pdf.running import PageNumbers

_HEADING = re.compile(
    r"(table of )?contents|index( to .*)?|inhalt(sverzeichnis)?|sommaire|table des mati[eè]res"
    r"|[ií]ndice( general| generale)?|sum[aá]rio|tabla de contenidos?|contenidos?|inhoud(sopgave)?"
    r"|目\s*次|目\s*录|目\s*錄|spis treści|содержание|оглавление|tartalom(jegyzék)?|innehåll",
    re.I,
)
_OTHER_LIST = re.compile(
    r"(list of|liste des|lista de|verzeichnis der) (figures|tables|tableaux|figuras|tablas|illus.*"
    r"|algorithms|listings|abbildungen|tabellen)|(abbildungs|tabellen)verzeichnis|図目次|表目次",
    re.I,
)
_LEADER = re.compile(r"(?:\s*[.\u2024\u00b7\u2026_]){3,}\s*|\s*\u2026+\s*")
_ENDING = re.compile(
    r"^(?P<title>.*?\S)(?P<leader>(?:\s*[.\u2024\u00b7\u2026_]){2,}\s*|\s+)"
    r"(?P<page>\d{1,4}|[ivxlc]{1,7}|[A-Z]{1,2}[-\u2013.]?\d{1,4})\.?$"
)
_BACK_AND_FRONT = frozenset(
    "abstract acknowledgements acknowledgments afterword bibliography colophon conclusion"
    " conclusions foreword glossary index introduction notation notations preamble preface prologue"
    " references signatures summary vorwort einleitung literatur literaturverzeichnis"
    " préface preface avant-propos bibliographie références conclusion prólogo prefacio"
    " bibliografía referencias prefácio referências".split()
)
_SEARCHED = 40  # pages at the front of a document
_GAP = 8.0  # points between an entry's title and its page number where no leader stands


@dataclass(slots=True, eq=False)
class ContentsEntry:
    """An entry of the contents: what it names, what page is printed, and on which row it stands."""

    title: str
    printed: str
    level: int
    page: int  # of the contents list itself, counted from 0


@dataclass(slots=True)
class ContentsList:
    """The entries, and on each contents page the vertical ranges that hold them."""

    entries: list[ContentsEntry]
    bands: dict[int, list[tuple[float, float]]]


@dataclass(slots=True)
class _Row:
    line: PdfLine
    title: str
    printed: str  # "" if the row names no page
    leader: bool
    indent: float
    part: str = ""  # the Roman numeral of a part, where it stands in a cell of its own


def find_contents(pages: Sequence[PageLayout]) -> ContentsList:
    """The contents list near the front of a document; no entries if there is none."""
    rows: list[_Row] = []
    bands: dict[int, list[tuple[float, float]]] = defaultdict(list)
    open_ = other = False
    for i, page in enumerate(pages[:_SEARCHED]):
        found = list(_page_rows(page))
        begins = next((n for n, row in enumerate(found) if _is_contents_title(row.title)), None)
        paged = [row for row in found if row.printed]
        leaders = sum(row.leader for row in paged)
        if begins is not None and paged:
            other = False
        enough = len(paged) >= 3 and len(paged) >= 0.3 * len(found)
        if not (enough and _ascending(paged) and (begins is not None or open_ or leaders > 3)):
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
    return ContentsList(_entries(rows), dict(bands))


def _is_contents_title(text: str) -> bool:
    return len(text) < 60 and bool(_HEADING.fullmatch(text.strip(" .:")))


def _page_rows(page: PageLayout) -> Iterator[_Row]:
    for line, cells in zip(page.rows, page.cells, strict=True):
        yield _row(line, cells)


def _row(line: PdfLine, cells: Sequence[TextItem]) -> _Row:
    text = line.text
    match = _ENDING.match(text)
    if match and _LEADER.search(match["leader"] + " ") and match["leader"].strip():
        title, printed, leader = match["title"], match["page"], True
    elif match and _set_apart(cells, match["page"]):
        title, printed, leader = match["title"], match["page"], False
    else:
        title, printed, leader = text, "", False
    title = clean_line(_LEADER.sub(" ", title)) if leader else title
    title = title.removesuffix(" .") if printed else title
    if not any(map(str.isalpha, title)):
        title, printed = text, ""
    first = cells[0].text.strip()
    part = first if len(cells) > 1 and first.isupper() and roman_value(first) else ""
    return _Row(line, title, printed, leader, line.x, part)


def _set_apart(cells: Sequence[TextItem], printed: str) -> bool:
    """Whether the page number stands in a cell of its own, away from the title."""
    if len(cells) < 2 or cells[-1].text.strip(" .") != printed:
        return False
    before = cells[-2]
    return bool(cells[-1].x - (before.x + before.width) > _GAP)


def _ascending(rows: Sequence[_Row]) -> bool:
    values = [v for row in rows if (v := _page_value(row.printed)) is not None]
    falls = sum(b < a for a, b in pairwise(values))
    return falls <= max(1, 0.2 * len(values))


def _page_value(printed: str) -> int | None:
    """The value of a plain page number, Arabic or Roman."""
    return int(printed) if printed.isdigit() else roman_value(printed)


def _entries(rows: Sequence[_Row]) -> list[ContentsEntry]:
    found: list[tuple[_Row, str, str]] = []
    waiting: list[_Row] = []  # rows without a page number: parts, or titles that are wrapped
    for row in rows:
        if not row.printed:
            waiting.append(row)
            continue
        before, waiting = waiting, []
        title = row.title
        number, _ = split_number(title)
        if before:
            last = before[-1]
            numbered, rest = split_number(last.title)
            near = row.line.y - last.line.y < 3 * row.line.height
            if number is None and near and rest and (numbered or len(last.title) > 30):
                before.pop()
                title = f"{last.title} {title}"
                row = _Row(last.line, title, row.printed, row.leader, last.indent)
        for early in before:
            part, _ = split_number(early.title)
            if part is not None and part.rank is not None and len(early.title) < 120:
                found.append((early, early.title, ""))
        found.append((row, title, row.printed))
    ranked = assign_levels(
        ListedHeading(
            HeadingNumber("part", (row.part,), 0) if row.part else split_number(title)[0],
            indent=row.indent,
            strong=row.line.bold,
            matter=title_key(title) in _BACK_AND_FRONT,
        )
        for row, title, _ in found
    )
    return [
        ContentsEntry(title, printed, level, row.line.page)
        for (row, title, printed), level in zip(found, ranked, strict=True)
    ]


def find_target_pages(
    entries: Sequence[ContentsEntry],
    printed: PageNumbers,
    places: Mapping[str, Sequence[int]],
    page_count: int,
) -> list[tuple[int, ...]]:
    """The pages (from 0) each entry may point to, none where nothing tells.

    Printed numbers become pages by the numbers found on the pages, by the PDF's labels, or by
    one constant difference: whichever puts most titles where such a line is (`places`: pages
    by key). A printed page that was split has several.
    """
    found: dict[bool, dict[str, tuple[int, ...]]] = {}
    for roman in (False, True):
        chosen = [e for e in entries if e.printed and _is_roman(e.printed) is roman]
        maps = _maps(chosen, printed, places, roman, page_count)
        found[roman] = max(maps, key=lambda m: _hits(chosen, m, places), default={})
    return [found[_is_roman(e.printed)].get(e.printed, ()) if e.printed else () for e in entries]


def _is_roman(printed: str) -> bool:
    return not printed.isdigit() and roman_value(printed) is not None


def _maps(
    entries: Sequence[ContentsEntry],
    printed: PageNumbers,
    places: Mapping[str, Sequence[int]],
    roman: bool,
    page_count: int,
) -> list[dict[str, tuple[int, ...]]]:
    values = {e.printed: v for e in entries if (v := _page_value(e.printed)) is not None}
    on_pages = _spans(printed.roman if roman else printed.arabic)
    maps = [{p: on_pages[v] for p, v in values.items() if v in on_pages}]
    labels = printed.labels
    maps.append({e.printed: (labels[e.printed],) for e in entries if e.printed in labels})
    votes: Counter[int] = Counter()
    for entry in entries:
        if entry.printed in values:
            on = places.get(title_key(entry.title), ())
            votes.update({page - values[entry.printed] for page in on if page != entry.page})
    for offset in [o for o, _ in votes.most_common(3)] or [-1]:
        shifted = {p: v + offset for p, v in values.items()}
        maps.append({p: (i,) for p, i in shifted.items() if 0 <= i < page_count})
    return maps


def _spans(numbers: Mapping[int, int]) -> dict[int, tuple[int, ...]]:
    """The pages of each printed number: those after the number before, to where it stands.

    Numbers missing between two pages share the pages between.
    """
    spans: dict[int, tuple[int, ...]] = {}
    for (page, value), (after, following) in pairwise([(-1, 0), *sorted(numbers.items())]):
        if page < 0:
            spans[following] = (after,)
            continue
        between = tuple(range(page + 1, after + 1))
        for number in range(value + 1, following + 1):
            spans[number] = between[-8:]
    return spans


def _hits(
    entries: Sequence[ContentsEntry],
    where: Mapping[str, tuple[int, ...]],
    places: Mapping[str, Sequence[int]],
) -> int:
    return sum(
        not set(where.get(entry.printed, ())).isdisjoint(places.get(title_key(entry.title), ()))
        for entry in entries
    )
