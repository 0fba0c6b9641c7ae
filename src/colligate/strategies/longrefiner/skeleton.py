"""The skeleton of a document: how a model writes a structure, and how it is read (section 3.2).

A skeleton has titles, in the tags `<abstract>`, `<section: T>` and `<sub-section: T>`, and of each
paragraph only the first and the last words. It is brought back to spans of the document; what
cannot be found there is not used.

In this order: reading a skeleton, and finding its pieces.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
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
_QUOTED = re.compile(r"""(?:"(.*)"|'(.*)'|“(.*)”)""", re.S)

_AHEAD = 9  # pieces after one by which it is judged
LONGEST = 12_000  # characters that a piece may represent: about 2,000 tokens of English

Stretch = tuple[int, int]
_Path = tuple[int, ...]
"""A section, or a section and its sub-section, by their places in a list of titles."""


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
    is none. Each is searched after the one before; one that would jump over most of those after it
    was made up or moved, and is lost. If no abstract is found, it is the text before the first
    piece found. No skeleton is an error; one without tags recovers nothing.
    """
    titles, pieces = _parse_skeleton(skeleton)
    finder = PieceFinder(document)
    begins = [finder.find_unique(piece) for _, piece in pieces]
    found: list[tuple[_Path, Stretch]] = []
    lost, reached = [], 0
    for i, (path, piece) in enumerate(pieces):
        stretch = finder.find(piece, reached)
        if stretch and not _jumps(stretch, reached, begins[i + 1 : i + 1 + _AHEAD]):
            found.append((path, stretch))
            reached = stretch[1]
        else:
            lost.append(piece)
    if found and not any(titles[path[0]] == ABSTRACT for path, _ in found):
        for lead in strip_stretch(finder.text, 0, found[0][1][0]):
            if lead[1] - lead[0] <= LONGEST:  # otherwise it is too much to be an abstract
                found.insert(0, ((len(titles),), lead))
                titles.append(ABSTRACT)
    covered = sum(_count_visible(finder.text[start:end]) for _, (start, end) in found)
    coverage = covered / max(1, _count_visible(finder.text))
    return Recovered(_build_tree(found, titles, document, coverage), coverage, tuple(lost))


def _jumps(stretch: Stretch, reached: int, following: Sequence[int | None]) -> bool:
    """Return whether more of the following pieces begin before a stretch than after it."""
    start, end = stretch
    known = [at for at in following if at is not None]
    return sum(reached <= at < start for at in known) > sum(at >= end for at in known)


def _parse_skeleton(skeleton: str) -> tuple[list[str], list[tuple[_Path, str]]]:
    """Return the titles of a skeleton, and its pieces, each with its sections."""
    titles: list[str] = []
    pieces: list[tuple[_Path, str]] = []
    path: _Path = ()
    place = 0
    for tag in _TAG.finditer(skeleton):
        pieces += _split_pieces(skeleton[place : tag.start()], path)
        place = tag.end()
        name = tag["name"].lower()
        deep = name.startswith("sub")
        if tag["close"]:
            path = path[:1] if deep else ()
            continue
        path = (*(path[:1] if deep else ()), len(titles))
        titles.append(ABSTRACT if name == ABSTRACT else _read_title(tag["title"] or tag["cut"]))
    pieces += _split_pieces(skeleton[place:], path)
    return titles, pieces


def _split_pieces(content: str, path: _Path) -> Iterator[tuple[_Path, str]]:
    if path:
        parts = _BREAK.split(content) if _BREAK.search(content) else content.split("\n")
        yield from ((path, part.strip()) for part in parts if part.strip())


def _read_title(written: str | None) -> str:
    title = " ".join((written or "").split())
    if quoted := _QUOTED.fullmatch(title):
        title = next(part for part in quoted.groups() if part is not None).strip()
    return _MARKUP_MARK.sub(lambda mark: MARKUP[mark.group()], title)


def strip_stretch(text: str, start: int, end: int) -> Iterator[Stretch]:
    """Yield a stretch without the blanks around it, unless it is blank."""
    part = text[start:end]
    if bare := part.strip():
        first = start + len(part) - len(part.lstrip())
        yield first, first + len(bare)


def _build_tree(
    found: Sequence[tuple[_Path, Stretch]],
    titles: Sequence[str],
    document: Document,
    coverage: float,
) -> Tree:
    builder = TreeBuilder(document.id)
    root = builder.add(Kind.ROOT, (0, len(document)), None)
    open_sections: list[tuple[int, int]] = []  # (index in titles, node)
    for path, (start, end) in found:
        while open_sections and [i for i, _ in open_sections] != list(path[: len(open_sections)]):
            open_sections.pop()
        for index in path[len(open_sections) :]:
            above = open_sections[-1][1] if open_sections else root
            level = len(open_sections) + 1
            title = titles[index]
            node = builder.add(Kind.SECTION, (start, end), above, level=level, title=title)
            open_sections.append((index, node))
        for _, node in open_sections:
            builder.close(node, end)
        builder.add(Kind.PARAGRAPH, (start, end), open_sections[-1][1])
    return builder.build(Structure(coverage, Basis.MODEL, "sections a model made out"))


def _count_visible(text: str) -> int:
    return len("".join(text.split()))


