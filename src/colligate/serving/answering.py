"""What the faces for other programs need of whoever answers, and the smallest that does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from colligate.engine import DEFAULT_STRATEGY, Engine
from colligate.errors import UsageError
from colligate.library.sources import Sources
from colligate.strategies.answer import Answer
from colligate.strategies.trace import Listener

DEFAULT_LIBRARY = "default"


class Answering(Protocol):
    """Libraries by name, and questions answered over them. None is the default library."""

    async def libraries(self) -> Sequence[str]:
        """The names of the libraries, the default first."""
        ...

    async def sources(self, library: str | None = None) -> Sources:
        """What one library holds.

        Raises:
            UsageError: there is no library of this name.
        """
        ...

    async def answer(
        self,
        question: str,
        *,
        library: str | None = None,
        strategy: str = DEFAULT_STRATEGY,
        on_event: Listener | None = None,
    ) -> Answer:
        """Answer a question over one library.

        Raises:
            ColligateError: as `Engine.ask`; also when nothing more can be taken on just now.
        """
        ...


@dataclass(frozen=True)
class OneLibrary:
    """`Answering` over the library of one engine: of `paths`, or all of it without any.

    Paths are looked at anew each time, so that files added or changed meanwhile are seen.
    """

    engine: Engine
    paths: Sequence[str | Path] = ()

    async def libraries(self) -> Sequence[str]:
        """The one there is."""
        return [DEFAULT_LIBRARY]

    async def sources(self, library: str | None = None) -> Sources:
        """The documents of the paths, or the whole library."""
        _hold_to_one(library)
        opened = await self.engine.open_library()
        if not self.paths:
            return opened
        return opened.view((await self.engine.add(self.paths)).document_ids)

    async def answer(
        self,
        question: str,
        *,
        library: str | None = None,
        strategy: str = DEFAULT_STRATEGY,
        on_event: Listener | None = None,
    ) -> Answer:
        """`Engine.ask`."""
        _hold_to_one(library)
        return await self.engine.ask(question, self.paths, strategy=strategy, on_event=on_event)


def _hold_to_one(library: str | None) -> None:
    if library not in (None, DEFAULT_LIBRARY):
        why = f"there is only {DEFAULT_LIBRARY!r} here"
        raise UsageError(f"there is no library {library!r}", why, "leave its name out")
