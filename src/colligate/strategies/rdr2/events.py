"""Events of an RDR2 run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from colligate.core.events import Event, pluralize
from colligate.strategies.rdr2.router import Action, Expelled, Tag


@dataclass(frozen=True)
class Routed(Event):
    """A router saw a subtree of a document and chose (RDR2).

    `round` is 0 for a subtree of the search, else it counts the document's expansions, and
    `expanded` is the heading opened. `lit` are the nodes it was made from, `shown` its text,
    `omitted` the nodes left out of it for its length. `verdict` is "routed", "refused", or
    "collapsed" where nothing could be made of the reply. `cut` where its end is missing.
    """

    document: str
    round: int
    expanded: int | None
    lit: tuple[int, ...]
    shown: str
    omitted: tuple[int, ...]
    verdict: str
    actions: tuple[Action, ...]
    expelled: tuple[Expelled, ...]
    dropped: tuple[str, ...]
    cut: bool = False

    def line(self) -> str:
        done = pluralize(len(self.actions), "action") if self.actions else self.verdict
        return f"routing {self.document}: {done}"

    @property
    def stage(self) -> Mapping[str, Sequence[str]]:
        accepted = any(action.tag is Tag.ANSWER for action in self.actions)
        return {"routed": [self.document] if accepted else []}
