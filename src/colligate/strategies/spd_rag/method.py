"""SPD-RAG: one agent per document, reports merged under a token budget.

The method in the order of the paper (Akay et al., 2026):

1. Coordination layer: from the question q alone, write tasks that any document can be asked and a
   directive for the synthesis (one call).
2. Parallel retrieval layer: for each document d_i an agent α_i searches inside it, at most 5 times,
   and returns o_i = ⟨s_i, r_i⟩: its report, and the relevance in [0, 1].
3. Synthesis layer: merge similar reports under a budget of B tokens, level by level, until one
   prompt holds everything; answer from that (`synthesis.py`).

Memory holds reports, never documents. Each outcome is stored as it comes, so that an interrupted
run resumes where it was.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from functools import partial
from typing import Any, ClassVar

from pydantic import TypeAdapter

from colligate.concurrency import map_concurrent
from colligate.core.answer import Answer, Form, Stated
from colligate.core.budget import FOR_THE_ANSWER
from colligate.core.events import Event, Noted, Progressed, name_first, pluralize, to_plain
from colligate.core.fit import Room, fit_window
from colligate.core.parameters import require_min
from colligate.core.prompt_files import PromptTemplate, apply_prompts
from colligate.core.prompts import escape, keep_table_head, render_passages
from colligate.core.run import Run
from colligate.core.strategy import Needs
from colligate.core.units import list_best
from colligate.documents import Passage, Span
from colligate.errors import BudgetExceeded, ColligateError, ContextTooSmall, UsageError
from colligate.library.sources import DocumentInfo, SearchMode
from colligate.models import Message, Role
from colligate.readers.citing import locate_statements
from colligate.readers.lookup import try_structured
from colligate.strategies.spd_rag.prompts import (
    EARLY,
    LAST,
    NO_QUERY,
    NOTHING_NEW,
    PLAN_TOKENS,
    STEPS,
    AgentAction,
    LastAction,
    WriteTodos,
    agent_messages,
    coordinator_messages,
    list_statements,
    render_leaf,
)
from colligate.strategies.spd_rag.synthesis import Synthesis, Text


@dataclass(frozen=True)
class Planned(Event):
    """The coordinator made its plan; `kept`: it is that of an interrupted run."""

    tasks: tuple[str, ...]
    directive: str
    documents: int
    kept: bool = False

    def line(self) -> str:
        documents = pluralize(self.documents, "document")
        return f"{pluralize(len(self.tasks), 'task')} for each of {documents}"


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

VERSION = 9
"""The version of what is stored: outcomes of another version are not used."""

_FEWEST_SEARCHES = 2  # before "not found" (section 3.2)
_SHORT = 150  # tokens of a short passage: a search returns enough to fill its evidence
_REPORT = 250  # tokens of a report, estimated before any is written
_TURN = 400  # tokens of an action that searches, and of what is said to it beside passages
_PHASE = "reading documents"
_HOPELESS = 20  # failures without a document read: the server is down, or the key is wrong


@dataclass(frozen=True)
class SPDRAG:
    """An agent for every document, and a synthesis of what they find.

    The agents are the worker model, coordinator and synthesis the reader. An agent that fails is
    reported and stops no other. A part of the token budget is reserved for the synthesis, and
    documents that were not read are counted. An interrupted run resumes when it is asked again.

    Attributes:
        documents: most documents that get an agent, the best by a search; none: all
        most_calls: calls of the model above which consent is asked for; none: never
        searches: most searches of an agent
        k: most passages that a search shows; none: what fits
        pool: passages that a search gives to the reranker, if there is one; none: 2 k
        evidence_tokens: most tokens that a search shows; fewer if the worker's window is too small
            for all searches
        concurrency: agents, and syntheses, that work at a time
        merge_tokens: most tokens of reports that are merged at once; none: three quarters of the
            reader's window
        agent_tokens: most tokens of an agent's reply, at most half its window
        prompts: file with prompts of the coordinator, the agents and the synthesis
    """

    name: ClassVar[str] = "spd-rag"
    needs: ClassVar[Needs] = Needs()

    # Its chunks are a setting of library and bench: chunker=tokens:1000/250. Its free text is the
    # plain reader's.
    PAPER: ClassVar[Mapping[str, str]] = {
        "mode": "dense",
        "k": "5",
        "pool": "15",
        "evidence_tokens": "5000",
        "merge_tokens": "none",
    }

    documents: int | None = None
    most_calls: int | None = 1000
    searches: int = 5  # the paper: 5
    k: int | None = None  # the paper: 5 of 1,000 tokens, which ours do not have
    pool: int | None = None  # the paper: 15
    evidence_tokens: int = 5000  # the paper: 5 times 1,000
    mode: SearchMode = SearchMode.HYBRID  # the paper: dense
    concurrency: int = 16
    merge_tokens: int | None = None  # B; the paper: 750,000 of a million, three quarters
    agent_tokens: int = 2500
    form: Form = Form.JOINED
    prompts: str | None = None

    templates: Mapping[str, PromptTemplate] = field(default_factory=dict, init=False, hash=False)

    def __post_init__(self) -> None:
        apply_prompts(self, STEPS)
        require_min(self, documents=1, most_calls=1, searches=1, k=1, pool=1, evidence_tokens=1)
        require_min(self, concurrency=1, merge_tokens=1, agent_tokens=1)

    async def answer(self, question: str, run: Run) -> Answer:
        """Plan, read every document, put the reports together."""
        infos = await list_best(question, run, self.documents, self.mode)
        await self._check_calls(len(infos), run)
        if not infos:
            if run.composed:
                run.warn("there is no document in view to give an agent; the retriever is not used")
            return await run.read(question, [], form=self.form)
        left, most = run.tokens.left, FOR_THE_ANSWER + len(infos) * _REPORT
        with run.tokens.reserve(0 if left is None else min(most, left // 2)):
            plan = await self._plan(question, run, len(infos))
            agent = partial(_Agent, self, question, plan.tasks(question), run)
            keys = [agent(info).key for info in infos]  # now: a server may tell its window later
            outcomes = await self._read_all(infos, keys, agent, run)  # o_i = ⟨s_i, r_i⟩
        _report(outcomes, run)
        reports = [_make_text(each) for each in outcomes if each.status is Status.READ]
        synthesis = Synthesis(
            run,
            question,
            plan.synthesis_directive,
            self.form,
            self.merge_tokens,
            self.concurrency,
            self.templates.get("synthesis"),
        )
        answer = await synthesis.answer(reports)
        if all(each.status in (Status.READ, Status.EMPTY) for each in outcomes):
            # Otherwise they stay: asked again, the run reads only the other documents.
            for key, info in zip(keys, infos, strict=True):
                await asyncio.to_thread(run.store.put, key, None, [info.id])
            await asyncio.to_thread(run.store.put, self._key_of_plan(question, run), None)
        return answer

    async def _check_calls(self, documents: int, run: Run) -> None:
        """Raise `UsageError` if a run takes too many calls and nobody consents."""
        about = 2 + documents * 3  # plan and synthesis; an agent searches twice
        most = 2 + documents * (self.searches + 1)
        estimate = f"about {about:,}, at most {most:,} model calls"
        reading = f"an agent for each of {pluralize(documents, 'document')}"
        if self.most_calls is None or about <= self.most_calls:
            return
        if not await run.consent(f"{reading} takes {estimate}"):
            raise UsageError(
                f"{reading} takes {estimate}",
                f"most_calls is {self.most_calls:,}",
                f"--yes or the parameter most_calls={about} allows them, "
                "the parameter documents=N reads only the N best",
            )

    async def _plan(self, question: str, run: Run, documents: int) -> WriteTodos:
        """Ask the coordinator; if it gives no task, the question is the task."""
        key = self._key_of_plan(question, run)
        kept = await asyncio.to_thread(run.store.get, key)
        if kept is None:
            messages = coordinator_messages(question, self.templates.get("coordinator"))
            warning = "the question is not split into tasks, every agent gets it whole"
            plan = await try_structured(
                messages, WriteTodos, run, max_tokens=PLAN_TOKENS, warning=warning
            )
            plan = plan or WriteTodos()
            await asyncio.to_thread(run.store.put, key, plan.model_dump())
        else:
            plan = WriteTodos.model_validate(kept)
        tasks = plan.tasks(question)
        run.emit(Planned(tasks, plan.synthesis_directive, documents, kept is not None))
        return plan

    def _key_of_plan(self, question: str, run: Run) -> str:
        return run.key(Role.READER, "spd-rag plan", VERSION, self.prompts, question)

    async def _read_all(
        self,
        infos: Sequence[DocumentInfo],
        keys: Sequence[str],
        make: Callable[[DocumentInfo], _Agent],
        run: Run,
    ) -> list[AgentEnded]:
        """Return the outcome of each document in order; those of an interrupted run are known.

        Further documents are not begun after the token budget refused an agent its first call, or
        after many failed and none was read.
        """
        total, done, spent, failed, hopeful = len(infos), 0, False, 0, False
        run.emit(Progressed(_PHASE, 0, total))

        async def read(known: tuple[str, DocumentInfo]) -> AgentEnded:
            nonlocal done, spent, failed, hopeful
            key, info = known
            kept = await asyncio.to_thread(run.store.get, key)
            if isinstance(kept, dict):
                outcome = replace(_STORED.validate_python(kept), kept=True)
            elif spent:
                outcome = AgentEnded(info.id, info.full_title, Status.UNREAD)
            elif failed >= _HOPELESS and not hopeful:
                why = f"not begun, as the {failed} before it failed"
                outcome = AgentEnded(info.id, info.full_title, Status.FAILED, problem=why)
            else:
                outcome = await make(info).read()
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

        return await map_concurrent(list(zip(keys, infos, strict=True)), read, self.concurrency)


# The agent of a document: its loop (section 3.2)


@dataclass
class _Agent:
    """The agent α_i of a document: its conversation, and the passages it was shown, in order.

    `first` is the best new passage of each search; `full`: none fits the window any more.
    """

    strategy: SPDRAG
    question: str
    tasks: tuple[str, ...]
    run: Run
    info: DocumentInfo
    messages: list[Message] = field(default_factory=list)
    shown: list[Passage] = field(default_factory=list)
    first: list[Span] = field(default_factory=list)
    searches: int = 0
    turns: int = 0
    full: bool = False

    def __post_init__(self) -> None:
        of = self.strategy
        asked = (self.info.full_title, self.tasks, of.searches, self.question)
        self.messages = agent_messages(*asked, of.templates.get("agent"))
        window = self.run.model(Role.WORKER).context_tokens
        self.evidence, self.tokens = of.evidence_tokens, of.agent_tokens
        if window is not None:  # all searches and the report should fit the conversation
            self.evidence = max(1, min(self.evidence, window // (of.searches + 2)))
            self.tokens = min(self.tokens, window // 2)

    @property
    def key(self) -> str:
        """The key of all that the outcome depends on, to store it."""
        of, reranker = self.strategy, self.run.reranker
        how = (self.question, of.searches, of.k, of.pool, of.mode, self.evidence, self.tokens)
        prompt = [asdict(message) for message in self.messages]
        by = reranker.name if reranker else ""
        return self.run.key(Role.WORKER, "spd-rag", VERSION, by, how, prompt, self.info.id)

    async def read(self) -> AgentEnded:
        """Read the document; a failure becomes its outcome and does not stop other agents."""
        if not self.info.passages:
            return AgentEnded(self.info.id, self.info.full_title, Status.EMPTY)
        try:
            return await self._report(await self._converse())
        except ColligateError as error:
            status = Status.UNREAD if isinstance(error, BudgetExceeded) else Status.FAILED
            return replace(
                AgentEnded(self.info.id, self.info.full_title, status, problem=str(error)),
                searches=self.searches,
                turns=self.turns,
            )

    async def _converse(self) -> AgentAction:
        """Return the action that ends the loop: after `searches` turns the agent must finalize."""
        for turn in range(1, self.strategy.searches + 2):
            last = turn > self.strategy.searches or self.full
            schema = LastAction if last else AgentAction
            reply = await self.run.structured(
                self.messages, schema, role=Role.WORKER, max_tokens=self.tokens
            )
            action = reply.value
            self.turns = turn
            if last or self._is_done(action):
                break
            new: list[Passage] = []
            if action.action == "finalize":
                told = EARLY
            elif not action.query.strip():
                told = NO_QUERY
            else:
                new = await self._search(action)
                told = render_passages(new, len(self.shown) + 1) if new else NOTHING_NEW
            self.shown += new
            ends = turn == self.strategy.searches or self.full
            self.messages += _continue(action, told, last=ends)
            asked = action.query if action.action == "search" else ""
            self._emit_turn(action.action, asked, new)
        self._emit_turn("finalize", "", ())
        return action

    def _emit_turn(self, action: str, query: str, new: Sequence[Passage]) -> None:
        shown = tuple(passage.span for passage in new)
        info = self.info
        self.run.emit(AgentTurn(info.id, info.full_title, self.turns, action, query, shown))

    def _is_done(self, action: AgentAction) -> bool:
        """Return whether to stop: not before two searches if nothing was found."""
        fewest = 1 if action.relevance > 0 else min(_FEWEST_SEARCHES, self.strategy.searches)
        return action.action == "finalize" and self.searches >= fewest

    async def _search(self, action: AgentAction) -> list[Passage]:
        """Return the best passages of the document that were not shown before and fit."""
        self.searches += 1
        of, run = self.strategy, self.run
        k = of.k or max(1, self.evidence // _SHORT)
        hits = await run.search(
            action.query, k=k, pool=of.pool or 2 * k, mode=of.mode, documents=[self.info.id]
        )
        seen = {passage.span for passage in self.shown}
        document = await run.document(self.info.id)
        found = [
            keep_table_head(hit.passage, document) for hit in hits if hit.passage.span not in seen
        ]
        new = await self._fit(found, action)
        if found and not (new or self.shown):
            what = "not one passage fits the agent's window"
            why = f"it is {run.model(Role.WORKER).context_tokens} tokens"
            raise ContextTooSmall(what, why, "use a worker with a larger window")
        self.first += [passage.span for passage in new[:1]]
        self.full = bool(found) and not new
        return new

    async def _fit(self, found: Sequence[Passage], action: AgentAction) -> list[Passage]:
        """Return the first passages that are the evidence of one search and fit the window."""
        worker, used, kept = self.run.model(Role.WORKER), 0, 0
        for passage in found:
            used += await worker.count_tokens(render_passages([passage]))
            if kept and used > self.evidence:
                break
            kept += 1
        return await fit_window(
            found[:kept],
            lambda passages: [
                *self.messages,
                *_continue(action, render_passages(passages), last=True),
            ],
            self.run,
            Room(self.tokens + _TURN, Role.WORKER, LastAction),
            least=0,
            warning="some agents' windows were full before they read all that they found",
        )

    async def _report(self, action: AgentAction) -> AgentEnded:
        """Return the report with what of it is located in the passages that were shown."""
        statements = list_statements(action.findings)
        findings = await locate_statements(self.question, statements, self.shown, self.run)
        places = dict.fromkeys(place.span for each in findings for place in each.places)
        sources = tuple(places) or (tuple(self.first) if action.relevance > 0 else ())
        return AgentEnded(
            self.info.id,
            self.info.full_title,
            Status.READ,
            action.findings.strip() or "No findings.",
            action.relevance,
            tuple(findings),
            sources,
            len(statements) - len(findings),
            self.searches,
            self.turns,
        )


def _continue(action: AgentAction, told: str, *, last: bool) -> list[Message]:
    """Return the agent's turn and the reply to it; `last`: the agent must finalize next."""
    said = action.model_dump(include={"reasoning", "action", "query"})
    return [
        Message("assistant", escape(json.dumps(said, ensure_ascii=False))),
        Message("user", f"{told}\n\n{LAST}" if last else told),
    ]


