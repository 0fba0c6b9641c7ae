"""From a chunk to the place in a document it stands for, and to the nodes of the tree there.

A chunk cut from the document itself is a span already: `nodes_over` is all it needs. `align` is
for a chunk whose text comes from elsewhere: another edition, other blanks, an index made by
someone else.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from heapq import heapify, heappop, heappush
from itertools import pairwise
from typing import NamedTuple

from rapidfuzz.distance import Levenshtein

from colligate.documents.document import Document
from colligate.documents.locating import Normalised, normalise
from colligate.documents.markdown import own_span
from colligate.documents.span import Span
from colligate.documents.tree import Kind, Node, Tree
from colligate.errors import SpanError
from colligate.token_estimate import token_spans

# The share of characters that differ: more is no likeness. In English pages that have nothing to
# do with a chunk of 100 words the closest window differs in 0.76 to 0.83.
_MOST_DIFFERENT = 0.6
_FIRST_STEPS = 8  # windows looked at first for each length of the chunk
_MOST_LOOKS = 5_000  # at windows after that: only a text made to repeat itself takes so many
_ANCHOR = 8  # characters in common with which a match may begin or end


def nodes_over(tree: Tree, span: Span) -> tuple[Node, ...]:
    """The nodes a span is mapped to: all from the first content it touches to the last.

    They are in pre-order, the headings in between included. Content is touched where its own
    text is, not that of its children. A span that touches none, such as a bare heading, is
    mapped to the innermost section around it, or to the root.

    Raises:
        SpanError: if the span is of another document, or begins beyond its end.
    """
    if span.document_id != tree.root.span.document_id:
        raise SpanError(
            f"no span of {span.document_id} is mapped here",
            f"this is the tree of {tree.root.span.document_id}",
        )
    touched = [node.id for node in tree if _touches(tree, node, span)]
    if touched:
        return tree.nodes[touched[0] : touched[-1] + 1]
    node = tree.node_at(span.start)
    while node.parent is not None and node.kind is not Kind.SECTION:
        node = tree.nodes[node.parent]
    return (node,)


def align(chunk: str, document: Document) -> Span:
    """The stretch of a document most like a chunk of text.

    Where the chunk stands word for word that is the first such place. Else it is compared with
    all windows of its length, but for blanks, case, dashes, quotation marks and Markdown (see
    `locating.normalise`), and the one with the fewest changed characters (Levenshtein) is
    taken, the first of several. Windows run on over the document's end into its beginning,
    since DPR fills a document's last passage up with its first words: such a match is the part
    before the end. A chunk longer than the document is all of it. Where more than 0.6 of the
    closest window's characters differ, the content node that shares most words is taken;
    without a shared word the span is empty and stands at the beginning.
    """
    return _align(chunk, document, _closest)


def align_exhaustively(chunk: str, document: Document) -> Span:
    """`align` as RDR2 does it: every window is compared. Slow; the measure of `align`."""
    return _align(chunk, document, _closest_of_all)


_Closest = Callable[[str, str, int], tuple[int, int]]
"""Chunk, text and number of windows to the first closest window's distance and start."""


def _align(chunk: str, document: Document, closest: _Closest) -> Span:
    chunk = chunk.strip()
    if (exact := document.text.find(chunk)) >= 0:
        return document.span(exact, exact + len(chunk))
    sought, text = normalise(chunk).text, _normalised(document.text)
    length = len(text.text)
    if len(sought) >= length:
        return document.span(0, len(document.text))
    if not sought:
        return document.span(0, 0)
    ring = text.text + text.text[: len(sought) - 1]
    start = ring.find(sought)
    end = start + len(sought)
    if start < 0:
        distance, window = closest(sought, ring, length)
        if distance > _MOST_DIFFERENT * len(sought):
            return _most_shared_words(chunk, document)
        start, end = _ends(sought, ring, window)
    if start >= length:
        start, end = start - length, end - length
    return document.span(*text.original(max(0, start), min(end, length)))


def _closest(sought: str, ring: str, windows: int) -> tuple[int, int]:
    """The distance and start of the first of the closest windows, none of which is the same.

    From one window to the next the distance changes by two at most, so of all windows between
    two known ones it can be said how close they come, and most need not be looked at.
    """
    size = len(sought)
    starts = {*range(0, windows, max(1, size // _FIRST_STEPS)), windows - 1}
    known = [(_distance(sought, ring, start), start) for start in sorted(starts)]
    best = min(*known, (int(_MOST_DIFFERENT * size) + 1, windows))
    gaps = [_Gap.between(left, right) for left, right in pairwise(known)]
    heapify(gaps)
    for _ in range(_MOST_LOOKS):
        if not gaps or gaps[0][:2] >= best:
            break
        gap = heappop(gaps)
        middle = (gap.left[1] + gap.right[1]) // 2
        looked_at = (_distance(sought, ring, middle), middle)
        best = min(best, looked_at)
        for side in (_Gap.between(gap.left, looked_at), _Gap.between(looked_at, gap.right)):
            if side.first < side.right[1] and side[:2] < best:
                heappush(gaps, side)
    return best


class _Gap(NamedTuple):
    """The windows between two whose distance and start are known, the likeliest gap first."""

    least: int  # no window here has a smaller distance
    first: int
    left: tuple[int, int]
    right: tuple[int, int]

    @classmethod
    def between(cls, left: tuple[int, int], right: tuple[int, int]) -> _Gap:
        least = (left[0] + right[0] + 1) // 2 - (right[1] - left[1])
        return cls(max(1, least), left[1] + 1, left, right)


def _closest_of_all(sought: str, ring: str, windows: int) -> tuple[int, int]:
    return min((_distance(sought, ring, start), start) for start in range(windows))


def _distance(sought: str, ring: str, start: int) -> int:
    return Levenshtein.distance(sought, ring[start : start + len(sought)])


def _ends(sought: str, ring: str, start: int) -> tuple[int, int]:
    """Where a chunk begins and ends, told from the first and last characters that are the same.

    A window has the chunk's length, which is more or less than what the chunk stands for when
    words were taken out or put in.
    """
    window = ring[start : start + len(sought)]
    same = [
        code
        for code in Levenshtein.opcodes(sought, window)
        if code.tag == "equal" and code.src_end - code.src_start >= _ANCHOR
    ]
    if not same:
        return start, start + len(sought)
    begin = start + same[0].dest_start - same[0].src_start
    return begin, start + same[-1].dest_end + len(sought) - same[-1].src_end


def _most_shared_words(chunk: str, document: Document) -> Span:
    """The content node that has most words in common with the chunk, by Dice's coefficient."""
    sought = _words(chunk)
    best, most = document.span(0, 0), 0.0
    for node in document.tree:
        span = own_span(document, node)
        if node.kind in (Kind.ROOT, Kind.SECTION) or span is None:
            continue
        words = _words(document.slice(span))
        share = 2 * len(sought & words) / max(1, len(sought) + len(words))
        if share > most:
            best, most = span, share
    return best


def _words(text: str) -> set[str]:
    tokens = (text[start:end].casefold() for start, end in token_spans(text))
    return {token for token in tokens if token.isalnum()}


@lru_cache(maxsize=4)
def _normalised(text: str) -> Normalised:
    # Several chunks are aligned with one document, one after the other.
    return normalise(text)


def _touches(tree: Tree, node: Node, span: Span) -> bool:
    if node.kind in (Kind.ROOT, Kind.SECTION):
        return False
    end = tree.nodes[node.children[0]].span.start if node.children else node.span.end
    return node.span.start < span.end and span.start < end
