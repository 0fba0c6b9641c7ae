"""Lines that look like headings, though neither outline nor contents list names them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise

from colligate.documents.reading.pdf_layout import Line, PageLayout, join
from colligate.documents.reading.pdf_numbering import split_number
from colligate.documents.reading.pdf_running import body_size
from colligate.documents.reading.pdf_titles import Heading, Place

_CAPTION = re.compile(
    r"(figure|fig\.|table|tab\.|abbildung|abb\.|tabelle|tableau|figura|tabla|listing|algorithm|"
    r"example|exhibit|chart|box|plate|図|表)\s*[\dA-Z(]+([.:\-\s]|$)",
    re.I,
)
_CODE = re.compile(r"\\[a-zA-Z]|[{}]|;$|->|==|::|</|\(\)")
_ASIDE = re.compile(r"[(\[].*[)\]]")
_PHONE = re.compile(r"\d{3}\)?[\s-]\d{3}-\d{4}")
_SENTENCE_END = re.compile(r"[.;,!:]$")
KNOWN = frozenset(
    "abstract introduction summary preface foreword acknowledgements acknowledgments references "
    "bibliography glossary conclusion conclusions contents index appendix".split()
)


StyleKey = tuple[float, bool, bool, bool]


def style(line: Line) -> StyleKey:
    """What a line looks like: size (half points), bold, capitals, italic."""
    letters = [c for c in line.text if c.isalpha()]
    caps = len(letters) > 2 and sum(c.isupper() for c in letters) > 0.8 * len(letters)
    return (round(line.size * 2) / 2, line.bold, caps, line.italic)


def find_candidates(
    pages: Sequence[PageLayout],
    by_page: Sequence[Sequence[Place]],
    anchors: Sequence[Heading],
) -> list[list[Place]]:
    """The lines of each candidate, in reading order; `anchors` are headings already sure."""
    body = body_size(pages)
    tabular = _tabular(pages)
    taken = {place.order for heading in anchors for place in heading.places}
    found = [
        run
        for i, here in enumerate(by_page)
        for run in _candidates(here, taken, body)
        if not any((i, round(p.line.y + p.line.height / 2)) in tabular for p in run)
    ]
    return _without_cover(_without_repeats(found, len(pages)), anchors, len(pages))


def _candidates(here: Sequence[Place], taken: set[int], body: float) -> Iterator[list[Place]]:
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
                or style(following.line)[:2] != style(place.line)[:2]
                or following.order in taken
                or following.number is not None
            ):
                break
            run.append(following)
        if len(run) < len(block.lines) and block.kind != "heading":
            continue
        if _looks_like_heading(run, body) and not _runs_in(run, here, i, column):
            yield run


def _runs_in(run: Sequence[Place], here: Sequence[Place], i: int, column: float) -> bool:
    """Whether a run fills its line and goes straight on as text: a paragraph that begins bold."""
    last = run[-1].line
    if last.width < 0.85 * column or i + len(run) >= len(here):
        return False
    following = here[i + len(run)].line
    return 0 <= following.y - last.y < 1.45 * last.height


_TEXT_KINDS = ("heading", "paragraph", "list_item")


def _looks_like_heading(run: Sequence[Place], body: float) -> bool:
    line, block = run[0].line, run[0].block
    text = join([place.line for place in run])
    number, rest = split_number(text)
    words = text.split()
    letters = sum(map(str.isalpha, text))
    if not 3 <= len(text) <= 160 or len(words) > 18 or letters < max(3, 0.5 * len("".join(words))):
        return False
    if line.mono or _CAPTION.match(text) or _ASIDE.fullmatch(text) or _PHONE.search(text):
        return False
    if number is None and (_CODE.search(text) or rest[:1].islower()):
        return False
    numbered = number is not None and len(number.parts) > 1
    if not numbered and _SENTENCE_END.search(text) and len(words) > 3:
        return False
    if not rest or (number is not None and number.scheme == "(digit)"):
        return False  # a number alone, or a note under a table
    larger = line.size > 1.08 * body
    _, bold, caps, _ = style(line)
    if block.kind == "heading":
        return larger or bold or caps or number is not None
    return (larger or bold) and line.size >= 0.95 * body and block.kind == "paragraph"


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


def _without_repeats(candidates: list[list[Place]], page_count: int) -> list[list[Place]]:
    """Candidates without those that say the same again and again: labels, not headings."""
    seen = Counter(join([p.line for p in run]).casefold() for run in candidates)
    most = max(3, 0.03 * page_count)
    return [run for run in candidates if seen[join([p.line for p in run]).casefold()] <= most]


def _without_cover(
    candidates: list[list[Place]], anchors: Sequence[Heading], page_count: int
) -> list[list[Place]]:
    """Candidates without the form fields of a cover: of page 1 only the largest type stays."""
    cover = [run for run in candidates if run[0].line.page == 0]
    if page_count < 3 or len(cover) < 4:
        return candidates
    starts = [h.places[0].order for h in anchors if h.places[0].line.page == 0]
    starts += [run[0].order for run in cover if run[0].bare in KNOWN or run[0].number]
    largest = max(run[0].line.size for run in cover)
    begin = min(starts, default=None)
    return [
        run
        for run in candidates
        if run[0].line.page > 0
        or run[0].line.size >= 0.95 * largest
        or (begin is not None and run[0].order >= begin)
    ]
