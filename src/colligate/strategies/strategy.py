"""What a strategy is, and how it is found by name."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, ClassVar, Protocol

from colligate.errors import UnknownStrategy
from colligate.models import Capability
from colligate.strategies.answer import Answer
from colligate.strategies.run import Run

GROUP = "colligate.strategies"


@dataclass(frozen=True)
class Needs:
    """What a strategy must have and what it can do without.

    `searches`: it looks passages up, so the documents must be indexed; `reads`: it looks at
    documents at all.
    """

    required: frozenset[Capability] = frozenset({Capability.CHAT})
    optional: frozenset[Capability] = frozenset()
    searches: bool = True
    reads: bool = True


class Strategy(Protocol):
    """A paper's algorithm: a frozen dataclass whose fields are the paper's parameters."""

    name: ClassVar[str]
    needs: ClassVar[Needs]

    async def answer(self, question: str, run: Run) -> Answer:
        """Answer one question. Holds no state between calls."""
        ...


@cache
def available() -> dict[str, EntryPoint]:
    """All registered strategies by name, colligate's own and those of other packages."""
    return {e.name: e for e in sorted(entry_points(group=GROUP), key=lambda e: e.name)}


def strategy_type(name: str) -> type[Strategy]:
    """The class behind a strategy's name.

    Raises:
        UnknownStrategy: if none is registered under it.
    """
    known = available()
    if name not in known:
        close = difflib.get_close_matches(name, known, n=1)
        raise UnknownStrategy(
            f"unknown strategy {name!r}",
            f"did you mean {close[0]!r}?" if close else f"there are {', '.join(known)}",
            "colligate strategies lists them",
        )
    loaded: type[Strategy] = known[name].load()
    return loaded


def strategy(name: str, **parameters: Any) -> Strategy:
    """A strategy by name, with the paper's defaults unless given otherwise.

    Raises:
        UnknownStrategy: if none is registered under it, or it has no such parameter.
    """
    kind = strategy_type(name)
    try:
        return kind(**parameters)
    except TypeError as error:
        raise UnknownStrategy(f"{name} cannot be set up so", str(error)) from error


def summary(kind: type[Strategy]) -> str:
    """The first line of a strategy's docstring."""
    return (kind.__doc__ or "").strip().split("\n")[0].rstrip(".")
