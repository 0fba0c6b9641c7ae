"""RDR2's Document Structure Tree: a document as its router sees it, one line a node."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from heapq import heapify, heappop, heappush
from itertools import pairwise
from typing import NamedTuple

from rapidfuzz.distance import Levenshtein

from colligate.documents import (
    Basis,
    Document,
    Kind,
    Node,
    Passage,
    Span,
    Structure,
    Tree,
    TreeBuilder,
)
from colligate.documents.locating import NormalisedText, normalise
from colligate.documents.markdown import INTRODUCTION, own_span
from colligate.documents.tokens import estimate_tokens, token_spans
from colligate.errors import SpanError

# From a chunk to the place in a document it stands for, and to the nodes of the tree there.
#
# A chunk cut from the document itself is a span already: `nodes_over` is all it needs. `align` is
# for a chunk whose text comes from elsewhere: another edition, other blanks, an index made by
# someone else.

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
    known = [(_edit_distance(sought, ring, start), start) for start in sorted(starts)]
    best = min(*known, (int(_MOST_DIFFERENT * size) + 1, windows))
    gaps = [_Gap.between(left, right) for left, right in pairwise(known)]
    heapify(gaps)
    for _ in range(_MOST_LOOKS):
        if not gaps or gaps[0][:2] >= best:
            break
        gap = heappop(gaps)
        middle = (gap.left[1] + gap.right[1]) // 2
        looked_at = (_edit_distance(sought, ring, middle), middle)
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
    return min((_edit_distance(sought, ring, start), start) for start in range(windows))


def _edit_distance(sought: str, ring: str, start: int) -> int:
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
def _normalised(text: str) -> NormalisedText:
    # Several chunks are aligned with one document, one after the other.
    return normalise(text)


def _touches(tree: Tree, node: Node, span: Span) -> bool:
    if node.kind in (Kind.ROOT, Kind.SECTION):
        return False
    end = tree.nodes[node.children[0]].span.start if node.children else node.span.end
    return node.span.start < span.end and span.start < end


WIKIPEDIA_SKIPPED = frozenset(
    {
        "external links",
        "notes",
        "references",
        "see also",
        "gallery",
        "images",
        "pictures",
        "photographs",
        "sources",
        "citations",
    }
)
"""The sections of a Wikipedia page that RDR2 leaves out."""

_BULLET = re.compile(r"[>\s]*[-+*•](?:\s+|$)")
_PARAGRAPH = re.compile(r"\S[^\n]*(?:\n[^\S\n]*\S[^\n]*)*")


@dataclass(frozen=True, slots=True)
class StructureNode:
    """One node: a heading (`structure`, the root included) or a piece of content.

    `text` is one line: the title for the root, `==History==` for a heading with one sign more
    than its depth on each side, and for content its own text with single blanks, after `* `
    in a list. `span` is the whole section for a heading, its own text alone for content.
    """

    id: int
    structure: bool
    depth: int
    text: str
    span: Span
    parent: int | None
    children: tuple[int, ...]


@dataclass(frozen=True)
class StructureTree:
    """The nodes by id, in pre-order; ids count up by one from the root's.

    `tree` is the tree they were made from, `sources` maps its nodes to theirs.
    """

    document: Document
    nodes: Mapping[int, StructureNode]
    root: int
    tree: Tree
    sources: Mapping[int, int]

    def mapped(self, span: Span) -> tuple[int, ...]:
        """The nodes a span stands in, headings in between included; never empty.

        Raises:
            SpanError: if the span is of another document, or begins beyond its end.
        """
        over = nodes_over(self.tree, span)
        if found := {self.sources[node.id] for node in over if node.id in self.sources}:
            return tuple(sorted(found))
        around = (node.id for node in self.tree.ancestors(over[0]))
        return (next((self.sources[i] for i in around if i in self.sources), self.root),)

    def content_children(self, node: int) -> tuple[int, ...]:
        """The direct children that are content."""
        return tuple(i for i in self.nodes[node].children if not self.nodes[i].structure)

    def content_under(self, node: int) -> tuple[int, ...]:
        """All descendants that are content, in document order."""
        found = []
        for i in range(node + 1, self.root + len(self.nodes)):
            if self.nodes[i].depth <= self.nodes[node].depth:
                break
            if not self.nodes[i].structure:
                found.append(i)
        return tuple(found)

    def ancestors(self, node: int) -> tuple[int, ...]:
        """From the parent up to the root."""
        found = []
        parent = self.nodes[node].parent
        while parent is not None:
            found.append(parent)
            parent = self.nodes[parent].parent
        return tuple(found)

    def passages(self, answers: Collection[int]) -> tuple[Passage, ...]:
        """The content among these nodes, and the content it hangs on, in document order.

        What stands in one section with only blanks between is one passage.
        """
        runs: list[tuple[int, Span]] = []  # section, stretch
        for node in self._lit(answers):
            if node.structure:
                continue
            section = next(i for i in self.ancestors(node.id) if self.nodes[i].structure)
            if runs and runs[-1][0] == section and self._neighbours(runs[-1][1], node.span):
                span = replace(runs[-1][1], end=node.span.end)
                runs[-1] = (section, span)
            else:
                runs.append((section, node.span))
        return tuple(self.document.passage(span) for _, span in runs)

    def routed_text(self, answers: Collection[int]) -> str:
        """RDR2's routed passage: title, headings and content, a line each; empty without nodes."""
        return "\n".join(node.text for node in self._lit(answers))

    def _lit(self, answers: Collection[int]) -> Iterator[StructureNode]:
        """These nodes and all their ancestors, in document order."""
        lit = {*answers, *(i for answer in answers for i in self.ancestors(answer))}
        return (self.nodes[i] for i in sorted(lit))

    def _neighbours(self, earlier: Span, later: Span) -> bool:
        return not self.document.text[earlier.end : later.start].strip()


