"""Draw routing: a document's headings, with the routed blocks under them."""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Iterable, Iterator
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from rich.console import Group, RenderableType
from rich.text import Text
from rich.tree import Tree as Drawing

from colligate.cli.display import console, counted, one_line
from colligate.core.events import Event
from colligate.strategies.rdr2.events import Routed
from colligate.strategies.rdr2.method import Routing

if TYPE_CHECKING:
    from colligate.engine import Routes
# Of an accepted or retrieved block so many characters are shown, and of many retrieved ones in a
# row the first alone.
_FIRST_WORDS = 48
_FEW = 3
_SHOWN = re.compile(r"^\t*(-?\d+): ", re.MULTILINE)


class Marks(NamedTuple):
    """What stands before a line, so that colour is not needed to tell."""

    accepted: str
    retrieved: str
    expanded: str
    cut: str


UNICODE = Marks("●", "○", "▾", "…")
ASCII = Marks("*", "o", ">", "...")


def routes_drawn(routes: Routes, events: Iterable[Event]) -> RenderableType:
    """Each document that was routed, then a legend and a line that sums up.

    `events` are those of the run: they say which headings a router was shown.
    """
    encoding = console(sys.stdout).encoding
    marks = UNICODE if encoding.startswith("utf") else ASCII
    shown: dict[str, set[int]] = {}
    for event in events:
        if isinstance(event, Routed):
            nodes = shown.setdefault(event.document, set())
            nodes.update(map(int, _SHOWN.findall(event.shown)))
    drawings = [
        _Routing(routing, shown.get(routing.tree.document.id, set()), marks).drawing()
        for routing in _routings(routes)
    ]
    parts: list[RenderableType] = []
    for drawing in drawings:
        parts += [drawing, Text()]
    parts.append(_legend(marks))
    if shown:
        parts.append(Text("Other headings were shown to the router and not chosen.", "dim"))
    return Group(*parts, _summary(routes))


class _Routing:
    """One document on its way to being drawn."""

    def __init__(self, routing: Routing, shown: set[int], marks: Marks) -> None:
        self._routing = routing
        self._nodes = routing.tree.nodes
        self._marks = marks
        self._retrieved = frozenset(routing.retrieved)
        blocks = self._retrieved.union(routing.answers)
        # Bright is what was accepted and all above it. A heading is folded away when neither it
        # was shown nor anything under it has to be drawn.
        self._bright = self._with_ancestors(routing.answers)
        self._drawn = self._with_ancestors({*blocks, *shown, *routing.expanded})
        self._blocks = blocks

    def drawing(self) -> Drawing:
        """The document with all that is drawn under it."""
        routing, document = self._routing, self._routing.tree.document
        said = f"{counted(routing.shown, 'subtree')} shown, {routing.refused:,} refused"
        root = Text.assemble(
            (one_line(document.title), "bold"), (f"  {one_line(document.id)}\n{said}", "dim")
        )
        drawing = Drawing(root, guide_style="dim")
        self._add(drawing, routing.tree.root)
        return drawing

    def _add(self, under: Drawing, node: int) -> None:
        for what, group in groupby(self._children(node), self._what):
            nodes = list(group)
            if what == "hidden":
                said = counted(sum(map(self._headings, nodes)), "heading")
                under.add(Text(f"{self._marks.cut} {said} not shown to the router", "dim"))
                continue
            first = nodes[:1] if what == "retrieved" and len(nodes) > _FEW else nodes
            for each in first:
                line = under.add(self._line(each))
                if what == "heading":
                    self._add(line, each)
            if len(first) < len(nodes):
                more = f"{self._marks.retrieved} and {len(nodes) - 1:,} more"
                under.add(Text(more, "cyan"))

    def _children(self, node: int) -> Iterator[int]:
        """The headings and routed blocks under a heading, those of nested lists side by side."""
        for child in self._nodes[node].children:
            if self._nodes[child].structure:
                yield child
                continue
            if child in self._blocks:
                yield child
            yield from self._children(child)

    def _what(self, node: int) -> str:
        if self._nodes[node].structure:
            return "heading" if node in self._drawn else "hidden"
        return "accepted" if node in self._routing.answers else "retrieved"

    def _headings(self, node: int) -> int:
        """How many headings a heading is, with those under it."""
        below = (child for child in self._nodes[node].children if self._nodes[child].structure)
        return 1 + sum(map(self._headings, below))

    def _line(self, node: int) -> Text:
        routing, marks = self._routing, self._marks
        text = one_line(self._nodes[node].text)
        if self._nodes[node].structure:
            signs = self._nodes[node].depth + 1
            title = text[signs:-signs].strip() or "(no title)"
            if node in routing.expanded:
                opened = f"  expanded, round {routing.expanded[node]}"
                return Text.assemble((f"{marks.expanded} {title}", "yellow"), (opened, "dim"))
            return Text(title, "" if node in self._bright else "dim")
        words = _first_words(text.removeprefix("* "), marks.cut)
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


def _legend(marks: Marks) -> Text:
    return Text.assemble(
        (f"{marks.accepted} accepted", "bold green"),
        "   ",
        (f"{marks.retrieved} retrieved, not accepted", "cyan"),
        "   ",
        (f"{marks.expanded} expanded", "yellow"),
        ("   round 0 is the search", "dim"),
    )


def _routings(routes: Routes) -> list[Routing]:
    return [routing for routing in routes.routings if isinstance(routing, Routing)]


def _summary(routes: Routes) -> Text:
    routings = _routings(routes)
    shown = sum(routing.shown for routing in routings)
    refused = sum(routing.refused for routing in routings)
    accepted = sum(len(routing.answers) for routing in routings)
    said = [
        f"{counted(accepted, 'block')} accepted in {counted(len(routes.routings), 'document')}",
        f"{counted(shown, 'subtree')} shown, {refused:,} refused",
        counted(routes.usage.calls, "call"),
    ]
    return Text("; ".join(said))


def _first_words(text: str, cut: str) -> str:
    """As much of a text as a line holds, whole words where it has any."""
    if len(text) <= _FIRST_WORDS:
        return text
    kept = text[:_FIRST_WORDS]
    return (kept[: kept.rfind(" ")] if kept.rfind(" ") > _FIRST_WORDS // 2 else kept) + cut
