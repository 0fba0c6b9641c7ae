"""Reading a skeleton: the sections a model made out of a text, brought back to the text.

A skeleton is what `skeleton.skeleton` writes and a model imitates. Whatever is wrong with it
(tags that are never closed, titles twice, text that stands nowhere), what can be found is kept
and the rest is reported.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from colligate.documents.document import Document
from colligate.documents.omissions import LONGEST, TAG_NAMES, PieceFinder, Place
from colligate.documents.tree import Basis, Kind, Structure, Tree, TreeBuilder

ABSTRACT = "abstract"

_TAG = re.compile(
    rf"<(?P<close>/?)(?P<name>(?!br|skip){TAG_NAMES})(?:\s{{0,9}}:)?"
    r"(?:(?P<title>[^<>]{0,2000})>|(?P<cut>[^<>\n]{0,2000})$)",  # the second was never closed
    re.I | re.M,
)
_MARKUP = re.compile(r"&(amp|lt|gt);")
_BREAK = re.compile(r"</?br\s*/?>", re.I)
_BLANK_LINE = re.compile(r"\n\s*\n")
_QUOTED = re.compile(r"""(?:"(.*)"|'(.*)'|“(.*)”)""", re.S)
_MARKS = re.compile(r"[^\w\s]*")
_LINE_MARKS = re.compile(r"[^\w\n]*\Z")

_Stretch = tuple[int, int]


@dataclass(frozen=True)
class Recovered:
    """The tree a skeleton describes, over the document's own text.

    `tree` has a section (without a heading) for each of the skeleton's that holds any text, in
    two levels, and a paragraph for each piece found. `coverage` is the share of the document's
    characters, blanks and headings apart, that lie in them; `lost` are the pieces found nowhere.
    """

    tree: Tree
    coverage: float
    lost: tuple[str, ...]


@dataclass(slots=True)
class _Outline:
    """What a skeleton says: sections, and pieces with the path of sections each stands in."""

    titles: list[str] = field(default_factory=list)
    pieces: list[tuple[tuple[int, ...], str]] = field(default_factory=list)


def recover(skeleton: str, document: Document) -> Recovered:
    """Find the text that a skeleton stands for.

    Sections are read from the tags `<abstract>`, `<section: T>` and `<sub-section: T>` (quotes
    around titles are dropped); one that is not closed ends where the next of its level begins,
    and text outside of all says nothing. Pieces stand between `<br>`, or on lines of their own
    where there is none. They are found in the order in which they stand; one of which only one
    end is found reaches to its neighbour. Where no abstract is found, the text before what is
    found first is it. Nothing raises, whatever the skeleton; one without tags recovers nothing.
    """
    outline = _parse(skeleton)
    finder = PieceFinder(document)
    wanted = [piece for _, piece in outline.pieces]
    places = _places(wanted, finder)
    kept = [i for i, place in enumerate(places) if place is not None]
    stretches = _widened(_bounded(places, kept, document, finder.text), finder.text)
    found = [(outline.pieces[i][0], *stretch) for i, stretch in zip(kept, stretches, strict=True)]
    if found and not any(outline.titles[path[0]].casefold() == ABSTRACT for path, _, _ in found):
        lead = [((len(outline.titles),), *block) for block in _blocks(finder.text, found[0][1])]
        outline.titles.append(ABSTRACT)
        found = lead + found
    covered = sum(_visible(finder.text[start:end]) for _, start, end in found)
    coverage = covered / max(1, _visible(finder.text))
    tree = _tree(found, outline.titles, document, coverage)
    lost = tuple(piece for piece, place in zip(wanted, places, strict=True) if place is None)
    return Recovered(tree, coverage, lost)


def _parse(skeleton: str) -> _Outline:
    outline = _Outline()
    path: tuple[int, ...] = ()
    place = 0
    for tag in _TAG.finditer(skeleton):
        outline.pieces += _pieces(skeleton[place : tag.start()], path)
        place = tag.end()
        deep = tag["name"].lower().startswith("sub")
        if tag["close"]:
            path = path[:1] if deep and len(path) > 1 else path if deep else ()
            continue
        above = path[:1] if deep else ()
        path = (*above, len(outline.titles))
        title = ABSTRACT if tag["name"].lower() == ABSTRACT else _title(tag["title"] or tag["cut"])
        outline.titles.append(title)
    outline.pieces += _pieces(skeleton[place:], path)
    return outline


def _pieces(content: str, path: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], str]]:
    if path:
        parts = _BREAK.split(content) if _BREAK.search(content) else content.split("\n")
        yield from ((path, part.strip()) for part in parts if part.strip())


def _title(written: str | None) -> str:
    title = " ".join((written or "").split())
    if quoted := _QUOTED.fullmatch(title):
        title = next(part for part in quoted.groups() if part is not None).strip()
    return _MARKUP.sub(lambda mark: {"lt": "<", "gt": ">", "amp": "&"}[mark[1]], title)


def _places(pieces: Sequence[str], finder: PieceFinder) -> list[Place | None]:
    """Where each piece stands.

    Pieces whose words stand in the document once hold the rest in place, so that one made up or
    moved does not draw those after it along.
    """
    length = len(finder.text)
    sure = _ascending([finder.only_place(piece) for piece in pieces])
    limits = [length] * len(pieces)
    for i in range(len(pieces) - 2, -1, -1):
        limits[i] = sure.get(i + 1, limits[i + 1])
    places: list[Place | None] = []
    reached = 0
    for i, piece in enumerate(pieces):
        low = max(reached, sure.get(i, 0))
        place = finder.find(piece, low, limits[i])
        places.append(place)
        reached = reached if place is None else place.edge
    return places


def _ascending(offsets: Sequence[int | None]) -> dict[int, int]:
    """The most offsets that ascend strictly, by index."""
    lasts: list[int] = []  # the smallest offset that ends a run of each length
    holders: list[int] = []  # its index
    before: dict[int, int | None] = {}
    for i, offset in enumerate(offsets):
        if offset is None:
            continue
        size = bisect_left(lasts, offset)
        if lasts[size : size + 1] == [offset]:
            continue  # of pieces that come twice the first is kept
        before[i] = holders[size - 1] if size else None
        lasts[size : size + 1], holders[size : size + 1] = [offset], [i]
    run: dict[int, int] = {}
    at = holders[-1] if holders else None
    while at is not None:
        run[at] = offsets[at] or 0
        at = before[at]
    return run


def _bounded(
    places: Sequence[Place | None], kept: Sequence[int], document: Document, text: str
) -> list[_Stretch]:
    """The stretches of the pieces found; an end that was not found is put at its neighbour's."""
    headings = [node.heading for node in document.tree.sections if node.heading is not None]
    opens = [heading.start for heading in headings]
    closes = [heading.end for heading in headings]
    found = [place for i in kept if (place := places[i]) is not None]
    starts: list[int] = []
    for j, place in enumerate(found):
        start = place.start
        if start is None:
            before = found[j - 1].edge if j else 0
            start = text.rfind("\n\n", before, place.edge) + 1
            joined = j and kept[j - 1] == kept[j] - 1 and found[j - 1].end is not None
            if (joined and place.edge - before <= LONGEST) or not start:
                start = max(before, place.edge - LONGEST)
            heading = bisect_right(closes, place.edge)
            start = max(start, closes[heading - 1] if heading else 0)
            start += len(text[start : place.edge]) - len(text[start : place.edge].lstrip())
        starts.append(start)
    stretches: list[_Stretch] = []
    for j, (start, place) in enumerate(zip(starts, found, strict=True)):
        following = starts[j + 1] if j + 1 < len(starts) else len(text)
        end = place.end
        if end is None:
            heading = bisect_left(opens, place.edge)
            end = min([following, *opens[heading : heading + 1]])
            block = text.find("\n\n", place.edge, end)
            if block >= 0 and (end == len(text) or end - start > LONGEST):
                end = block
            end = max(place.edge, min(end, start + LONGEST))
            end = start + len(text[start:end].rstrip())
        stretches.append((start, end))
    return stretches


