"""Events of an `auto` run: what the question takes, each decision."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from colligate.core.events import Event
from colligate.strategies.auto.prompts import QuestionKind

_DOING = {
    "read": "reading the best passages",
    "read on": "reading the next passages",
    "decompose": "looking up one step after the other",
    "dualrag": "looking up one step after the other",
    "per-document": "reading each document",
    "duquad": "reading again with another choice of passages",
    "rdr2": "following the headings of the best documents",
    "longrefiner": "reading the best documents by their headings",
}


@dataclass(frozen=True)
class Classified(Event):
    """The odds of each kind of question, in [0, 1]; they add up to 1."""

    odds: Mapping[str, float]

    def line(self) -> str:
        kind = max(self.odds, key=lambda name: self.odds[name])
        return f"the question seems to need {QuestionKind(kind).meaning} ({self.odds[kind]:.0%})"


@dataclass(frozen=True)
class Escalated(Event):
    """A step is taken: why, and its name."""

    why: str
    to: str

    def line(self) -> str:
        by = "" if self.to.startswith("read") else f" ({self.to})"
        return f"{self.why}: {_DOING.get(self.to, self.to)}{by}"

    @property
    def lasting(self) -> bool:
        return True
