"""How well a reply routes: RDR2's metrics of the router alone (its `eval_routing`)."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence

from colligate.documents import Basis, Document, Kind, Span, Structure, Tree, TreeBuilder
from colligate.strategies.rdr2.router import parse_router_reply
from colligate.strategies.rdr2.tree import StructureNode, StructureTree, SubTree
from colligate.training.samples import Sample

_LINE = re.compile(r"(\t*)(-?\d+): ?(.*)", re.DOTALL)
_HIDDEN = 1 << 30  # a depth below any other: what is not shown ends no section


def score(sample: Sample, reply: str) -> Mapping[str, float]:
    """The metrics of one reply, each only where the sample has what it measures.

    `ans_f1` is the F1 of the paragraphs chosen, 0 if none were; `exp_pre` the precision of the
    headings chosen, 0 if none were; `ref_acc` whether nothing was chosen where nothing should be.
    `xpl_avg` counts the actions that break a rule, and `col_rate` is 1 where nothing at all could
    be made of the reply.
    """
    view = shown_subtree(sample.meta["shown"], sample.meta["headings"])
    gold, made = parse_router_reply(sample.target, view), parse_router_reply(reply, view)
    found: dict[str, float] = {}
    if gold.answers:
        found["ans_f1"] = _f1(set(made.answers), set(gold.answers))
    if gold.expansions:
        right = len(set(made.expansions) & set(gold.expansions))
        found["exp_pre"] = right / len(made.expansions) if made.expansions else 0.0
    if not gold.actions:
        found["ref_acc"] = float(not made.actions)
    found["xpl_avg"] = float(len(made.rejected))
    found["col_rate"] = float(made.collapsed)
    return found


def summed(scores: Sequence[Mapping[str, float]]) -> Mapping[str, float]:
    """The mean of each metric over the replies that have it; 0 to 1 but for `xpl_avg`."""
    found: defaultdict[str, list[float]] = defaultdict(list)
    for each in scores:
        for metric, value in each.items():
            found[metric].append(value)
    return {metric: sum(values) / len(values) for metric, values in found.items()}


def _f1(made: set[int], gold: set[int]) -> float:
    return 2 * len(made & gold) / (len(made) + len(gold))


def shown_subtree(shown: str, headings: Collection[int]) -> SubTree:
    """What a router was shown, read back from its text: `parse_router_reply` rules on it alike.

    `headings` are the ids of the lines that are headings, which their words alone do not tell.

    Raises:
        ValueError: the text shows no nodes, or one twice.
    """
    lines = list(_lines(shown))
    visible = {node: (depth, text) for node, depth, text in lines}
    if not visible or len(visible) < len(lines):
        raise ValueError("it shows no nodes" if not visible else "it shows a node twice")
    root = min(visible)
    span = Span(_DOCUMENT.id, 0, 0)
    nodes = {}
    # What is not shown is there without words: ids count up by one in a tree.
    for node in range(root, max(visible) + 1):
        depth, text = visible.get(node, (_HIDDEN, ""))
        nodes[node] = StructureNode(node, node in headings, depth, text, span, None, ())
    tree = StructureTree(_DOCUMENT, nodes, root, _DOCUMENT.tree, {})
    return SubTree(tree, (), frozenset(visible), shown, frozenset())


def _lines(shown: str) -> Iterator[tuple[int, int, str]]:
    """Node, depth and text of each line."""
    for line in shown.split("\n"):
        if found := _LINE.fullmatch(line):
            yield int(found[2]), len(found[1]), found[3]


def _nowhere() -> Tree:
    builder = TreeBuilder("shown")
    builder.add(Kind.ROOT, 0, 0, None)
    return builder.build(Structure(0.0, Basis.NONE))


_DOCUMENT = Document("shown", "", "", _nowhere())
