"""RDR2's Document Structure Tree: a document as its router sees it, one line a node."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

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
from colligate.documents.alignment import nodes_over
from colligate.documents.markdown import INTRODUCTION, own_span

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