# Finding a piece: "The treaty was ... in Ghent."
#
# A piece gives the beginning and the end of a paragraph. The text between is taken from the
# document, so that a paragraph has nothing that a model left out or made up.

_OMISSION = re.compile(r"(?:<skip\s*/?>|<\.{3,}>|\.{3,}|…)(?:\s*(?:<skip\s*/?>|\.{3,}|…))*", re.I)
_TAG_LIKE = rf"(?=\s*(?:(?:/\s*)?{_TAG_NAMES}|\.\.\.))"
_BARE = re.compile("<" + _TAG_LIKE, re.I)
_DEFUSED = re.compile(r"<\s" + _TAG_LIKE, re.I)
_NOT_BLANK = re.compile(r"\S+")

_REACH = 40_000  # characters from the last place in which a piece is searched
_DISTINCTIVE = 12  # bytes: shorter words may be anywhere (a Chinese character is three)
_MOST_FUZZY = 200  # searches for similar text in one document
_WORDS = 4  # of each end that must be right if the whole of it is not


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

        It is the whole piece, as the text itself may have omission marks, or begins with what is
        before the first mark and ends, not too far on, with what follows the last.
        """
        head, tail = _split_ends(piece)
        ways = [(_read_text(piece), ""), *([(head, tail)] if head and tail else [])]
        found = (self._find_pair(self._plain, *way, low, high) for way in ways)
        return min(filter(None, found), key=lambda stretch: stretch[0], default=None)

    def find_unique(self, piece: str) -> int | None:
        """Return where a piece begins if its first words are in the document exactly once."""
        head, _ = _split_ends(piece)
        at = self._plain.text.find(head) if _is_distinctive(head) else -1
        if at < 0 or self._plain.text.find(head, at + 1) >= 0:
            return None
        return self._plain.offsets[at]

    def find(self, piece: str, low: int) -> Stretch | None:
        """Return where a piece is after `low`, as exactly as possible.

        It is searched word by word, then without what quotations change (`locating.normalise`),
        then by its first and last four words; at last each end alone, by similarity. If only one
        end is found, the piece reaches to the other end of the paragraph.
        """
        head, tail = _split_ends(piece)
        reach = _REACH if _is_distinctive(head + tail) else LONGEST
        high = min(len(self.text), low + reach)
        if found := self.find_exact(piece, low, high):
            return found
        if not _OMISSION.search(piece):
            return self._find_part(head, "", low, high)
        few, last = " ".join(head.split()[:_WORDS]), " ".join(tail.split()[-_WORDS:])
        for first, final in ((head, tail), (few, last)):
            sought = normalise(first).text, normalise(final).text
            if all(sought) and (found := self._find_pair(self._normal, *sought, low, high)):
                return found
        begin = self._find_part(head, few, low, high)
        end = self._find_part(tail, last, begin[1] if begin else low, high)
        if begin and end:
            return begin[0], end[1]
        if begin:
            blank = self.text.find("\n\n", begin[1], begin[0] + LONGEST)
            stop = blank if blank >= 0 else max(begin[1], begin[0] + LONGEST)
            return next(strip_stretch(self.text, begin[0], stop))
        if end:
            blank = self.text.rfind("\n\n", max(low, end[1] - LONGEST), end[0])
            start = blank if blank >= 0 else max(low, min(end[0], end[1] - LONGEST))
            return next(strip_stretch(self.text, start, end[1]))
        return None

    def _find_part(self, part: str, few: str, low: int, high: int) -> Stretch | None:
        """Find one end of a piece alone, or text near `low` that is similar to it."""
        for sought in (normalise(part).text, normalise(few).text):
            found = self._find_pair(self._normal, sought, "", low, high)
            if found and _is_distinctive(sought):
                return found
        high = min(high, low + LONGEST)
        if low >= high or not self._fuzzy_left or not _is_distinctive(part):
            return None
        self._fuzzy_left -= 1
        similar = locate(part, self._document, within=self._document.span(low, high))
        if similar is None or self.text[similar.span.start].isspace():  # a heading
            return None
        return similar.span.start, similar.span.end

    def _find_pair(
        self, view: NormalisedText, head: str, tail: str, low: int, high: int
    ) -> Stretch | None:
        """Find the first stretch of a view from `head` to the first `tail` after it."""
        first, stop = bisect_left(view.offsets, low), bisect_left(view.offsets, high)
        while head and (start := view.text.find(head, first, stop)) >= 0:
            end = start + len(head)
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


def _split_ends(piece: str) -> tuple[str, str]:
    """Return the text before the first omission and after the last; all and nothing without any."""
    marks = [mark.span() for mark in _OMISSION.finditer(piece)]
    if not marks:
        return _read_text(piece), ""
    return _read_text(piece[: marks[0][0]]), _read_text(piece[marks[-1][1] :])


def _read_text(piece: str) -> str:
    """Return a piece on one line, with the tags that its text has itself."""
    return " ".join(_DEFUSED.sub("<", piece).split())


def _is_distinctive(part: str) -> bool:
    return len(part.encode("utf-8", "surrogatepass")) >= _DISTINCTIVE


def defuse_tags(text: str) -> str:
    """Put a blank into everything that could be taken for a tag; `_read_text` removes it.

    >>> defuse_tags("one<br>two")
    'one< br>two'
    """
    return _BARE.sub("< ", text)
