"""The skeleton of a document: its headings, and of each paragraph how it begins and ends.

This is what LongRefiner's structuring model is trained to write (about a tenth of the text it
reads) and what `skeleton_recovery.recover` brings back to the text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

from colligate.documents.document import Document
from colligate.documents.omissions import LONGEST, PieceFinder, escape
from colligate.documents.span import Span
from colligate.documents.tree import Kind, Node, Tree
from colligate.errors import UsageError
from colligate.token_estimate import CJK, token_spans

_LONGEST_PIECE = LONGEST - 2000  # so that it is found whatever is cut off
_LONGEST_TITLE = 300
_BLOCK = re.compile(r"\S.*(?:\n(?!\s*\n).*)*")
_COUNTED = re.compile(rf"[{CJK}]|(?:(?![{CJK}])\S)+")  # words, or characters that stand for them
_LETTERS = re.compile(rf"(?:(?![{CJK}])\w){{0,30}}")
_MARKUP = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
_TITLE_MARKUP = re.compile(r"[<>]|&(?=(?:amp|lt|gt);)")

_Path = tuple[tuple[int, str], ...]  # (node, what its tags say), the outermost first
_ABSTRACT: _Path = ((0, "abstract"),)


def skeleton(
    document: Document,
    tree: Tree | None = None,
    *,
    tokens: int = 8,
    least_words: int = 0,
    token_spans: Callable[[str], Sequence[tuple[int, int]]] = token_spans,
    within: Span | None = None,
) -> str:
    """A document as `<abstract>`, `<section: T>` and `<sub-section: T>`, `<br>` between blocks.

    Of a block of more than twice `tokens` tokens only that many of its first and last are
    written, with "..." between; more of them, or all, where it could not be told from another
    text. `token_spans` gives the offsets of a text's tokens. Blocks are joined with those after
    them, up to the next heading, until they have `least_words` words: 20 in the paper's labels;
    with 100, as long as LongRefiner's leaves, a skeleton is about a tenth of the text.

    What stands before the first heading is the abstract. The document's title is left out: a
    lone section at the top that has others in it, or bears its name. Text under deeper headings
    than two stands in the sub-section above, and sections without text are left out. What looks
    like a tag gets a blank put in; `recover` knows of it.

    Of the text only what lies in `within` is written, if given, in the sections of the whole: so
    the skeletons of a document's stretches are together one of the document.

    Raises:
        UsageError: if `tokens` is less than 1.
        SpanError: if `within` is not of this document.
    """
    if tokens < 1:
        raise UsageError(
            f"{tokens} tokens of each end of a paragraph", "there must be at least one"
        )
    within = within or document.span(0, len(document))
    document.slice(within)  # it must lie in the text
    finder = PieceFinder(document)
    written: list[str] = []
    around: _Path = ()
    reached = within.start
    for path, blocks in groupby(
        _blocks(document, tree or document.tree, least_words, within), lambda block: block[0]
    ):
        shared = 0
        while shared < min(len(path), len(around)) and path[shared] == around[shared]:
            shared += 1
        written += [f"</{says}>" for _, says in reversed(around[shared:])]
        written += [f"<{says}>" for _, says in path[shared:]]
        around = path
        pieces = []
        for _, start, end in blocks:
            line = " ".join(document.text[start:end].split())
            pieces.append(
                _shortened(line, token_spans(line), tokens, finder, (reached, start, end))
            )
            reached = end
        written.append("<br>".join(pieces))
    written += [f"</{says}>" for _, says in reversed(around)]
    return "".join(written)


def _shortened(
    line: str,
    spans: Sequence[tuple[int, int]],
    tokens: int,
    finder: PieceFinder,
    place: tuple[int, int, int],
) -> str:
    """A block on one line without its middle, as long as it takes to find it again."""
    reached, start, end = place
    spans = [span for span in spans if span[1] > span[0]]  # not marks that a tokenizer adds
    while 2 * tokens < len(spans):
        head_end = _letters_after(line, spans[tokens - 1][1])
        tail_start = _letters_before(line, spans[-tokens][0])
        if head_end >= tail_start:
            break
        piece = escape(line[:head_end].rstrip()) + "..." + escape(line[tail_start:].lstrip())
        if finder.exactly(piece, reached, len(finder.text)) == (start, end):
            return piece
        tokens *= 2
    return escape(line)


def _blocks(
    document: Document, tree: Tree, least_words: int, within: Span
) -> Iterator[tuple[_Path, int, int]]:
    """The text of all blocks, without blanks around it, each with the sections it stands in."""
    title = _title(document, tree)
    paths: list[_Path] = []
    stretches: list[tuple[_Path, int, int]] = []  # as far as they may be joined
    for node in tree:
        path = () if node.parent is None else paths[node.parent]
        if node.kind in (Kind.ROOT, Kind.SECTION):
            yield from _joined(document.text, stretches, least_words)
            stretches = []
            if _announced(node) and node.id != title and len(path) < 2:
                path = (*path, (node.id, f"{'sub-' * len(path)}section: {_harmless(node.title)}"))
        else:
            start = max(node.span.start, within.start)
            end = tree.nodes[node.children[0]].span.start if node.children else node.span.end
            end = min(end, within.end)
            stretches += [(path or _ABSTRACT, *part) for part in _cut(document.text, start, end)]
        paths.append(path)
    if all(node.kind in (Kind.ROOT, Kind.SECTION) for node in tree):  # no blocks are known
        text = PieceFinder(document).text
        for block in _BLOCK.finditer(text, within.start, within.end):
            stretches += [(_ABSTRACT, *part) for part in _cut(document.text, *block.span())]
    yield from _joined(document.text, stretches, least_words)


def _joined(
    text: str, stretches: Sequence[tuple[_Path, int, int]], least_words: int
) -> list[tuple[_Path, int, int]]:
    """The same, a short one joined with what follows it, at the end with what stands before."""
    joined: list[tuple[_Path, int, int]] = []

    def is_short(start: int, end: int) -> bool:
        return len(_COUNTED.findall(text[start:end])) < least_words

    for path, start, end in stretches:
        if joined and end - joined[-1][1] <= _LONGEST_PIECE and is_short(*joined[-1][1:]):
            start = joined.pop()[1]
        joined.append((path, start, end))
    if len(joined) > 1 and is_short(*joined[-1][1:]):
        path, _, end = joined[-1]
        if end - joined[-2][1] <= _LONGEST_PIECE:
            joined[-2:] = [(path, joined[-2][1], end)]
    return joined


def _title(document: Document, tree: Tree) -> int | None:
    """The section that is the document's title."""
    tops = [node for node in tree.children(tree.root) if _announced(node)]
    if len(tops) != 1:
        return None
    names = (
        " ".join(tops[0].title.split()).casefold() == " ".join(document.title.split()).casefold()
    )
    return tops[0].id if names or any(map(_announced, tree.children(tops[0]))) else None


