"""SPD-RAG: one agent per document, reports merged under a token budget.

The method in the order of the paper (Akay et al., 2026):

1. Coordination layer: from the question q alone, write tasks that any document can be asked and a
   directive for the synthesis (one call).
2. Parallel retrieval layer: for each document d_i an agent α_i searches inside it, at most 5 times,
   and returns its report s_i with the relevance r_i in [0, 1] (`agent.py`).
3. Synthesis layer: merge similar reports under a budget of B tokens, level by level, until one
   prompt holds everything; answer from that (`synthesis.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from colligate.core.answer import Answer, Form
from colligate.core.events import Event, Noted, name_first, pluralize
from colligate.core.fit import FOR_THE_ANSWER
from colligate.core.parameters import require_min
from colligate.core.prompt_files import PromptTemplate, apply_prompts
from colligate.core.run import Run
from colligate.core.strategy import Calls, Needs
from colligate.core.units import list_best
from colligate.errors import UsageError
from colligate.library.sources import SearchMode
from colligate.models import Role
from colligate.readers.lookup import try_structured
from colligate.strategies.spd_rag.agent import (
    VERSION,
    AgentEnded,
    DocumentAgent,
    Status,
    forget,
    read_all,
)
from colligate.strategies.spd_rag.prompts import (
    PLAN_TOKENS,
    STEPS,
    WriteTodos,
    coordinator_messages,
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
    calls: ClassVar[Calls] = Calls(2, document=3)

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
            return await run.read(question, [], form=self.form)
        with run.tokens.reserve(_reserve(len(infos), run)):
            plan = await self._plan(question, run, len(infos))
            agent = self._make_agent(question, plan, run)
            outcomes = await read_all(agent, infos, run, self.concurrency)  # o_i = ⟨s_i, r_i⟩
        _report(outcomes, run)
        reports = [Text.of(each) for each in outcomes if each.status is Status.READ]
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
            await forget(agent, infos, run)
            await asyncio.to_thread(run.store.put, self._key_of_plan(question, run), None)
        return answer

    async def _check_calls(self, documents: int, run: Run) -> None:
        """Raise `UsageError` if a run takes too many calls and nobody consents."""
        about = int(self.calls.question + self.calls.document * documents)
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

    def _make_agent(self, question: str, plan: WriteTodos, run: Run) -> DocumentAgent:
        window = run.model(Role.WORKER).context_tokens
        evidence, tokens = self.evidence_tokens, self.agent_tokens
        if window is not None:  # all searches and the report should fit the conversation
            evidence = max(1, min(evidence, window // (self.searches + 2)))
            tokens = min(tokens, window // 2)
        return DocumentAgent(
            question,
            plan.tasks(question),
            self.searches,
            self.k,
            self.pool,
            self.mode,
            evidence,
            tokens,
            self.templates.get("agent"),
        )


_REPORT = 250  # tokens of a report, estimated before any is written


def _reserve(documents: int, run: Run) -> int:
    """Return the tokens to reserve for the synthesis, at most half of the budget."""
    left = run.tokens.left
    return 0 if left is None else min(FOR_THE_ANSWER + documents * _REPORT, left // 2)


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
