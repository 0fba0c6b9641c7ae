"""RDR2's trees (section 3.2): the Document Structure Tree, and the Retrieval SubTree of it.

A router reads a tree as lines, one per node. Structure nodes are headings, content nodes are
blocks of text; only the blocks around what was found are shown, under all headings.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from colligate.core.units import join_neighbours
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
from colligate.documents.compress import CompressedPassage, compress
from colligate.documents.markdown import INTRODUCTION, own_span

# The Document Structure Tree (DST)


@dataclass(frozen=True, slots=True)
class StructureNode:
    """One node (equation 8): a heading (`structure`, the root included) or a block of content.

    `text` is one line: the title for the root, `==History==` for a heading with one sign more than
    its depth on each side, and for content its own text with single blanks, after `* ` in a list.
    `span` is the whole section for a heading, its own text alone for content. `own` is what of the
    document says it: the heading's line, None if there is none, or the content.
    """

    id: int
    structure: bool
    depth: int
    text: str
    span: Span
    parent: int | None
    children: tuple[int, ...]
    own: Span | None = None


@dataclass(frozen=True)
class StructureTree:
    """The nodes by id, in pre-order; ids count up by one from the root's."""

    document: Document
    nodes: Mapping[int, StructureNode]
    root: int

    def map_span(self, span: Span) -> tuple[int, ...]:
        """Return the nodes of a span: from the first content it touches to the last.

        A span that touches none, such as a bare heading, is the innermost section around it.
        """
        nodes = self.nodes.values()
        if touched := [n.id for n in nodes if not n.structure and n.span.overlaps(span)]:
            return tuple(range(touched[0], touched[-1] + 1))
        around = (n for n in nodes if n.span.start <= span.start < n.span.end)
        return (max((n.id for n in around if n.structure), default=self.root),)

    def content_of(self, nodes: Collection[int]) -> tuple[int, ...]:
        """Return those of the nodes that are content, in the same order."""
        return tuple(i for i in nodes if not self.nodes[i].structure)

    def content_children(self, node: int) -> tuple[int, ...]:
        """Return the direct children that are content."""
        return self.content_of(self.nodes[node].children)

    def content_under(self, node: int) -> tuple[int, ...]:
        """Return all descendants that are content, in document order."""
        end = self.root + len(self.nodes)
        depth = self.nodes[node].depth
        below = range(node + 1, end)
        stop = next((i for i in below if self.nodes[i].depth <= depth), end)
        return self.content_of(range(node + 1, stop))

    def ancestors(self, node: int) -> tuple[int, ...]:
        """Return the ancestors from the parent up to the root."""
        found = []
        parent = self.nodes[node].parent
        while parent is not None:
            found.append(parent)
            parent = self.nodes[parent].parent
        return tuple(found)

    def extract_passages(self, answers: Collection[int]) -> tuple[Passage, ...]:
        """Return the content among these nodes, neighbours in one section as one passage."""
        content = (node for node in self._with_ancestors(answers) if not node.structure)
        parts = (
            (next(i for i in self.ancestors(node.id) if self.nodes[i].structure), node.span)
            for node in content
        )
        return tuple(join_neighbours(self.document, parts))

    def render_routed(self, answers: Collection[int]) -> str:
        """Return the routed passage p_d (equation 6): title, headings and content, as lines."""
        return "\n".join(node.text for node in self._with_ancestors(answers))

    def extract_routed(self, answers: Collection[int]) -> CompressedPassage:
        """Return p_d as a passage of the document of which only these lines are shown."""
        own = [node.own for node in self._with_ancestors(answers) if node.own is not None]
        start = own[0].start
        whole = self.document.passage(Span(self.document.id, start, own[-1].end))
        shown = compress(whole, ((span.start - start, span.end - start) for span in own))
        # The headings are among the lines; a path of them would be that of the first line alone.
        return replace(shown, section=(), folder=whole.folder, source=whole.source, date=whole.date)

    def _with_ancestors(self, nodes: Collection[int]) -> Iterator[StructureNode]:
        """Yield these nodes and all their ancestors, in document order."""
        found = {*nodes, *(i for node in nodes for i in self.ancestors(node))}
        return (self.nodes[i] for i in sorted(found))


