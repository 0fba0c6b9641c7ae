"""Headings of a PDF, repaired: which lines are headings, and at what level.

The evidence, surest first: (1) the titles of the outline, on the pages it points to; (2) those of
the printed table of contents; (3) numbers that follow one another; (4) type larger or bolder than
the body, alone in its block. A title of 1 or 2 is a heading even if it looks like body text. A line
that only 3 or 4 suggests is one if it looks so, below the confirmed heading before it.

Confidence is a rule of thumb: with an outline or contents list `0.35 + 0.6 * found * confirmed`,
`found` being the share of its titles that were found and `confirmed` that of all headings that it
or numbering confirms; with numbering `0.35 + 0.35 * confirmed`; by layout alone 0.35.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from colligate.documents.reading.pdf import contents, layout
from colligate.documents.reading.pdf.contents import DEEPEST, LinesByPage, PdfHeading, PlacedLine
from colligate.documents.reading.pdf.hyphens import dehyphenate_lines
from colligate.documents.reading.pdf.layout import PageLayout, PdfBlock, PdfLine
from colligate.documents.reading.pdf.numbering import ListedHeading, assign_levels, split_number
from colligate.documents.tree import Basis, Structure


def repair_headings(
    pages: Sequence[PageLayout], outline: Sequence[contents.WantedTitle]
) -> Structure:
    """Correct the pages' headings in place by the bookmarks too; return how sure they are."""
    layout.set_aside_running_lines(pages)
    listed = contents.find_contents(pages)
    by_page = contents.find_lines(pages, listed.bands)
    anchors, found, basis = _find_anchors(by_page, outline, listed)
    candidates = _find_candidates(pages, by_page, anchors)
    headings = [*anchors, *_assign_levels(candidates, anchors)]
    headings.sort(key=lambda h: h.places[0].order)
    _apply_headings(pages, headings)
    return _rate_structure(headings, found, basis)


def _find_anchors(
    by_page: LinesByPage, outline: Sequence[contents.WantedTitle], listed: contents.ContentsList
) -> tuple[list[PdfHeading], float, Basis]:
    """Return the headings that outline or contents confirm, the share found, and which it was."""
    best: tuple[list[PdfHeading], float, Basis] = ([], 0.0, Basis.NONE)
    if outline:
        located = contents.find_titles(outline, by_page, Basis.OUTLINE)
        best = (located, len(located) / len(outline), Basis.OUTLINE)
    if listed.entries:
        wanted = contents.find_target_pages(listed.entries, by_page)
        located = contents.find_titles(wanted, by_page, Basis.CONTENTS)
        share = len(located) / len(wanted)
        enough = len(located) >= 3 and share >= 0.4
        if enough and len(located) > 1.3 * len(best[0]):
            best = (located, share, Basis.CONTENTS)
    if len(best[0]) < 2 or best[1] < 0.3:
        return [], 0.0, Basis.NONE
    return best


def _find_candidates(
    pages: Sequence[PageLayout], by_page: LinesByPage, anchors: Sequence[PdfHeading]
) -> list[list[PlacedLine]]:
    """Return in their order lines that look like headings, beside `anchors`, the confirmed ones."""
    body = layout.find_body_size(pages)
    tabular = _find_tabular(pages)
    taken = {place.order for heading in anchors for place in heading.places}
    found = [
        run
        for i, here in enumerate(by_page)
        for run in _iter_candidates(here, taken, body)
        if not any((i, round(p.line.y + p.line.height / 2)) in tabular for p in run)
    ]
    return _drop_cover_fields(_drop_repeats(found, len(pages)), anchors, len(pages))


_TEXT_KINDS = ("heading", "paragraph", "list_item")


def _iter_candidates(
    here: Sequence[PlacedLine], taken: set[int], body: float
) -> Iterator[list[PlacedLine]]:
    """Yield runs of lines of one block that look like a heading."""
    column = max((place.line.width for place in here), default=0.0)
    for i, place in enumerate(here):
        block = place.block
        if not place.first or place.order in taken or block.kind not in _TEXT_KINDS:
            continue
        run = [place]
        for following in here[i + 1 : i + 4]:
            is_free = following.block is block and following.order not in taken
            is_alike = _style_of(following.line)[:2] == _style_of(place.line)[:2]
            if not (is_free and is_alike and following.number is None):
                break
            run.append(following)
        if len(run) < len(block.lines) and block.kind != "heading":
            continue
        if _looks_like_heading(run, body) and not _is_run_in(run, here, i, column):
            yield run


