"""The skeleton of a document with headings: what a structuring model is trained to write.

`colligate.strategies.longrefiner.skeleton` reads it back.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import groupby

from colligate.documents import Document, Span
from colligate.documents.sentences import word_spans
from colligate.documents.tree import Kind, Node
from colligate.strategies.longrefiner.skeleton import (
    ABSTRACT,
    LONGEST,
    MARKUP,
    PieceFinder,
    Stretch,
    defuse_tags,
    same_title,
    strip_stretch,
)

_LONGEST_PIECE = LONGEST - 2000  # so that it is found again even with marks cut off
_LONGEST_TITLE = 300
_BLOCK = re.compile(r"\S.*(?:\n(?!\s*\n).*)*")
_TITLE_MARKUP = re.compile(r"[<>]|&(?=(?:amp|lt|gt);)")

_Path = tuple[tuple[int, str], ...]  # (node, the text of its tags), the outermost first
_LEAD: _Path = ((0, ABSTRACT),)
_Block = tuple[_Path, int, int]


def write_skeleton(
    document: Document, *, edge_words: int = 8, least_words: int = 0, within: Span | None = None
) -> str:
    """Write a document as `<abstract>`, `<section: T>`, `<sub-section: T>`, `<br>` between blocks.

    Of a block of more than twice `edge_words` words only that many of its first and last are
    written, with "..." between; more of them, or all, if it could not be told from another text.
    Blocks are joined with those after them, up to the next heading, until they have `least_words`
    words: 20 in the paper's labels; with 100, as long as LongRefiner's leaves, a skeleton is about
    a tenth of the text.

    The text before the first heading is the abstract. The document's title is left out: a lone
    section at the top that has others in it, or the document's name. Text under deeper headings
    than two is in the sub-section above, and sections without text are left out. Text that looks
    like a tag gets a blank put in; `recover` removes it.

    With `within` only that part of the text is written, in the sections of the whole: the skeletons
    of a document's parts are together one of the document.
    """
    within = within or document.span(0, len(document))
    document.slice(within)  # fails if it is outside the text
    finder = PieceFinder(document)
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
            pieces.append(_leave_middle_out(line, edge_words, finder, place))
            reached = end
        written.append("<br>".join(pieces))
    written += [f"</{tag}>" for _, tag in reversed(around)]
    return "".join(written)


def _leave_middle_out(
    line: str, edge_words: int, finder: PieceFinder, place: tuple[int, int, int]
) -> str:
    """Return a block on one line without its middle, as long as it takes to find it again."""
    reached, start, end = place
    spans = word_spans(line)
    while 2 * edge_words < len(spans):
        head, tail = line[: spans[edge_words - 1][1]], line[spans[-edge_words][0] :]
        piece = f"{defuse_tags(head)}...{defuse_tags(tail)}"
        if finder.find_exact(piece, reached, len(finder.text)) == (start, end):
            return piece
        edge_words *= 2
    return defuse_tags(line)


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
        text = PieceFinder(document).text
        for block in _BLOCK.finditer(text, within.start, within.end):
            blocks += [(_LEAD, *part) for part in _split_long(document.text, *block.span())]
    yield from _join_short(document.text, blocks, least_words)


def _join_short(text: str, blocks: Sequence[_Block], least_words: int) -> list[_Block]:
    """Join each short block with the next one, the last with the one before."""
    joined: list[_Block] = []

    def is_short(start: int, end: int) -> bool:
        return len(word_spans(text, start, end)) < least_words

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
    marks = {mark: written for written, mark in MARKUP.items()}
    return _TITLE_MARKUP.sub(lambda mark: marks[mark.group()], title)


def _split_long(text: str, start: int, end: int) -> Iterator[Stretch]:
    """Yield a stretch without the blanks around it, in parts if it is very long."""
    while start < end:
        stop = end
        if end - start > _LONGEST_PIECE:
            stop = start + _LONGEST_PIECE
            cuts = (text.rfind(mark, start + 1, stop) for mark in ("\n", " "))
            stop = next((cut for cut in cuts if cut > 0), stop)
        yield from strip_stretch(text, start, stop)
        start = stop
