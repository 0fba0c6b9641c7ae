"""Events of an RDR2 run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from colligate.core.events import Event, pluralize
from colligate.strategies.rdr2.router import Action, Rejected, Tag


@dataclass(frozen=True)
class Routed(Event):
    """The router saw a subtree of a document and replied.

    `round` is 0 for a subtree of the search and n for the document's n-th expansion, which opens
    the heading `expanded`. `highlighted` are the nodes that the subtree was built around, `shown`
    is its text, `omitted` are nodes that its token limit left out. `verdict` is "routed",
    "refused", or "collapsed" if nothing in the reply could be used. `cut`: the reply has no end.
    """

    document: str
    round: int
    expanded: int | None
    highlighted: tuple[int, ...]
    shown: str
    omitted: tuple[int, ...]
    verdict: str
    actions: tuple[Action, ...]
    rejected: tuple[Rejected, ...]
    dropped: tuple[str, ...]
    cut: bool = False

    def line(self) -> str:
        done = pluralize(len(self.actions), "action") if self.actions else self.verdict
        return f"routing {self.document}: {done}"

    @property
    def stage(self) -> Mapping[str, Sequence[str]]:
        accepted = any(action.tag is Tag.ANSWER for action in self.actions)
        return {"routed": [self.document] if accepted else []}

    @property
    def counts(self) -> Mapping[str, float]:
        collapsed = self.verdict == "collapsed"
        return {"subtrees": 1, "expelled": len(self.rejected), "collapsed": collapsed}
