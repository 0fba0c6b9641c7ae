"""The agent of one document (SPD-RAG): it searches inside it until its tasks are done."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

from colligate.documents import Passage, Span
from colligate.errors import BudgetExceeded, ColligateError, ContextTooSmall
from colligate.evidence.citing import Place, Stated, resolved
from colligate.evidence.document_agent import (
    BEGIN,
    FRAME,
    LAST,
    NO_QUERY,
    NOTHING_NEW,
    FirstTurn,
    LastTurn,
    Turn,
    agent_messages,
)
from colligate.evidence.reader import Statement
from colligate.library.sources import DocumentInfo, SearchMode
from colligate.models import Message, Role
from colligate.strategies.run import Run
from colligate.strategies.spd_rag_trace import AgentTurn
from colligate.strategies.trace import Pruned


class Status(StrEnum):
    """What became of a document."""

    READ = "read"
    EMPTY = "empty"  # it has no passage
    FAILED = "failed"
    UNREAD = "unread"  # the token budget was spent


@dataclass(frozen=True)
class Outcome:
    """What an agent found in its document.

    Every finding has places; `dropped` had none. One that failed or ran out of tokens on the
    way still hands in what it found till then. `relevance` is in [0, 1], by the agent.
    """

    document: str
    title: str
    status: Status
    findings: tuple[Stated, ...] = ()
    relevance: float = 0.0
    searches: int = 0
    turns: int = 0
    dropped: int = 0
    problem: str = ""

    @property
    def whole(self) -> bool:
        """Whether the agent came to its end."""
        return self.status in (Status.READ, Status.EMPTY)

    def to_json(self) -> dict[str, Any]:
        """To be kept; the document is known by the key."""
        return {
            "status": self.status.value,
            "findings": [
                [each.sentence, [[p.span.start, p.span.end, p.how] for p in each.places]]
                for each in self.findings
            ],
            "relevance": self.relevance,
            "searches": self.searches,
            "turns": self.turns,
            "dropped": self.dropped,
        }

    @classmethod
    def from_json(cls, info: DocumentInfo, kept: dict[str, Any]) -> Outcome:
        """What was kept of a document."""
        findings = tuple(
            Stated(
                sentence,
                tuple(Place(Span(info.id, start, end), how) for start, end, how in places),
            )
            for sentence, places in kept["findings"]
        )
        counts = {name: kept[name] for name in ("relevance", "searches", "turns", "dropped")}
        return cls(info.id, info.title, Status(kept["status"]), findings, **counts)


@dataclass(frozen=True)
class DocumentAgent:
    """How each document is read; the fields are those of `SPDRAG` and the coordinator's tasks."""

    tasks: tuple[str, ...]
    question: str
    question_reaches: bool
    searches: int
    k: int
    pool: int
    mode: SearchMode
    tokens: int
    first_search: Literal["asked", "question"]

    async def read(self, info: DocumentInfo, run: Run) -> Outcome:
        """Read one document; what goes wrong is its outcome, and nobody else's."""
        if not info.passages:
            return Outcome(info.id, info.title, Status.EMPTY)
        reading = _Reading(info)
        status, problem = Status.READ, ""
        try:
            await self._work(reading, run)
        except BudgetExceeded as error:
            status, problem = Status.UNREAD, str(error)
        except ColligateError as error:
            status, problem = Status.FAILED, str(error)
        findings: tuple[Stated, ...] = ()
        try:
            findings = await self._located(reading, run)
        except ColligateError as error:
            status, problem = Status.FAILED, str(error)
        return Outcome(
            info.id,
            info.title,
            status,
            findings,
            reading.relevance if findings else 0.0,
            len(reading.queries),
            reading.turns,
            len({each.sentence.strip() for each in reading.statements} - {""}) - len(findings),
            problem,
        )

    async def _work(self, reading: _Reading, run: Run) -> None:
        """The loop: at most `searches` turns, and one more for what the last search brought."""
        new: list[Passage] = []
        remark = BEGIN
        for number in range(1, self.searches + 2):
            last = remark == LAST
            if number == 1 and self.first_search == "question":
                query = self.question if self.question_reaches else " ".join(self.tasks)
                turn = Turn(action="search", query=query)
            else:
                schema = LastTurn if last else Turn if reading.shown else FirstTurn
                messages = self._messages(reading, new, remark)
                asked = run.structured(messages, schema, role=Role.WORKER, max_tokens=self.tokens)
                turn = (await asked).value
                reading.take(turn)
            ended = last or (turn.action == "finalize" and bool(reading.shown))
            found = [] if ended else await self._search(turn.query, reading, run)
            new = await self._fitting(reading, found, run)
            # No search is left where the whole document was shown.
            whole = len(reading.shown) + len(new) >= reading.info.passages
            closing = number == self.searches or (bool(new) and whole)
            self._record(reading, turn, new, run)
            if ended or (closing and not new):
                return  # what was shown is dealt with: there is nothing to finalize
            remark = LAST if closing else "" if new else NOTHING_NEW
            if not turn.query.strip():
                remark = NO_QUERY
            reading.shown += new

    def _messages(
        self, reading: _Reading, passages: Sequence[Passage], remark: str, *, more: int = 0
    ) -> list[Message]:
        """The prompt of a turn that is shown these passages, `more` of which were not shown yet."""
        return agent_messages(
            reading.info.title,
            self.tasks,
            self.searches,
            question=self.question if self.question_reaches else "",
            passages=passages,
            first=len(reading.shown) + more - len(passages) + 1,
            noted=[statement.sentence for statement in reading.statements],
            searched=reading.queries,
            remark=remark,
        )

    async def _search(self, query: str, reading: _Reading, run: Run) -> list[Passage]:
        """The passages found that were not shown before."""
        if not query.strip():
            return []
        reading.queries.append(query)
        hits = await run.search(
            query, k=self.k, pool=self.pool, mode=self.mode, documents=[reading.info.id]
        )
        seen = {passage.span for passage in reading.shown}
        return [hit.passage for hit in hits if hit.passage.span not in seen]

    async def _fitting(
        self, reading: _Reading, found: Sequence[Passage], run: Run
    ) -> list[Passage]:
        """The best of the passages found that fit the worker's window."""
        kept = list(found)
        while kept:
            messages = self._messages(reading, kept, LAST, more=len(kept))
            room = await run.room(Role.WORKER, messages, self.tokens, schema=Turn)
            if room is None or room >= 0:
                break
            kept.pop()
        if len(kept) < len(found):
            left_out = tuple(passage.span for passage in found[len(kept) :])
            run.emit(
                Pruned(left_out, f"they do not fit the window of {run.model(Role.WORKER).name}")
            )
            if not (kept or reading.shown):
                raise ContextTooSmall(
                    "not one passage fits the agent's window",
                    f"it is {run.model(Role.WORKER).context_tokens} tokens",
                    "take a worker with a larger window",
                )
            run.warn("some agents' windows were full before all that they found was read")
        return kept

    async def _located(self, reading: _Reading, run: Run) -> tuple[Stated, ...]:
        """The findings that stand in the passages shown, with their places."""
        if not reading.statements or not reading.shown:
            return ()
        documents = {reading.info.id: await run.document(reading.info.id)}
        asked = "\n".join([self.question, *self.tasks, FRAME])
        stated, _ = await asyncio.to_thread(
            resolved, asked, reading.statements, reading.shown, documents
        )
        return tuple(each for each in stated if each.places)

    def _record(self, reading: _Reading, turn: Turn, new: Sequence[Passage], run: Run) -> None:
        run.emit(
            AgentTurn(
                document=reading.info.id,
                title=reading.info.title,
                turn=reading.turns,
                findings=tuple(each.finding for each in turn.findings),
                action=turn.action,
                query=turn.query,
                shown=tuple(passage.span for passage in new),
            )
        )


@dataclass
class _Reading:
    """One document being read. The passages shown are numbered in their order, from 1."""

    info: DocumentInfo
    shown: list[Passage] = field(default_factory=list)
    statements: list[Statement] = field(default_factory=list)
    relevance: float = 0.0
    queries: list[str] = field(default_factory=list)
    turns: int = 0

    def take(self, turn: Turn) -> None:
        """What a reply says of the passages shown till then."""
        self.turns += 1
        if self.shown:
            self.statements += turn.statements()
            self.relevance = turn.relevance
