"""The skeleton of a document: how a model writes a structure, and how it is read (section 3.2).

A skeleton has titles, in the tags `<abstract>`, `<section: T>` and `<sub-section: T>`, and of each
paragraph only the first and the last words. It is brought back to spans of the document; what
cannot be found there is not used.

In this order: reading a skeleton, and finding its pieces.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from colligate.documents import Document, Tree
from colligate.documents.locating import NormalisedText, locate, normalise
from colligate.documents.tree import Basis, Kind, Structure, TreeBuilder

ABSTRACT = "abstract"
"""The title of the text before the first section."""


def same_title(one: str, other: str) -> bool:
    """Return whether two titles differ in case and blanks at most."""
    return one.casefold().split() == other.casefold().split()


_TAG_NAMES = r"(?:abstract|section|sub-?section|br|skip)(?![\w-])"
_TAG = re.compile(
    rf"<(?P<close>/?)(?P<name>(?!br|skip){_TAG_NAMES})(?:\s{{0,9}}:)?"
    r"(?:(?P<title>[^<>]{0,2000})>|(?P<cut>[^<>\n]{0,2000})$)",  # the second was never closed
    re.I | re.M,
)
MARKUP = {"&amp;": "&", "&lt;": "<", "&gt;": ">"}
_MARKUP_MARK = re.compile("|".join(MARKUP))
_BREAK = re.compile(r"</?br\s*/?>", re.I)
_BLANK_LINE = re.compile(r"\n\s*\n")
_QUOTED = re.compile(r"""(?:"(.*)"|'(.*)'|“(.*)”)""", re.S)
_MARKS = re.compile(r"[^\w\s]*")
_LINE_MARKS = re.compile(r"[^\w\n]*\Z")

LONGEST = 12_000  # characters that a piece may represent: about 2,000 tokens of English

Stretch = tuple[int, int]


@dataclass(frozen=True)
class Recovered:
    """The tree that a skeleton describes, over the document's own text.

    `tree` has a section (without a heading) for each of the skeleton's that has any text, in two
    levels, and a paragraph for each piece found. `coverage` is the share of the document's
    characters, blanks and headings not counted, that lie in them; `lost` are the pieces not found.
    """

    tree: Tree
    coverage: float
    lost: tuple[str, ...]


def recover(skeleton: str, document: Document) -> Recovered:
    """Find the text that a skeleton stands for.

    Sections are read from the tags `<abstract>`, `<section: T>` and `<sub-section: T>` (without
    quotes around titles); one that is not closed ends where the next of its level begins, and text
    outside of all is ignored. Pieces are separated by `<br>`, or are on lines of their own if there
    is none. They are found in their order; one of which only one end is found reaches to its
    neighbour. If no abstract is found, it is the text before the first piece found. No skeleton is
    an error; one without tags recovers nothing.
    """
    outline = _parse_skeleton(skeleton)
    finder = PieceFinder(document)
    text = finder.text
    wanted = [piece for _, piece in outline.pieces]
    places = _locate_pieces(wanted, finder)
    kept = [i for i, place in enumerate(places) if place is not None]
    stretches = _widen(_bound(places, kept, document, text), text)
    found = [(outline.pieces[i][0], *stretch) for i, stretch in zip(kept, stretches, strict=True)]
    if found and not any(outline.titles[path[0]].casefold() == ABSTRACT for path, _, _ in found):
        lead = [((len(outline.titles),), *block) for block in _split_lead(text, found[0][1])]
        outline.titles.append(ABSTRACT)
        found = lead + found
    covered = sum(_count_visible(text[start:end]) for _, start, end in found)
    coverage = covered / max(1, _count_visible(text))
    tree = _build_tree(found, outline.titles, document, coverage)
    lost = tuple(piece for piece, place in zip(wanted, places, strict=True) if place is None)
    return Recovered(tree, coverage, lost)


@dataclass(slots=True)
class _Outline:
    """The sections of a skeleton, and its pieces, each with the path of its sections."""

    titles: list[str] = field(default_factory=list)
    pieces: list[tuple[tuple[int, ...], str]] = field(default_factory=list)


def _parse_skeleton(skeleton: str) -> _Outline:
    outline = _Outline()
    path: tuple[int, ...] = ()
    place = 0
    for tag in _TAG.finditer(skeleton):
        outline.pieces += _split_pieces(skeleton[place : tag.start()], path)
        place = tag.end()
        name = tag["name"].lower()
        deep = name.startswith("sub")
        if tag["close"]:
            path = path[:1] if deep and len(path) > 1 else path if deep else ()
            continue
        path = (*(path[:1] if deep else ()), len(outline.titles))
        written = tag["title"] or tag["cut"] or ""
        outline.titles.append(ABSTRACT if name == ABSTRACT else _read_title(written))
    outline.pieces += _split_pieces(skeleton[place:], path)
    return outline


def _split_pieces(content: str, path: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], str]]:
    if path:
        parts = _BREAK.split(content) if _BREAK.search(content) else content.split("\n")
        yield from ((path, part.strip()) for part in parts if part.strip())


def _read_title(written: str) -> str:
    title = " ".join(written.split())
    if quoted := _QUOTED.fullmatch(title):
        title = next(part for part in quoted.groups() if part is not None).strip()
    return _MARKUP_MARK.sub(lambda mark: MARKUP[mark.group()], title)


def _locate_pieces(pieces: Sequence[str], finder: PieceFinder) -> list[_PiecePlace | None]:
    """Find the place of each piece.

    Pieces whose words are in the document only once hold the others in place, so that one that was
    made up or moved does not take the following ones with it.
    """
    sure = _find_longest_ascent([finder.find_unique(piece) for piece in pieces])
    limits = [len(finder.text)] * len(pieces)
    for i in range(len(pieces) - 2, -1, -1):
        limits[i] = sure.get(i + 1, limits[i + 1])
    places: list[_PiecePlace | None] = []
    reached = 0
    for i, piece in enumerate(pieces):
        low = max(reached, sure.get(i, 0))
        place = finder.find(piece, low, limits[i])
        places.append(place)
        reached = reached if place is None else place.edge
    return places


def _find_longest_ascent(offsets: Sequence[int | None]) -> dict[int, int]:
    """Return the most offsets that ascend strictly, by index."""
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


def _bound(
    places: Sequence[_PiecePlace | None], kept: Sequence[int], document: Document, text: str
) -> list[Stretch]:
    """Return the stretches of the pieces found; a missing end is put at its neighbour's."""
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
    stretches: list[Stretch] = []
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


