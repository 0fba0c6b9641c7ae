"""Headings of a PDF, repaired: which lines are headings, and at what level.

A PDF says where letters stand, not what they are, so headings rest on what else the document
tells, surest first:

1. the outline (bookmarks): each title is looked for on the page it points to;
2. the printed table of contents: likewise, printed page numbers mapped to pages;
3. numbering: "2.", "2.1", "Part I", "Item 1A." where numbers follow one another;
4. layout: type larger or bolder than the body, alone in its block.

What 1 and 2 name is a heading even if it looks like body text. What only 3 and 4 suggest is kept
if it looks like a heading, below what is confirmed around it. Running headers, page numbers,
captions, entries of the contents list, sentences and the form fields of a cover are not headings.

Confidence is a rule of thumb in [0, 1]: with an outline or contents list,
`0.35 + 0.6 * found * confirmed`, where `found` is the share of its titles that were found and
`confirmed` the share of all headings that it, or numbering, confirms; with numbering alone
`0.35 + 0.35 * confirmed`; by layout alone 0.35.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from rapidfuzz import fuzz

from colligate.documents.reading.pdf_contents import (
    Contents,
    find_contents,
    target_pages,
)
from colligate.documents.reading.pdf_layout import Block, Line, PageLayout, join
from colligate.documents.reading.pdf_numbering import Number, key, split_number
from colligate.documents.reading.pdf_running import (
    Printed,
    body_size,
    printed_numbers,
    rising,
    set_aside,
)
from colligate.documents.tree import Basis, Structure

_LONGEST_LINES = 5
_ALIKE = 87.0
_SURE = 95.0
_WIDEST = 30  # pages searched between two neighbours
_DEEPEST = 6


@dataclass(frozen=True, slots=True)
class OutlineEntry:
    """A bookmark: its title, its level from 1, and the page it points to, counted from 0."""

    title: str
    level: int
    page: int


@dataclass(slots=True, eq=False)
class _Place:
    """A line in its block, with what matching needs."""

    block: Block
    index: int
    line: Line
    key: str
    number: Number | None
    bare: str  # the key without the number
    order: int  # in reading order, through the document

    @property
    def first(self) -> bool:
        return self.index == 0


@dataclass(slots=True, eq=False)
class _Heading:
    places: list[_Place]
    level: int
    basis: Basis


def repair(pages: Sequence[PageLayout], outline: Sequence[OutlineEntry]) -> Structure:
    """Make the pages' headings what they should be, in place, and say how sure that is."""
    printed = printed_numbers(pages)
    set_aside(pages, printed)
    contents = find_contents(pages)
    by_page = _places(pages, contents)
    tabular = _tabular(pages)
    anchors, found, basis = _anchors(pages, by_page, outline, contents, printed)
    headings = _with_candidates(pages, by_page, anchors, tabular)
    _apply(pages, headings)
    return _structure(headings, found, basis)


def _places(pages: Sequence[PageLayout], contents: Contents) -> list[list[_Place]]:
    """The lines of each page that may be part of a heading, in reading order."""
    found: list[list[_Place]] = []
    order = 0
    for i, page in enumerate(pages):
        bands = contents.bands.get(i, ())
        here = []
        for block in page.blocks:
            for index, line in enumerate(block.lines):
                order += 1
                middle = line.y + line.height / 2
                if any(low <= middle <= high for low, high in bands):
                    continue
                number, rest = split_number(line.text)
                here.append(_Place(block, index, line, key(line.text), number, key(rest), order))
        found.append(here)
    return found


@dataclass(frozen=True, slots=True)
class _Wanted:
    title: str
    level: int
    pages: tuple[int, ...]  # where to look, best first


