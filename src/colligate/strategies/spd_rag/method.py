"""SPD-RAG: one agent per document, findings merged under a token budget.

The method in the order of the paper:

1. Coordinator: from the question q alone, write tasks that any document can be asked and a
   directive for the synthesis (one call).
2. Document agents: for each document d_i an agent searches inside it, at most 5 times, and
   returns findings s_i with their relevance r_i in [0, 1] (`agent.py`).
3. Recursive synthesis: group similar findings under a budget of B tokens, put each group together,
   and repeat until one prompt holds everything; answer from that (`synthesis.py`).
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from colligate.core.answer import Answer
from colligate.core.events import Noted
from colligate.core.parameters import require_min
from colligate.core.reader import Form, read
from colligate.core.run import Run
from colligate.core.strategy import Calls, Needs
from colligate.core.units import rank_documents
from colligate.errors import BudgetExceeded, MalformedOutput, ModelError
from colligate.library.sources import DocumentInfo, SearchMode
from colligate.models import Role
from colligate.strategies.spd_rag.agent import VERSION, AgentOutcome, DocumentAgent, FanOut, Status
from colligate.strategies.spd_rag.events import Planned
from colligate.strategies.spd_rag.prompts import FindingGroup, Todos, coordinator_messages
from colligate.strategies.spd_rag.synthesis import Synthesis


@dataclass(frozen=True)
class SPDRAG:
    """An agent for every document, and a synthesis of what they find.

    The agents are the worker model, coordinator and synthesis the reader. An agent that fails is
    reported and stops no other. A part of the token budget is reserved for the synthesis, and
    documents that were not read are counted. An interrupted run resumes when it is asked again.

    `documents` limits the documents in view to the best by a search. `first_search` "question"
    begins each agent with the passages that a search for the question finds. `merge_tokens` is B,
    by default three quarters of the reader's window. `question_reaches` False gives the agents
    only their tasks, and `no_single_synthesis` returns a single document's findings unchanged: both
    as in the released code.
    """

    name: ClassVar[str] = "spd-rag"
    needs: ClassVar[Needs] = Needs()
    calls: ClassVar[Calls] = Calls(2, document=3)

    documents: int | None = None  # the paper: all
    searches: int = 5  # of an agent
    k: int = 5  # passages a search shows
    pool: int = 15  # searched for a reranker
    mode: SearchMode = SearchMode.HYBRID  # the paper: dense
    first_search: Literal["asked", "question"] = "asked"  # question: one call less per document
    concurrency: int = 16  # agents, and syntheses, at a time
    merge_tokens: int | None = None  # B; the paper: 750,000 of a million
    plan_tokens: int = 600  # of the coordinator's reply
    agent_tokens: int = 800  # of an agent's reply
    form: Form = Form.JOINED

    question_reaches: bool = True
    no_single_synthesis: bool = False

    def __post_init__(self) -> None:
        require_min(self, searches=1, k=1, pool=1, concurrency=1, plan_tokens=1, agent_tokens=1)
        for name in ("documents", "merge_tokens"):
            if getattr(self, name) is not None:
                require_min(self, **{name: 1})

    async def answer(self, question: str, run: Run) -> Answer:
        """Plan, read every document, put the findings together."""
        infos = await self._list_documents(question, run)
        if not infos:
            return await read(question, [], run, strategy=self.name, evidence=())
        # Reserved before the first call: a run that cannot end is not begun.
        reserve = await self._make_synthesis(question, "", run).estimate_reserve(len(infos))
        with run.tokens.reserve(reserve):
            plan = await self._plan(question, run, len(infos))
            agents = FanOut(self._make_agent(question, plan), run, self.concurrency)
            outcomes = await agents.read(infos)
        _report(outcomes, agents.known, run)
        gathered = [
            FindingGroup(each.findings, each.relevance, each.title)
            for each in outcomes
            if each.findings
        ]
        synthesis = self._make_synthesis(question, plan.synthesis_directive, run)
        if not gathered:
            answer = await read(question, [], run, strategy=self.name, evidence=())
        elif len(infos) == 1 and self.no_single_synthesis:
            answer = await synthesis.list_findings(gathered)
        else:
            silent = [each.title for each in outcomes if each.whole and not each.findings]
            answer = await synthesis.answer(gathered, silent)
        if all(outcome.whole for outcome in outcomes):
            # Otherwise they stay: asked again, the run reads only the other documents.
            await agents.forget(infos)
            await asyncio.to_thread(run.store.put, _hash_plan(question, run), None)
        return answer

    async def _list_documents(self, question: str, run: Run) -> list[DocumentInfo]:
        """Return the documents to read: all, or the best by a search."""
        infos = list(await run.sources.documents())
        if self.documents is not None and self.documents < len(infos):
            best = set(await rank_documents(question, run, self.documents, self.mode))
            run.warn(f"{len(best)} of {len(infos)} documents are read, the best by a search")
            infos = [info for info in infos if info.id in best]
        calls = len(infos) * (self.searches + 1)
        if calls > _MANY:
            run.emit(
                Noted(
                    f"{len(infos)} documents are read by an agent each: "
                    f"about {2 * len(infos)}, at most {calls} model calls"
                )
            )
        return infos

    async def _plan(self, question: str, run: Run, documents: int) -> Todos:
        """Ask the coordinator; if it gives no task, the question is the task."""
        key = _hash_plan(question, run)
        kept = await asyncio.to_thread(run.store.get, key)
        if kept is not None:
            plan = Todos.model_validate(kept)
        else:
            try:
                reply = await run.structured(
                    coordinator_messages(question), Todos, max_tokens=self.plan_tokens
                )
                plan = reply.value
            except MalformedOutput as error:
                run.warn(f"the question is every agent's only task: {error}")
                plan = Todos()
            await asyncio.to_thread(run.store.put, key, plan.model_dump())
        run.emit(
            Planned(plan.tasks(question), plan.synthesis_directive, documents, kept is not None)
        )
        return plan

    def _make_agent(self, question: str, plan: Todos) -> DocumentAgent:
        return DocumentAgent(
            tasks=plan.tasks(question),
            question=question,
            question_reaches=self.question_reaches,
            searches=self.searches,
            k=self.k,
            pool=self.pool,
            mode=self.mode,
            tokens=self.agent_tokens,
            first_search=self.first_search,
        )

    def _make_synthesis(self, question: str, directive: str, run: Run) -> Synthesis:
        return Synthesis(
            run=run,
            question=question,
            directive=directive,
            form=self.form,
            merge_tokens=self.merge_tokens,
            concurrency=self.concurrency,
            strategy=self.name,
        )


_MANY = 300  # calls that are reported before they are made
_NAMED = 3  # failed documents that a warning names


def _report(outcomes: Sequence[AgentOutcome], known: int, run: Run) -> None:
    """Warn of documents that were not read completely; raise if none was read."""
    of: dict[Status, list[AgentOutcome]] = {status: [] for status in Status}
    for outcome in outcomes:
        of[outcome.status].append(outcome)
    unread, failed, total = of[Status.UNREAD], of[Status.FAILED], len(outcomes)
    if not of[Status.READ] and not any(outcome.findings for outcome in outcomes):
        if unread:
            raise BudgetExceeded(
                f"none of {total} documents could be read",
                "the token budget is spent",
                "raise --max-tokens-total",
            )
        if failed:
            raise ModelError(f"none of {total} documents could be read", failed[0].problem)
    if known:
        run.emit(Noted(f"{known} of {total} documents were read before the interruption"))
    if unread:
        run.warn(
            f"{len(unread)} of {total} documents were not read{_in_part(unread)}: "
            "the token budget is spent"
        )
    if failed:
        named = "; ".join(f"{each.title!r}: {each.problem}" for each in failed[:_NAMED])
        more = f"; and {len(failed) - _NAMED} more" if len(failed) > _NAMED else ""
        run.warn(
            f"{len(failed)} of {total} documents could not be read{_in_part(failed)}: {named}{more}"
        )
    if of[Status.EMPTY]:
        run.warn(f"{len(of[Status.EMPTY])} of {total} documents have no passage to read")


def _in_part(outcomes: Sequence[AgentOutcome]) -> str:
    """Return how many of them still have findings, as text."""
    begun = sum(bool(outcome.findings) for outcome in outcomes)
    return f" to the end ({begun} in part)" if begun else ""


def _hash_plan(question: str, run: Run) -> str:
    """Return the SHA-256 of what a plan depends on."""
    reader = run.model(Role.READER)
    made = ["spd-rag plan", VERSION, reader.name, str(getattr(reader, "version", "")), question]
    return hashlib.sha256(json.dumps(made).encode()).hexdigest()