def _widened(stretches: Sequence[_Stretch], text: str) -> list[_Stretch]:
    """The stretches with the marks around them, which a model is apt to leave out."""
    widened: list[_Stretch] = []
    for j, (start, end) in enumerate(stretches):
        following = stretches[j + 1][0] if j + 1 < len(stretches) else len(text)
        before = widened[-1][1] if widened else 0
        line = max(before, text.rfind("\n", before, start) + 1)
        marks = _LINE_MARKS.match(text, line, start)
        if marks is not None:  # those of a list or a quote
            start -= len(marks.group().lstrip())
        else:
            while start > before and _MARKS.fullmatch(text[start - 1]):
                start -= 1
        after = _MARKS.match(text, end, following)
        widened.append((start, after.end() if after else end))
    return widened


def _blocks(text: str, end: int) -> Iterator[_Stretch]:
    """The paragraphs of the text before `end`, unless that is too much to be an abstract."""
    if end > LONGEST:
        return
    place = 0
    for stop in [*(gap.start() for gap in _BLANK_LINE.finditer(text, 0, end)), end]:
        block = text[place:stop]
        if block.strip():
            start = place + len(block) - len(block.lstrip())
            yield start, start + len(block.strip())
        place = stop


def _tree(
    found: Sequence[tuple[tuple[int, ...], int, int]],
    titles: Sequence[str],
    document: Document,
    coverage: float,
) -> Tree:
    builder = TreeBuilder(document.id)
    root = builder.add(Kind.ROOT, 0, len(document), None)
    open_sections: list[tuple[int, int]] = []  # (index in titles, node)
    for path, start, end in found:
        while open_sections and [i for i, _ in open_sections] != list(path[: len(open_sections)]):
            open_sections.pop()
        for index in path[len(open_sections) :]:
            above = open_sections[-1][1] if open_sections else root
            level = len(open_sections) + 1
            title = titles[index]
            node = builder.add(Kind.SECTION, start, end, above, level=level, title=title)
            open_sections.append((index, node))
        for _, node in open_sections:
            builder.close(node, end)
        builder.add(Kind.PARAGRAPH, start, end, open_sections[-1][1])
    return builder.build(Structure(coverage, Basis.MODEL, "sections a model made out"))


def _visible(text: str) -> int:
    """How many characters are not blank."""
    return len("".join(text.split()))
