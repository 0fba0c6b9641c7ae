"""The agents of SPD-RAG: one per document, a bounded number at once (section 3.2 of the paper).

Each agent α_i converses: it is told the question q and the tasks, asks for one search a turn inside
its document d_i alone, is shown the passages, and ends with o_i = ⟨s_i, r_i⟩: a report by task in
free words, and its relevance. The words that a report quotes are located in the passages that the
agent was shown: those lines are findings with places.

Memory holds reports, never documents. Each outcome is stored as it comes, so that an interrupted
run resumes where it was.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any

from pydantic import TypeAdapter

from colligate.concurrency import map_concurrent
from colligate.core.answer import Stated
from colligate.core.events import Event, Progressed, pluralize, to_plain
from colligate.core.fit import Room, fit_window
from colligate.core.prompt_files import PromptTemplate
from colligate.core.prompts import escape, keep_table_head, render_passages
from colligate.core.run import Run
from colligate.documents import Passage, Span
from colligate.errors import BudgetExceeded, ColligateError, ContextTooSmall
from colligate.library.sources import DocumentInfo, SearchMode
from colligate.models import Message, Role
from colligate.readers.citing import ComputedStatement, Quote, locate_statements
from colligate.strategies.spd_rag.prompts import (
    EARLY,
    LAST,
    NO_QUERY,
    NOTHING_NEW,
    AgentAction,
    LastAction,
    agent_messages,
)

_CHARACTERS = 4  # of a token, about
_FEWEST_SEARCHES = 2  # before "not found" (section 3.2)
_SHORT = 150  # tokens of a short passage: a search returns enough to fill its evidence
_TURN = 400  # tokens of an action that searches, and of what is said to it beside passages


class Status(StrEnum):
    """How the reading of a document ended."""

    READ = "read"
    EMPTY = "empty"  # it has no passage
    FAILED = "failed"
    UNREAD = "unread"  # the token budget was spent


@dataclass(frozen=True)
class AgentTurn(Event):
    """A document's agent took an action; `shown` are the new passages that its search returned."""

    document: str
    title: str
    turn: int
    action: str
    query: str
    shown: tuple[Span, ...] = ()

    def line(self) -> str:
        if self.action == "search":
            return f"searching {self.title}: {self.query}"
        return f"done with {self.title}"

    @property
    def stage(self) -> Mapping[str, Sequence[str]]:
        return {"read": [self.document] if self.shown else []}


@dataclass(frozen=True)
class AgentEnded(Event):
    """A document's agent ended with o_i = ⟨s_i, r_i⟩: its report, and its relevance in [0, 1].

    `findings` are the lines of the report with the places of their quotes, `dropped` counts those
    whose quotes are nowhere. `sources` are what the report rests on: these places, or without any
    the best passage of each search. Only a document that was read has a report; `problem` says why
    another was not. `kept`: it is the outcome of an interrupted run.
    """

    document: str
    title: str
    status: Status
    report: str = ""
    relevance: float = 0.0
    findings: tuple[Stated, ...] = ()
    sources: tuple[Span, ...] = ()
    dropped: int = 0
    searches: int = 0
    turns: int = 0
    problem: str = ""
    kept: bool = False

    def line(self) -> str:
        return f"{self.title}: {self.status}, {pluralize(len(self.findings), 'finding')}"

    @property
    def stage(self) -> Mapping[str, Sequence[str]]:
        return {"found": [self.document] if self.findings else []}

    def to_json(self) -> dict[str, Any]:
        found = [
            {"text": each.sentence, "spans": [to_plain(place.span) for place in each.places]}
            for each in self.findings
        ]
        return {**super().to_json(), "findings": found}


_STORED = TypeAdapter(AgentEnded)
"""What is stored of an outcome as JSON, and reads it again."""


@dataclass
class _Talk:
    """A conversation of an agent, and the passages that it was shown, in order.

    `first` is the best new passage of each search; `full`: none fits the window any more.
    """

    info: DocumentInfo
    messages: list[Message]
    shown: list[Passage] = field(default_factory=list)
    first: list[Span] = field(default_factory=list)
    searches: int = 0
    turns: int = 0
    full: bool = False