def _widen(stretches: Sequence[Stretch], text: str) -> list[Stretch]:
    """Return the stretches with the marks around them, which a model often leaves out."""
    widened: list[Stretch] = []
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


def _split_lead(text: str, end: int) -> Iterator[Stretch]:
    """Yield the paragraphs before `end`, unless that is too much to be an abstract."""
    if end > LONGEST:
        return
    place = 0
    for stop in [*(gap.start() for gap in _BLANK_LINE.finditer(text, 0, end)), end]:
        yield from strip_stretch(text, place, stop)
        place = stop


def strip_stretch(text: str, start: int, end: int) -> Iterator[Stretch]:
    """Yield a stretch without the blanks around it, unless it is blank."""
    part = text[start:end]
    if bare := part.strip():
        first = start + len(part) - len(part.lstrip())
        yield first, first + len(bare)


def _build_tree(
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


def _count_visible(text: str) -> int:
    return len("".join(text.split()))


# Finding a piece: "The treaty was ... in Ghent."
#
# A piece gives the beginning and the end of a paragraph. The text between is taken from the
# document, so that a paragraph has nothing that a model left out or made up.

_OMISSION = re.compile(r"(?:<skip\s*/?>|<\.{3,}>|\.{3,}|…)(?:\s*(?:<skip\s*/?>|\.{3,}|…))*", re.I)
_SKIP = re.compile(r"<skip\s*/?>", re.I)  # never the text's own: the writer defuses tags
_TAG_LIKE = rf"(?=\s*(?:(?:/\s*)?{_TAG_NAMES}|\.\.\.))"
_BARE = re.compile("<" + _TAG_LIKE, re.I)
_DEFUSED = re.compile(r"<\s" + _TAG_LIKE, re.I)
_NOT_BLANK = re.compile(r"\S+")

_REACH = 40_000  # characters from the last place in which a piece that is not unique is searched
_DISTINCTIVE = 12  # bytes: shorter words may be anywhere (a Chinese character is three)
_MOST_MARKS = 8  # of a piece, beyond which only the first and the last are omissions
_MOST_FUZZY = 200  # searches for similar text in one document
_WORDS = 4  # of each end that must be right if the whole of it is not


@dataclass(frozen=True, slots=True)
class _PiecePlace:
    """Where a piece is, in characters of the document.

    `start` is None if only its end was found, `end` if only its beginning; `edge` is how far what
    was found reaches.
    """

    start: int | None
    end: int | None
    edge: int


class PieceFinder:
    """A document in which pieces are searched, outside its headings."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._fuzzy_left = _MOST_FUZZY

    @cached_property
    def text(self) -> str:
        """The document's text with blanks for its headings, so that offsets stay."""
        text, kept, place = self._document.text, [], 0
        for node in self._document.tree.sections:
            if node.heading is not None:
                kept += [text[place : node.heading.start], "\n" * len(node.heading)]
                place = node.heading.end
        return "".join([*kept, text[place:]])

    def find_exact(self, piece: str, low: int, high: int) -> Stretch | None:
        """Return the first stretch in `[low, high)` that a piece stands for word by word.

        It is the whole piece, or begins with what is before an omission mark and ends, not too far
        on, with what follows it: the text itself may have such marks.
        """
        best: Stretch | None = None
        for head, tail in _interpret(piece):
            found = self._find_pair(self._plain, head, tail, low, high)
            if found is not None and (best is None or found[0] < best[0]):
                best = found
        return best

    def find_unique(self, piece: str) -> int | None:
        """Return where a piece begins if its first words are in the document exactly once."""
        head, _ = _split_ends(piece)
        if not _is_distinctive(head):
            return None
        at = self._plain.text.find(head)
        if at < 0 or self._plain.text.find(head, at + 1) >= 0:
            return None
        return self._plain.offsets[at]

    def find(self, piece: str, low: int, high: int) -> _PiecePlace | None:
        """Return where a piece is in `[low, high)`, as exactly as possible.

        It is searched word by word, then without what quotations change (`locating.normalise`),
        then by its first and last four words; at last each end alone, or the whole if nothing is
        left out, by similarity.
        """
        head, tail = _split_ends(piece)
        high = min(high, low + (_REACH if _is_distinctive(head + tail) else LONGEST))
        few, last = " ".join(head.split()[:_WORDS]), " ".join(tail.split()[-_WORDS:])
        found = self.find_exact(piece, low, high)
        for first, final in (
            (normalise(_read_whole(piece)).text, None),
            (normalise(head).text, normalise(tail).text),
            (normalise(few).text, normalise(last).text),
        ):
            if found is None and first and final != "":
                found = self._find_pair(self._normal, first, final, low, high)
        if found is None and not _OMISSION.search(piece):
            found = self._find_similar(head, low, high)
            if found is None:
                return None
        if found is not None:
            return _PiecePlace(*found, found[1])
        first_end = self._find_end(head, few, low, high)
        reached = low if first_end is None else first_end[1]
        last_end = self._find_end(tail, last, reached, min(high, reached + LONGEST))
        if first_end is None and last_end is None:
            return None
        start, end = first_end and first_end[0], last_end and last_end[1]
        return _PiecePlace(start, end, reached if end is None else end)

    def _find_end(self, part: str, few: str, low: int, high: int) -> Stretch | None:
        """Find one end of a piece alone."""
        for view, sought in (
            (self._plain, part),
            (self._normal, normalise(part).text),
            (self._normal, normalise(few).text),
        ):
            if _is_distinctive(sought) and (
                found := self._find_pair(view, sought, None, low, high)
            ):
                return found
        return self._find_similar(part, low, high)

    def _find_similar(self, part: str, low: int, high: int) -> Stretch | None:
        """Find text that is similar to a part of a piece, near `low`."""
        high = min(high, low + LONGEST)
        if low >= high or not self._fuzzy_left or not _is_distinctive(part):
            return None
        self._fuzzy_left -= 1
        similar = locate(part, self._document, within=self._document.span(low, high))
        if similar is None or self.text[similar.span.start].isspace():  # a heading
            return None
        return similar.span.start, similar.span.end

    def _find_pair(
        self, view: NormalisedText, head: str, tail: str | None, low: int, high: int
    ) -> Stretch | None:
        """Find the first stretch of a view from `head` to the first `tail` after it."""
        first, stop = bisect_left(view.offsets, low), bisect_left(view.offsets, high)
        while (start := view.text.find(head, first, stop)) >= 0:
            end = start + len(head)
            if tail is None:
                return view.original(start, end)
            last = view.text.find(tail, end, stop)
            if last < 0:
                return None
            if last - start <= LONGEST:
                return view.original(start, last + len(tail))
            first = max(start + 1, last - LONGEST)  # nothing before is near enough to this end
        return None

    @cached_property
    def _plain(self) -> NormalisedText:
        """The text with one blank for each run of them."""
        words: list[str] = []
        offsets = array("I")
        for word in _NOT_BLANK.finditer(self.text):
            if words:
                offsets.append(word.start() - 1)
            words.append(word.group())
            offsets.extend(range(*word.span()))
        return NormalisedText(" ".join(words), offsets, {})

    @cached_property
    def _normal(self) -> NormalisedText:
        return normalise(self.text)


def _interpret(piece: str) -> Iterator[tuple[str, str | None]]:
    """Yield what a piece may mean: itself, or a beginning and an end."""
    if whole := _read_whole(piece):
        yield whole, None
    marks = [mark.span() for mark in _OMISSION.finditer(piece)]
    if len(marks) > _MOST_MARKS:
        marks = [(marks[0][0], marks[-1][1])]
    for start, end in marks:
        head, tail = _read_text(piece[:start]), _read_text(piece[end:])
        if head and tail:
            yield head, tail


def _split_ends(piece: str) -> tuple[str, str]:
    """Return the text before the first omission and after the last; all and nothing without any."""
    marks = [mark.span() for mark in _OMISSION.finditer(piece)]
    if not marks:
        return _read_text(piece), ""
    return _read_text(piece[: marks[0][0]]), _read_text(piece[marks[-1][1] :])


def _read_whole(piece: str) -> str:
    """Return a piece as text in which nothing is left out, if it can be that."""
    return "" if _SKIP.search(piece) else _read_text(piece)


def _read_text(piece: str) -> str:
    return " ".join(_restore_tags(piece).split())


def _is_distinctive(part: str) -> bool:
    return len(part.encode("utf-8", "surrogatepass")) >= _DISTINCTIVE


def defuse_tags(text: str) -> str:
    """Put a blank into everything that could be taken for a tag; `_restore_tags` removes it.

    >>> defuse_tags("one<br>two")
    'one< br>two'
    """
    return _BARE.sub("< ", text)


def _restore_tags(text: str) -> str:
    return _DEFUSED.sub("<", text)
