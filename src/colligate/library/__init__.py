"""Documents on disk: ingested once, searched often, removed completely.

Only `sources` is imported with the package; strategies need nothing else.
"""

from colligate.library.sources import DocumentInfo, SearchMode, Sources

__all__ = ["DocumentInfo", "SearchMode", "Sources"]
