"""SPD-RAG: plan, one agent for each document, put together what they found."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from colligate.core.answer import Answer
from colligate.core.events import Noted
from colligate.core.parameters import require_min
from colligate.core.prompts import escape
from colligate.core.reader import Form, read
from colligate.core.run import Run
from colligate.core.strategy import Calls, Needs
from colligate.core.units import rank_documents
from colligate.errors import BudgetExceeded, MalformedOutput, ModelError
from colligate.library.sources import DocumentInfo, SearchMode
from colligate.models import Message, Role
from colligate.strategies.spd_rag.agent import (
    VERSION,
    DocumentAgent,
    FanOut,
    Outcome,
    Status,
)
from colligate.strategies.spd_rag.events import Planned
from colligate.strategies.spd_rag.synthesis import Gathered, Synthesis

# SPD-RAG's coordinator: what to look for in every document, and how to put it together.
#
# It sees the question and nothing else. It writes tasks that every document's agent is given, and
# a
# directive for whoever puts the agents' findings together.

_MOST_TASKS = 6

INSTRUCTION = """\
You plan how a question is answered from many documents. Readers will each read one of these \
documents, alone, and note what it says; a writer will then join their notes into the answer. You \
have not seen the documents and do not know the answer.
Reply with JSON. "sub_agent_todos" tells the readers what to note, in one to six tasks. Every \
reader gets the same tasks and sees nothing but its own document, so each "task" begins with \
"Note" and says in one sentence which facts of "this document" the question needs. Comparing, \
counting and choosing are left to the writer. "synthesis_directive" tells the writer in two to \
four sentences how to join the notes of all documents and what to pay attention to. It does not \
say what the answer is."""


class Task(BaseModel):
    """One thing to find in every document."""

    model_config = ConfigDict(extra="ignore")

    task: str = Field(json_schema_extra={"maxLength": 300})


class Todos(BaseModel):
    """What the coordinator must return; a task may be a bare text."""

    model_config = ConfigDict(
        extra="ignore",
        json_schema_extra={"required": ["sub_agent_todos", "synthesis_directive"]},
    )

    sub_agent_todos: list[Task] = Field(
        default_factory=list, json_schema_extra={"minItems": 1, "maxItems": _MOST_TASKS}
    )
    synthesis_directive: str = Field(default="", json_schema_extra={"maxLength": 800})

    @field_validator("sub_agent_todos", mode="before")
    @classmethod
    def _bare(cls, value: object) -> object:
        if not isinstance(value, list):
            return value
        return [{"task": each} if isinstance(each, str) else each for each in value]

    def tasks(self, question: str) -> tuple[str, ...]:
        """The tasks, none twice; the question itself where there are none."""
        said = (" ".join(todo.task.split()) for todo in self.sub_agent_todos)
        tasks = tuple(dict.fromkeys(task for task in said if task))[:_MOST_TASKS]
        return tasks or (question.strip(),)


def coordinator_messages(question: str) -> list[Message]:
    """The prompt: instruction, question."""
    return [
        Message("system", INSTRUCTION),
        Message("user", f"Question: {escape(question.strip())}"),
    ]


_MANY = 300  # calls from which on they are said beforehand
_NAMED = 3  # failed documents that a warning names


@dataclass(frozen=True)
class SPDRAG:
    """An agent for every document, and a synthesis of what they find.

    A coordinator, who sees the question alone, writes tasks and a directive. For each document in
    view an agent searches inside it, at most `searches` times, and hands in findings with the
    words they rest on. Similar findings are put together, level by level, until one prompt
    holds them all; statements keep their places in the documents throughout. The agents are
    the worker model, coordinator and synthesis the reader.

    An agent that fails is said and sinks no other. Under a token budget, what the synthesis will
    need is kept for it, and documents that were not read are counted. A run that is interrupted
    goes on where it was when it is asked again.

    `documents` takes only so many of the documents in view, the best by a search. `first_search`
    "question" begins each agent with the passages that a search for the question finds.
    `merge_tokens` is what one synthesis may be given, by default three quarters of the reader's
    window. `question_reaches` False gives the agents their tasks alone, and `no_single_synthesis`
    hands out a single document's findings as they are: both as in the released code.
    """

    name: ClassVar[str] = "spd-rag"
    needs: ClassVar[Needs] = Needs()
    calls: ClassVar[Calls] = Calls(2, document=3)

    documents: int | None = None  # the paper: all
    searches: int = 5  # of an agent
    k: int = 5  # passages a search shows
    pool: int = 15  # searched for a reranker
    mode: SearchMode = SearchMode.HYBRID  # the paper: dense
    first_search: Literal["asked", "question"] = "asked"  # question: a call less a document
    concurrency: int = 16  # agents at work, and syntheses
    merge_tokens: int | None = None  # the paper: 750,000 of a million
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
        """Plan, read every document, put together."""
        infos = await self._in_view(question, run)
        if not infos:
            return await read(question, [], run, strategy=self.name, evidence=())
        # Kept before the first call: a run that cannot end is not begun.
        with run.tokens.reserve(await self._synthesis(question, "", run).least(len(infos))):
            plan = await self._plan(question, run, len(infos))
            agents = FanOut(self._agent(question, plan), run, self.concurrency)
            outcomes = await agents.read(infos)
        _say(outcomes, agents.known, run)
        gathered = [
            Gathered(each.findings, each.relevance, each.title)
            for each in outcomes
            if each.findings
        ]
        synthesis = self._synthesis(question, plan.synthesis_directive, run)
        if not gathered:
            answer = await read(question, [], run, strategy=self.name, evidence=())
        elif len(infos) == 1 and self.no_single_synthesis:
            answer = await synthesis.as_found(gathered)
        else:
            silent = [each.title for each in outcomes if each.whole and not each.findings]
            answer = await synthesis.answer(gathered, silent)
        if all(outcome.whole for outcome in outcomes):
            # Else asking again, with more tokens or a server that is up, goes on with the others.
            await agents.forget(infos)
            await asyncio.to_thread(run.store.put, _plan_key(question, run), None)
        return answer

    async def _in_view(self, question: str, run: Run) -> list[DocumentInfo]:
        """The documents to read: all, or the best by a search."""
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
        """The coordinator's; the question itself is the task where it gives none."""
        key = _plan_key(question, run)
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

    def _agent(self, question: str, plan: Todos) -> DocumentAgent:
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

    def _synthesis(self, question: str, directive: str, run: Run) -> Synthesis:
        return Synthesis(
            run=run,
            question=question,
            directive=directive,
            form=self.form,
            merge_tokens=self.merge_tokens,
            concurrency=self.concurrency,
            strategy=self.name,
        )


def _say(outcomes: Sequence[Outcome], known: int, run: Run) -> None:
    """What became of the documents, as far as it is not what was asked for.

    Raises:
        BudgetExceeded, ModelError: none at all could be read.
    """
    of: dict[Status, list[Outcome]] = {status: [] for status in Status}
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


def _in_part(outcomes: Sequence[Outcome]) -> str:
    """How many of them were read up to a point, and what was found till then counts."""
    begun = sum(bool(outcome.findings) for outcome in outcomes)
    return f" to the end ({begun} in part)" if begun else ""


def _plan_key(question: str, run: Run) -> str:
    """SHA-256 of what a plan depends on."""
    reader = run.model(Role.READER)
    made = ["spd-rag plan", VERSION, reader.name, str(getattr(reader, "version", "")), question]
    return hashlib.sha256(json.dumps(made).encode()).hexdigest()