@dataclass(frozen=True)
class DocumentAgent:
    """How each document is read; the fields are those of `SPDRAG` and the coordinator's tasks."""

    question: str
    tasks: tuple[str, ...]
    searches: int
    k: int | None
    pool: int | None
    mode: SearchMode
    evidence_tokens: int
    tokens: int
    template: PromptTemplate | None

    async def read(self, info: DocumentInfo, run: Run) -> AgentEnded:
        """Read one document; a failure becomes its outcome and does not stop other agents."""
        if not info.passages:
            return AgentEnded(info.id, info.full_title, Status.EMPTY)
        asked = (info.full_title, self.tasks, self.searches, self.question)
        talk = _Talk(info, agent_messages(*asked, self.template))
        try:
            return await self._report(await self._converse(talk, run), talk, run)
        except ColligateError as error:
            status = Status.UNREAD if isinstance(error, BudgetExceeded) else Status.FAILED
            return replace(
                AgentEnded(info.id, info.full_title, status, problem=str(error)),
                searches=talk.searches,
                turns=talk.turns,
            )

    async def _converse(self, talk: _Talk, run: Run) -> AgentAction:
        """Return the action that ends the loop: after `searches` turns the agent must finalize."""
        for turn in range(1, self.searches + 2):
            last = turn > self.searches or talk.full
            schema = LastAction if last else AgentAction
            reply = await run.structured(
                talk.messages, schema, role=Role.WORKER, max_tokens=self.tokens
            )
            action = reply.value
            talk.turns = turn
            if last or self._is_done(action, talk):
                break
            new: list[Passage] = []
            if action.action == "finalize":
                told = EARLY
            elif not action.query.strip():
                told = NO_QUERY
            else:
                new = await self._search(action, talk, run)
                told = render_passages(new, len(talk.shown) + 1) if new else NOTHING_NEW
            talk.shown += new
            talk.messages += _continue(action, told, last=turn == self.searches or talk.full)
            asked = action.query if action.action == "search" else ""
            self._emit_turn(talk, action.action, asked, new, run)
        self._emit_turn(talk, "finalize", "", (), run)
        return action

    def _emit_turn(
        self, talk: _Talk, action: str, query: str, new: Sequence[Passage], run: Run
    ) -> None:
        shown = tuple(passage.span for passage in new)
        info = talk.info
        run.emit(AgentTurn(info.id, info.full_title, talk.turns, action, query, shown))

    def _is_done(self, action: AgentAction, talk: _Talk) -> bool:
        """Return whether to stop: not before two searches if nothing was found."""
        fewest = 1 if action.relevance > 0 else min(_FEWEST_SEARCHES, self.searches)
        return action.action == "finalize" and talk.searches >= fewest

    async def _search(self, action: AgentAction, talk: _Talk, run: Run) -> list[Passage]:
        """Return the best passages of the document that were not shown before and fit."""
        talk.searches += 1
        k = self.k or max(1, self.evidence_tokens // _SHORT)
        hits = await run.search(
            action.query, k=k, pool=self.pool or 2 * k, mode=self.mode, documents=[talk.info.id]
        )
        seen = {passage.span for passage in talk.shown}
        document = await run.document(talk.info.id)
        found = [
            keep_table_head(hit.passage, document) for hit in hits if hit.passage.span not in seen
        ]
        new = await self._fit(found, action, talk, run)
        if found and not (new or talk.shown):
            raise ContextTooSmall(
                "not one passage fits the agent's window",
                f"it is {run.model(Role.WORKER).context_tokens} tokens",
                "use a worker with a larger window",
            )
        talk.first += [passage.span for passage in new[:1]]
        talk.full = bool(found) and not new
        return new

    async def _fit(
        self, found: Sequence[Passage], action: AgentAction, talk: _Talk, run: Run
    ) -> list[Passage]:
        """Return the first passages that are the evidence of one search and fit the window."""
        worker, used, kept = run.model(Role.WORKER), 0, 0
        for passage in found:
            used += await worker.count_tokens(render_passages([passage]))
            if kept and used > self.evidence_tokens:
                break
            kept += 1
        return await fit_window(
            found[:kept],
            lambda passages: [
                *talk.messages,
                *_continue(action, render_passages(passages), last=True),
            ],
            run,
            Room(self.tokens + _TURN, Role.WORKER, LastAction),
            least=0,
            warning="some agents' windows were full before they read all that they found",
        )

    async def _report(self, action: AgentAction, talk: _Talk, run: Run) -> AgentEnded:
        """Return the report with what of it is located in the passages that were shown."""
        statements = list_statements(action.findings)
        findings = await locate_statements(self.question, statements, talk.shown, run)
        places = dict.fromkeys(place.span for each in findings for place in each.places)
        sources = tuple(places) or (tuple(talk.first) if action.relevance > 0 else ())
        return AgentEnded(
            talk.info.id,
            talk.info.full_title,
            Status.READ,
            action.findings.strip() or "No findings.",
            action.relevance,
            tuple(findings),
            sources,
            len(statements) - len(findings),
            talk.searches,
            talk.turns,
        )


def _continue(action: AgentAction, told: str, *, last: bool) -> list[Message]:
    """Return the agent's turn and the reply to it; `last`: the agent must finalize next."""
    said = action.model_dump(include={"reasoning", "action", "query"})
    return [
        Message("assistant", escape(json.dumps(said, ensure_ascii=False))),
        Message("user", f"{told}\n\n{LAST}" if last else told),
    ]


_QUOTED = re.compile(r"[“„«\"]([^“”„«»\"]+)[”“»\"]")
_NUMBER = re.compile(r"\s*\d+[.)]\s+(?:Found:\s*)?")  # as a report's lines begin


def list_statements(report: str) -> list[ComputedStatement]:
    """Return the lines of a report that quote a document, with their quotes."""
    return [
        ComputedStatement(
            quotes=[Quote(quote=quote) for quote in quotes], sentence=_NUMBER.sub("", line, 1)
        )
        for line in report.splitlines()
        if (quotes := _QUOTED.findall(line))
    ]


# All documents, each read by its agent (the paper's fan-out)

VERSION = 9
"""The version of what is stored: outcomes of another version are not used."""

_PHASE = "reading documents"
_HOPELESS = 20  # failures without a document read: the server is down, or the key is wrong


async def read_all(
    agent: DocumentAgent, documents: Sequence[DocumentInfo], run: Run, concurrency: int
) -> list[AgentEnded]:
    """Return the outcome of each document, in their order; those of an interrupted run are known.

    Further documents are not begun after the token budget refused an agent its first call, or
    after many failed and none was read.
    """
    total, done, spent, failed, hopeful = len(documents), 0, False, 0, False
    run.emit(Progressed(_PHASE, 0, total))

    async def read(info: DocumentInfo) -> AgentEnded:
        nonlocal done, spent, failed, hopeful
        key = _key(agent, info, run)
        kept = await asyncio.to_thread(run.store.get, key)
        if isinstance(kept, dict):
            outcome = replace(_STORED.validate_python(kept), kept=True)
        elif spent:
            outcome = AgentEnded(info.id, info.full_title, Status.UNREAD)
        elif failed >= _HOPELESS and not hopeful:
            why = f"not begun, as the {failed} before it failed"
            outcome = AgentEnded(info.id, info.full_title, Status.FAILED, problem=why)
        else:
            outcome = await agent.read(info, run)
            spent |= outcome.status is Status.UNREAD and not outcome.turns
            failed += outcome.status is Status.FAILED
            hopeful |= outcome.status is Status.READ
            if outcome.status is Status.READ:
                made = _STORED.dump_python(outcome, mode="json")
                await asyncio.to_thread(run.store.put, key, made, [info.id])
        done += 1
        run.emit(outcome)
        run.emit(Progressed(_PHASE, done, total, info.full_title))
        return outcome

    return await map_concurrent(documents, read, concurrency)


async def forget(agent: DocumentAgent, documents: Sequence[DocumentInfo], run: Run) -> None:
    """Delete the stored outcomes: the next run asks the agents again."""

    def clear() -> None:
        for info in documents:
            run.store.put(_key(agent, info, run), None, [info.id])

    await asyncio.to_thread(clear)


def _key(agent: DocumentAgent, info: DocumentInfo, run: Run) -> str:
    reranker = run.reranker.name if run.reranker else ""
    return run.key(Role.WORKER, "spd-rag", VERSION, reranker, asdict(agent), info.id)
