"""Drawings of a document's headings: what is in each, and where a question leads."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from rich.console import Group, RenderableType
from rich.text import Text
from rich.tree import Tree as Drawing

from colligate.cli.display import make_console, to_one_line
from colligate.core.events import Event, pluralize
from colligate.documents import Document, Node
from colligate.documents.document import page_number
from colligate.documents.tree import Basis
from colligate.engine import Routes
from colligate.strategies.rdr2.method import Routing
from colligate.strategies.rdr2.router import Routed


def draw_document(document: Document) -> Drawing:
    """Return a drawing of a document's headings with the number of blocks in each."""

    structure = document.tree.structure
    size = f"{len(document):,} characters"
    pages = f", {len(document.pages):,} pages" if document.pages else ""
    basis = structure.basis
    if basis is Basis.NONE:
        sure = "structure: no headings"
    else:
        sure = f"structure: {structure.confidence:.0%} sure, from {basis.value}"
    root = Text.assemble(
        (to_one_line(document.title), "bold"),
        (f"  {to_one_line(document.id)}\n{size}{pages}, language {document.language}\n", "dim"),
        sure,
        f" ({to_one_line(structure.note)})" if structure.note else "",
    )
    drawn = {document.tree.root.id: Drawing(root, guide_style="dim")}
    for section in document.tree.sections:
        line = Text(to_one_line(section.title) or "(before the first heading)")
        page = page_number(document, section)
        line.append(
            f"  {'' if page is None else f'page {page}, '}{_describe_section(document, section)}"
        )
        line.stylize("dim", len(line.plain) - len(line.plain.rpartition("  ")[2]))
        parent = section.parent
        while parent not in drawn:
            parent = document.tree.nodes[parent or 0].parent
        drawn[section.id] = drawn[parent].add(line)
    if not document.tree.sections:
        drawn[document.tree.root.id].add(Text(_describe_section(document, document.tree.root)))
    return drawn[document.tree.root.id]


_BLOCKS = {
    "paragraph": "paragraph",
    "list_item": "list item",
    "table": "table",
    "code": "code block",
}


def _describe_section(document: Document, section: Node) -> str:
    """Return how many blocks a section has of its own, with list items within list items."""

    counts: Counter[str] = Counter()
    waiting = [n for n in document.tree.children(section) if n.kind.value in _BLOCKS]
    while waiting:
        node = waiting.pop()
        counts[node.kind.value] += 1
        waiting += document.tree.children(node)
    found = [pluralize(counts[kind], name) for kind, name in _BLOCKS.items() if counts[kind]]
    return ", ".join(found) or "no text of its own"


# Where a question leads: headings with the routed blocks under them

# Of an accepted or retrieved block so many characters are shown; of more than `_FEW` retrieved
# blocks in a row only the first.
_FIRST_WORDS = 48
_FEW = 3
_SHOWN = re.compile(r"^\t*(-?\d+): ", re.MULTILINE)


class Marks(NamedTuple):
    """The signs before a line, so that colour is not needed."""

    accepted: str
    retrieved: str
    expanded: str
    cut: str


UNICODE = Marks("●", "○", "▾", "…")
ASCII = Marks("*", "o", ">", "...")


def draw_routes(routes: Routes, events: Iterable[Event]) -> RenderableType:
    """Return a drawing of each routed document, then a legend and a summary.

    `events` are those of the run: they say which headings the router was shown.
    """

    encoding = make_console(sys.stdout).encoding
    marks = UNICODE if encoding.startswith("utf") else ASCII
    shown: dict[str, set[int]] = {}
    for event in events:
        if isinstance(event, Routed):
            nodes = shown.setdefault(event.document, set())
            nodes.update(map(int, _SHOWN.findall(event.shown)))
    routings = [routing for routing in routes.routings if isinstance(routing, Routing)]
    parts: list[RenderableType] = []
    for routing in routings:
        nodes = shown.get(routing.tree.document.id, set())
        parts += [RoutingDrawing(routing, nodes, marks).draw(), Text()]
    parts.append(
        Text.assemble(
            (f"{marks.accepted} accepted   ", "bold green"),
            (f"{marks.retrieved} retrieved, not accepted   ", "cyan"),
            (f"{marks.expanded} expanded   ", "yellow"),
            ("round 0 is the search", "dim"),
        )
    )
    if shown:
        parts.append(Text("Other headings were shown to the router and not chosen.", "dim"))
    return Group(*parts, _summarize(routes, routings))


