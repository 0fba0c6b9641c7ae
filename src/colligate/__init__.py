"""Question answering over many long documents, every claim cited to its exact place.

from colligate import ask
print(ask("Which leases end this year?", "contracts/"))
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from colligate.core.answer import Answer, Citation, Evidence
    from colligate.core.run import Run
    from colligate.core.strategy import Strategy
    from colligate.documents import Document, Hit, Page, Passage, Span, Tree
    from colligate.engine import Engine, Routes
    from colligate.errors import ColligateError
    from colligate.library.in_memory import InMemorySources
    from colligate.library.library import AsyncLibrary as AsyncLibrary
    from colligate.library.sources import Sources
    from colligate.readers.followup import Turn
    from colligate.settings import Settings
    from colligate.strategies.longrefiner import LongRefiner, Refiner
    from colligate.strategies.rdr2.method import RDR2, Routing
    from colligate.sync import Library, ask
__version__ = "0.1.0"

# The module of each public name: `colligate --help` imports none of them.
_HOME = {
    **dict.fromkeys(("Answer", "Citation", "Evidence", "Refined"), "core.answer"),
    **dict.fromkeys(("Document", "Hit", "Page", "Passage", "Span", "Tree"), "documents"),
    **dict.fromkeys(("Engine", "Routes"), "engine"),
    **dict.fromkeys(("Library", "ask"), "sync"),
    **dict.fromkeys(("LongRefiner", "Refiner"), "strategies.longrefiner.method"),
    **dict.fromkeys(("RDR2", "Routing"), "strategies.rdr2.method"),
    "AsyncLibrary": "library.library",
    "ColligateError": "errors",
    "InMemorySources": "library.in_memory",
    "Run": "core.run",
    "Settings": "settings",
    "Sources": "library.sources",
    "Strategy": "core.strategy",
    "Turn": "readers.followup",
}

__all__ = [
    "RDR2",
    "Answer",
    "AsyncLibrary",
    "Citation",
    "ColligateError",
    "Document",
    "Engine",
    "Evidence",
    "Hit",
    "InMemorySources",
    "Library",
    "LongRefiner",
    "Page",
    "Passage",
    "Refined",
    "Refiner",
    "Routes",
    "Routing",
    "Run",
    "Settings",
    "Sources",
    "Span",
    "Strategy",
    "Tree",
    "Turn",
    "ask",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'colligate' has no attribute {name!r}")
    return getattr(import_module(f"colligate.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
