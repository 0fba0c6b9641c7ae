"""The structure of a document: headings to any depth, and the blocks under them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Any

from colligate.documents.span import Span
from colligate.errors import SpanError

# Characters of a title: it is read and embedded with every passage under it.
_LONGEST_TITLE = 1_000


def shorten_title(title: str) -> str:
    """Return a title of at most 1,000 characters; a longer one ends with "…"."""
    return title if len(title) <= _LONGEST_TITLE else title[: _LONGEST_TITLE - 1] + "…"


class Kind(StrEnum):
    """The kind of a node."""

    ROOT = "root"
    SECTION = "section"
    PARAGRAPH = "paragraph"
    LIST_ITEM = "list_item"
    TABLE = "table"
    CODE = "code"


@dataclass(frozen=True, slots=True)
class Node:
    """One node of a `Tree`.

    `id` is the node's index in `Tree.nodes`, which is pre-order. `level` is the heading level
    of a section as written (1 the highest), 0 for the root and for content. `title` is the
    heading's text without its marks (of a long one the beginning), empty for content. `span`
    covers the whole node with its heading and all its descendants; `heading` is the span of the
    heading's own line(s), None for content, for the root and for synthetic sections (the
    introduction that holds the text before the first heading).
    """

    id: int
    kind: Kind
    level: int
    title: str
    span: Span
    heading: Span | None = None
    parent: int | None = None
    children: tuple[int, ...] = ()

    def __reduce__(self) -> tuple[type[Node], tuple[object, ...]]:
        # As in `Span`: pickling by fields takes twice the time.
        place = (self.span, self.heading, self.parent, self.children)
        return Node, (self.id, self.kind, self.level, self.title, *place)

    @property
    def synthetic(self) -> bool:
        """Whether this is a section without a heading in the text."""
        return self.kind is Kind.SECTION and self.heading is None


class Basis(StrEnum):
    """The source of a tree's headings, surest first."""

    MARKUP = "markup"  # the format itself marks headings
    OUTLINE = "outline"  # the bookmarks of a PDF
    CONTENTS = "contents"  # the printed table of contents
    NUMBERING = "numbering"  # "2.", "2.1", "Item 1A."
    LAYOUT = "layout"  # font size and weight alone
    MODEL = "model"  # sections that a language model found
    NONE = "none"  # no headings: a flat tree


@dataclass(frozen=True)
class Structure:
    """How sure a tree's headings are: a confidence in [0, 1], their source, a note."""

    confidence: float
    basis: Basis
    note: str = ""


@dataclass(frozen=True)
class Tree:
    """The nodes of one document in pre-order; the root is first and covers the whole text.

    Children nest inside their parent in order and never overlap.
    """

    nodes: tuple[Node, ...]
    structure: Structure = Structure(1.0, Basis.MARKUP)

    @property
    def root(self) -> Node:
        """The node of the whole document."""
        return self.nodes[0]

    def __iter__(self) -> Iterator[Node]:
        return iter(self.nodes)

    def children(self, node: Node) -> list[Node]:
        """Return the direct children, in document order."""
        return [self.nodes[i] for i in node.children]

    def ancestors(self, node: Node) -> list[Node]:
        """Return the nodes from the parent up to the root."""
        found = []
        while node.parent is not None:
            node = self.nodes[node.parent]
            found.append(node)
        return found

    @cached_property
    def sections(self) -> tuple[Node, ...]:
        """All sections, in document order."""
        return tuple(node for node in self.nodes if node.kind is Kind.SECTION)

    @cached_property
    def leaves(self) -> tuple[Node, ...]:
        """All content nodes without children, in document order."""
        content = (node for node in self.nodes if node.kind not in (Kind.ROOT, Kind.SECTION))
        return tuple(node for node in content if not node.children)

    @cached_property
    def _starts(self) -> list[int]:
        return [node.span.start for node in self.nodes]

    def node_at(self, offset: int) -> Node:
        """Return the innermost node whose span holds the character at `offset`."""
        if not 0 <= offset < max(1, self.root.span.end):
            raise SpanError(f"no character {offset} in {self.root.span.document_id}")
        node: Node | None = self.nodes[bisect_right(self._starts, offset) - 1]
        while node is not None and not node.span.start <= offset < node.span.end:
            node = None if node.parent is None else self.nodes[node.parent]
        return node or self.root

    def section_path(self, span: Span) -> tuple[str, ...]:
        """Return the titles of the sections around a span's first character, outermost first."""
        node = self.node_at(min(span.start, max(0, self.root.span.end - 1)))
        around = [node, *self.ancestors(node)]
        # A synthetic section has no heading that a reader could find in the document.
        return tuple(each.title for each in reversed(around) if each.heading is not None)

    def to_json(self) -> dict[str, Any]:
        """Return a compact form for storage, one row a node; `from_json` reverses it."""
        rows: list[list[Any]] = []
        for n in self.nodes:
            span = (n.span.start, n.span.end)
            heading = (n.heading.start, n.heading.end) if n.heading else (None, None)
            rows.append([n.kind.value, n.level, n.title, *span, *heading, n.parent])
        s = self.structure
        return {"structure": [s.confidence, s.basis.value, s.note], "nodes": rows}

    @classmethod
    def from_json(cls, stored: dict[str, Any], document_id: str) -> Tree:
        """Rebuild a tree from `to_json`'s form."""
        confidence, basis, note = stored["structure"]
        builder = TreeBuilder(document_id)
        for kind, level, title, start, end, h_start, h_end, parent in stored["nodes"]:
            heading = None if h_start is None else (h_start, h_end)
            builder.add(Kind(kind), (start, end), parent, level=level, title=title, heading=heading)
        return builder.build(Structure(confidence, Basis(basis), note))