def _anchors(
    pages: Sequence[PageLayout],
    by_page: Sequence[Sequence[_Place]],
    outline: Sequence[OutlineEntry],
    contents: Contents,
    printed: Printed,
) -> tuple[list[_Heading], float, Basis]:
    """The headings that outline or contents confirm, the share found, and which it was."""
    best: tuple[list[_Heading], float, Basis] = ([], 0.0, Basis.NONE)
    last = len(pages) - 1
    if outline:
        wanted = [
            _Wanted(e.title, e.level, _around(e.page, last)) for e in outline if e.page <= last
        ]
        located = _locate(wanted, by_page, Basis.OUTLINE)
        best = (located, len(located) / max(1, len(wanted)), Basis.OUTLINE)
    if contents.entries:
        places: dict[str, list[int]] = defaultdict(list)
        for i, here in enumerate(by_page):
            for place in here:
                if len(place.key) < 150:
                    places[place.key].append(i)
        targets = target_pages(contents.entries, printed, places, len(pages))
        wanted = [
            _Wanted(entry.title, entry.level, _around(target, last))
            for entry, target in zip(contents.entries, targets, strict=True)
        ]
        located = _locate(wanted, by_page, Basis.CONTENTS)
        share = len(located) / len(wanted)
        enough = len(located) >= 3 and share >= 0.4
        if enough and len(located) > 1.3 * len(best[0]):
            best = (located, share, Basis.CONTENTS)
    if len(best[0]) < 2 or best[1] < 0.3:
        return [], 0.0, Basis.NONE
    return best


def _around(target: int | Sequence[int], last: int) -> tuple[int, ...]:
    """The pages to search, best first: those given, then the ones beside."""
    given = (target,) if isinstance(target, int) else tuple(target)
    beside = (given[-1] + 1, given[0] - 1) if given else ()
    return tuple(p for p in (*given, *beside) if 0 <= p <= last)


def _locate(
    wanted: Sequence[_Wanted], by_page: Sequence[Sequence[_Place]], basis: Basis
) -> list[_Heading]:
    """The lines that carry the wanted titles; each line is used once.

    Titles are listed in reading order. What was found out of order, or not at all, is searched
    again between its neighbours.
    """
    taken: set[int] = set()
    found: dict[int, list[_Place]] = {}
    for n, want in enumerate(wanted):
        if places := _search(want, want.pages, by_page, taken):
            found[n] = places
            taken.update(place.order for place in places)
    kept = dict(rising([(n, places[0].order) for n, places in found.items()]))
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
        _Heading(places, min(wanted[n].level, _DEEPEST), basis)
        for n, places in sorted(found.items())
    ]


def _search(
    want: _Wanted,
    pages: Iterable[int],
    by_page: Sequence[Sequence[_Place]],
    taken: set[int],
) -> list[_Place]:
    best: tuple[float, list[_Place]] = (0.0, [])
    for distance, page in enumerate(pages):
        score, places = _best_on(by_page[page], want.title, taken)
        score -= 4 * distance
        if score > best[0]:
            best = (score, places)
    return best[1]


def _between(
    want: _Wanted,
    low: _Place | None,
    high: _Place | None,
    by_page: Sequence[Sequence[_Place]],
    taken: set[int],
) -> list[_Place]:
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
    best: tuple[float, list[_Place]] = (0.0, [])
    for page in pages:
        score, places = _best_on(by_page[page], want.title, outside)
        if score > max(best[0], _SURE):
            best = (score, places)
    return best[1]