def _is_run_in(
    run: Sequence[PlacedLine], here: Sequence[PlacedLine], i: int, column: float
) -> bool:
    """Report whether a run that fills its line begins a paragraph in the same size."""
    last = run[-1].line
    if last.width < 0.85 * column or i + len(run) >= len(here):
        return False
    following = here[i + len(run)].line
    return following.size > 0.92 * last.size and 0 <= following.y - last.y < 1.45 * last.height


_Style = tuple[float, bool, bool, bool]


def _style_of(line: PdfLine) -> _Style:
    """Return what a line looks like: size (half points), bold, capitals, italic."""
    letters = list(filter(str.isalpha, line.text))
    caps = len(letters) > 2 and sum(map(str.isupper, letters)) > 0.8 * len(letters)
    return (round(line.size * 2) / 2, line.bold, caps, line.italic)


_CAPTION = re.compile(
    r"(figure|fig\.|table|tab\.|abbildung|abb\.|tabelle|tableau|figura|tabla|listing|algorithm|"
    r"example|exhibit|chart|box|plate|図|表)\s*[\dA-Z(]+([.:\-\s]|$)",
    re.I,
)
_CODE = re.compile(r"\\[a-zA-Z]|[{}]|;$|->|==|::|</|\(\)")
_PHONE = re.compile(r"\d{3}\)?[\s-]\d{3}-\d{4}")


def _looks_like_heading(run: Sequence[PlacedLine], body: float) -> bool:
    line, block = run[0].line, run[0].block
    text = dehyphenate_lines([place.line for place in run])
    number, rest = split_number(text)
    words = text.split()
    letters = sum(map(str.isalpha, text))
    if not 3 <= len(text) <= 160 or len(words) > 18 or letters < max(3, 0.5 * len("".join(words))):
        return False
    in_brackets = text[0] in "([" and text[-1] in ")]"
    if line.mono or in_brackets or _CAPTION.match(text) or _PHONE.search(text):
        return False
    if number is None and (_CODE.search(text) or rest[:1].islower()):
        return False
    numbered = number is not None and len(number.parts) > 1
    if not numbered and text[-1] in ".;,!:" and len(words) > 3:
        return False
    if not rest or (number is not None and number.scheme == "(digit)"):
        return False  # a number alone, or a note under a table
    larger = line.size > 1.08 * body
    _, bold, caps, _ = _style_of(line)
    if block.kind == "heading":
        return larger or bold or caps or number is not None
    return (larger or bold) and line.size >= 0.95 * body and block.kind == "paragraph"


def _find_tabular(pages: Sequence[PageLayout]) -> set[tuple[int, int]]:
    """Return where rows of several short cells are, such as heads of tables: (page, height)."""
    found: set[tuple[int, int]] = set()
    for i, page in enumerate(pages):
        for row in page.rows:
            wide = sum(gap > 1.8 * row.size for gap in row.gaps)
            short = all(len(item.text) < 30 for item in row.items)
            if wide > 1 or (wide == 1 and short and not split_number(row.text)[0]):
                found.update((i, round(row.y + row.height / 2) + d) for d in (-2, -1, 0, 1, 2))
    return found


def _drop_repeats(candidates: list[list[PlacedLine]], page_count: int) -> list[list[PlacedLine]]:
    """Leave out candidates that repeat the same words often: labels, not headings."""
    texts = [dehyphenate_lines([p.line for p in run]).casefold() for run in candidates]
    seen = Counter(texts)
    most = max(3, 0.03 * page_count)
    return [run for run, text in zip(candidates, texts, strict=True) if seen[text] <= most]


_KNOWN = frozenset(
    "abstract introduction summary preface foreword acknowledgements acknowledgments references "
    "bibliography glossary conclusion conclusions contents index appendix".split()
)


def _drop_cover_fields(
    candidates: list[list[PlacedLine]], anchors: Sequence[PdfHeading], page_count: int
) -> list[list[PlacedLine]]:
    """Leave out the form fields of a cover: of page 1 only the largest type is kept."""
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


