"""RDR2's Retrieval SubTree: all headings of a document and the content around what was found."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from colligate.evidence.structure_tree import StructureTree
from colligate.token_estimate import estimate_tokens

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
        return self._count(_line(self._tree, node, text) + "\n")


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
    return "\n".join(_line(tree, node, texts[node]) for node in sorted(texts))


def _line(tree: StructureTree, node: int, text: str) -> str:
    return "\t" * tree.nodes[node].depth + f"{node}: {text}"
