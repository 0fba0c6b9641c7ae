"""The agents of SPD-RAG: one per document, a bounded number at once (the paper's stage 2).

The paper's agent converses and hands in its findings at the end. This one is asked anew at each
turn: it sees the passages found last, its findings and queries so far, and its tasks after them.
It copies what the passages say before it decides what to do next: small models copy well while the
words are in front of them and the task comes last, and the findings of an agent that breaks off
are not lost. In a conversation the bundled model found nothing in passages that held the answer.

Memory holds findings, never documents. Each outcome is stored as it comes, so that an interrupted
run resumes where it was.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, Literal

from colligate.concurrency import map_concurrent
from colligate.core.citing import Place, Stated, Statement, resolve
from colligate.core.events import Progressed
from colligate.core.fit import fit_window
from colligate.core.run import Run
from colligate.documents import Passage, Span
from colligate.errors import BudgetExceeded, ColligateError, ContextTooSmall
from colligate.library.sources import DocumentInfo, SearchMode
from colligate.models import Message, Role
from colligate.strategies.spd_rag.events import AgentEnded, AgentTurn, list_found
from colligate.strategies.spd_rag.prompts import (
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

    async def read(self, info: DocumentInfo, run: Run) -> AgentOutcome:
        """Read one document; a failure becomes its outcome and does not stop other agents."""
        if not info.passages:
            return AgentOutcome(info.id, info.title, Status.EMPTY)
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
            findings = await self._locate(reading, run)
        except ColligateError as error:
            status, problem = Status.FAILED, str(error)
        return AgentOutcome(
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
        """Take at most `searches` turns, and one more for the passages of the last search."""
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
            new = await self._fit(reading, found, run)
            # A document that was shown completely needs no further search.
            whole = len(reading.shown) + len(new) >= reading.info.passages
            closing = number == self.searches or (bool(new) and whole)
            self._record(reading, turn, new, run)
            if ended or (closing and not new):
                return  # no passage is left to deal with
            remark = LAST if closing else "" if new else NOTHING_NEW
            if not turn.query.strip():
                remark = NO_QUERY
            reading.shown += new

    def _messages(
        self, reading: _Reading, passages: Sequence[Passage], remark: str, *, more: int = 0
    ) -> list[Message]:
        """Return the prompt of a turn; `more` of the passages are not in `reading.shown` yet."""
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
        """Return the passages found that were not shown before."""
        if not query.strip():
            return []
        reading.queries.append(query)
        hits = await run.search(
            query, k=self.k, pool=self.pool, mode=self.mode, documents=[reading.info.id]
        )
        seen = {passage.span for passage in reading.shown}
        return [hit.passage for hit in hits if hit.passage.span not in seen]

    async def _fit(self, reading: _Reading, found: Sequence[Passage], run: Run) -> list[Passage]:
        """Return the best of the passages found that fit the worker's window."""
        kept = await fit_window(
            found,
            lambda passages: self._messages(reading, passages, LAST, more=len(passages)),
            run,
            role=Role.WORKER,
            max_tokens=self.tokens,
            schema=Turn,
            least=0,
            warning="some agents' windows were full before they read all that they found",
        )
        if found and not (kept or reading.shown):
            raise ContextTooSmall(
                "not one passage fits the agent's window",
                f"it is {run.model(Role.WORKER).context_tokens} tokens",
                "use a worker with a larger window",
            )
        return kept

    async def _locate(self, reading: _Reading, run: Run) -> tuple[Stated, ...]:
        """Return the findings that the passages shown support, with their places."""
        if not reading.statements or not reading.shown:
            return ()
        documents = {reading.info.id: await run.document(reading.info.id)}
        asked = "\n".join([self.question, *self.tasks, FRAME])
        stated, _ = await asyncio.to_thread(
            resolve, asked, reading.statements, reading.shown, documents
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
    """The state of one agent. The passages shown are numbered in their order, from 1."""

    info: DocumentInfo
    shown: list[Passage] = field(default_factory=list)
    statements: list[Statement] = field(default_factory=list)
    relevance: float = 0.0
    queries: list[str] = field(default_factory=list)
    turns: int = 0

    def take(self, turn: Turn) -> None:
        """Add a reply, which is about the passages shown so far."""
        self.turns += 1
        if self.shown:
            self.statements += turn.statements()
            self.relevance = turn.relevance


class Status(StrEnum):
    """How the reading of a document ended."""

    READ = "read"
    EMPTY = "empty"  # it has no passage
    FAILED = "failed"
    UNREAD = "unread"  # the token budget was spent


@dataclass(frozen=True)
class AgentOutcome:
    """The findings s_i of a document with their relevance r_i in [0, 1].

    Every finding has places; `dropped` had none. An agent that failed or ran out of tokens still
    hands in what it had found.
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
        """Return what is stored; the key identifies the document."""
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
    def from_json(cls, info: DocumentInfo, kept: dict[str, Any]) -> AgentOutcome:
        """Return the stored outcome of a document."""
        findings = tuple(
            Stated(
                sentence,
                tuple(Place(Span(info.id, start, end), how) for start, end, how in places),
            )
            for sentence, places in kept["findings"]
        )
        counts = {name: kept[name] for name in ("relevance", "searches", "turns", "dropped")}
        return cls(info.id, info.title, Status(kept["status"]), findings, **counts)


# All documents, each read by its agent

VERSION = 2
"""The version of what is stored: outcomes of another version are not used."""

_PHASE = "reading documents"
_HOPELESS = 20  # failures without a document read: the server is down, or the key is wrong


@dataclass
class FanOut:
    """The agents of one run, at most `concurrency` at a time.

    `known` counts the outcomes that an interrupted run had stored.
    """

    agent: DocumentAgent
    run: Run
    concurrency: int
    known: int = 0
    _spent: bool = field(default=False, repr=False)
    _read: int = field(default=0, repr=False)
    _failed: int = field(default=0, repr=False)

    async def read(self, documents: Sequence[DocumentInfo]) -> list[AgentOutcome]:
        """Return the outcome of each document, in their order.

        Further documents are not begun after the token budget refused an agent its first call, or
        after many failed and none was read.
        """
        total, done = len(documents), 0
        self.run.emit(Progressed(_PHASE, 0, total))

        async def read_one(info: DocumentInfo) -> AgentOutcome:
            nonlocal done
            outcome = await self._read_document(info)
            done += 1
            self.run.emit(Progressed(_PHASE, done, total, info.title))
            return outcome

        return await map_concurrent(documents, read_one, self.concurrency)

    async def forget(self, documents: Sequence[DocumentInfo]) -> None:
        """Delete the stored outcomes: the next run asks the agents again."""

        def clear() -> None:
            for info in documents:
                self.run.store.put(self._hash(info), None, [info.id])

        await asyncio.to_thread(clear)

    async def _read_document(self, info: DocumentInfo) -> AgentOutcome:
        key = self._hash(info)
        kept = await asyncio.to_thread(self.run.store.get, key)
        if isinstance(kept, dict):
            self.known += 1
            outcome = AgentOutcome.from_json(info, kept)
        elif self._spent:
            outcome = AgentOutcome(info.id, info.title, Status.UNREAD)
        elif self._failed >= _HOPELESS and not self._read:
            why = f"not begun, as the {self._failed} before it failed"
            outcome = AgentOutcome(info.id, info.title, Status.FAILED, problem=why)
        else:
            outcome = await self.agent.read(info, self.run)
            self._spent |= outcome.status is Status.UNREAD and not outcome.turns
            self._failed += outcome.status is Status.FAILED
            self._read += outcome.status is Status.READ
            if outcome.status is Status.READ:
                await asyncio.to_thread(self.run.store.put, key, outcome.to_json(), [info.id])
        self.run.emit(_make_event(outcome, kept=isinstance(kept, dict)))
        return outcome

    def _hash(self, info: DocumentInfo) -> str:
        """Return the SHA-256 of what an outcome depends on."""
        worker = self.run.model(Role.WORKER)
        version = str(getattr(worker, "version", ""))
        reranker = self.run.reranker.name if self.run.reranker else ""
        made = ["spd-rag", VERSION, worker.name, version, reranker, asdict(self.agent), info.id]
        return hashlib.sha256(json.dumps(made).encode()).hexdigest()


def _make_event(outcome: AgentOutcome, *, kept: bool) -> AgentEnded:
    return AgentEnded(
        document=outcome.document,
        title=outcome.title,
        status=outcome.status.value,
        findings=list_found(outcome.findings),
        relevance=outcome.relevance,
        searches=outcome.searches,
        turns=outcome.turns,
        dropped=outcome.dropped,
        problem=outcome.problem,
        kept=kept,
    )
