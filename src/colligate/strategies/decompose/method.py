"""Decompose: split a question into simple ones, look each up, and fill its answer into later ones.

Ours. For a chain ("When was the director of Silver Harbour born?") the last answer is the answer,
and the earlier ones support it. What two chains found is compared by value (`compare`), or the
question is answered from what all of them found; where one breaks off, from its own search too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from colligate.core.answer import (
    COMPUTED,
    NOT_FOUND,
    Answer,
    Evidence,
    Form,
    Place,
    Stated,
    split_answer,
)
from colligate.core.events import Event
from colligate.core.parameters import require_min
from colligate.core.prompts import enclose
from colligate.core.run import Run, Shown, show_ranked
from colligate.core.strategy import Calls, Needs
from colligate.documents import Span
from colligate.errors import BudgetExceeded, ModelError
from colligate.library.sources import SearchMode
from colligate.models import Capability, Role
from colligate.readers.citing import documents_of, finish, write_answer, write_checked
from colligate.readers.lookup import reserve_for_answer
from colligate.strategies.decompose.comparing import End, compare
from colligate.strategies.decompose.prompts import (
    EXAMPLES,
    PLAN_TOKENS,
    check_plan,
    fill_step,
    find_root,
    list_references,
    plan_messages,
    read_lines,
)

_SHOTS = 5


@dataclass(frozen=True)
class QuestionSplit(Event):
    """The question was split into simple ones; "#1" stands for the answer of the first."""

    questions: tuple[str, ...]

    def line(self) -> str:
        return f"plan: {' '.join(self.questions)}"


@dataclass(frozen=True)
class StepAnswered(Event):
    """Simple question `number`, from 1, was looked up; `answer` is empty if nothing was found."""

    number: int
    question: str
    answer: str
    spans: tuple[Span, ...]

    def line(self) -> str:
        return f"step {self.number}: {self.question} {self.answer or NOT_FOUND}"


@dataclass(frozen=True)
class Decompose:
    """Split the question into simple ones that are looked up one after the other.

    Attributes:
        steps: most simple questions
        pool: passages that a search gives to the reranker, if there is one
        k: passages that are read for each question
    """

    name: ClassVar[str] = "decompose"
    needs: ClassVar[Needs] = Needs(reranker="minilm")
    calls: ClassVar[Calls] = Calls(5)

    steps: int = 5  # as many as DualRAG's rounds
    pool: int = 50
    k: int = 6  # docs/decisions/0029-decompose.md
    mode: SearchMode = SearchMode.HYBRID
    form: Form = Form.JOINED

    def __post_init__(self) -> None:
        require_min(self, steps=1, pool=1, k=1)

    async def answer(self, question: str, run: Run) -> Answer:
        """Split the question, look up each step, and put the answers together."""
        if not any(info.passages for info in await run.sources.documents()):
            return await run.read(question, [], form=self.form)
        with run.meter.step("planner"):
            plan = await split_question(question, run, self.steps)
        run.emit(QuestionSplit(tuple(plan)))
        if len(plan) == 1:
            answer = await self._look_up(plan[0], run, self.form)
            return replace(answer, question=question)
        taken = await self._take(plan, run)
        if len(taken) < len(plan):
            return await self._read_on(question, taken, run)
        referred = {number for step in plan for number in list_references(step)}
        ends = [number for number in range(1, len(plan) + 1) if number not in referred]
        if len(ends) == 1:  # every step but the last leads to another
            return await _conclude(question, taken, run)
        if len(ends) == 2 and (short := await _compare(question, plan, taken, ends, run)):
            return await _conclude(question, taken, run, short, ends)
        return await self._read_together(question, taken, run)

    async def _take(self, plan: Sequence[str], run: Run) -> list[Answer]:
        """Return the answers of the steps, up to the first that has none."""
        taken: list[Answer] = []
        referred = {number for step in plan for number in list_references(step)}
        with reserve_for_answer(run, lambda: taken):
            for number, step in enumerate(plan, 1):
                asked = fill_step(step, [each.short or "" for each in taken])
                answer = await self._look_up(asked, run, Form.SHORT)
                spans = tuple(citation.span for citation in answer.citations)
                said = answer.short or (answer.text if answer.found else "")
                run.emit(StepAnswered(number, asked, said, spans))
                if not answer.found or (number in referred and not answer.short):
                    break
                taken.append(answer)
        return taken

    async def _look_up(self, question: str, run: Run, form: Form) -> Answer:
        hits = await run.search(question, k=self.k, pool=self.pool, mode=self.mode)
        why = f"of the search for “{question}”"
        with run.meter.step("answer"):
            return await run.read(question, show_ranked(hits, why), form=form)

    async def _read_together(self, question: str, taken: Sequence[Answer], run: Run) -> Answer:
        """Answer from the passages behind the answers, which are notes."""
        said = (
            f"{at}. {each.question} {each.short or each.text}" for at, each in enumerate(taken, 1)
        )
        stated = [each for answer in taken for each in split_answer(answer)]
        with run.meter.step("answer"):
            return await run.read(
                question,
                await _show(taken, run),
                form=self.form,
                known=list(dict.fromkeys(stated)),
                notes=enclose("notes", "\n".join(said)),
            )

    async def _read_on(self, question: str, taken: Sequence[Answer], run: Run) -> Answer:
        """Answer from the passages behind the answers, then those of the question's own search."""
        shown = await _show(taken, run)
        with reserve_for_answer(run, lambda: shown):
            hits = await run.search(question, k=self.k, pool=self.pool, mode=self.mode)
            known = {each.passage for each in shown}
            found = show_ranked(hits, "of the search for the question")
            shown += [each for each in found if each.passage not in known]
        best = [replace(each, score=1 / rank) for rank, each in enumerate(shown[: self.k], 1)]
        with run.meter.step("answer"):
            return await run.read(question, best, form=self.form)