def _assign_levels(
    candidates: Sequence[list[PlacedLine]], anchors: Sequence[PdfHeading]
) -> list[PdfHeading]:
    """Return the candidates as headings, each at a level that fits the confirmed ones around it."""
    numbered = [] if anchors else _level_by_number(candidates)
    sure = [*anchors, *numbered]
    certain = {heading.places[0].order for heading in sure}
    rest = [run for run in candidates if run[0].order not in certain]
    by_style: dict[_Style, Counter[int]] = defaultdict(Counter)
    by_depth: dict[int, Counter[int]] = defaultdict(Counter)
    for heading in sure:
        first = heading.places[0]
        by_style[_style_of(first.line)][heading.level] += 1
        if first.number and first.number.scheme == "decimal":
            by_depth[len(first.number.parts)][heading.level] += 1
    ranked = sorted(  # most prominent first
        {_style_of(run[0].line) for run in rest},
        key=lambda look: (-look[0], not look[1], not look[2], look[3]),
    )
    largest = max((key[0] for key in by_style), default=0.0)
    top = min((h.places[0].line.size for h in sure if h.level == 1), default=largest)
    around = sorted((h.places[0].order, h.level) for h in sure)
    found = list(numbered)
    for run in rest:
        first, look = run[0], _style_of(run[0].line)
        before = bisect_left(around, (first.order, 0))
        current = around[before - 1][1] if before else 0
        rank = ranked.index(look)
        basis = Basis.LAYOUT
        if anchors and first.number and first.number.scheme == "decimal":
            level, basis = _find_decimal_level(len(first.number.parts), by_depth), Basis.NUMBERING
        elif not sure:
            level = 1 + min(3, rank)
        elif look[0] > largest or (first.bare in _KNOWN and (look[0] >= top or not before)):
            level = 1
        elif not anchors and look in by_style:
            level = by_style[look].most_common(1)[0][0]
        else:
            # A list names all headings down to its depth, so headings that it omits are below.
            level = current + 1 + min(2, rank)
        found.append(PdfHeading(run, max(1, min(level, DEEPEST)), basis))
    return found


_FEWEST = 3  # headings with numbers that make a numbering
_FOLLOWING = 0.6  # of the numbers must follow one another


def _level_by_number(candidates: Sequence[list[PlacedLine]]) -> list[PdfHeading]:
    """Return candidates with numbers that follow one another, at their levels; none if few do."""
    runs = [(run, run[0].number) for run in candidates]
    kept = [(run, n) for run, n in runs if n is not None and not n.scheme.startswith("(")]
    by_scheme: dict[tuple[str, int], list[int]] = defaultdict(list)
    for _, number in kept:
        by_scheme[number.scheme, len(number.parts)].append(number.last or 0)
    steps = (step for values in by_scheme.values() for step in pairwise([0, *values]))
    follows = sum(b in (a + 1, a, 1) for a, b in steps)
    if len(kept) < _FEWEST or follows < _FOLLOWING * len(kept):
        return []
    ranks = assign_levels(ListedHeading(number) for _, number in kept)
    ranked = zip(kept, ranks, strict=True)
    return [PdfHeading(run, min(level, DEEPEST), Basis.NUMBERING) for (run, _), level in ranked]


def _find_decimal_level(depth: int, known: Mapping[int, Counter[int]]) -> int:
    """Return the level of a decimal number of some depth, from those of sure headings."""
    for nearby in (depth, depth - 1, depth + 1, depth - 2):
        if nearby in known:
            return known[nearby].most_common(1)[0][0] + depth - nearby
    return depth


def _apply_headings(pages: Sequence[PageLayout], headings: Sequence[PdfHeading]) -> None:
    """Rewrite the pages' blocks: each heading becomes a block, the rest is text."""
    marked: dict[int, tuple[PdfHeading, bool]] = {}
    for heading in headings:
        for n, place in enumerate(heading.places):
            marked[id(place.line)] = (heading, n == 0)
    for page in pages:
        page.blocks[:] = [piece for block in page.blocks for piece in _split_block(block, marked)]


def _split_block(block: PdfBlock, marked: dict[int, tuple[PdfHeading, bool]]) -> list[PdfBlock]:
    if not any(id(line) in marked for line in block.lines):
        if block.kind == "heading":
            block.kind = "paragraph"
        return [block]
    pieces: list[PdfBlock] = []
    rest: list[PdfLine] = []
    kind = "paragraph" if block.kind == "heading" else block.kind
    for line in block.lines:
        if id(line) not in marked:
            rest.append(line)
            continue
        if rest:
            pieces.append(PdfBlock(kind, rest, block.level, block.marker))
            rest = []
        heading, first = marked[id(line)]
        if first:
            lines = [place.line for place in heading.places]
            pieces.append(PdfBlock("heading", lines, level=heading.level))
    if rest:
        pieces.append(PdfBlock("paragraph", rest))
    return pieces


def _rate_structure(headings: Sequence[PdfHeading], found: float, basis: Basis) -> Structure:
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
