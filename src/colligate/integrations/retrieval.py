"""The shared part of all retrievers: search with or without an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import dataclass

from colligate.documents import Hit
from colligate.errors import UsageError
from colligate.library.sources import SearchMode, Sources
from colligate.sync import Library


@dataclass(frozen=True)
class PassageSearch:
    """A library and how to search it: for the `k` best passages, of all documents or of some."""

    library: Library | Sources
    k: int = 10
    mode: SearchMode = SearchMode.HYBRID
    documents: Collection[str] | None = None

    def run(self, query: str) -> list[Hit]:
        """Return the passages, best first; a library that can only be awaited is an error."""
        if not isinstance(self.library, Library):
            raise UsageError(
                "this library can only be searched with await",
                f"{type(self.library).__name__} has no calls without an event loop",
                "await the retriever, or give it a colligate.Library",
            )
        return self.library.search(query, k=self.k, mode=self.mode, documents=self.documents)

    async def arun(self, query: str) -> list[Hit]:
        """Return the passages, best first, without blocking the event loop."""
        if isinstance(self.library, Library):
            return await asyncio.to_thread(self.run, query)
        return await self.library.search(query, k=self.k, mode=self.mode, documents=self.documents)
