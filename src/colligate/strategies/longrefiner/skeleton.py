"""The skeleton of a document: how a model writes a structure, and how it is read (section 3.2).

A skeleton has titles, in the tags `<abstract>`, `<section: T>` and `<sub-section: T>`, and of each
paragraph only the first and the last words. It is brought back to spans of the document; what
cannot be found there is not used.

In this order: reading a skeleton, finding its pieces, and writing the skeleton of a document with
headings, which is what a model is trained on.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby

from colligate.documents import Document, Span, Tree
from colligate.documents.locating import NormalisedText, locate, normalise
from colligate.documents.tokens import CJK, token_spans
from colligate.documents.tree import Basis, Kind, Node, Structure, TreeBuilder
from colligate.errors import UsageError

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
_MARKUP = {"&amp;": "&", "&lt;": "<", "&gt;": ">"}
_MARKUP_MARK = re.compile("|".join(_MARKUP))
_BREAK = re.compile(r"</?br\s*/?>", re.I)
_BLANK_LINE = re.compile(r"\n\s*\n")
_QUOTED = re.compile(r"""(?:"(.*)"|'(.*)'|“(.*)”)""", re.S)
_MARKS = re.compile(r"[^\w\s]*")
_LINE_MARKS = re.compile(r"[^\w\n]*\Z")

_LONGEST = 12_000  # characters that a piece may represent: about 2,000 tokens of English

_Stretch = tuple[int, int]


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
    finder = _PieceFinder(document)
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
    return _MARKUP_MARK.sub(lambda mark: _MARKUP[mark.group()], title)


def _locate_pieces(pieces: Sequence[str], finder: _PieceFinder) -> list[_PiecePlace | None]:
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
) -> list[_Stretch]:
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
            if (joined and place.edge - before <= _LONGEST) or not start:
                start = max(before, place.edge - _LONGEST)
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
            if block >= 0 and (end == len(text) or end - start > _LONGEST):
                end = block
            end = max(place.edge, min(end, start + _LONGEST))
            end = start + len(text[start:end].rstrip())
        stretches.append((start, end))
    return stretches


def _widen(stretches: Sequence[_Stretch], text: str) -> list[_Stretch]:
    """Return the stretches with the marks around them, which a model often leaves out."""
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


def _split_lead(text: str, end: int) -> Iterator[_Stretch]:
    """Yield the paragraphs before `end`, unless that is too much to be an abstract."""
    if end > _LONGEST:
        return
    place = 0
    for stop in [*(gap.start() for gap in _BLANK_LINE.finditer(text, 0, end)), end]:
        yield from _strip(text, place, stop)
        place = stop


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


class _PieceFinder:
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

    def find_exact(self, piece: str, low: int, high: int) -> _Stretch | None:
        """Return the first stretch in `[low, high)` that a piece stands for word by word.

        It is the whole piece, or begins with what is before an omission mark and ends, not too far
        on, with what follows it: the text itself may have such marks.
        """
        best: _Stretch | None = None
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
        high = min(high, low + (_REACH if _is_distinctive(head + tail) else _LONGEST))
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
        last_end = self._find_end(tail, last, reached, min(high, reached + _LONGEST))
        if first_end is None and last_end is None:
            return None
        start, end = first_end and first_end[0], last_end and last_end[1]
        return _PiecePlace(start, end, reached if end is None else end)

    def _find_end(self, part: str, few: str, low: int, high: int) -> _Stretch | None:
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

    def _find_similar(self, part: str, low: int, high: int) -> _Stretch | None:
        """Find text that is similar to a part of a piece, near `low`."""
        high = min(high, low + _LONGEST)
        if low >= high or not self._fuzzy_left or not _is_distinctive(part):
            return None
        self._fuzzy_left -= 1
        similar = locate(part, self._document, within=self._document.span(low, high))
        if similar is None or self.text[similar.span.start].isspace():  # a heading
            return None
        return similar.span.start, similar.span.end

    def _find_pair(
        self, view: NormalisedText, head: str, tail: str | None, low: int, high: int
    ) -> _Stretch | None:
        """Find the first stretch of a view from `head` to the first `tail` after it."""
        first, stop = bisect_left(view.offsets, low), bisect_left(view.offsets, high)
        while (start := view.text.find(head, first, stop)) >= 0:
            end = start + len(head)
            if tail is None:
                return view.original(start, end)
            last = view.text.find(tail, end, stop)
            if last < 0:
                return None
            if last - start <= _LONGEST:
                return view.original(start, last + len(tail))
            first = max(start + 1, last - _LONGEST)  # nothing before is near enough to this end
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


def _defuse_tags(text: str) -> str:
    """Put a blank into everything that could be taken for a tag; `_restore_tags` removes it.

    >>> _defuse_tags("one<br>two")
    'one< br>two'
    """
    return _BARE.sub("< ", text)


def _restore_tags(text: str) -> str:
    return _DEFUSED.sub("<", text)


# Writing a skeleton: what a structuring model is trained to write

_LONGEST_PIECE = _LONGEST - 2000  # so that it is found again even with marks cut off
_LONGEST_TITLE = 300
_BLOCK = re.compile(r"\S.*(?:\n(?!\s*\n).*)*")
_COUNTED = re.compile(rf"[{CJK}]|(?:(?![{CJK}])\S)+")  # words, or characters that stand for them
_LETTERS = re.compile(rf"(?:(?![{CJK}])\w){{0,30}}")
_TITLE_MARKUP = re.compile(r"[<>]|&(?=(?:amp|lt|gt);)")

_Path = tuple[tuple[int, str], ...]  # (node, the text of its tags), the outermost first
_LEAD: _Path = ((0, ABSTRACT),)
_Block = tuple[_Path, int, int]


def write_skeleton(
    document: Document,
    *,
    tokens: int = 8,
    least_words: int = 0,
    token_spans: Callable[[str], Sequence[tuple[int, int]]] = token_spans,
    within: Span | None = None,
) -> str:
    """Write a document as `<abstract>`, `<section: T>`, `<sub-section: T>`, `<br>` between blocks.

    Of a block of more than twice `tokens` tokens only that many of its first and last are written,
    with "..." between; more of them, or all, if it could not be told from another text.
    `token_spans` gives the offsets of a text's tokens. Blocks are joined with those after them, up
    to the next heading, until they have `least_words` words: 20 in the paper's labels; with 100, as
    long as LongRefiner's leaves, a skeleton is about a tenth of the text.

    The text before the first heading is the abstract. The document's title is left out: a lone
    section at the top that has others in it, or the document's name. Text under deeper headings
    than two is in the sub-section above, and sections without text are left out. Text that looks
    like a tag gets a blank put in; `recover` removes it.

    With `within` only that part of the text is written, in the sections of the whole: the skeletons
    of a document's parts are together one of the document.
    """
    if tokens < 1:
        raise UsageError(
            f"tokens must be at least one, got {tokens}", "each end of a paragraph is written"
        )
    within = within or document.span(0, len(document))
    document.slice(within)  # fails if it is outside the text
    finder = _PieceFinder(document)
    written: list[str] = []
    around: _Path = ()
    reached = within.start
    blocks = _list_blocks(document, least_words, within)
    for path, group in groupby(blocks, lambda block: block[0]):
        shared = 0
        while shared < min(len(path), len(around)) and path[shared] == around[shared]:
            shared += 1
        written += [f"</{tag}>" for _, tag in reversed(around[shared:])]
        written += [f"<{tag}>" for _, tag in path[shared:]]
        around = path
        pieces = []
        for _, start, end in group:
            line = " ".join(document.text[start:end].split())
            place = (reached, start, end)
            pieces.append(_leave_middle_out(line, token_spans(line), tokens, finder, place))
            reached = end
        written.append("<br>".join(pieces))
    written += [f"</{tag}>" for _, tag in reversed(around)]
    return "".join(written)


def _leave_middle_out(
    line: str,
    spans: Sequence[tuple[int, int]],
    tokens: int,
    finder: _PieceFinder,
    place: tuple[int, int, int],
) -> str:
    """Return a block on one line without its middle, as long as it takes to find it again."""
    reached, start, end = place
    spans = [span for span in spans if span[1] > span[0]]  # not marks that a tokenizer adds
    while 2 * tokens < len(spans):
        head_end = _find_word_end(line, spans[tokens - 1][1])
        tail_start = len(line) - _find_word_end(line[::-1], len(line) - spans[-tokens][0])
        if head_end >= tail_start:
            break
        head, tail = line[:head_end].rstrip(), line[tail_start:].lstrip()
        piece = f"{_defuse_tags(head)}...{_defuse_tags(tail)}"
        if finder.find_exact(piece, reached, len(finder.text)) == (start, end):
            return piece
        tokens *= 2
    return _defuse_tags(line)


def _list_blocks(document: Document, least_words: int, within: Span) -> Iterator[_Block]:
    """Yield all blocks, without blanks around them, each with the path of its sections."""
    tree = document.tree
    title = _find_title(document)
    paths: list[_Path] = []
    blocks: list[_Block] = []  # as far as they may be joined
    for node in tree:
        path = () if node.parent is None else paths[node.parent]
        if node.kind in (Kind.ROOT, Kind.SECTION):
            yield from _join_short(document.text, blocks, least_words)
            blocks = []
            if _has_heading(node) and node.id != title and len(path) < 2:
                tag = f"{'sub-' * len(path)}section: {_escape_title(node.title)}"
                path = (*path, (node.id, tag))
        else:
            start = max(node.span.start, within.start)
            end = tree.nodes[node.children[0]].span.start if node.children else node.span.end
            end = min(end, within.end)
            blocks += [(path or _LEAD, *part) for part in _split_long(document.text, start, end)]
        paths.append(path)
    if all(node.kind in (Kind.ROOT, Kind.SECTION) for node in tree):  # no blocks are known
        text = _PieceFinder(document).text
        for block in _BLOCK.finditer(text, within.start, within.end):
            blocks += [(_LEAD, *part) for part in _split_long(document.text, *block.span())]
    yield from _join_short(document.text, blocks, least_words)


def _join_short(text: str, blocks: Sequence[_Block], least_words: int) -> list[_Block]:
    """Join each short block with the next one, the last with the one before."""
    joined: list[_Block] = []

    def is_short(start: int, end: int) -> bool:
        return len(_COUNTED.findall(text[start:end])) < least_words

    for path, start, end in blocks:
        if joined and end - joined[-1][1] <= _LONGEST_PIECE and is_short(*joined[-1][1:]):
            start = joined.pop()[1]
        joined.append((path, start, end))
    if len(joined) > 1 and is_short(*joined[-1][1:]):
        path, _, end = joined[-1]
        if end - joined[-2][1] <= _LONGEST_PIECE:
            joined[-2:] = [(path, joined[-2][1], end)]
    return joined


def _find_title(document: Document) -> int | None:
    """Return the section that is the document's title."""
    tree = document.tree
    tops = [node for node in tree.children(tree.root) if _has_heading(node)]
    if len(tops) != 1:
        return None
    same = same_title(tops[0].title, document.title)
    return tops[0].id if same or any(map(_has_heading, tree.children(tops[0]))) else None


