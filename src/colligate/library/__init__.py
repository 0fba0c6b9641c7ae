"""Where documents are kept and found: catalogue, passage index, ingestion, sources."""

from colligate.library.in_memory import Given
from colligate.library.ingest import Ingested, Progress
from colligate.library.library import Library, View
from colligate.library.sources import DocumentInfo, SearchMode, Sources

__all__ = [
    "DocumentInfo",
    "Given",
    "Ingested",
    "Library",
    "Progress",
    "SearchMode",
    "Sources",
    "View",
]
