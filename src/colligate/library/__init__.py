"""Where documents are kept and found: catalogue, passage index, ingestion, sources."""

from colligate.library.in_memory import InMemorySources
from colligate.library.ingest import Ingested, Progress
from colligate.library.library import AsyncLibrary, View
from colligate.library.sources import DocumentInfo, SearchMode, Sources

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