def _make_text(outcome: AgentEnded) -> Text:
    """Return a document's report as the synthesis reads it."""
    title, findings = outcome.title, outcome.findings
    named = tuple(replace(each, sentence=f"{title}: {each.sentence}") for each in findings)
    leaf = render_leaf(title, outcome.report)
    return Text(leaf, outcome.relevance, named, outcome.sources, title)


def _report(outcomes: Sequence[AgentEnded], run: Run) -> None:
    """Warn of documents that were not read, and if nothing was found in any."""
    known = sum(each.kept for each in outcomes)
    of: dict[Status, list[AgentEnded]] = {status: [] for status in Status}
    for outcome in outcomes:
        of[outcome.status].append(outcome)
    unread, failed, total = of[Status.UNREAD], of[Status.FAILED], len(outcomes)
    if known:
        run.emit(Noted(f"{known} of {total} documents were read before the interruption"))
    if unread:
        run.warn(f"{len(unread)} of {total} documents were not read: the token budget is spent")
    if failed:
        named = name_first([f"{each.title!r}: {each.problem}" for each in failed])
        run.warn(f"{len(failed)} of {total} documents could not be read: {named}")
    if of[Status.EMPTY]:
        run.warn(f"{len(of[Status.EMPTY])} of {total} documents have no passage to read")
    if not any(each.sources for each in outcomes):
        run.warn(f"no agent found anything in {pluralize(total, 'document')}")