def structure_tree(
    document: Document, *, introduction: bool = True, skipped: Collection[str] = ()
) -> StructureTree:
    """A document's tree for the router.

    A single top section with the document's own title is folded into the root. Sections titled
    as one of `skipped` (case aside) are left out with all they hold, then those without content.
    Text before the first heading stands under `==Introduction==` and ids count from -1, the
    root's, as in RDR2's examples; without `introduction` it hangs on the root and ids count
    from 0, as in the released code. A text that nothing is known of is cut at blank lines.
    """
    titles = frozenset(_line(title).casefold() for title in skipped)
    return _Growing(document, introduction, titles).tree()


@dataclass
class _Row:
    """A node whose children are still being found."""

    structure: bool
    depth: int
    text: str
    span: Span
    parent: int | None
    children: list[int]


class _Growing:
    """One pass over a document's tree; `places` says which row stands for each of its nodes."""

    def __init__(self, document: Document, introduction: bool, skipped: Collection[str]) -> None:
        self._document = document
        self._introduction = introduction
        self._source = _with_content(document)
        self._own = [own_span(document, node) for node in self._source]
        self._title = _line(document.title) or document.id
        self._folded = self._title_section()
        self._left_out = self._without_content(skipped)
        self._rows: list[_Row] = []
        self._lead: int | None = None  # the row of the introduction
        self._places: list[int] = []
        self._standing: dict[int, int] = {}  # of the nodes that have a row of their own

    def tree(self) -> StructureTree:
        """All nodes, numbered."""
        for node in self._source:
            self._places.append(self._place(node))
        first = -1 if self._introduction else 0
        nodes = {
            first + i: StructureNode(
                id=first + i,
                structure=row.structure,
                depth=row.depth,
                text=row.text,
                span=row.span,
                parent=None if row.parent is None else first + row.parent,
                children=tuple(first + child for child in row.children),
            )
            for i, row in enumerate(self._rows)
        }
        ids = {node: first + row for node, row in self._standing.items()}
        return StructureTree(self._document, nodes, first, self._source, ids)

    def _place(self, node: Node) -> int:
        """The row that stands for a node: its own, made here, or that of an ancestor."""
        if node.parent is None:
            return self._stand(node, self._add(True, self._title, node.span, None))
        parent = self._places[node.parent]
        own = self._own[node.id]
        if node.id in self._left_out or node.id == self._folded:
            return parent
        if node.kind is Kind.SECTION:
            if node.synthetic and node.title == INTRODUCTION:
                return self._stand_for_lead(node, parent)
            return self._stand(node, self._add(True, node.title, node.span, parent))
        if own is None:
            return parent
        text = _line(self._document.slice(own))
        if node.kind is Kind.LIST_ITEM:
            text = f"* {_BULLET.sub('', text, count=1)}".rstrip()
        if parent == 0 and self._introduction:
            parent = self._lead_row(own)
        return self._stand(node, self._add(False, text, own, parent))

    def _without_content(self, skipped: Collection[str]) -> set[int]:
        """The skipped sections with all they hold, and the sections that then hold no content."""
        out: set[int] = set()
        for node in self._source:
            named = node.kind is Kind.SECTION and _line(node.title).casefold() in skipped
            if (named and node.id != self._folded) or node.parent in out:
                out.add(node.id)
        holding: set[int | None] = set()
        for node in reversed(self._source.nodes):
            if node.id in holding or (self._own[node.id] and node.kind is not Kind.SECTION):
                if node.id not in out:
                    holding.add(node.parent)
            elif node.kind is Kind.SECTION:
                out.add(node.id)
        return out

    def _title_section(self) -> int | None:
        """The single top section, if it has the document's own title."""
        top = [node for node in self._source.children(self._source.root) if node.heading]
        same = len(top) == 1 and _line(top[0].title).casefold() == self._title.casefold()
        return top[0].id if same else None

    def _stand(self, node: Node, row: int) -> int:
        self._standing[node.id] = row
        return row

    def _stand_for_lead(self, node: Node, parent: int) -> int:
        """The place of a section that the tree itself calls the introduction."""
        if not self._introduction:
            return parent
        if parent == 0:
            return self._stand(node, self._lead_row(node.span))
        return self._stand(node, self._add(True, node.title, node.span, parent))

    def _lead_row(self, span: Span) -> int:
        """The introduction under the root, widened to hold `span`; the root after other sections.

        Front matter and the text below the title come under one.
        """
        children = self._rows[0].children
        if not children:
            self._lead = self._add(True, INTRODUCTION, span, 0)
        elif children[-1] != self._lead:
            return 0
        lead = self._rows[children[-1]]
        lead.span = replace(lead.span, end=max(lead.span.end, span.end))
        return children[-1]

    def _add(self, structure: bool, text: str, span: Span, parent: int | None) -> int:
        depth = 0 if parent is None else self._rows[parent].depth + 1
        if structure and depth:
            signs = "=" * (depth + 1)
            text = f"{signs}{_line(text)}{signs}"
        self._rows.append(_Row(structure, depth, text, span, parent, []))
        if parent is not None:
            self._rows[parent].children.append(len(self._rows) - 1)
        return len(self._rows) - 1


