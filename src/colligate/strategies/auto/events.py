"""Events of an `auto` run: what the question takes, what was found first, each decision."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from colligate.core.events import Event
from colligate.documents import Passage
from colligate.library.web import hide_folders


@dataclass(frozen=True)
class Classified(Event):
    """The odds of each kind of question, in [0, 1]; they add up to 1."""

    odds: Mapping[str, float]

    def line(self) -> str:
        kind = max(self.odds, key=lambda name: self.odds[name])
        return f"the question takes {kind} ({self.odds[kind]:.2f})"


@dataclass(frozen=True)
class Located(Event):
    """The first search is done: its best passages, before anything is read."""

    passages: tuple[Passage, ...]

    def line(self) -> str:
        places = dict.fromkeys(
            each.title if each.page is None else f"{each.title}, page {each.page}"
            for each in self.passages
        )
        more = f"; {len(places) - _SHOWN} more" if len(places) > _SHOWN else ""
        return f"located: {'; '.join(list(places)[:_SHOWN])}{more}"

    def to_json(self) -> dict[str, Any]:
        """Return the passages without the folders of their files: clients of a server see them."""
        plain = super().to_json()
        for passage in plain["passages"]:
            passage["source"] = hide_folders(passage["source"])
        return plain

    @property
    def lasting(self) -> bool:
        return True


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


_SHOWN = 4  # places in a line
