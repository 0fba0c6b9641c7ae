"""Retrieve and read: the best passages of one search, one answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from colligate.documents import Hit
from colligate.evidence.citing import Evidence
from colligate.evidence.reader import REPLY_TOKENS, Reply, reader_messages
from colligate.library.sources import SearchMode
from colligate.models import Role
from colligate.strategies.answer import Answer
from colligate.strategies.reading import read
from colligate.strategies.run import Run
from colligate.strategies.strategy import Needs
from colligate.strategies.trace import Pruned


@dataclass(frozen=True)
class RetrieveRead:
    """One search, the best passages, one answer.

    DualRAG's NativeRAG: the top 50 passages, reranked to 10, then one call. Without a reranker
    the first 10 of the search are read. Where 10 passages do not fit the model's window, the
    last are left out and the answer says so.
    """

    name: ClassVar[str] = "retrieve-read"
    needs: ClassVar[Needs] = Needs()

    pool: int = 50  # DualRAG, NativeRAG
    k: int = 10  # DualRAG, NativeRAG
    mode: SearchMode = SearchMode.HYBRID

    async def answer(self, question: str, run: Run) -> Answer:
        """Search, read, cite."""
        hits = await run.search(question, k=self.k, pool=self.pool, mode=self.mode)
        hits = await self._fitting(question, hits, run)
        passages = [hit.passage for hit in hits]
        evidence = [
            Evidence(hit.passage.span, hit.score, f"rank {rank} of the search")
            for rank, hit in enumerate(hits, 1)
        ]
        return await read(question, passages, run, strategy=self.name, evidence=evidence)

    async def _fitting(self, question: str, hits: Sequence[Hit], run: Run) -> list[Hit]:
        """The best hits that fit the reader's window."""
        kept = list(hits)
        while len(kept) > 1:
            messages = reader_messages(question, [hit.passage for hit in kept])
            room = await run.room(Role.READER, messages, REPLY_TOKENS, schema=Reply)
            if room is None or room >= 0:
                break
            kept.pop()
        if len(kept) < len(hits):
            left_out = tuple(hit.passage.span for hit in hits[len(kept) :])
            reason = f"{len(left_out)} of {len(hits)} passages do not fit the model's window"
            run.emit(Pruned(left_out, reason))
            run.warn(reason)
        return kept
