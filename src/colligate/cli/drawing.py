"""Drawings of a document's headings: what is in each, and where a question leads."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from textwrap import shorten

from rich.console import Group, RenderableType
from rich.text import Text
from rich.tree import Tree as Drawing

from colligate.cli.display import to_one_line
from colligate.core.events import Event, pluralize
from colligate.documents import Document, Node
from colligate.documents.document import page_number
from colligate.documents.tree import Basis
from colligate.engine import Routes
from colligate.strategies.rdr2.method import Routing
from colligate.strategies.rdr2.router import Routed


def draw_document(document: Document) -> Drawing:
    """Return a drawing of a document's headings with the number of blocks in each."""
    tree, structure = document.tree, document.tree.structure
    pages = f", {len(document.pages):,} pages" if document.pages else ""
    size = f"{len(document):,} characters{pages}, language {document.language}"
    sure = "no headings"
    if structure.basis is not Basis.NONE:
        sure = f"{structure.confidence:.0%} sure, from {structure.basis.value}"
    note = f" ({to_one_line(structure.note)})" if structure.note else ""
    root = Text.assemble(
        (to_one_line(document.title), "bold"),
        (f"  {to_one_line(document.id)}\n{size}\n", "dim"),
        f"structure: {sure}{note}",
    )
    drawn = {tree.root.id: Drawing(root, guide_style="dim")}
    for section in tree.sections:
        title = to_one_line(section.title) or "(before the first heading)"
        page = page_number(document, section)
        place = "" if page is None else f"page {page}, "
        parent = section.parent
        while parent not in drawn:
            parent = tree.nodes[parent or 0].parent
        about = f"  {place}{_describe_section(document, section)}"
        drawn[section.id] = drawn[parent].add(Text.assemble(title, (about, "dim")))
    if not tree.sections:
        drawn[tree.root.id].add(Text(_describe_section(document, tree.root)))
    return drawn[tree.root.id]


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

_FIRST_WORDS = 48  # characters that are shown of an accepted or retrieved block
_SHOWN = re.compile(r"^\t*(-?\d+): ", re.MULTILINE)
# The signs before a line, so that colour is not needed.
_ACCEPTED, _RETRIEVED, _EXPANDED = "●", "○", "▾"


def draw_routes(routes: Routes, events: Iterable[Event]) -> RenderableType:
    """Return a drawing of each routed document, then a legend and a summary.

    `events` are those of the run: they say which headings the router was shown.
    """
    shown: defaultdict[str, set[int]] = defaultdict(set)
    for event in events:
        if isinstance(event, Routed):
            shown[event.document].update(map(int, _SHOWN.findall(event.shown)))
    parts: list[RenderableType] = []
    for routing in routes.routings:
        parts += [_draw_routing(routing, shown[routing.tree.document.id]), Text()]
    legend = Text.assemble(
        (f"{_ACCEPTED} accepted   ", "bold green"),
        (f"{_RETRIEVED} retrieved, not accepted   ", "cyan"),
        (f"{_EXPANDED} expanded   ", "yellow"),
        ("other headings were shown to the router and not chosen; round 0 is the search", "dim"),
    )
    return Group(*parts, legend, _summarize(routes))


def _summarize(routes: Routes) -> Text:
    accepted = sum(len(routing.answers) for routing in routes.routings)
    documents = pluralize(len(routes.routings), "document")
    return Text(
        f"{pluralize(accepted, 'block')} accepted in {documents}; "
        f"{_count_subtrees(routes.routings)}; {pluralize(routes.usage.calls, 'call')}"
    )


def _count_subtrees(routings: Sequence[Routing]) -> str:
    shown = sum(routing.shown for routing in routings)
    refused = sum(routing.refused for routing in routings)
    return f"{pluralize(shown, 'subtree')} shown, {refused:,} refused"


def _draw_routing(routing: Routing, shown: Collection[int]) -> Drawing:
    """Return the headings that the router was shown, and the blocks found and accepted in them."""
    tree = routing.tree
    blocks = {*routing.retrieved, *routing.answers}
    drawn = {*blocks, *shown, *routing.expanded}
    drawn |= {above for node in drawn for above in tree.ancestors(node)}

    def add(under: Drawing, node: int) -> None:
        for child in tree.nodes[node].children:
            heading = tree.nodes[child].structure
            if child in blocks or (heading and child in drawn):
                add(under.add(_format_node(routing, child)), child)
            elif not heading:  # blocks may be nested in lists
                add(under, child)

    root = Text.assemble(
        (to_one_line(tree.document.title), "bold"),
        (f"  {to_one_line(tree.document.id)}\n{_count_subtrees([routing])}", "dim"),
    )
    drawing = Drawing(root, guide_style="dim")
    add(drawing, tree.root)
    return drawing


def _format_node(routing: Routing, node: int) -> Text:
    read = routing.tree.nodes[node]
    text = to_one_line(read.text)
    if read.structure:
        title = text[read.depth + 1 : -read.depth - 1].strip() or "(no title)"
        if node not in routing.expanded:
            return Text(title, "dim")
        opened = f"  expanded, round {routing.expanded[node]}"
        return Text.assemble((f"{_EXPANDED} {title}", "yellow"), (opened, "dim"))
    words = shorten(text.removeprefix("* "), _FIRST_WORDS, placeholder="…")
    if node not in routing.answers:
        return Text(f"{_RETRIEVED} {words}", "cyan")
    found = ", retrieved" if node in routing.retrieved else ""
    return Text.assemble(
        (f"{_ACCEPTED} {words}", "bold green"),
        (f"  round {routing.answers[node]}{found}", "dim"),
    )