def _summarize(routes: Routes, routings: Sequence[Routing]) -> Text:
    shown = sum(routing.shown for routing in routings)
    refused = sum(routing.refused for routing in routings)
    accepted = sum(len(routing.answers) for routing in routings)
    documents = pluralize(len(routes.routings), "document")
    return Text(
        f"{pluralize(accepted, 'block')} accepted in {documents}; "
        f"{pluralize(shown, 'subtree')} shown, {refused:,} refused; "
        f"{pluralize(routes.usage.calls, 'call')}"
    )


class RoutingDrawing:
    """One routed document as a drawing."""

    def __init__(self, routing: Routing, shown: set[int], marks: Marks) -> None:
        self._routing = routing
        self._nodes = routing.tree.nodes
        self._marks = marks
        self._retrieved = frozenset(routing.retrieved)
        blocks = self._retrieved.union(routing.answers)
        # Accepted blocks and the headings above them are bright. A heading is hidden if the router
        # was not shown it and nothing under it is drawn.
        self._bright = self._with_ancestors(routing.answers)
        self._drawn = self._with_ancestors({*blocks, *shown, *routing.expanded})
        self._blocks = blocks

    def draw(self) -> Drawing:
        """Return the document with all that is drawn under it."""

        routing, document = self._routing, self._routing.tree.document
        counts = f"{pluralize(routing.shown, 'subtree')} shown, {routing.refused:,} refused"
        root = Text.assemble(
            (to_one_line(document.title), "bold"),
            (f"  {to_one_line(document.id)}\n{counts}", "dim"),
        )
        drawing = Drawing(root, guide_style="dim")
        self._add(drawing, routing.tree.root)
        return drawing

    def _add(self, under: Drawing, node: int) -> None:
        for kind, group in groupby(self._children(node), self._classify):
            nodes = list(group)
            if kind == "hidden":
                hidden = pluralize(sum(map(self._count_headings, nodes)), "heading")
                under.add(Text(f"{self._marks.cut} {hidden} not shown to the router", "dim"))
                continue
            first = nodes[:1] if kind == "retrieved" and len(nodes) > _FEW else nodes
            for each in first:
                line = under.add(self._format_node(each))
                if kind == "heading":
                    self._add(line, each)
            if len(first) < len(nodes):
                more = f"{self._marks.retrieved} and {len(nodes) - 1:,} more"
                under.add(Text(more, "cyan"))

    def _children(self, node: int) -> Iterator[int]:
        """Yield the headings and routed blocks under a heading, also those of nested lists."""
        for child in self._nodes[node].children:
            if self._nodes[child].structure:
                yield child
                continue
            if child in self._blocks:
                yield child
            yield from self._children(child)

    def _classify(self, node: int) -> str:
        if self._nodes[node].structure:
            return "heading" if node in self._drawn else "hidden"
        return "accepted" if node in self._routing.answers else "retrieved"

    def _count_headings(self, node: int) -> int:
        """Return the number of headings under a heading, with itself."""
        below = (child for child in self._nodes[node].children if self._nodes[child].structure)
        return 1 + sum(map(self._count_headings, below))

    def _format_node(self, node: int) -> Text:
        routing, marks = self._routing, self._marks
        text = to_one_line(self._nodes[node].text)
        if self._nodes[node].structure:
            signs = self._nodes[node].depth + 1
            title = text[signs:-signs].strip() or "(no title)"
            if node in routing.expanded:
                opened = f"  expanded, round {routing.expanded[node]}"
                return Text.assemble((f"{marks.expanded} {title}", "yellow"), (opened, "dim"))
            return Text(title, "" if node in self._bright else "dim")
        words = _cut_text(text.removeprefix("* "), marks.cut)
        if node not in routing.answers:
            return Text(f"{marks.retrieved} {words}", "cyan")
        found = ", retrieved" if node in self._retrieved else ""
        return Text.assemble(
            (f"{marks.accepted} {words}", "bold green"),
            (f"  round {routing.answers[node]}{found}", "dim"),
        )

    def _with_ancestors(self, nodes: Collection[int]) -> frozenset[int]:
        above = (i for node in nodes for i in self._routing.tree.ancestors(node))
        return frozenset((*nodes, *above))


def _cut_text(text: str, mark: str) -> str:
    """Return as much of a text as a line holds, in whole words where possible."""
    if len(text) <= _FIRST_WORDS:
        return text
    kept = text[:_FIRST_WORDS]
    return (kept[: kept.rfind(" ")] if kept.rfind(" ") > _FIRST_WORDS // 2 else kept) + mark