def _announced(node: Node) -> bool:
    return node.kind is Kind.SECTION and not node.synthetic


def _harmless(title: str) -> str:
    """A title as it stands in a tag."""
    title = " ".join(title.split())[:_LONGEST_TITLE]
    if title[:1] + title[-1:] in ('""', "''", "“”"):
        title = f'"{title}"'  # the reader takes one pair of quotes away
    return _TITLE_MARKUP.sub(lambda mark: _MARKUP[mark.group()], title)


def _cut(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """A stretch without the blanks around it, in parts where it is very long."""
    while start < end:
        stop = end
        if end - start > _LONGEST_PIECE:
            stop = start + _LONGEST_PIECE
            cuts = (text.rfind(mark, start + 1, stop) for mark in ("\n", " "))
            stop = next((cut for cut in cuts if cut > 0), stop)
        part = text[start:stop]
        if bare := part.strip():
            first = start + len(part) - len(part.lstrip())
            yield first, first + len(bare)
        start = stop


def _letters_after(line: str, place: int) -> int:
    """The end of the word that is cut at a place."""
    inside = _LETTERS.match(line[place - 1 : place]) if place else None
    if not (inside and inside.group()):
        return place
    rest = _LETTERS.match(line, place)
    return rest.end() if rest else place


def _letters_before(line: str, place: int) -> int:
    """The start of the word that is cut at a place."""
    return len(line) - _letters_after(line[::-1], len(line) - place)
