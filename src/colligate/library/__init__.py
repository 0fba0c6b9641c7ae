"""Documents on disk: ingested once, searched often, removed completely.

Only `sources` is imported with the package; strategies need nothing else. The rest is imported at
its first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from colligate.library.sources import DocumentInfo, SearchMode, Sources

if TYPE_CHECKING:
    from colligate.library.in_memory import InMemorySources
    from colligate.library.ingest import Ingested, Progress
    from colligate.library.library import AsyncLibrary, View

__all__ = [
    "AsyncLibrary",
    "DocumentInfo",
    "InMemorySources",
    "Ingested",
    "Progress",
    "SearchMode",
    "Sources",
    "View",
]

_HOME = {
    "AsyncLibrary": "colligate.library.library",
    "InMemorySources": "colligate.library.in_memory",
    "Ingested": "colligate.library.ingest",
    "Progress": "colligate.library.ingest",
    "View": "colligate.library.library",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'colligate.library' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