# From a document to its structure tree

WIKIPEDIA = "wikipedia"
"""As the title of a section to skip: those ten of Wikipedia's pages that the paper skips."""

_WIKIPEDIA_SKIPPED = frozenset(
    (
        "external links, notes, references, see also, gallery, images, pictures, photographs,"
        " sources, citations"
    ).split(", ")
)

_BULLET = re.compile(r"[>\s]*[-+*•](?:\s+|$)")
_PARAGRAPH = re.compile(r"\S[^\n]*(?:\n[^\S\n]*\S[^\n]*)*")


def build_structure_tree(
    document: Document, *, introduction: bool = True, skipped: Collection[str] = ()
) -> StructureTree:
    """Build a document's tree for the router.

    A single top section with the document's own title is folded into the root. Sections with one
    of the titles `skipped` (in any case) are left out with everything in them, then sections
    without content. Text before the first heading is under `==Introduction==` and ids count from
    -1, the root's, as in Appendix D; without `introduction` that text is under the root and ids
    count from 0, as in the released code. A text without known blocks is cut at blank lines. A
    heading without words gets no node. Items of a list are siblings of the paragraph before them;
    in the released code they are its children.
    """
    titles = {_one_line(title).casefold() for title in skipped}
    titles |= _WIKIPEDIA_SKIPPED if WIKIPEDIA in titles else set()
    return _StructureTreeBuilder(document, introduction, titles).build()


class _StructureTreeBuilder:
    """One pass over a document's tree."""

    def __init__(self, document: Document, introduction: bool, skipped: Collection[str]) -> None:
        self._document = document
        self._introduction = introduction
        self._source = _tree_with_content(document)
        self._own = [own_span(document, node) for node in self._source]
        self._title = _one_line(document.title) or document.id
        self._folded = self._find_title_section()
        self._left_out = self._find_left_out(skipped)
        self._root = -1 if introduction else 0
        self._nodes: dict[int, StructureNode] = {}
        self._children: dict[int, list[int]] = {}
        self._lead: int | None = None  # the introduction

    def build(self) -> StructureTree:
        places: list[int] = []  # the node, or its ancestor, for each node of the source
        for node in self._source:
            parent = None if node.parent is None else places[node.parent]
            places.append(self._place(node, parent))
        nodes = {
            i: replace(node, children=tuple(self._children[i])) for i, node in self._nodes.items()
        }
        return StructureTree(self._document, nodes, self._root)

    def _place(self, node: Node, parent: int | None) -> int:
        """Return the node that represents one of the source: its own, made here, or `parent`."""
        if parent is None:
            return self._add(True, self._title, node.span, None)
        own = self._own[node.id]
        if node.id in self._left_out or node.id == self._folded:
            return parent
        if node.kind is Kind.SECTION:
            if node.synthetic and node.title == INTRODUCTION:
                if not self._introduction:
                    return parent
                if parent == self._root:
                    return self._place_lead(node.span)
            if not node.title.strip():
                return parent
            return self._add(True, node.title, node.span, parent, own)
        if own is None:
            return parent
        text = _one_line(self._document.slice(own))
        if node.kind is Kind.LIST_ITEM:
            text = f"* {_BULLET.sub('', text, count=1)}".rstrip()
        if parent == self._root and self._introduction:
            parent = self._place_lead(own)
        return self._add(False, text, own, parent, own)

    def _place_lead(self, span: Span) -> int:
        """Return the introduction, widened to hold `span`; the root after other sections."""
        children = self._children[self._root]
        if not children:
            self._lead = self._add(True, INTRODUCTION, span, self._root)
        elif children[-1] != self._lead:
            return self._root
        lead = self._nodes[children[-1]]
        end = max(lead.span.end, span.end)
        self._nodes[lead.id] = replace(lead, span=replace(lead.span, end=end))
        return lead.id

    def _add(
        self, structure: bool, text: str, span: Span, parent: int | None, own: Span | None = None
    ) -> int:
        node = self._root + len(self._nodes)
        depth = 0 if parent is None else self._nodes[parent].depth + 1
        if structure and depth:
            signs = "=" * (depth + 1)
            text = f"{signs}{_one_line(text)}{signs}"
        self._nodes[node] = StructureNode(node, structure, depth, text, span, parent, (), own)
        self._children[node] = []
        if parent is not None:
            self._children[parent].append(node)
        return node

    def _find_title_section(self) -> int | None:
        """Return the single top section if it has the document's own title."""
        top = [node for node in self._source.children(self._source.root) if node.heading]
        same = len(top) == 1 and _one_line(top[0].title).casefold() == self._title.casefold()
        return top[0].id if same else None

    def _find_left_out(self, skipped: Collection[str]) -> set[int]:
        """Return the skipped sections with everything in them, and those left without content."""
        out: set[int] = set()
        for node in self._source:
            named = node.kind is Kind.SECTION and _one_line(node.title).casefold() in skipped
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


