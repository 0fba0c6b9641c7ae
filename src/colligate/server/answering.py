"""What the faces for other programs need of whoever answers, and the smallest that does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from colligate.engine import DEFAULT_STRATEGY, Engine
from colligate.errors import UsageError
from colligate.library.sources import Sources

DEFAULT_LIBRARY = "default"
BESIDE = ".libraries"
"""What the folder of a server's other libraries ends in, after the name of the default's."""

OnStep = Callable[[Mapping[str, Any]], None]
"""Gets each event of a run as JSON; may be called from any thread."""


class Answering(Protocol):
    """Libraries by name, and questions answered over them."""

    async def libraries(self) -> Sequence[str]:
        """The names of the libraries, the default first."""
        ...

    async def sources(self, library: str = DEFAULT_LIBRARY) -> Sources:
        """What one library holds.

        Raises:
            ColligateError: there is no library of this name, or it cannot be opened.
        """
        ...

    async def answer(
        self,
        question: str,
        *,
        library: str = DEFAULT_LIBRARY,
        strategy: str = DEFAULT_STRATEGY,
        on_step: OnStep | None = None,
    ) -> dict[str, Any]:
        """The object of `ask --json` for a question over one library; cancelled, it stops.

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

    async def sources(self, library: str = DEFAULT_LIBRARY) -> Sources:
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
        library: str = DEFAULT_LIBRARY,
        strategy: str = DEFAULT_STRATEGY,
        on_step: OnStep | None = None,
    ) -> dict[str, Any]:
        """What `Engine.ask` answers."""
        _hold_to_one(library)
        tell = on_step or _silent
        answer = await self.engine.ask(
            question,
            self.paths,
            strategy=strategy,
            on_event=lambda event: tell(event.to_json()),
        )
        return answer.to_json()


def _hold_to_one(library: str) -> None:
    if library != DEFAULT_LIBRARY:
        why = f"there is only {DEFAULT_LIBRARY!r} here"
        raise UsageError(f"there is no library {library!r}", why, "leave its name out")


def _silent(_: Mapping[str, Any]) -> None:
    pass
