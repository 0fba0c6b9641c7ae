"""Where documents are kept and found: catalogue, passage index, ingestion, sources."""

from colligate.library.given import Given
from colligate.library.ingestion import Ingested, Progress
from colligate.library.library import Library
from colligate.library.sources import DocumentInfo, SearchMode, Sources
from colligate.library.view import View

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
