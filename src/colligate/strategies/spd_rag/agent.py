"""The agents of SPD-RAG: one per document, a bounded number at once (the paper's stage 2).

The paper's agent converses and hands in its findings at the end. This one is asked anew at each
turn: it sees the passages found, as many as fit, its findings and queries so far, and its tasks
after them. It copies what the passages say before it decides what to do next: small models copy
well while the words are in front of them and the task comes last, and the findings of an agent that
breaks off are not lost. In a conversation the bundled model found nothing in passages that held the
answer.

Memory holds findings, never documents. Each outcome is stored as it comes, so that an interrupted
run resumes where it was.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, Literal

from colligate.concurrency import check_in_thread, map_concurrent
from colligate.core.answer import split_answer
from colligate.core.apart import read_ranked
from colligate.core.citing import Place, Stated, Statement, resolve
from colligate.core.events import Progressed
from colligate.core.fit import fit_window
from colligate.core.reader import keep_table_head, render_passages
from colligate.core.run import Run
from colligate.core.units import join_rankings
from colligate.documents import Hit, Passage, Span
from colligate.documents.chunking import Structural
from colligate.errors import BudgetExceeded, ColligateError, ContextTooSmall, MalformedOutput
from colligate.library.sources import DocumentInfo, SearchMode, cut_passages
from colligate.models import Message, Role
from colligate.strategies.spd_rag.events import AgentEnded, AgentTurn, list_found
from colligate.strategies.spd_rag.prompts import (
    BEGIN,
    FRAME,
    LAST,
    NO_QUERY,
    NOTHING_NEW,
    WHOLE,
    AgentReply,
    FirstTurn,
    LastTurn,
    agent_messages,
)

FirstSearch = Literal["tasks", "question", "asked"]
"""How an agent begins: with a search for its tasks or for the question, or with a call that asks
for a query."""

_PASSAGES_APART, _POOL_APART = 6, 50  # of a search for a task, as `retrieve-read`
# Lower than for a search of all documents: this one is in view, and rows of tables get low odds.
_LEAST_ODDS = 0.2

_FEWEST_SEARCHES = 2  # before "not found" (the paper's prompt)
_SHARE = 0.5  # of the worker's window for all the passages of a prompt
_SHORT = 150  # tokens of a short passage: a search returns enough to fill its evidence
_CHARACTERS = 8  # of a token at most: a longer document is not counted


@dataclass(frozen=True)
class DocumentAgent:
    """How each document is read; the fields are those of `SPDRAG` and the coordinator's tasks.

    `apart`: each task is one question, answered from single passages (`core.apart`).
    """

    tasks: tuple[str, ...]
    question: str
    question_reaches: bool
    searches: int
    k: int | None
    pool: int | None
    mode: SearchMode
    evidence_tokens: int
    tokens: int
    first_search: FirstSearch
    apart: bool

    async def read(self, info: DocumentInfo, run: Run) -> AgentOutcome:
        """Read one document; a failure becomes its outcome and does not stop other agents."""
        if not info.passages:
            return AgentOutcome(info.id, info.full_title, Status.EMPTY)
        reading = _Reading(info)
        status, problem = Status.READ, ""
        try:
            await (self._look_up if self.apart else self._work)(reading, run)
        except BudgetExceeded as error:
            status, problem = Status.UNREAD, str(error)
        except MalformedOutput as error:
            status, problem = Status.MALFORMED, str(error)
        except ColligateError as error:
            status, problem = Status.FAILED, str(error)
        findings: tuple[Stated, ...] = ()
        try:
            findings = await self._locate(reading, run)
        except ColligateError as error:
            status, problem = Status.FAILED, str(error)
        return AgentOutcome(
            info.id,
            info.full_title,
            status,
            findings,
            tuple(reading.answered) or reading.list_answered(findings, len(self.tasks)),
            reading.relevance if findings else 0.0,
            reading.searches,
            reading.turns,
            reading.count_statements() - len(findings),
            problem,
            reading.short,
        )

    async def _look_up(self, reading: _Reading, run: Run) -> None:
        """Answer each task as `retrieve-read` does, from this document alone."""
        document = await run.document(reading.info.id)
        for number, task in enumerate(self.tasks, 1):
            k = self.k or _PASSAGES_APART
            found = await run.search(
                task, k=k, pool=self.pool or _POOL_APART, mode=self.mode, documents=[document.id]
            )
            hits = [Hit(keep_table_head(hit.passage, document), hit.score) for hit in found]
            reading.searches += 1
            answer = await read_ranked(
                task,
                hits,
                run,
                strategy="spd-rag",
                reading="apart",
                least_odds=_LEAST_ODDS,
                strict=True,  # a reading that fails is no document without the answer
            )
            reading.turns += 1
            if answer.found:
                title = f"{reading.info.full_title}: "
                reading.located += [
                    Stated(title + each.sentence, each.places) for each in split_answer(answer)
                ]
                reading.answered.append(number)
                reading.short = answer.short or ""
                reading.relevance = 1.0

    async def _work(self, reading: _Reading, run: Run) -> None:
        """Take at most `searches` turns, and one more for the passages of the last search."""
        new = await self._show_whole(reading, run)
        remark = WHOLE if new else BEGIN
        for number in range(1, self.searches + 2):
            # A document that was shown completely needs no further search.
            last = reading.whole or number > self.searches
            if number == 1 and not last and self.first_search != "asked":
                turn, queries = AgentReply(action="search"), self._first_queries()
            else:
                turn = await self._ask(reading, remark, run, last=last)
                if last or self._is_done(turn, reading):
                    self._record(reading, turn, (), reading.shown if number == 1 else (), run)
                    return
                queries = self._next_queries(turn, reading)
            new = await self._search(queries, reading, run)
            self._record(reading, turn, queries, new, run)
            given_up = turn.action == "finalize" and bool(reading.shown)
            if not new and (given_up or number == self.searches):
                return  # no passage is left to deal with
            remark = NO_QUERY if not queries else NOTHING_NEW if not new else ""
            if reading.whole or number == self.searches:
                remark = LAST

    async def _ask(self, reading: _Reading, remark: str, run: Run, *, last: bool) -> AgentReply:
        """Ask for one turn about the passages shown, the earlier ones as far as they fit."""
        schema = LastTurn if last else AgentReply if reading.shown else FirstTurn
        messages = self._messages(reading, reading.shown[reading.latest :], remark)
        room = await run.room(Role.WORKER, messages, self.tokens, schema=schema)
        window = run.model(Role.WORKER).context_tokens
        first, free = reading.latest, math.inf
        if room is not None and window is not None:
            free = min(room, window * _SHARE - sum(reading.sizes[first:]))
        while first > 0 and reading.sizes[first - 1] <= free:
            first -= 1
            free -= reading.sizes[first]
        messages = self._messages(reading, reading.shown[first:], remark)
        asked = run.structured(messages, schema, role=Role.WORKER, max_tokens=self.tokens)
        turn = (await asked).value
        reading.take(turn)
        return turn

    def _is_done(self, turn: AgentReply, reading: _Reading) -> bool:
        """Return whether to stop; not before anything was shown, nor after one vain search."""
        enough = bool(reading.statements) or reading.searches >= _FEWEST_SEARCHES
        return turn.action == "finalize" and bool(reading.shown) and enough

    def _first_queries(self) -> list[str]:
        by_question = self.first_search == "question" and self.question_reaches
        return [self.question] if by_question else list(self.tasks)

    def _next_queries(self, turn: AgentReply, reading: _Reading) -> list[str]:
        """Return the agent's query; its next without a call if it gives up after one search."""
        if turn.query.strip():
            return [turn.query]
        if turn.action == "search" or not reading.shown:
            return []
        other = [self.question] if self.question_reaches else []
        other.append(" ".join(self.tasks))
        return [query for query in other if query not in reading.queries][:1]

    def _messages(
        self, reading: _Reading, passages: Sequence[Passage], remark: str, *, more: int = 0
    ) -> list[Message]:
        """Return the prompt of a turn; `more` of the passages are not in `reading.shown` yet."""
        return agent_messages(
            reading.info.full_title,
            self.tasks,
            self.searches,
            question=self.question if self.question_reaches else "",
            passages=passages,
            first=len(reading.shown) + more - len(passages) + 1,
            noted=[statement.sentence for statement in reading.statements],
            searched=reading.queries,
            remark=remark,
        )

    async def _show_whole(self, reading: _Reading, run: Run) -> list[Passage]:
        """Show the document whole if it has no more tokens than the evidence of a search."""
        info = reading.info
        if info.characters > self.evidence_tokens * _CHARACTERS:
            return []
        document = await run.document(info.id)
        spans = await asyncio.to_thread(cut_passages, document, Structural())
        passages = [keep_table_head(document.passage(span), document) for span in spans]
        worker = run.model(Role.WORKER)
        if await worker.count_tokens(render_passages(passages)) > self.evidence_tokens:
            return []
        messages = self._messages(reading, passages, WHOLE, more=len(passages))
        room = await run.room(Role.WORKER, messages, self.tokens, schema=LastTurn)
        if room is not None and room < 0:
            return []
        await self._show(reading, passages, run)
        reading.whole = True
        return passages

    async def _search(self, queries: Sequence[str], reading: _Reading, run: Run) -> list[Passage]:
        """Search for these queries together, and show what was not shown before.

        The lists of several queries are joined by reciprocal rank.
        """
        if not queries:
            return []
        reading.queries += queries
        reading.searches += 1
        k = self.k or max(1, self.evidence_tokens // _SHORT)
        found = [
            await run.search(
                query, k=k, pool=self.pool or 2 * k, mode=self.mode, documents=[reading.info.id]
            )
            for query in queries
        ]
        seen = {passage.span for passage in reading.shown}
        ranked = [hit.passage for hit in join_rankings(found)[:k] if hit.passage.span not in seen]
        document = await run.document(reading.info.id)
        new = await self._fit([keep_table_head(each, document) for each in ranked], reading, run)
        await self._show(reading, new, run)
        reading.whole = bool(new) and len(reading.shown) >= reading.info.passages
        return new

    async def _fit(self, found: Sequence[Passage], reading: _Reading, run: Run) -> list[Passage]:
        """Return the best of the passages found that are the evidence of one search.

        At least one is kept, so that a search shows something, as long as the window holds it.
        """
        worker, used, kept = run.model(Role.WORKER), 0, 0
        for passage in found:
            used += await worker.count_tokens(render_passages([passage]))
            if kept and used > self.evidence_tokens:
                break
            kept += 1
        fitting = await fit_window(
            found[:kept],
            lambda passages: self._messages(reading, passages, LAST, more=len(passages)),
            run,
            role=Role.WORKER,
            max_tokens=self.tokens,
            schema=AgentReply,
            least=0,
            warning="some agents' windows were full before they read all that they found",
        )
        if found and not (fitting or reading.shown):
            raise ContextTooSmall(
                "not one passage fits the agent's window",
                f"it is {run.model(Role.WORKER).context_tokens} tokens",
                "use a worker with a larger window",
            )
        return fitting

    async def _show(self, reading: _Reading, passages: Sequence[Passage], run: Run) -> None:
        """Add passages to those shown, with their tokens."""
        if passages:
            reading.latest = len(reading.shown)
        worker = run.model(Role.WORKER)
        reading.sizes += [await worker.count_tokens(render_passages([p])) for p in passages]
        reading.shown += passages

    async def _locate(self, reading: _Reading, run: Run) -> tuple[Stated, ...]:
        """Return the findings that the passages shown support, with their places."""
        if reading.located:
            return tuple(reading.located)
        if not reading.statements or not reading.shown:
            return ()
        documents = {reading.info.id: await run.document(reading.info.id)}
        asked = "\n".join([self.question, *self.tasks, FRAME])
        stated, _ = await check_in_thread(
            resolve, asked, reading.statements, reading.shown, documents, run.verifier
        )
        return tuple(each for each in stated if each.places)

    def _record(
        self,
        reading: _Reading,
        turn: AgentReply,
        queries: Sequence[str],
        new: Sequence[Passage],
        run: Run,
    ) -> None:
        run.emit(
            AgentTurn(
                document=reading.info.id,
                title=reading.info.full_title,
                turn=reading.turns,
                findings=tuple(each.finding for each in turn.findings),
                action="search" if queries else turn.action,
                query="; ".join(queries),
                shown=tuple(passage.span for passage in new),
            )
        )


@dataclass
class _Reading:
    """The state of one agent. The passages shown are numbered in their order, from 1.

    `sizes` are their tokens, `latest` is the place of the first one of the last search. `tasks` are
    the numbers of the tasks that the statements name. `whole`: no passage is left to search for.
    `located` are findings with their places, `answered` their tasks and `short` the last one in a
    few words, of an agent that reads apart.
    """

    info: DocumentInfo
    shown: list[Passage] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    latest: int = 0
    whole: bool = False
    statements: list[Statement] = field(default_factory=list)
    tasks: list[int] = field(default_factory=list)
    located: list[Stated] = field(default_factory=list)
    answered: list[int] = field(default_factory=list)
    short: str = ""
    relevance: float = 0.0
    queries: list[str] = field(default_factory=list)
    searches: int = 0
    turns: int = 0

    def take(self, turn: AgentReply) -> None:
        """Add a reply, which is about the passages shown so far."""
        self.turns += 1
        if self.shown:
            self.statements += turn.statements()
            self.tasks += [each.task for each in turn.findings]
            self.relevance = max(self.relevance, turn.relevance)

    def count_statements(self) -> int:
        """Count the findings stated, whether or not their places were found."""
        return len(self.located) + len({each.sentence.strip() for each in self.statements} - {""})

    def list_answered(self, findings: Sequence[Stated], tasks: int) -> tuple[int, ...]:
        """Return the numbers of the tasks that the findings answer; none if they do not say."""
        located = {each.sentence for each in findings}
        numbers = {
            task
            for statement, task in zip(self.statements, self.tasks, strict=True)
            if " ".join(statement.sentence.split()) in located
        }
        return tuple(sorted(numbers)) if numbers <= set(range(1, tasks + 1)) else ()


class Status(StrEnum):
    """How the reading of a document ended."""

    READ = "read"
    EMPTY = "empty"  # it has no passage
    FAILED = "failed"
    MALFORMED = "malformed"  # its replies cannot be used
    UNREAD = "unread"  # the token budget was spent


@dataclass(frozen=True)
class AgentOutcome:
    """The findings s_i of a document with their relevance r_i in [0, 1].

    Every finding has places; `dropped` had none. `answered` are the numbers of the tasks that the
    findings answer, none if they do not say. `short` is the finding of an agent that reads apart,
    in a few words. An agent that failed or ran out of tokens still hands in what it had found.
    """

    document: str
    title: str
    status: Status
    findings: tuple[Stated, ...] = ()
    answered: tuple[int, ...] = ()
    relevance: float = 0.0
    searches: int = 0
    turns: int = 0
    dropped: int = 0
    problem: str = ""
    short: str = ""

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
            "answered": list(self.answered),
            "relevance": self.relevance,
            "searches": self.searches,
            "turns": self.turns,
            "dropped": self.dropped,
            "short": self.short,
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
        names = ("relevance", "searches", "turns", "dropped", "short")
        others = {name: kept[name] for name in names}
        answered = tuple(kept["answered"])
        return cls(info.id, info.full_title, Status(kept["status"]), findings, answered, **others)


# All documents, each read by its agent

VERSION = 5
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
            self.run.emit(Progressed(_PHASE, done, total, info.full_title))
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
            outcome = AgentOutcome(info.id, info.full_title, Status.UNREAD)
        elif self._failed >= _HOPELESS and not self._read:
            why = f"not begun, as the {self._failed} before it failed"
            outcome = AgentOutcome(info.id, info.full_title, Status.FAILED, problem=why)
        else:
            outcome = await self.agent.read(info, self.run)
            self._spent |= outcome.status is Status.UNREAD and not outcome.turns
            self._failed += outcome.status in (Status.FAILED, Status.MALFORMED)
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
        answered=outcome.answered,
        relevance=outcome.relevance,
        searches=outcome.searches,
        turns=outcome.turns,
        dropped=outcome.dropped,
        problem=outcome.problem,
        kept=kept,
    )
