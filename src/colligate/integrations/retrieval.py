"""The shared part of all retrievers: search with or without an event loop, and a hit's place."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

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
        """Return the passages, best first.

        Raises:
            UsageError: the library can only be awaited.
        """
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


def describe_place(hit: Hit) -> dict[str, Any]:
    """Return where a passage is: `Library.document(document).text[start:end]` is its text.

    `page` counts from 1, and is None for documents without pages. Scores compare within one search
    only.
    """
    passage = hit.passage
    return {
        "document": passage.document_id,
        "title": passage.title,
        "section": list(passage.section),
        "page": passage.page,
        "start": passage.span.start,
        "end": passage.span.end,
        "score": hit.score,
    }
