"""Events of an `auto` run: what the question takes, each decision."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from colligate.core.events import Event


@dataclass(frozen=True)
class Classified(Event):
    """The odds of each kind of question, in [0, 1]; they add up to 1."""

    odds: Mapping[str, float]

    def line(self) -> str:
        kind = max(self.odds, key=lambda name: self.odds[name])
        return f"the question takes {kind} ({self.odds[kind]:.2f})"


@dataclass(frozen=True)
class Escalated(Event):
    """Another method takes over: what is missing, and the method."""

    why: str
    to: str

    def line(self) -> str:
        return f"{self.why}: asking {self.to}"

    @property
    def lasting(self) -> bool:
        return True