def _has_heading(node: Node) -> bool:
    return node.kind is Kind.SECTION and not node.synthetic


def _escape_title(title: str) -> str:
    """Return a title as it is written in a tag."""
    title = " ".join(title.split())[:_LONGEST_TITLE]
    if title[:1] + title[-1:] in ('""', "''", "“”"):
        title = f'"{title}"'  # the reader takes one pair of quotes away
    marks = {mark: written for written, mark in _MARKUP.items()}
    return _TITLE_MARKUP.sub(lambda mark: marks[mark.group()], title)


def _split_long(text: str, start: int, end: int) -> Iterator[_Stretch]:
    """Yield a stretch without the blanks around it, in parts if it is very long."""
    while start < end:
        stop = end
        if end - start > _LONGEST_PIECE:
            stop = start + _LONGEST_PIECE
            cuts = (text.rfind(mark, start + 1, stop) for mark in ("\n", " "))
            stop = next((cut for cut in cuts if cut > 0), stop)
        yield from _strip(text, start, stop)
        start = stop


def _strip(text: str, start: int, end: int) -> Iterator[_Stretch]:
    """Yield a stretch without the blanks around it, unless it is blank."""
    part = text[start:end]
    if bare := part.strip():
        first = start + len(part) - len(part.lstrip())
        yield first, first + len(bare)


def _find_word_end(line: str, place: int) -> int:
    """Return the end of the word that is cut at a place."""
    inside = _LETTERS.match(line[place - 1 : place]) if place else None
    if not (inside and inside.group()):
        return place
    rest = _LETTERS.match(line, place)
    return rest.end() if rest else place