def _best_on(here: Sequence[_Place], title: str, taken: set[int]) -> tuple[float, list[_Place]]:
    number, rest = split_number(title)
    full, bare = key(title), key(rest)
    best: tuple[float, list[_Place]] = (0.0, [])
    if not full:
        return best
    for i, place in enumerate(here):
        if place.order in taken or not place.key:
            continue
        numbers = number is not None and place.number is not None
        if numbers and (number.parts[-1], len(number.parts)) != (  # type: ignore[union-attr]
            place.number.parts[-1],  # type: ignore[union-attr]
            len(place.number.parts),  # type: ignore[union-attr]
        ):
            continue
        same_form = number is None or place.number is not None
        target = full if (numbers or place.number is None) and same_form else bare
        start = place.key if target is full else place.bare
        if number is None and place.number is not None and not full.startswith(place.key[:4]):
            target, start = full, place.bare
        score, used = _grown(here, i, start, target)
        if score < _ALIKE:
            continue
        score += 3 * place.first + 2 * (place.block.kind == "heading" or place.line.bold)
        score -= 6 * (place.block.kind == "chrome") + 3 * (
            used[-1].line is not used[-1].block.lines[-1]
        )
        if score > best[0]:
            best = (score, used)
    return best


def _grown(here: Sequence[_Place], i: int, start: str, target: str) -> tuple[float, list[_Place]]:
    """How alike the lines from `i` on are to a title, taking as many lines as it needs."""
    used = [here[i]]
    text = start
    if text and fuzz.ratio(text, target[: len(text)]) < 80:
        return 0.0, used
    best = (fuzz.ratio(text, target), list(used))
    for following in here[i + 1 : i + _LONGEST_LINES]:
        if len(text) >= 0.97 * len(target):
            break
        if following.line.y < used[-1].line.y - 2 and following.block is not used[-1].block:
            break
        text = f"{text} {following.key}".strip()
        used.append(following)
        score = fuzz.ratio(text, target)
        if score > best[0]:
            best = (score, list(used))
    return best


# What follows decides about lines that neither outline nor contents name.

_CAPTION = re.compile(
    r"(figure|fig\.|table|tab\.|abbildung|abb\.|tabelle|tableau|figura|tabla|listing|algorithm|"
    r"example|exhibit|chart|box|plate|図|表)\s*[\dA-Z(]+([.:\-\s]|$)",
    re.I,
)
_CODE = re.compile(r"\\[a-zA-Z]|[{}]|;$|->|==|::|</|\(\)")
_SENTENCE_END = re.compile(r"[.;,!:]$")
_KNOWN = frozenset(
    "abstract introduction summary preface foreword acknowledgements acknowledgments references "
    "bibliography glossary conclusion conclusions contents index appendix".split()
)


@dataclass(slots=True)
class _Style:
    """How often a style occurs in candidates, and how often a candidate of it is confirmed."""

    seen: int = 0
    confirmed: int = 0
    levels: Counter[int] = field(default_factory=Counter)


_StyleKey = tuple[float, bool, bool, bool]


def _style(line: Line) -> _StyleKey:
    letters = [c for c in line.text if c.isalpha()]
    caps = len(letters) > 2 and sum(c.isupper() for c in letters) > 0.8 * len(letters)
    return (round(line.size * 2) / 2, line.bold, caps, line.italic)


def _with_candidates(
    pages: Sequence[PageLayout],
    by_page: Sequence[Sequence[_Place]],
    anchors: list[_Heading],
    tabular: set[tuple[int, int]],
) -> list[_Heading]:
    body = body_size(pages)
    taken = {place.order for heading in anchors for place in heading.places}
    candidates = [
        places
        for i, here in enumerate(by_page)
        for places in _candidates(here, taken, body)
        if not any((i, round(p.line.y + p.line.height / 2)) in tabular for p in places)
    ]
    candidates = _without_repeats(candidates, len(pages))
    candidates = _without_cover(candidates, anchors, len(pages))
    headings = [*anchors, *_levelled(candidates, anchors, body, len(pages))]
    headings.sort(key=lambda h: h.places[0].order)
    return headings


