"""What every adapter does: search a library, with an event loop or without, and say the place."""

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
class Search:
    """A library, and how it is searched: the `k` best passages, all documents or some."""

    library: Library | Sources
    k: int = 10
    mode: SearchMode = SearchMode.HYBRID
    documents: Collection[str] | None = None

    def hits(self, query: str) -> list[Hit]:
        """The passages, best first.

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

    async def ahits(self, query: str) -> list[Hit]:
        """The passages, best first; the event loop goes on meanwhile."""
        if isinstance(self.library, Library):
            return await asyncio.to_thread(self.hits, query)
        return await self.library.search(query, k=self.k, mode=self.mode, documents=self.documents)


def metadata(hit: Hit) -> dict[str, Any]:
    """Where a passage stands: `Library.document(document).text[start:end]` is its text.

    `page` counts from 1 and is None for documents without pages; scores compare within one
    search only.
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