class TreeBuilder:
    """Collects nodes in pre-order; `build` links and checks them."""

    def __init__(self, document_id: str) -> None:
        self._document_id = document_id
        self._rows: list[tuple[Kind, int, str, int, tuple[int, int] | None, int | None]] = []
        self._ends: list[int] = []

    def add(
        self,
        kind: Kind,
        extent: tuple[int, int],
        parent: int | None,
        *,
        level: int = 0,
        title: str = "",
        heading: tuple[int, int] | None = None,
    ) -> int:
        """Append a node from a start to an end; return its id. `close` can move its end later."""
        start, end = extent
        self._rows.append((kind, level, shorten_title(title), start, heading, parent))
        self._ends.append(end)
        return len(self._rows) - 1

    def close(self, node_id: int, end: int) -> None:
        """Set where a node ends."""
        self._ends[node_id] = end

    def build(self, structure: Structure) -> Tree:
        """Return the finished tree; raise `SpanError` if nodes do not nest or are out of order."""
        children: list[list[int]] = [[] for _ in self._rows]
        open_: list[int] = []  # the last node and its ancestors
        for i, row in enumerate(self._rows):
            parent = row[5]
            while open_ and open_[-1] != parent:
                open_.pop()
            if parent is not None:
                self._check(i, parent, children[parent] if open_ else None)
                children[parent].append(i)
            open_.append(i)
        nodes = []
        for i, (kind, level, title, start, head, parent) in enumerate(self._rows):
            span = Span(self._document_id, start, self._ends[i])
            heading = None if head is None else Span(self._document_id, *head)
            nodes.append(Node(i, kind, level, title, span, heading, parent, tuple(children[i])))
        return Tree(tuple(nodes), structure)

    def _check(self, i: int, parent: int, siblings: Sequence[int] | None) -> None:
        """Check a node against its parent and the siblings before it (None: parent closed)."""
        _, _, _, start, heading, _ = self._rows[i]
        end = self._ends[i]
        first, last = heading or (start, end)
        if siblings is not None:
            earliest = self._ends[siblings[-1]] if siblings else self._rows[parent][3]
            if earliest <= start <= first <= last <= end <= self._ends[parent]:
                return
        what = f"node {i} at {start}-{end} of {self._document_id} does not nest"
        why = f"it must hold its heading and follow its siblings inside its parent {parent}"
        raise SpanError(what, why)


def flat_tree(document_id: str, length: int) -> Tree:
    """Return the tree of a text of unknown structure: a root and nothing else."""
    builder = TreeBuilder(document_id)
    builder.add(Kind.ROOT, (0, length), None)
    return builder.build(Structure(1.0, Basis.NONE))