def _with_content(document: Document) -> Tree:
    """The document's tree, or its paragraphs where the tree holds no content."""
    if any(node.kind not in (Kind.ROOT, Kind.SECTION) for node in document.tree):
        return document.tree
    builder = TreeBuilder(document.id)
    root = builder.add(Kind.ROOT, 0, len(document.text), None)
    for match in _PARAGRAPH.finditer(document.text):
        end = match.start() + len(match.group().rstrip())
        builder.add(Kind.PARAGRAPH, match.start(), end, root)
    return builder.build(Structure(1.0, Basis.NONE))


def _line(text: str) -> str:
    return " ".join(text.split())


# RDR2's Retrieval SubTree: all headings of a document and the content around what was found.

_LONGEST_WORD = 60  # how far back a cut looks for a blank


@dataclass(frozen=True)
class SubTree:
    """What a router is shown of a tree.

    `text` has a line for each of the `visible` nodes, indented by its depth; a long one may be
    cut, which an ellipsis shows. `mapped` are the nodes it was made around, in document order,
    `omitted` those that only the limit of tokens kept out.
    """

    tree: StructureTree
    mapped: tuple[int, ...]
    visible: frozenset[int]
    text: str
    omitted: frozenset[int]


def subtree(
    tree: StructureTree,
    mapped: Collection[int],
    *,
    structure: bool = True,
    siblings: bool = True,
    content: bool = True,
    most_tokens: int | None = None,
    count: Callable[[str], int] = estimate_tokens,
) -> SubTree:
    """The subtree around the nodes that a chunk, or an expanded heading's content, maps to.

    Visible are all headings, each mapped node with the content beside it, the content these
    hang on, and all content below them. Ablations: without `structure` only the mapped nodes
    and their ancestors, without `siblings` nothing beside or below the mapped nodes, without
    `content` headings alone.

    `text` never has more than `most_tokens` by `count`. What fits is taken in this order: the
    mapped content in document order, with its ancestors; headings, outermost level first,
    nearest to the mapped first, to half of what is left; other content, nearest first; the other
    headings. Mapped content too long to fit by
    itself is cut, to leave room for the headings or to half of the limit. Nothing is visible
    where not even the title fits.
    """
    mapped = sorted(set(mapped))
    wanted = _wanted(tree, mapped, structure, siblings, content)
    texts = {node: tree.nodes[node].text for node in wanted}
    text = _rendered(tree, texts)
    if most_tokens is not None and count(text) > most_tokens:
        texts = _within(tree, mapped, wanted, most_tokens, count)
        text = _rendered(tree, texts)
    visible = frozenset(texts)
    return SubTree(tree, tuple(mapped), visible, text, frozenset(wanted) - visible)


