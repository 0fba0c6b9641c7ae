"""SPD-RAG: one agent per document, findings merged under a token budget.

The method in the order of the paper:

1. Coordinator: from the question q alone, write tasks that any document can be asked and a
   directive for the synthesis (one call).
2. Document agents: for each document d_i an agent searches inside it, at most 5 times, and
   returns findings s_i with their relevance r_i in [0, 1] (`agent.py`). Its first search is for the
   tasks, and a document that is shorter than the evidence of a search is shown whole: both without
   a call.
3. Recursive synthesis: group similar findings under a budget of B tokens, put each group together,
   and repeat until one prompt holds everything; answer from that (`synthesis.py`).
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import ClassVar

from colligate.core.answer import Answer
from colligate.core.apart import WayOfReading, read_ranked, reads_apart, speaks_of_several
from colligate.core.citing import COMPUTED, Place, Stated
from colligate.core.comparing import (
    CitedFigure,
    asks_to_compare,
    find_extreme,
    find_total,
    find_within,
)
from colligate.core.computing import read_value
from colligate.core.events import Noted, pluralize
from colligate.core.lookup import reserve_for_answer
from colligate.core.parameters import require_min
from colligate.core.reader import Form, read
from colligate.core.run import Run
from colligate.core.strategy import Calls, Needs
from colligate.core.units import rank_documents
from colligate.documents import Hit
from colligate.errors import BudgetExceeded, MalformedOutput, ModelError, UsageError
from colligate.library.sources import DocumentInfo, SearchMode
from colligate.models import Role
from colligate.strategies.spd_rag.agent import (
    VERSION,
    AgentOutcome,
    DocumentAgent,
    FanOut,
    FirstSearch,
    Status,
)
from colligate.strategies.spd_rag.events import Planned
from colligate.strategies.spd_rag.prompts import (
    QUESTION_TOKENS,
    Brief,
    FindingGroup,
    Task,
    Todos,
    coordinator_messages,
    question_messages,
)
from colligate.strategies.spd_rag.synthesis import Comparison, Synthesis


@dataclass(frozen=True)
class SPDRAG:
    """An agent for every document, and a synthesis of what they find.

    The agents are the worker model, coordinator and synthesis the reader. An agent that fails is
    reported and stops no other. A part of the token budget is reserved for the synthesis, and
    documents that were not read are counted. An interrupted run resumes when it is asked again.
    With `reading` "apart" the coordinator writes one question for each document, and the findings
    are the answer; their figures are compared if the question asks for the highest, for those
    within a limit or for the sum; another question for one thing is answered from the surest of
    their documents.

    Attributes:
        documents: most documents that get an agent, the best by a search; none: all
        most_calls: calls of the model above which consent is asked for; none: never
        searches: most searches of an agent
        k: most passages that a search shows; none: what fits
        pool: passages that a search gives to the reranker, if there is one; none: 2 k
        evidence_tokens: most tokens that a search shows; none: 1,000 to 5,000, by the worker's
            window
        first_search: an agent begins with a search for its tasks, with one for the question, or is
            asked for a query (asked)
        concurrency: agents, and syntheses, that work at a time
        merge_tokens: most tokens of findings that are joined at once; none: three quarters of the
            reader's window
        plan_tokens: most tokens of the coordinator's reply
        agent_tokens: most tokens of an agent's reply, at most half its window
        answer_tokens: most tokens of each reply of the synthesis; longer answers are written in
            groups
        keep_findings: add the findings that the synthesis leaves out
        reading: together: agents read what a search shows; apart: they judge passages one by one,
            and their findings are the answer; auto: apart if agents and reader are the same small
            model
        question_reaches: show the agents the question, not their tasks alone
        no_single_synthesis: return the findings of a single document unchanged
    """

    name: ClassVar[str] = "spd-rag"
    needs: ClassVar[Needs] = Needs()
    calls: ClassVar[Calls] = Calls(2, document=2)

    documents: int | None = None  # the paper: all
    most_calls: int | None = 1000
    searches: int = 5
    k: int | None = None  # the paper: 5 of 1,000 tokens
    pool: int | None = None  # the paper: 15
    evidence_tokens: int | None = None  # the paper: 5,000
    mode: SearchMode = SearchMode.HYBRID  # the paper: dense
    first_search: FirstSearch = "tasks"  # the paper: asked
    concurrency: int = 16
    merge_tokens: int | None = None  # B; the paper: 750,000 of a million
    plan_tokens: int = 1050
    agent_tokens: int = 2500  # six long findings
    answer_tokens: int = 8000
    keep_findings: bool = True  # the paper: no
    reading: WayOfReading = "auto"  # the paper: together
    form: Form = Form.JOINED

    question_reaches: bool = True  # the code: False
    no_single_synthesis: bool = False  # the code: True

    def __post_init__(self) -> None:
        require_min(self, documents=1, most_calls=1, searches=1, k=1, pool=1, evidence_tokens=1)
        require_min(self, concurrency=1, merge_tokens=1)
        require_min(self, plan_tokens=1, agent_tokens=1, answer_tokens=1)

    async def answer(self, question: str, run: Run) -> Answer:
        """Plan, read every document, put the findings together."""
        infos = await self._list_documents(question, run)
        if not infos:
            return await read(question, [], run, strategy=self.name, evidence=())
        # Reserved before the first call: a run that cannot end is not begun.
        # Findings of agents that read apart are listed without a call.
        reports = 0 if self._reads_apart(run) else len(infos)
        reserve = await self._make_synthesis(question, Brief(), run).estimate_reserve(reports)
        with run.tokens.reserve(reserve):
            plan = await self._plan(question, run, len(infos))
            tasks = plan.tasks(question)
            agents = FanOut(self._make_agent(question, tasks, run), run, self.concurrency)
            outcomes = await agents.read(infos)
        _report(outcomes, agents.known, run)
        gathered = [
            FindingGroup(
                each.findings, each.relevance, each.title, _list_missing(tasks, each.answered)
            )
            for each in outcomes
            if each.findings
        ]
        brief = _make_brief(plan.synthesis_directive, tasks, outcomes)
        synthesis = self._make_synthesis(question, brief, run)
        names = [info.id for info in infos] if self.documents is not None else None
        if not gathered:
            answer = await self._read_best(question, names, run)
        elif self._reads_apart(run) or (len(infos) == 1 and self.no_single_synthesis):
            answer = await self._list(question, outcomes, gathered, synthesis, run)
        else:
            answer = await synthesis.answer(gathered)
            if not answer.found:
                run.warn("the findings do not hold the answer: the best passages are read too")
                again = await self._read_best(question, names, run)
                answer = replace(again, evidence=(*answer.evidence, *again.evidence))
        if all(outcome.whole for outcome in outcomes):
            # Otherwise they stay: asked again, the run reads only the other documents.
            await agents.forget(infos)
            await asyncio.to_thread(run.store.put, self._hash_plan(question, run), None)
        return answer

    async def _list(
        self,
        question: str,
        outcomes: Sequence[AgentOutcome],
        gathered: Sequence[FindingGroup],
        synthesis: Synthesis,
        run: Run,
    ) -> Answer:
        """Return the findings as the answer, compared if the question asks for that; one thing is
        read from the surest passage of their documents."""
        several = len(outcomes) > 1
        compared = await _compare(question, outcomes, run) if several else None
        answer = await synthesis.list_findings(gathered, compared)
        figures = all(read_value(each.short) for each in outcomes if each.findings)
        if several and compared is None and asks_to_compare(question) and figures:
            run.warn("what was found in the documents cannot be compared: it is listed")
        elif several and compared is None and _asks_one_thing(question):
            # At most one of the findings is it; agents see a part of the question each.
            found = [each.document for each in outcomes if each.findings]
            try:
                best = await self._read_best(question, found, run, strict=True)
            except (BudgetExceeded, ModelError) as error:
                run.warn(f"what was found is listed, it may hold more than the answer: {error}")
            else:
                return replace(best, evidence=(*answer.evidence, *best.evidence))
        if silent := synthesis.brief.silent:
            run.warn(f"nothing was found in {_name(silent)}")
        return answer

    async def _read_best(
        self, question: str, names: Sequence[str] | None, run: Run, *, strict: bool = False
    ) -> Answer:
        """Read the best passages of these documents, or of all, as the last resort.

        If they cannot be searched, nothing is found.
        """
        k = max(_LAST_PASSAGES, self.k or 0)
        hits: list[Hit] = []
        with reserve_for_answer(run, lambda: True):
            hits = await run.search(
                question, k=k, pool=self.pool or 2 * k, mode=self.mode, documents=names
            )
        why = "of the search, read last"
        return await read_ranked(
            question,
            hits,
            run,
            strategy=self.name,
            why=why,
            form=self.form,
            reading=self.reading,
            strict=strict,
        )

    async def _list_documents(self, question: str, run: Run) -> list[DocumentInfo]:
        """Return the documents to read: all, or the best by a search."""
        infos = await run.infos()
        if self.documents is not None and self.documents < len(infos):
            best = set(await rank_documents(question, run, self.documents, self.mode))
            run.warn(f"{len(best)} of {len(infos)} documents are read, the best by a search")
            infos = [info for info in infos if info.id in best]
        await self._check_calls(infos, run)
        return infos

    async def _check_calls(self, infos: Sequence[DocumentInfo], run: Run) -> None:
        """Report how many calls a run takes; raise `UsageError` if nobody consents to too many."""
        evidence = self._count_evidence(run)
        short = sum(info.characters <= _CHARACTERS * evidence for info in infos)
        free = self.first_search != "asked"
        about = 2 + short + (len(infos) - short) * (2 if free else 3)
        most = 2 + short + (len(infos) - short) * (self.searches + 1)
        estimate = f"about {about:,}, at most {most:,} model calls"
        reading = f"an agent for each of {pluralize(len(infos), 'document')}"
        too_many = self.most_calls is not None and about > self.most_calls
        if too_many and not await run.consent(f"{reading} takes {estimate}"):
            raise UsageError(
                f"{reading} takes {estimate}",
                f"most_calls is {self.most_calls:,}",
                f"--yes or the parameter most_calls={about} allows them, "
                "the parameter documents=N reads only the N best",
            )
        if most > _MANY:
            run.emit(Noted(f"{reading}: {estimate}"))

    def _count_evidence(self, run: Run) -> int:
        """Return the tokens that a search shows: an eighth of the window, as far as it helps."""
        if self.evidence_tokens is not None:
            return self.evidence_tokens
        window = run.model(Role.WORKER).context_tokens
        least, most = _EVIDENCE
        return most if window is None else max(least, min(most, window // 8))

    def _reads_apart(self, run: Run) -> bool:
        """Return whether the reader reads for the agents, each passage apart.

        With `auto` it does if it is small and agents and reader are the same model.
        """
        same = run.model(Role.WORKER) is run.model(Role.READER)
        return (same or self.reading == "apart") and reads_apart(run, self.reading, self.form)

    async def _plan(self, question: str, run: Run, documents: int) -> Todos:
        """Ask the coordinator; if it gives no task, the question is the task."""
        key = self._hash_plan(question, run)
        kept = await asyncio.to_thread(run.store.get, key)
        if kept is not None:
            plan = Todos.model_validate(kept)
        else:
            plan = await self._ask_coordinator(question, run)
            await asyncio.to_thread(run.store.put, key, plan.model_dump())
        run.emit(
            Planned(plan.tasks(question), plan.synthesis_directive, documents, kept is not None)
        )
        return plan

    def _hash_plan(self, question: str, run: Run) -> str:
        """Return the SHA-256 of what a plan depends on."""
        reader = run.model(Role.READER)
        version, apart = str(getattr(reader, "version", "")), self._reads_apart(run)
        made = ["spd-rag plan", VERSION, reader.name, version, apart, question]
        return hashlib.sha256(json.dumps(made).encode()).hexdigest()

    async def _ask_coordinator(self, question: str, run: Run) -> Todos:
        if self._reads_apart(run):
            reply = await run.chat(question_messages(question), max_tokens=QUESTION_TOKENS)
            line = reply.text.strip().partition("\n")[0]
            return Todos(sub_agent_todos=[Task(task=line)])
        try:
            asked = run.structured(
                coordinator_messages(question), Todos, max_tokens=self.plan_tokens
            )
            return (await asked).value
        except MalformedOutput as error:
            run.warn(f"the question is not split into tasks, every agent gets it whole: {error}")
            return Todos()

    def _make_agent(self, question: str, tasks: tuple[str, ...], run: Run) -> DocumentAgent:
        window = run.model(Role.WORKER).context_tokens
        return DocumentAgent(
            tasks=tasks,
            question=question,
            question_reaches=self.question_reaches,
            searches=self.searches,
            k=self.k,
            pool=self.pool,
            mode=self.mode,
            evidence_tokens=self._count_evidence(run),
            tokens=self.agent_tokens if window is None else min(self.agent_tokens, window // 2),
            first_search=self.first_search,
            apart=self._reads_apart(run),
        )

    def _make_synthesis(self, question: str, brief: Brief, run: Run) -> Synthesis:
        return Synthesis(
            run=run,
            question=question,
            brief=brief,
            form=self.form,
            merge_tokens=self.merge_tokens,
            answer_tokens=self.answer_tokens,
            keep_findings=self.keep_findings,
            concurrency=self.concurrency,
            strategy=self.name,
        )


_MANY = 300  # calls that are reported before they are made
_NAMED = 3  # documents that a warning names
_EVIDENCE = 1000, 5000  # tokens of a search: 5 passages of ours, and of the paper
_CHARACTERS = 4  # of a token, to estimate which documents are shown whole
_LAST_PASSAGES = 10  # read where no agent found anything
_ASKS = re.compile(r"\b(?:who(?:m|se)?|what|when|where|which|how)\b", re.I)
_ONE_IN_S = "series|species|news|gas|lens|atlas|canvas|alias|bias|was|has|does"  # no plurals
_THINGS = rf"(?!(?:{_ONE_IN_S})\b)[a-z]+[^isu\W\d]s\b"
# "The stations", "In which stations", "Which people have", "Who were", "What large risks do".
_PLURAL = re.compile(
    rf"\bthe {_THINGS}|^\W*(?:\w+ )?(?:Which {_THINGS}(?! (?:is|was|has|does)\b)|which {_THINGS}"
    r"|[Ww]hich (?:[a-z]+ )?(?:are|were|have)\b|[Ww]h(?:at|o) (?:are|were)\b|[Ww]h(?:at|ich) "
    rf"(?:(?!of\b)[\w-]+ ){{0,2}}{_THINGS} (?:are|were|have|do|did|must|may|can)\b)"
)
_COUNTS = re.compile(r"\W*how many of (?:these|those|the|my|our|your)\b", re.IGNORECASE)


def _asks_one_thing(question: str) -> bool:
    """Return whether an English question has no word for several things, and no plural that asks
    for them."""
    several = speaks_of_several(question) or _PLURAL.search(question)
    return bool(_ASKS.search(question)) and not several


async def _compare(question: str, outcomes: Sequence[AgentOutcome], run: Run) -> Comparison | None:
    """Compare the figures that were found, if the question asks for the largest or latest, for
    those within a limit, or for their sum."""
    told = [each for each in outcomes if each.findings]
    figures, places = [], []
    for each in told:
        document, span = await run.document(each.document), each.findings[0].places[0].span
        figures.append(CitedFigure(each.short, document.slice(span), document.table_unit(span)))
        places.append(Place(span, COMPUTED))
    among = f"of what was found in {len(told)} of {pluralize(len(outcomes), 'document')}"
    whole = len(told) == len(await run.infos())
    if extreme := find_extreme(question, figures):
        place, what = extreme
        short, only = told[place].title, tuple(range(len(told)))
        line = f"{short}: {told[place].short} is the {what} {among}."
    elif within := find_within(question, figures, date.today()):
        named, limit, others = within
        only = tuple(named or range(len(told)))
        titles = [told[at].title for at in named]
        short = "; ".join(titles)
        line = f"{limit[0].upper()}{limit[1:]}: {_name(titles) or 'none'} ({among})."
        whole = whole and not others
        if whole and _COUNTS.match(question):
            short = str(len(named))
            line = f"{short} of {len(told)}: {line}"
        if others:
            left_out = _name([told[n].title for n in others])
            run.warn(f"not compared, since their figures are of another kind: {left_out}")
    elif total := find_total(question, figures):
        short, only = total, tuple(range(len(told)))
        line = f"{total} is the sum {among}."
    else:
        return None
    return Comparison(Stated(line, tuple(places)), short if whole else "", only)


def _list_missing(tasks: Sequence[str], answered: Sequence[int]) -> tuple[int, ...]:
    """Return the numbers of the other tasks; none if the findings do not say what they answer."""
    return tuple(n for n in range(1, len(tasks) + 1) if n not in answered) if answered else ()


def _make_brief(directive: str, tasks: tuple[str, ...], outcomes: Sequence[AgentOutcome]) -> Brief:
    """Return what the synthesis is given beside the findings."""
    silent = tuple(each.title for each in outcomes if each.whole and not each.findings)
    sure = all(each.answered for each in outcomes if each.findings)
    answered = {number for each in outcomes for number in each.answered}
    unanswered = _list_missing(tasks, tuple(answered)) if sure else ()
    return Brief(directive, tasks, silent, unanswered)


def _report(outcomes: Sequence[AgentOutcome], known: int, run: Run) -> None:
    """Warn of documents that were not read completely."""
    of: dict[Status, list[AgentOutcome]] = {status: [] for status in Status}
    for outcome in outcomes:
        of[outcome.status].append(outcome)
    unread, total = of[Status.UNREAD], len(outcomes)
    failed = [*of[Status.FAILED], *of[Status.MALFORMED]]
    if known:
        run.emit(Noted(f"{known} of {total} documents were read before the interruption"))
    if unread:
        run.warn(
            f"{len(unread)} of {total} documents were not read{_in_part(unread)}: "
            "the token budget is spent"
        )
    if failed:
        named = _name([f"{each.title!r}: {each.problem}" for each in failed])
        run.warn(f"{len(failed)} of {total} documents could not be read{_in_part(failed)}: {named}")
    if of[Status.EMPTY]:
        run.warn(f"{len(of[Status.EMPTY])} of {total} documents have no passage to read")


def _name(texts: Sequence[str]) -> str:
    """Return the first texts, and how many more there are."""
    more = f"; and {len(texts) - _NAMED} more" if len(texts) > _NAMED else ""
    return "; ".join(texts[:_NAMED]) + more


def _in_part(outcomes: Sequence[AgentOutcome]) -> str:
    """Return how many of them still have findings, as text."""
    begun = sum(bool(outcome.findings) for outcome in outcomes)
    return f" to the end ({begun} in part)" if begun else ""