def _tree_with_content(document: Document) -> Tree:
    """Return the document's tree, or one of its paragraphs if the tree has no content."""
    if any(node.kind not in (Kind.ROOT, Kind.SECTION) for node in document.tree):
        return document.tree
    builder = TreeBuilder(document.id)
    root = builder.add(Kind.ROOT, (0, len(document.text)), None)
    for match in _PARAGRAPH.finditer(document.text):
        end = match.start() + len(match.group().rstrip())
        builder.add(Kind.PARAGRAPH, (match.start(), end), root)
    return builder.build(Structure(1.0, Basis.NONE))


def _one_line(text: str) -> str:
    return " ".join(text.split())


# The Retrieval SubTree (RST, Algorithm 1): all headings, and the content around what was found


@dataclass(frozen=True)
class SubTree:
    """The part of a tree that a router is shown.

    `text` has a line for each of the `visible` nodes, indented by its depth. `highlighted` are the
    nodes it was built around, in document order.
    """

    tree: StructureTree
    highlighted: tuple[int, ...]
    visible: frozenset[int]
    text: str


def build_subtree(
    tree: StructureTree,
    highlighted: Collection[int],
    *,
    structure: bool = True,
    content: bool = True,
    beside: bool = True,
) -> SubTree:
    """Build the subtree around the nodes of a chunk, or the content of an expanded heading.

    Visible are all headings, each highlighted node with its content siblings, the content these
    hang on, and all content below them. Ablations: without `structure` only the highlighted nodes
    and their ancestors, without `content` headings alone. For small windows, which the paper does
    not have: without what is only `beside` the highlighted nodes.
    """
    highlighted = sorted(set(highlighted))
    visible = frozenset(_find_visible(tree, highlighted, structure, content, beside))
    nodes = (tree.nodes[i] for i in sorted(visible))
    text = "\n".join("\t" * node.depth + f"{node.id}: {node.text}" for node in nodes)
    return SubTree(tree, tuple(highlighted), visible, text)


def _find_visible(
    tree: StructureTree, highlighted: Sequence[int], structure: bool, content: bool, beside: bool
) -> set[int]:
    """Return the nodes that Algorithm 1 makes visible."""
    nodes = tree.nodes
    wanted = {tree.root, *highlighted}
    for node in highlighted:
        wanted.update(tree.ancestors(node))
    if structure:
        wanted.update(node.id for node in nodes.values() if node.structure)
    if structure and beside:
        parents = {parent for node in highlighted if (parent := nodes[node].parent) is not None}
        for parent in parents:
            for sibling in tree.content_children(parent):
                wanted.update((sibling, *tree.content_under(sibling)))
    return wanted if content else {node for node in wanted if nodes[node].structure}
