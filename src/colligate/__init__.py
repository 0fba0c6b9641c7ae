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
    from colligate.engine import Engine, Routes, aask, arefine
    from colligate.errors import ColligateError
    from colligate.library.in_memory import InMemorySources
    from colligate.library.library import AsyncLibrary as AsyncLibrary
    from colligate.library.sources import Sources
    from colligate.readers.followup import Turn
    from colligate.settings import Settings
    from colligate.strategies.longrefiner import LongRefiner, Refiner
    from colligate.strategies.rdr2.method import RDR2, Routing
    from colligate.sync import Library, ask, refine
__version__ = "0.1.0"

# Where each public name lives. Loaded when first used: `colligate --help` needs none of them.
_HOME = {
    "Answer": "colligate.core.answer",
    "AsyncLibrary": "colligate.library.library",
    "Citation": "colligate.core.answer",
    "ColligateError": "colligate.errors",
    "Document": "colligate.documents",
    "Engine": "colligate.engine",
    "Evidence": "colligate.core.answer",
    "InMemorySources": "colligate.library.in_memory",
    "Hit": "colligate.documents",
    "Library": "colligate.sync",
    "LongRefiner": "colligate.strategies.longrefiner.method",
    "Page": "colligate.documents",
    "Passage": "colligate.documents",
    "RDR2": "colligate.strategies.rdr2.method",
    "Refined": "colligate.core.answer",
    "Refiner": "colligate.strategies.longrefiner.method",
    "Routes": "colligate.engine",
    "Routing": "colligate.strategies.rdr2.method",
    "Run": "colligate.core.run",
    "Settings": "colligate.settings",
    "Sources": "colligate.library.sources",
    "Span": "colligate.documents",
    "Strategy": "colligate.core.strategy",
    "Tree": "colligate.documents",
    "Turn": "colligate.readers.followup",
    "aask": "colligate.engine",
    "arefine": "colligate.engine",
    "ask": "colligate.sync",
    "refine": "colligate.sync",
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
    "aask",
    "arefine",
    "ask",
    "refine",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'colligate' has no attribute {name!r}")
    module, _, attribute = _HOME[name].partition(":")
    return getattr(import_module(module), attribute or name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