def _wanted(
    tree: StructureTree, mapped: Sequence[int], structure: bool, siblings: bool, content: bool
) -> set[int]:
    """The nodes that RDR2's rules make visible (its Algorithm 1)."""
    nodes = tree.nodes
    wanted = {tree.root, *mapped}
    if structure:
        wanted.update(node.id for node in nodes.values() if node.structure)
    for node in mapped:
        wanted.update(tree.ancestors(node))
    if structure and siblings:
        parents = {parent for node in mapped if (parent := nodes[node].parent) is not None}
        for parent in parents:
            for sibling in tree.content_children(parent):
                wanted.update((sibling, *tree.content_under(sibling)))
    return wanted if content else {node for node in wanted if nodes[node].structure}


def _within(
    tree: StructureTree,
    mapped: Sequence[int],
    wanted: Collection[int],
    most_tokens: int,
    count: Callable[[str], int],
) -> dict[int, str]:
    """The texts of the most important wanted nodes that fit together."""
    room = most_tokens
    while room > 0:
        fitting = _Fitting(tree, room, count)
        fitting.fill(mapped, wanted)
        if (together := count(_rendered(tree, fitting.texts))) <= most_tokens:
            return fitting.texts
        room = room * most_tokens // together  # lines may count more together than one by one
    return {}


class _Fitting:
    """Takes nodes while there is room, none before its parent."""

    def __init__(self, tree: StructureTree, room: int, count: Callable[[str], int]) -> None:
        self.texts: dict[int, str] = {}
        self._tree = tree
        self._room = room
        self._count = count

    def fill(self, mapped: Sequence[int], wanted: Collection[int]) -> None:
        """Take what fits, in order of importance."""
        nodes = self._tree.nodes
        headings = [node for node in wanted if nodes[node].structure]
        content = [node for node in wanted if not nodes[node].structure]
        first = [node for node in mapped if node in wanted and not nodes[node].structure]
        for node in first or [self._tree.root]:
            if not self._take(node):
                break
        if not self.texts:
            self._cut(first[0] if first else self._tree.root, headings)
        headings.sort(key=lambda node: (nodes[node].depth, _distance(node, mapped), node))
        content.sort(key=lambda node: (_distance(node, mapped), node))
        half = self._room // 2  # hundreds of headings must not leave the neighbours out
        for node in headings:
            if self._room > half:
                self._take(node)
        for node in (*content, *headings):
            self._take(node)

    def _take(self, node: int) -> bool:
        """Take a node and the ancestors it hangs on if all of them fit."""
        chain = self._missing(node)
        texts = {step: self._tree.nodes[step].text for step in chain}
        cost = sum(self._cost(step, text) for step, text in texts.items())
        if cost > self._room:
            return False
        self.texts.update(texts)
        self._room -= cost
        return True

    def _cut(self, node: int, headings: Sequence[int]) -> None:
        """Take a node too long to fit, cut to what the headings leave, at least half the room."""
        *above, last = self._missing(node)
        for step in above:
            if not self._take_cut(step, self._room // 2):
                return
        rest = sum(self._cost(h, self._tree.nodes[h].text) for h in headings if h not in self.texts)
        self._take_cut(last, max(self._room - rest, self._room // 2))

    def _take_cut(self, node: int, room: int) -> bool:
        """Take as much of a node as `room` holds, at least a character; say whether any fits."""
        text = self._tree.nodes[node].text
        fitting, over = 0, len(text) + 1
        while over - fitting > 1:
            middle = (fitting + over) // 2
            if self._cost(node, _shortened(text, middle)) <= room:
                fitting = middle
            else:
                over = middle
        if fitting:
            self.texts[node] = _shortened(text, fitting)
            self._room -= self._cost(node, self.texts[node])
        return fitting > 0

    def _missing(self, node: int) -> list[int]:
        """The node and those of its ancestors that are not taken, outermost first."""
        steps = (*reversed(self._tree.ancestors(node)), node)
        return [step for step in steps if step not in self.texts]

    def _cost(self, node: int, text: str) -> int:
        return self._count(_subtree_line(self._tree, node, text) + "\n")


def _shortened(text: str, length: int) -> str:
    """The first so many characters, or fewer so that no word is cut, and an ellipsis."""
    if length >= len(text):
        return text
    blank = text.rfind(" ", max(1, length - _LONGEST_WORD), length + 1)
    return text[: blank if blank > 0 else length] + "…"


def _distance(node: int, mapped: Sequence[int]) -> int:
    """How many places a node is from the nearest mapped one."""
    at = bisect_left(mapped, node)
    return min((abs(node - near) for near in mapped[max(0, at - 1) : at + 1]), default=0)


def _rendered(tree: StructureTree, texts: Mapping[int, str]) -> str:
    return "\n".join(_subtree_line(tree, node, texts[node]) for node in sorted(texts))


def _subtree_line(tree: StructureTree, node: int, text: str) -> str:
    return "\t" * tree.nodes[node].depth + f"{node}: {text}"