def _candidates(here: Sequence[_Place], taken: set[int], body: float) -> Iterable[list[_Place]]:
    """Runs of lines of one block that look like a heading."""
    column = max((place.line.width for place in here), default=0.0)
    for i, place in enumerate(here):
        block = place.block
        if not place.first or place.order in taken or block.kind not in _TEXT_KINDS:
            continue
        run = [place]
        for following in here[i + 1 : i + 4]:
            if (
                following.block is not block
                or _style(following.line)[:2] != _style(place.line)[:2]
                or following.order in taken
                or following.number is not None
            ):
                break
            run.append(following)
        if len(run) < len(block.lines) and block.kind != "heading":
            continue
        if _looks_like_heading(run, body) and not _runs_in(run, here, i, column):
            yield run


def _runs_in(run: Sequence[_Place], here: Sequence[_Place], i: int, column: float) -> bool:
    """Whether a run fills its line and goes straight on as text: a paragraph that begins bold."""
    last = run[-1].line
    if last.width < 0.85 * column or i + len(run) >= len(here):
        return False
    following = here[i + len(run)].line
    return 0 <= following.y - last.y < 1.45 * last.height


_TEXT_KINDS = ("heading", "paragraph", "list_item")


def _looks_like_heading(run: Sequence[_Place], body: float) -> bool:
    line = run[0].line
    text = join([place.line for place in run])
    number, rest = split_number(text)
    if line.mono or (number is None and _CODE.search(text)):
        return False
    if not 2 <= len(text) <= 160 or sum(map(str.isalpha, text)) < 0.5 * len(text.replace(" ", "")):
        return False
    if sum(map(str.isalpha, text)) < 3 or len(text.split()) > 18:
        return False
    if _CAPTION.match(text) or (_SENTENCE_END.search(text) and len(text.split()) > 3):
        return False
    number, rest = split_number(text)
    if not rest or (rest[0].islower() and number is None):
        return False
    larger = line.size > 1.08 * body
    _, bold, caps, _ = _style(line)
    if run[0].block.kind == "heading":
        return larger or bold or caps or number is not None
    return (larger or bold) and line.size >= 0.95 * body and run[0].block.kind == "paragraph"


def _tabular(pages: Sequence[PageLayout]) -> set[tuple[int, int]]:
    """Where rows of several short cells stand: (page, height), as the heads of tables do."""
    found: set[tuple[int, int]] = set()
    for i, page in enumerate(pages):
        for row, cells in zip(page.rows, page.cells, strict=True):
            wide = sum(b.x - (a.x + a.width) > 1.8 * row.size for a, b in pairwise(cells))
            short = sum(len(cell.text) < 30 for cell in cells)
            if wide > 1 or (wide == 1 and short == len(cells) and not split_number(row.text)[0]):
                found.update((i, round(row.y + row.height / 2) + d) for d in (-2, -1, 0, 1, 2))
    return found


def _without_repeats(candidates: list[list[_Place]], page_count: int) -> list[list[_Place]]:
    """Candidates without those that say the same again and again: labels, not headings."""
    seen = Counter(join([p.line for p in run]).casefold() for run in candidates)
    most = max(3, 0.03 * page_count)
    return [run for run in candidates if seen[join([p.line for p in run]).casefold()] <= most]


def _without_cover(
    candidates: list[list[_Place]], anchors: Sequence[_Heading], page_count: int
) -> list[list[_Place]]:
    """Candidates without the form fields of a cover: of page 1 only the largest type stays."""
    cover = [run for run in candidates if run[0].line.page == 0]
    if page_count < 3 or len(cover) < 4:
        return candidates
    starts = [h.places[0].order for h in anchors if h.places[0].line.page == 0]
    starts += [run[0].order for run in cover if run[0].bare in _KNOWN or run[0].number]
    largest = max(run[0].line.size for run in cover)
    begin = min(starts, default=None)
    return [
        run
        for run in candidates
        if run[0].line.page > 0
        or run[0].line.size >= 0.95 * largest
        or (begin is not None and run[0].order >= begin)
    ]


