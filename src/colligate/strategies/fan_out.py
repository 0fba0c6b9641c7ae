"""Many documents read by an agent each, a bounded number at once; what is done is not done again.

Memory holds what was found, never the documents: agents take the next document when they are
free, and each outcome is kept as it comes, so that a run that is interrupted goes on where it was.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import TypeVar

from colligate.library.sources import DocumentInfo
from colligate.models import Role
from colligate.strategies.document_agent import DocumentAgent, Outcome, Status
from colligate.strategies.run import Run
from colligate.strategies.side_by_side import side_by_side
from colligate.strategies.spd_rag_trace import AgentEnded, places_of
from colligate.strategies.trace import Progressed

T = TypeVar("T")
R = TypeVar("R")

VERSION = 2
"""Of what is kept: outcomes of another version are not used."""


async def pooled(items: Sequence[T], work: Callable[[T], Awaitable[R]], most: int) -> list[R]:
    """The result of each item, in their order, at most `most` under way at once."""
    results: dict[int, R] = {}
    waiting = iter(enumerate(items))

    async def worker() -> None:
        for place, item in waiting:
            results[place] = await work(item)

    await side_by_side(worker() for _ in range(min(most, len(items))))
    return [results[place] for place in range(len(items))]


@dataclass
class FanOut:
    """The agents of one run, at most `concurrency` at work."""

    agent: DocumentAgent
    run: Run
    concurrency: int
    known: int = 0
    """How many outcomes were those of a run that was interrupted."""
    _spent: bool = field(default=False, repr=False)
    _read: int = field(default=0, repr=False)
    _failed: int = field(default=0, repr=False)

    async def read(self, documents: Sequence[DocumentInfo]) -> list[Outcome]:
        """The outcome of each document, in their order.

        Once the token budget refuses an agent its first call, those that come after it are not
        begun; nor are they once many failed and none did not.
        """
        total, done = len(documents), 0
        self.run.emit(Progressed(_PHASE, 0, total))

        async def one(info: DocumentInfo) -> Outcome:
            nonlocal done
            outcome = await self._outcome(info)
            done += 1
            self.run.emit(Progressed(_PHASE, done, total, info.title))
            return outcome

        return await pooled(documents, one, self.concurrency)

    async def forget(self, documents: Sequence[DocumentInfo]) -> None:
        """Keep the outcomes no longer: asked again, the agents are asked again."""

        def clear() -> None:
            for info in documents:
                self.run.kept.put(self._key(info), None, [info.id])

        await asyncio.to_thread(clear)

    async def _outcome(self, info: DocumentInfo) -> Outcome:
        key = self._key(info)
        kept = await asyncio.to_thread(self.run.kept.get, key)
        if isinstance(kept, dict):
            self.known += 1
            outcome = Outcome.from_json(info, kept)
        elif self._spent:
            outcome = Outcome(info.id, info.title, Status.UNREAD)
        elif self._failed >= _HOPELESS and not self._read:
            why = f"not begun, as the {self._failed} before it failed"
            outcome = Outcome(info.id, info.title, Status.FAILED, problem=why)
        else:
            outcome = await self.agent.read(info, self.run)
            self._spent |= outcome.status is Status.UNREAD and not outcome.turns
            self._failed += outcome.status is Status.FAILED
            self._read += outcome.status is Status.READ
            if outcome.status is Status.READ:
                await asyncio.to_thread(self.run.kept.put, key, outcome.to_json(), [info.id])
        self.run.emit(_ended(outcome, kept=isinstance(kept, dict)))
        return outcome

    def _key(self, info: DocumentInfo) -> str:
        """SHA-256 of what an outcome depends on."""
        worker = self.run.model(Role.WORKER)
        version = str(getattr(worker, "version", ""))
        reranker = self.run.reranker.name if self.run.reranker else ""
        made = ["spd-rag", VERSION, worker.name, version, reranker, asdict(self.agent), info.id]
        return hashlib.sha256(json.dumps(made).encode()).hexdigest()


_PHASE = "reading documents"
_HOPELESS = 20  # failures without a document read: the server is gone, or the key is wrong


def _ended(outcome: Outcome, *, kept: bool) -> AgentEnded:
    return AgentEnded(
        document=outcome.document,
        title=outcome.title,
        status=outcome.status.value,
        findings=places_of(outcome.findings),
        relevance=outcome.relevance,
        searches=outcome.searches,
        turns=outcome.turns,
        dropped=outcome.dropped,
        problem=outcome.problem,
        kept=kept,
    )