async def split_question(question: str, run: Run, most: int) -> list[str]:
    """Return the simple questions that a question is split into; itself if it cannot be split.

    The model is shown the examples that are likest by the run's embedder, the likest last.
    """
    examples = EXAMPLES
    if run.embedder is not None:
        vectors = await run.embed([question, *(asked for asked, _ in EXAMPLES)])
        likest = (vectors[1:] @ vectors[0]).argsort()
        examples = tuple(EXAMPLES[place] for place in likest)
    messages = plan_messages(question, examples[-_SHOTS:])
    reply = await run.chat(messages, max_tokens=PLAN_TOKENS)
    return check_plan(read_lines(reply.text), question, most)


async def _compare(
    question: str, plan: Sequence[str], taken: Sequence[Answer], ends: Sequence[int], run: Run
) -> str:
    """Return what `compare` tells of two chains; nothing without label odds or if it fails."""
    if Capability.LABELS not in run.model(Role.READER).capabilities:
        return ""
    one, other = (
        End(
            taken[find_root(plan, number) - 1].question,
            taken[number - 1].question,
            taken[number - 1].short or "",
        )
        for number in ends
    )
    try:
        with run.meter.step("compare"):
            return await compare(question, one, other, run)
    except (BudgetExceeded, ModelError) as error:
        run.warn(f"what was looked up is not compared: {error}")
        return ""


async def _conclude(
    question: str, taken: Sequence[Answer], run: Run, short: str = "", ends: Sequence[int] = ()
) -> Answer:
    """Return the last step's answer after the statements of the steps that lead to it.

    With `ends`, the numbers of two steps, it is what follows from comparing them: `short`.
    """
    stated: dict[Stated, None] = {}
    compared: dict[Place, None] = {}
    for number, answer in enumerate(taken, 1):
        for each in split_answer(answer):
            if number in ends:
                each = replace(each, places=tuple(replace(p, how=COMPUTED) for p in each.places))
                compared |= dict.fromkeys(each.places)
            stated[each] = None
    if not stated:  # a reader that cites nothing
        last = taken[-1]
        said = short or last.text
        return replace(last, question=question, text=said, short=short or last.short)
    if compared:
        told = Stated(f"{short}.", tuple(compared))
        cited = write_answer([*stated, told], await documents_of(list(stated), run))
        cited = replace(cited, short=short)
    else:
        cited = await write_checked(question, list(stated), run, taken[-1].short or "")
    evidence = tuple(_find_evidence(taken))
    return finish(Answer(question, "", NOT_FOUND, False, evidence=evidence), cited, run)


async def _show(taken: Sequence[Answer], run: Run) -> list[Shown]:
    return [
        Shown((await run.document(e.span.document_id)).passage(e.span), e.score, e.reason)
        for e in _find_evidence(taken)
    ]


def _find_evidence(taken: Sequence[Answer]) -> list[Evidence]:
    """Return the passages that the answers cite, each once; all if the reader cites nothing."""
    found: dict[Span, Evidence] = {}
    for answer in taken:
        for each in answer.evidence:
            cited = answer.citations
            if not cited or any(each.span.contains(citation.span) for citation in cited):
                found.setdefault(each.span, each)
    return list(found.values())