def _levelled(
    candidates: Sequence[list[_Place]],
    anchors: Sequence[_Heading],
    body: float,
    page_count: int,
) -> list[_Heading]:
    styles: dict[_StyleKey, _Style] = defaultdict(_Style)
    for heading in anchors:
        style = styles[_style(heading.places[0].line)]
        style.confirmed += 1
        style.levels[heading.level] += 1
    for run in candidates:
        styles[_style(run[0].line)].seen += 1
    ranked = sorted(
        (key_ for key_, style in styles.items() if style.seen),
        key=lambda k: (-k[0], not k[1], not k[2], k[3]),
    )
    numbers: dict[tuple[str, int], Counter[int]] = defaultdict(Counter)
    for heading in anchors:
        if number := heading.places[0].number:
            numbers[number.scheme, len(number.parts)][heading.level] += 1
    found = []
    orders = sorted((h.places[0].order, h.level) for h in anchors)
    at, current = 0, 0
    dense = len(anchors) >= 0.6 * page_count
    for run in candidates:
        while at < len(orders) and orders[at][0] < run[0].order:
            current = orders[at][1]
            at += 1
        style_key = _style(run[0].line)
        style = styles[style_key]
        number = run[0].number
        if number and number.scheme == "decimal":
            level = _decimal_level(number, numbers)
            basis = Basis.NUMBERING
        elif anchors:
            if dense and not style.confirmed:
                continue
            # The list names all headings down to its depth, so this one is below.
            level = current + 1 + min(2, ranked.index(style_key))
            if run[0].bare in _KNOWN:
                level = 1
            basis = Basis.LAYOUT
        else:
            level, basis = 1 + min(3, ranked.index(style_key)), Basis.LAYOUT
        found.append(_Heading(run, max(1, min(level, _DEEPEST)), basis))
    return found


def _decimal_level(number: Number, known: dict[tuple[str, int], Counter[int]]) -> int:
    depth = len(number.parts)
    for nearby in (depth, depth - 1, depth + 1, depth - 2):
        if levels_ := known.get(("decimal", nearby)):
            return levels_.most_common(1)[0][0] + depth - nearby
    return depth


def _apply(pages: Sequence[PageLayout], headings: Sequence[_Heading]) -> None:
    """Rewrite the pages' blocks: headings become blocks of their own, all else is text."""
    marked: dict[int, tuple[_Heading, bool]] = {}
    for heading in headings:
        for n, place in enumerate(heading.places):
            marked[id(place.line)] = (heading, n == 0)
    for page in pages:
        page.blocks[:] = [piece for block in page.blocks for piece in _split(block, marked)]


def _split(block: Block, marked: dict[int, tuple[_Heading, bool]]) -> list[Block]:
    if not any(id(line) in marked for line in block.lines):
        if block.kind == "heading":
            block.kind = "paragraph"
        return [block]
    pieces: list[Block] = []
    rest: list[Line] = []
    kind = "paragraph" if block.kind == "heading" else block.kind
    for line in block.lines:
        if id(line) not in marked:
            rest.append(line)
            continue
        if rest:
            pieces.append(Block(kind, rest, block.level, block.marker, block.ordered))
            rest = []
        heading, first = marked[id(line)]
        if first:
            lines = [place.line for place in heading.places]
            pieces.append(Block("heading", lines, level=heading.level))
    if rest:
        pieces.append(Block("paragraph", rest))
    return pieces


def _structure(headings: Sequence[_Heading], found: float, basis: Basis) -> Structure:
    if not headings:
        return Structure(1.0, Basis.NONE)
    sure = sum(h.basis is not Basis.LAYOUT for h in headings) / len(headings)
    if basis is not Basis.NONE:
        named = sum(h.basis is basis for h in headings)
        note = f"{named} of {len(headings)} headings from the {basis.value}"
        return Structure(round(0.35 + 0.6 * found * sure, 2), basis, note)
    if sure >= 0.5:
        return Structure(round(0.35 + 0.35 * sure, 2), Basis.NUMBERING)
    return Structure(0.35, Basis.LAYOUT)
